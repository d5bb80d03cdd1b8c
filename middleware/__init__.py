"""Three floors of one house: the core below, the app on top, the rooms between.

`collectors -> middleware.core` and `middleware.observer -> collectors` are no cycle: they are different floors. Who may
import whom is one contract in pyproject.toml (lint-imports).

core        the words and records that everybody uses; imports nothing of ours
wire        bytes in, events out; no I/O
steps       observations -> attempts, calls, steps; pure
store       the SQLite file
relay       the relay process: the only code that touches the agent's traffic
attribution observations of a trial -> verdict; pure
demo        the stand-in model server and the scripted agent
harnesses   a harness's own results -> outcome per trial
analysis    statistics over many trials
report      a trial or run -> text
observer    parts of the observer processes
doctor      what this machine can see; what files declare of resources
app.py      the observer process of `run`, put together; sidecar.py: that of `serve`
cli         the commands
"""
