"""The page's words around its tables; every sentence is something that was seen."""

from __future__ import annotations

HEAD = """\
# What harnesses book, and what fairtrial says

Made by runs, not by hand: `make harnesses` (`tests/e2e/harness_table.py`). Each row is one run of the real harness
under `fairtrial run`, offline, against the stand-in model server; afterwards its own files came in with
`fairtrial import`. *exit* is the harness's exit status, *booked* its own word and reward, *joined* how its record was
tied to the observed trial.

*verdict* and *ended by* answer different questions: whose doing the failure was, and which outside event ended the
trial, whoever is to blame. A fault of the API sits on the call after the first tool result: step 2.

The verdicts of all set-ups; a dash does not apply, and its section says why.
"""

HIDES = (
    "- **mini-swe-agent** has no verifier: `Submitted` is no score, and its exit status is 0 also at a limit. Calls that",
    "  were tried again leave no trace in the trajectory.",
)

FOOT = """\
An oracle asks no model: of such a trial nothing but the harness's word and the counters of its containers is known, and
its verdict is indeterminate unless an outside event says more.
"""
