"""What a run has to know before its doors open, gathered and checked.

In: `RunOptions` and the environment as the user has it.  Out: a `Prepared` run, with its folder made.  What cannot be
used is a `FairtrialError`; what is only a pity is a `Note`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from fairtrial.middleware.core import clock, config, ids
from fairtrial.middleware.core.errors import ConfigError, StoreError
from fairtrial.middleware.core.masking import mask_command, mask_url
from fairtrial.middleware.relay import docker_upstream, environment, runtime_dir, settings_files
from fairtrial.middleware.relay.environment import EnvironmentPlan, Note, TraceContext, Wishes
from fairtrial.middleware.relay.runopts import RunOptions
from fairtrial.middleware.relay.settings_files import Findings

_MAX_LINKS: Final = 40
"""As many as the kernel follows."""
_MAX_COMMAND_WORDS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run that is ready to open its doors.  `environ` is the user's, unchanged."""

    options: RunOptions
    config: config.Config
    environ: Mapping[str, str]
    mask: Collection[int]
    cwd: str
    began: clock.Instant
    trial: str
    run: str | None
    token: str
    control_token: str | None
    trace: TraceContext
    runtime: runtime_dir.RuntimeDir
    store: str
    docker: docker_upstream.DockerUpstream
    findings: Findings
    plan: EnvironmentPlan
    notes: tuple[Note, ...] = field(default=())

    @property
    def network(self) -> Mapping[str, str]:
        """The environment with the proxy and the certificates that the agent's own settings give it."""
        return {**self.environ, **self.findings.network}

    @property
    def writes_json(self) -> bool:
        """Whether the record must be written by this process: to its standard output, a descriptor, a pipe or a device.

        The observer holds none of our descriptors, so `/dev/stdout` or `/dev/fd/63` mean something else there.
        """
        path = self.json_target
        if path is None:
            return False
        if path == "-" or path.startswith(("/dev/", "/proc/")):
            return True
        try:
            return not stat.S_ISREG(os.stat(path).st_mode)
        except OSError:
            return False

    @property
    def json_target(self) -> str | None:
        """What `--json` names, links followed up to `/dev/` or `/proc/`, whose own links mean this very process."""
        path = self.options.json
        if path in (None, "-"):
            return path
        path = os.path.join(self.cwd, path)
        for _ in range(_MAX_LINKS):
            if path.startswith(("/dev/", "/proc/")):
                break
            try:
                path = os.path.join(os.path.dirname(path), os.readlink(path))
            except OSError:
                break
        return path

    def hello(self) -> dict[str, object]:
        """What the observer is told, but for the doors (`core/hello.py` reads it)."""
        options = self.options
        keep_text = self.config.privacy.content
        return {
            "protocol": 1,
            "pid": os.getpid(),
            "wall_ns": self.began.wall_ns,
            "mono_ns": self.began.mono_ns,
            "boot_ns": self.began.mono_ns + clock.suspended_ns(),
            "oom_kill_at_start": oom_kills(),
            "trial": self.trial,
            "name": options.name,
            "run": self.run,
            "task": options.task,
            "try": options.try_,
            "command": mask_command(options.command[:_MAX_COMMAND_WORDS], keep_text=keep_text),
            "store": self.store,
            "json": "-" if self.writes_json else self.json_target,
            "trace_id": self.trace.trace_id,
            "root_span_id": self.trace.root_span_id,
            "parent_span_id": self.trace.parent_span_id,
            "tokens": {self.token: self.trial},
            "control": self.control_token,
            "docker": self.docker.record(),
            "verbose": options.verbose,
            "quiet": options.quiet,
            "gate": options.gate,
            "config": config.to_tree(self.config),
            "options": {
                "cwd": self.cwd,
                "uid": os.getuid(),
                "tty": os.isatty(0) or os.isatty(2),
                "via": options.via,
                "adapt": options.adapt or self.config.run.adapt,
                "require": options.require or self.config.run.require,
                "gate": options.gate,
                "headroom": options.headroom,
                "upstreams": {name: mask_url(url) for name, url in options.upstreams},
                "routes": {name: mask_url(url) for name, url in options.routes},
                "outer_trial": self.environ.get("FAIRTRIAL_TRIAL"),
                "joined": {joined.variable: joined.door for joined in self.plan.joined},
            },
        }


