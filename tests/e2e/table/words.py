"""The page's words around its tables; every sentence is something that was seen in the runs."""

from __future__ import annotations

HEAD = """\
# What harnesses book, and what fairtrial says

Made by runs, not by hand: `make harnesses` (`tests/e2e/harness_table.py`). Each row is one run of the real harness
under `fairtrial run`, offline, against the stand-in model server; afterwards its own files came in with
`fairtrial import`. *exit* is the harness's exit status, *booked* its own word and reward, *joined* how its record was
tied to the observed trial.

*verdict* and *ended by* answer different questions: whose doing the failure was, and which outside event ended the
trial, whoever is to blame. A fault of the API sits on the call after the first tool result: step 2. A kill for memory
is *suspected* as long as nobody has shown whose demand it was.

The verdicts of all set-ups; a dash does not apply, and the set-up's own section says why.
"""

HIDES = (
    """\
- **mini-swe-agent** has no verifier: `Submitted` is no score, and its exit status is 0 also at a limit. A command that
  was killed for memory stands there as `"returncode": 137` without a word of memory, four times in a row in a full box.
  A cut reply is booked as `InternalServerError`. Calls that were tried again leave no trace. Its trajectory is written
  anew at each step: of a mini that was killed itself a whole file is left, without a status.""",
    """\
- **Claude Code** shows an API error as an answer, and its command's kill as a tool result that it may talk about: its
  own word is `success`. Recovered retries stand in stream-json only (`api_retry`), never in a transcript. A stream
  without a `result` line was killed, or still runs.""",
    "- **A plain exit code** says that a command ended, and no more.",
    """\
- **Harbor** exits 0 whatever its trials came to, and counts a reward beside an exception by its own policy table
  (`reward_valid`): an agent CLI that was killed for memory while its command went on is booked with reward 1. A
  terminus-2 whose tmux was killed is booked with reward 0 and no exception; only `trial.log` says that the session has
  ended. An API that is overloaded until the agent's time is over is an `AgentTimeoutError`: no file of the trial holds
  the 529. A kill in the verifier is a reward of 0. Harbor deletes a failed attempt that it tries again with all its
  files, so `fairtrial run` keeps those (`store.keep_limit_bytes`).""",
    """\
- **terminus-2** asks a request that is refused as too long again and again, with a summary in between that succeeds:
  200 calls within 40 s, until the time was over.""",
    """\
- **Inspect** books a killed command as a wrong answer, without an error. The JSON log of one that was killed itself
  says `started` and holds no sample.""",
)

FOOT = """\
An oracle asks no model: of such a trial nothing but the harness's word and the counters of its containers is known, and
its verdict is indeterminate unless an outside event says more. A kill for memory in it suspects the task, whose own
solution did not fit.
"""
