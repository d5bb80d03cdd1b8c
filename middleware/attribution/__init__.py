"""Pure: the observations of one trial -> verdict. No clock, no I/O, no state between trials.

A fact is not a fault: what ended the trial, whether it changed the outcome, and whose doing it was are three answers.
docs/definition.md says in one page what is called an infra error here.
"""
