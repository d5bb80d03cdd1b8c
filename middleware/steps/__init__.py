"""Pure: which trial an observation belongs to, which attempts are one call, which calls open a step.

In: observations of one trial, in any order, with duplicates. Out: the steps of RECORDS.md. No judgement is made here.
"""
