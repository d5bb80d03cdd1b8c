"""Causes: what whoever runs the trial has set: keys, money, addresses, a stop.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import DOOR, PROVED, O, cause

OPERATOR: Final = (
    cause(
        "operator.auth",
        "operator",
        (O,),
        PROVED,
        "The credentials were not accepted ({failure}): {attempts} to get step {step}'s reply failed ({statuses}).",
        "Put a valid key into the environment of the command, then run the trial again.",
        note="401, 403, 407",
        sources=DOOR,
        built=True,
    ),
    cause(
        "operator.budget",
        "operator",
        (O,),
        PROVED,
        "A spending limit stopped the call for step {step}'s reply ({statuses}).",
        "Raise the spending limit, then run the trial again.",
        sources=DOOR,
        built=True,
    ),
    cause(
        "operator.quota",
        "operator",
        (O,),
        PROVED,
        "The account's quota or credit was used up ({statuses}) at the call for step {step}'s reply.",
        "Add credit or wait for the quota, then run the trial again.",
        note="402, or 429 that names a quota or credit",
        sources=DOOR,
        built=True,
    ),
    cause(
        "operator.policy",
        "operator",
        (O,),
        PROVED,
        "A policy of the operator stopped the trial.",
        "Change the policy, or leave the task out.",
    ),
    cause(
        "operator.endpoint",
        "operator",
        (O,),
        PROVED,
        "No model API answered at {upstream} in this trial ({failure}): {attempts} to get step {step}'s reply failed "
        "within {seconds}.",
        "Check the address in the base URL (host, port, path) and that this machine can reach it.",
        note="an upstream that never sent a response head in this run, or 404 for the path",
        sources=DOOR,
        built=True,
    ),
    cause(
        "operator.cancelled",
        "operator",
        (O,),
        PROVED,
        "Somebody sent {signal} to fairtrial, which passed it on to the command.",
        "Run the trial again if that was not meant to judge it.",
        note="suspected: a process of the same user could have sent it",
        sources=("run",),
        built=True,
    ),
)
