"""Everything that the doctor looks at, in the order of the screen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairtrial.middleware.core import config
from fairtrial.middleware.doctor import agent, engine, machine, network, settings
from fairtrial.middleware.doctor.findings import Finding
from fairtrial.middleware.doctor.sight import sight


def examine(environ: Mapping[str, str], command: Sequence[str]) -> list[Finding]:
    """Look at everything; the place in one line comes first, right behind who speaks.

    Raises `UsageError` at once for a command that could not be started.
    """
    agent.require(environ, command)
    in_force, about_settings = settings.settings_in_force(environ)
    own = machine.own_cgroup(Path("/proc"))
    looked = [
        *about_settings,
        *machine.ports(),
        machine.store(Path(config.store_path(in_force, environ, os.getcwd()))),
        machine.cgroup_finding(own),
        machine.host_kills(Path("/proc/vmstat")),
        machine.kernel_log(),
        machine.clock(),
        engine.docker(environ),
        network.otlp(environ),
        *network.proxies(environ),
        *network.certificates(environ),
        *agent.command_finding(environ, command),
        *agent.changes(environ, in_force, command),
    ]
    return [machine.program(), sight(environ, own, looked), *looked]
