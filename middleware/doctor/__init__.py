"""`fairtrial doctor`: what can be seen on this machine and what `run` would change; what files declare of resources.

| module | what it holds |
|---|---|
| `screen` | everything that is looked at, in order |
| `sight` | the place in one line |
| `machine`, `engine`, `network`, `settings`, `agent` | one look each |
| `findings` | a line of the screen |
| `files` | files of a project: floor, ceiling, headroom, time limits of each task, service, pod and job |
| `declared`, `quantities` | what a file declares, and what is wrong with it |
| `kinds` | one file a kind of file |

It changes nothing: no door stays open, no variable is set, nothing is written but a probe file, removed at once.
"""

from fairtrial.middleware.doctor.findings import Finding, print_findings
from fairtrial.middleware.doctor.screen import examine

__all__ = ["Finding", "examine", "print_findings"]
