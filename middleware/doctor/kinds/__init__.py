"""Kinds of files, one file each: `recognises` says whether a document is one, `read` what it declares.

A new kind is one file and one line in `KINDS`; the first that recognises a document reads it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fairtrial.middleware.doctor.declared import Declared
from fairtrial.middleware.doctor.kinds import compose, harbor, kubernetes, workflows

Document = Mapping[str, Any]

KINDS: Final[Mapping[str, tuple[Callable[[str, Document], bool], Callable[[Document], list[Declared]]]]] = {
    "Harbor task": (harbor.is_task, harbor.read_task),
    "Harbor job": (harbor.is_job, harbor.read_job),
    "Kubernetes": (kubernetes.recognises, kubernetes.read),
    "compose": (compose.recognises, compose.read),
    "GitHub workflow": (workflows.is_github, workflows.read_github),
    "GitLab CI": (workflows.is_gitlab, workflows.read_gitlab),
}
"""What a file is called -> (whether it is one, by its name and document; what it declares)."""
