"""The tree of settings: what may be set, its unit in its name, its default, and a sentence about it.

In: nothing.  Out: `Config` and its sections.  What this module does not do: read a file or a variable
(`reading.py`), or check a value (`loading.py`).
"""

from __future__ import annotations

import dataclasses


def _doc(text: str) -> dict[str, object]:
    return {"doc": text}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where observations and verdicts are kept."""

    path: str | None = dataclasses.field(
        default=None, metadata=_doc("The SQLite file; unset: $XDG_STATE_HOME/fairtrial/store.db.")
    )
    keep_limit_bytes: int = dataclasses.field(
        default=256 << 20,
        metadata=_doc(
            "Files of attempts that a harness deletes, kept beside the store, bytes; full: the oldest go; 0: none."
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelayConfig:
    """The process that the agent's traffic goes through."""

    runtime_dir: str | None = dataclasses.field(
        default=None,
        metadata=_doc(
            "Folder for sockets and the list of doors; unset: $XDG_RUNTIME_DIR/fairtrial, else /tmp/fairtrial-UID."
        ),
    )
    feed_limit_bytes: int = dataclasses.field(
        default=16 << 20,
        metadata=_doc("Copies waiting for the observer, bytes; what does not fit is dropped and counted."),
    )
    close_grace_s: float = dataclasses.field(
        default=0.02, metadata=_doc("How long open connections may end by themselves once the command is gone, s.")
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EndConfig:
    """How long the end of a run waits for its verdict, at most: usually it takes some milliseconds, and a verdict that
    is late on a busy machine is still what a person at a red run wants to read."""

    verdict_wait_s: float = dataclasses.field(
        default=1.0, metadata=_doc("Longest wait for the verdict when no container was watched, s.")
    )
    verdict_wait_containers_s: float = dataclasses.field(
        default=2.5, metadata=_doc("Longest wait for the verdict when a container was watched, s.")
    )
    verdict_wait_start_s: float = dataclasses.field(
        default=2.0,
        metadata=_doc("Longest wait when the command was over before the observer was up, or it was started again, s."),
    )
    verdict_wait_asked_s: float = dataclasses.field(
        default=10.0,
        metadata=_doc(
            "Longest wait with --gate or --json, where the answer is what the run is for, and after several trials, s."
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Defaults for options of `fairtrial run`."""

    adapt: bool = dataclasses.field(default=False, metadata=_doc("As --adapt."))
    require: bool = dataclasses.field(default=False, metadata=_doc("As --require."))
    docker: bool = dataclasses.field(
        default=True, metadata=_doc("Look for a Docker engine and watch this trial's containers.")
    )
    docker_door: bool = dataclasses.field(
        default=True,
        metadata=_doc(
            "Let the command reach that engine through a socket of ours, which sees its execs (DOCKER_HOST)."
        ),
    )
    bridge_door: bool = dataclasses.field(
        default=True,
        metadata=_doc(
            "Let agents in containers reach the model doors: they then listen on the engine's bridge too, and a door's "
            "URL in the Env of a container or an exec is rewritten."
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """`fairtrial serve`: one door per upstream, for as long as the machine is up."""

    upstreams: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str], metadata=_doc("Name -> URL of a model API: a door each.")
    )
    address: str = dataclasses.field(
        default="127.0.0.1", metadata=_doc("Where doors listen that `serve.listen` does not name: an IP address.")
    )
    port: int = dataclasses.field(
        default=8790,
        metadata=_doc("Port of the first such door; the next ones follow in the order of `serve.upstreams`; 0: any."),
    )
    listen: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str],
        metadata=_doc("Name -> where its door listens, else than above: HOST:PORT or unix:/PATH."),
    )
    access_token: str | None = dataclasses.field(
        default=None, metadata=_doc("Secret that every request must bear: in its path (/t/SECRET/…) or a header.")
    )
    access_file: str | None = dataclasses.field(
        default=None, metadata=_doc("File that holds that secret, instead of the secret itself.")
    )
    unguarded: bool = dataclasses.field(
        default=False, metadata=_doc("Serve whoever reaches a door beyond loopback, without a secret (a closed pod).")
    )
    keys: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str],
        metadata=_doc("Trial's name -> API key: calls that bear this key and no name are that trial's."),
    )
    peers: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str],
        metadata=_doc("Trial's name -> IP address of its client, such as a container's, where nothing else tells."),
    )
    run: str | None = dataclasses.field(default=None, metadata=_doc("Name of the run that the trials belong to."))
    drain_s: float = dataclasses.field(
        default=30.0, metadata=_doc("After SIGTERM: how long open calls may go on before they are cut, s.")
    )
    flush_s: float = dataclasses.field(
        default=10.0, metadata=_doc("After that: how long verdicts and telemetry are waited for, s.")
    )
    idle_s: float = dataclasses.field(
        default=1800.0, metadata=_doc("A trial without a call for this long is closed, s.")
    )
    max_trials: int = dataclasses.field(
        default=2000, metadata=_doc("Open trials at most; beyond it the one that was idle longest is closed.")
    )
    health: str = dataclasses.field(
        default="127.0.0.1:8789",
        metadata=_doc("Where /healthz, /readyz and /startupz answer: HOST:PORT, or off."),
    )
    health_hosts: str = dataclasses.field(
        default="",
        metadata=_doc("Host names by which they and /metrics may be asked for, besides addresses and localhost."),
    )
    metrics: str = dataclasses.field(
        default="127.0.0.1:9464", metadata=_doc("Where /metrics answers Prometheus: HOST:PORT, or off.")
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyConfig:
    """What is kept of the content; nothing by default, secrets never."""

    content: bool = dataclasses.field(
        default=False,
        metadata=_doc("Keep the free text of command lines: a prompt given as an argument, commands in containers."),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExportConfig:
    """Traces, beside the `OTEL_…` variables (docs/telemetry.md)."""

    genai_names: str = dataclasses.field(
        default="newest",
        metadata=_doc("Which generation of the GenAI attribute names is written: newest, or 1.41."),
    )
    pending_limit_bytes: int = dataclasses.field(
        default=256 << 20,
        metadata=_doc("Spans that wait in the store for a collector, bytes; beyond it the oldest go and are counted."),
    )
    log: str | None = dataclasses.field(
        default=None,
        metadata=_doc("File that takes the JSON log, beside the store where it is relative; `-`: observer.log."),
    )
    wait_s: float = dataclasses.field(
        default=10.0, metadata=_doc("How long the observer of a run goes on sending after the verdict, at most, s.")
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The numbers of ours that a verdict may lean on: each is printed with the verdict that used it.

    `terminated_by` uses none of them, but for the client's watchdog, which tells a stall from an impatient client, and
    `slow_share`, which tells a command that was held up from one that met its limit in passing.
    """

    headroom_k: float = dataclasses.field(
        default=3.0,
        metadata=_doc("Demand up to this many times the declared memory is the limit's fault, above it the model's."),
    )
    watchdog_unknown_s: float = dataclasses.field(
        default=90.0,
        metadata=_doc("How long a client of unknown kind bears a silent stream before it gives up, s."),
    )
    stall_s: float = dataclasses.field(
        default=90.0,
        metadata=_doc("An upstream's silence (pings count as bytes) of at least this long is charged to it, s."),
    )
    quiet_s: float = dataclasses.field(
        default=2.0,
        metadata=_doc("A client that closes a reply with pings and no words for at least this long had a watchdog, s."),
    )
    storm_attempts: float = dataclasses.field(
        default=20.0,
        metadata=_doc("So many attempts that could not succeed, for one step, are a retry storm of the harness."),
    )
    together_p: float = dataclasses.field(
        default=0.01,
        metadata=_doc("Trials of one node, host or minute fail together below this p of Fisher's exact test."),
    )
    ledger_share: float = dataclasses.field(
        default=0.1,
        metadata=_doc("Outside time below this part of the limit that fired is not why it fired."),
    )
    lag_share: float = dataclasses.field(
        default=0.5,
        metadata=_doc("Part of a client's wait that our own relay must have caused for `observer.lag`."),
    )
    lag_s: float = dataclasses.field(
        default=1.0, metadata=_doc("Lag of our own relay below this is never a reason, s.")
    )
    box_full_share: float = dataclasses.field(
        default=0.8,
        metadata=_doc("A container has no memory for a step when undying pages fill this part of its limit before it."),
    )
    own_share: float = dataclasses.field(
        default=0.8,
        metadata=_doc("Part of a limit's fill (tasks, disk) from which on it is the model's."),
    )
    others_share: float = dataclasses.field(
        default=0.5,
        metadata=_doc("Part of a limit's fill that the trial must have less of for it to be the infrastructure's."),
    )
    slow_share: float = dataclasses.field(
        default=0.1,
        metadata=_doc("Part of a command's time that must be lost to a limit or a neighbour before it is told."),
    )
    end_grace_s: float = dataclasses.field(
        default=2.0,
        metadata=_doc("Two things this close are taken for one: a client's abort and its end, a source's and ours, s."),
    )
    late_evidence_s: float = dataclasses.field(
        default=5.0, metadata=_doc("How long after the end a verdict may still be revised by late evidence, s.")
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings.  `upstreams` and `routes` are as the options of `run`: provider -> URL, variable -> URL."""

    store: StoreConfig = dataclasses.field(default_factory=StoreConfig)
    relay: RelayConfig = dataclasses.field(default_factory=RelayConfig)
    end: EndConfig = dataclasses.field(default_factory=EndConfig)
    run: RunConfig = dataclasses.field(default_factory=RunConfig)
    serve: ServeConfig = dataclasses.field(default_factory=ServeConfig)
    privacy: PrivacyConfig = dataclasses.field(default_factory=PrivacyConfig)
    export: ExportConfig = dataclasses.field(default_factory=ExportConfig)
    verdict: Thresholds = dataclasses.field(default_factory=Thresholds)
    upstreams: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str], metadata=_doc("Provider -> URL, as --upstream NAME=URL.")
    )
    routes: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str], metadata=_doc("Variable -> URL, as --route VAR=URL.")
    )
