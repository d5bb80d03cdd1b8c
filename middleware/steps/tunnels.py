"""The connections of `--via connect`, as the record has them.

In: placed observations.  Out: `Connection`s by start.  No call is made of them: nobody read what was in them.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import OpaqueConnection
from fairtrial.middleware.core.records import Connection
from fairtrial.middleware.steps.placed import Placed


def connections(placed: Iterable[Placed]) -> list[Connection]:
    """One for each that was seen."""
    seen = [one.value for one in placed if isinstance(one.value, OpaqueConnection)]
    return [
        Connection(
            host=value.host,
            port=value.port,
            provider=value.provider,
            started=rfc3339(value.started_wall_ns),
            ok=value.ok,
            stage=value.stage,
            dns=value.dns,
            connect=value.connect,
            tls=value.tls,
            via_proxy=value.via_proxy,
            remote=value.remote,
            duration=value.duration,
            bytes_up=value.bytes_up,
            bytes_down=value.bytes_down,
            max_wait=value.max_wait,
            max_gap=value.max_gap,
            silent=value.silent,
            closed_by=value.closed_by,
            close_kind=value.close_kind,
            cut=value.cut,
            errno=None if value.errno is None else str(value.errno),
            error=value.error,
        )
        for value in sorted(seen, key=lambda value: value.started_wall_ns)
    ]
