"""The demo's six trials: what the scripted model does, what breaks, and what fairtrial ought to say.

In: nothing.  Out: `TRIALS`.  Two of them are *model* failures that look like the infrastructure's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import Step, say, shell


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTrial:
    """One row of the demo's table.  `expected` is (blame, grade, cause), written down before it ran."""

    name: str
    what: str
    steps: Sequence[Step]
    faults: Sequence[Fault] = ()
    needs_ceiling: bool = False
    expected: tuple[str, str | None, str | None]


TRIALS: Final = (
    DemoTrial(
        name="oom-kill",
        what="a tool call is killed at the memory ceiling and the agent gives up",
        steps=(shell("tail /dev/zero"), say("The command died; I can not go on.")),
        needs_ceiling=True,
        expected=("infra", "suspected", "container.oom_kill"),
    ),
    DemoTrial(
        name="cut-stream",
        what="the provider cuts the second answer in the middle, status 200",
        steps=(shell("echo hello"), shell("touch answer"), say("Done.")),
        faults=(Fault(kind="cut", step=1, attempts=None, after_events=3),),
        expected=("infra", "proved", "model_api.truncated"),
    ),
    DemoTrial(
        name="529-storm",
        what="the provider is overloaded and stays so",
        steps=(shell("echo hello"), shell("touch answer"), say("Done.")),
        faults=(Fault(kind="http", step=1, attempts=None, status=529),),
        expected=("infra", "proved", "model_api.overloaded"),
    ),
    DemoTrial(
        name="oom-harmless",
        what="a tool call is killed at the ceiling, a leaner one then does the job",
        steps=(shell("tail /dev/zero"), shell("touch answer"), say("Done.")),
        needs_ceiling=True,
        expected=("none", None, None),
    ),
    DemoTrial(
        name="own-kill-9",
        what="the model's command kills itself with signal 9 (exit 137, as after an OOM)",
        steps=(shell("kill -9 $$"), say("Done.")),
        expected=("model", None, None),
    ),
    DemoTrial(
        name="printed-words",
        what='the model\'s command prints "Killed" and "API Error: Overloaded"',
        steps=(shell("echo Killed; echo 'API Error: Overloaded'; exit 137"), say("The server killed it. Done.")),
        expected=("model", None, None),
    ),
)
