"""Which settings are in force, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fairtrial.middleware.core import config
from fairtrial.middleware.core.errors import ConfigError
from fairtrial.middleware.doctor.findings import Finding
from fairtrial.middleware.report.words import plural


def settings_in_force(environ: Mapping[str, str]) -> tuple[config.Config, list[Finding]]:
    path = config.config_path(environ)
    findings = [Finding("settings", "partial", sentence) for sentence in config.mistyped(environ)]
    try:
        effective = config.read_sources(environ, {})
    except ConfigError as error:
        findings.append(Finding("settings", "no", f"{error.what} `run` would use the defaults", error.remedy))
        return config.load({}, {}, {}), findings
    there = path if os.path.exists(path) else f"no {path}"
    given = f"{plural(len(effective.sources), 'setting')} given" if effective.sources else "all as by default"
    findings.insert(0, Finding("settings", "ok", f"{given} ({there}); `fairtrial config show` lists them"))
    return effective.config, findings
