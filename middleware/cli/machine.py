"""Commands about this machine: `doctor`, `config show`, `--version`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairtrial import __version__
from fairtrial.middleware.cli.base import (
    MACHINE,
    JsonOption,
    app,
    config_app,
)
from fairtrial.middleware.core.config import (
    Effective,
    Setting,
    config_path,
    describe,
    mistyped,
    read_sources,
)
from fairtrial.middleware.core.config import load as load_settings
from fairtrial.middleware.core.errors import ConfigError
from fairtrial.middleware.report.words import printable


@app.command(rich_help_panel=MACHINE, context_settings={"ignore_unknown_options": True})
def doctor(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND…|PATH…]",
            help="The command that you want to run under fairtrial, as you would type it; or files and folders "
            "(task.toml, compose, Kubernetes, workflows).",
        ),
    ] = None,
    from_container: Annotated[
        str | None,
        typer.Option(
            "--from-container",
            metavar="IMAGE",
            help="Prove, with a container from IMAGE, that it reaches a model door.",
        ),
    ] = None,
    container_network: Annotated[
        str | None, typer.Option("--container-network", help="With --from-container: the network it is put on.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """What fairtrial can see on this machine, and what `run` would change:  fairtrial doctor claude -p x

    With files: floor, ceiling, headroom and time limits, and what is unfair about them:  fairtrial doctor tasks/
    """
    if from_container is not None:
        from fairtrial.middleware.doctor.container import prove

        proof = prove(dict(os.environ), from_container, container_network)
        print(json.dumps(asdict(proof), indent=2) if as_json else proof.line)
        return 0 if proof.state == "ok" else 1
    from fairtrial.middleware.doctor import examine, print_findings
    from fairtrial.middleware.doctor.files import examine_files, looks_like_files, print_files

    if looks_like_files(command or []):
        reports = examine_files(command or [])
        if as_json:
            print(json.dumps([report.record() for report in reports], indent=2))
        else:
            print_files(reports)
        return 1 if not reports or any(report.problem is not None for report in reports) else 0
    findings = examine(dict(os.environ), command or [])
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print_findings(findings)
    return 0


@config_app.command("show")
def config_show(
    file: Annotated[Path | None, typer.Option("--config", help="Another file than $FAIRTRIAL_CONFIG.")] = None,
) -> int:
    """Print every setting in force as TOML, secrets masked, and where it came from."""
    environ = dict(os.environ) if file is None else {**os.environ, "FAIRTRIAL_CONFIG": str(file.absolute())}
    path = config_path(environ)
    failure: ConfigError | None = None
    try:
        effective = read_sources(environ, {})
    except ConfigError as error:
        failure, effective = error, Effective(load_settings({}, {}, {}), {})
    state = "" if os.path.exists(path) else " (not there)"
    print(f"# {printable(path)}{state}")
    for sentence in mistyped(os.environ):
        print(f"# {printable(sentence)}")
    if failure is not None:
        print(f"# Not in force: {printable(str(failure))}")
        print("# These are the defaults.")
    print("\n".join(_settings_lines(describe(effective), path)))
    if failure is not None:
        print(f"fairtrial: {failure}", file=sys.stderr)
        return failure.exit_code
    return 0


def _settings_lines(settings: list[Setting], file: str) -> Iterator[str]:
    """TOML: keys without a section first, since they could not stand below one."""
    section = ""
    for setting in sorted(settings, key=lambda setting: "." in setting.key):
        table, _, leaf = setting.key.rpartition(".")
        if table != section:
            section = table
            yield f"\n[{section}]"
        source = {None: "default", file: "from this file"}.get(setting.source, f"from {setting.source}")
        value = "# " + leaf + " is unset" if setting.value is None else f"{leaf} = {_toml(setting.value)}"
        yield f"{value}   # {source}. {setting.doc}"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{json.dumps(str(name))} = {json.dumps(str(item))}" for name, item in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    # JSON's texts, numbers and booleans are TOML's as well.
    return json.dumps(value)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"fairtrial {__version__}")
        raise typer.Exit