def prepare(
    options: RunOptions,
    environ: Mapping[str, str],
    *,
    mask: Collection[int],
    began: clock.Instant,
) -> Prepared:
    """Everything that can be known before a door is open.  Raises `FairtrialError` and leaves nothing behind."""
    notes = [Note("environment.mistyped", text, say=True) for text in config.mistyped(environ)]
    settings = _settings(options, environ, notes)
    cwd = _working_folder(environ)
    trial = ids.new_id()
    store = _store(settings, environ, cwd)
    if options.require or settings.run.require:
        _check_store(store)
    runtime = runtime_dir.create(environ, trial, chosen=settings.relay.runtime_dir)
    try:
        docker = docker_upstream.DockerUpstream(skipped="switched off by run.docker")
        if settings.run.docker:
            docker = docker_upstream.resolve(environ)
        if docker.say:
            notes.append(Note("docker.not_watched", f"{docker.skipped}.", say=True))
        adapt = options.adapt or settings.run.adapt
        findings = settings_files.inspect(options.command, environ, cwd, reader=docker_upstream.read_text)
        connect = options.via == "connect"
        if connect:
            notes += findings.past_connect()
            findings = Findings(network=findings.network)  # whatever address its settings name, it is kept
        notes += [*findings.notes, *findings.sentences(adapt=adapt)]
        plan = (
            EnvironmentPlan()
            if connect
            else environment.plan_doors(
                environ,
                Wishes(
                    upstreams={**settings.upstreams, **dict(options.upstreams)},
                    routes={**settings.routes, **dict(options.routes)},
                    held=findings.held(adapt=adapt),
                    leave={} if adapt else findings.leave,
                    outer_doors=runtime_dir.outer_doors(environ, chosen=settings.relay.runtime_dir),
                    extra=findings.extra_doors() if adapt else (),
                    v1_clients=findings.tool == "opencode",
                ),
            )
        )
        if options.headroom is not None:
            text = f"--headroom {options.headroom:g} is recorded, not applied: that is not built yet."
            notes.append(Note("headroom.not_applied", text, say=True))
        return Prepared(
            options=options,
            config=settings,
            environ=environ,
            mask=mask,
            cwd=cwd,
            began=began,
            trial=trial,
            run=options.run or environ.get("FAIRTRIAL_RUN") or None,
            token=ids.new_token(),
            control_token=ids.new_token() if options.control else None,
            trace=environment.trace_context(environ, new_trace_id=ids.new_trace_id(), root_span_id=ids.new_span_id()),
            runtime=runtime,
            store=store,
            docker=docker,
            findings=findings,
            plan=plan,
            notes=(*notes, *plan.notes),
        )
    except BaseException:
        runtime.remove()
        raise


# --- how it works ---------------------------------------------------------------------------------------------------


def _settings(options: RunOptions, environ: Mapping[str, str], notes: list[Note]) -> config.Config:
    """The settings; a wrong file is said, and without --require the run goes on with the defaults."""
    try:
        settings = config.read(environ, {"store.path": options.store})
        _check_addresses(settings)
    except ConfigError as error:
        if options.require:
            raise
        text = f"{error} This run goes on with the default settings."
        notes.append(Note("config.rejected", text, say=True))
        keep = {name: environ[name] for name in ("FAIRTRIAL_STORE", "FAIRTRIAL_RUNTIME_DIR") if name in environ}
        settings = config.load({}, keep, {"store.path": options.store})
    return settings


def _check_addresses(settings: config.Config) -> None:
    known = list(environment.DEFAULT_URLS)
    for name, url in (*settings.upstreams.items(), *settings.routes.items()):
        if environment.split_target(url) is None:
            raise ConfigError(
                f"The address of `{name}` in the settings, {mask_url(url)!r}, is no http(s) address.",
                remedy="Write it in full, such as https://host/path or unix:///run/llm.sock.",
                key=name,
            )
    for name in settings.upstreams:
        if name not in known:
            raise ConfigError(
                f"There is no upstream `{name}`.",
                remedy=f"`upstreams` knows {', '.join(known)}; for another name its variable under `routes`.",
                key=f"upstreams.{name}",
            )


def _working_folder(environ: Mapping[str, str]) -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed under us; the command inherits it all the same
        return environ.get("PWD") or "/"


def _store(settings: config.Config, environ: Mapping[str, str], cwd: str) -> str:
    """The store's file.  A folder that cannot be made is the observer's to report: the run goes on."""
    store = config.store_path(settings, environ, cwd)
    try:
        os.makedirs(os.path.dirname(store), mode=0o700, exist_ok=True)
    except OSError:
        return store
    return store


def _check_store(store: str) -> None:
    """With --require a store that takes no rows is refused before the command starts.  Raises `StoreError`."""
    import sqlite3
    from pathlib import Path

    from fairtrial.middleware.store.database import open_database
    from fairtrial.middleware.store.writer import explain

    try:
        open_database(Path(store)).close()
    except (OSError, sqlite3.Error) as error:
        text = explain(Path(store), error)
        raise StoreError(f"{text[0].upper()}{text[1:]}.", remedy="", path=store) from error


def oom_kills(path: str = "/proc/vmstat") -> int | None:
    """The node's count of OOM kills since boot, None where the kernel does not tell.

    Read here because a fast command may be struck before the observer is up.  **Source:** proc(5), since Linux 4.13.
    """
    try:
        with open(path, "rb") as file:
            found = re.search(rb"^oom_kill (\d+)$", file.read(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1])
