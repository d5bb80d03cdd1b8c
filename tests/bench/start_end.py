"""What `fairtrial run` costs at the start and at the end of a command (DESIGN section 7).

Each figure is the median of alternated runs on this machine: the command alone, then under fairtrial.  The command's
own end is stamped by the command itself (CLOCK_MONOTONIC, written as its last act): the figure is what the user waits.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.rows import Row
from tests.e2e.clients import e2e_folder
from tests.e2e.image import ImageUnavailable, ensure_image

REPEATS = 11
FAIRTRIAL = [sys.executable, "-m", "fairtrial"]
ENDING = "import sys, time; time.sleep(float(sys.argv[2])); open(sys.argv[1], 'w').write(str(time.monotonic()))"


def rows(*, quick: bool = False) -> Iterator[Row]:
    """All rows of this file."""
    repeats = 1 if quick else REPEATS
    with tempfile.TemporaryDirectory(prefix="ft-bench-") as folder:
        place = Path(folder)
        environ = dict(os.environ) | {"FAIRTRIAL_STORE": str(place / "store.db")}
        environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
        yield Row(
            what="`fairtrial run -- true` over `true`",
            value=_over_true(environ, repeats),
            unit="s",
            budget=0.4,
            how=f"median of {repeats} alternated runs",
        )
        yield Row(
            what="end of the command → exit",
            value=_after_the_end(place, environ, repeats),
            unit="s",
            budget=0.15,
            how=f"median of {repeats}, a command of 0.6 s, no container",
        )
        with socket.create_server(("127.0.0.1", 0)) as silent:
            dead = environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"}
            yield Row(
                what="end of the command → exit, with a collector that never answers",
                value=_after_the_end(place, dead, repeats),
                unit="s",
                budget=0.15,
                how=f"median of {repeats}, OTLP endpoint accepts and stays silent",
            )
        yield from _engine_named(place, environ, repeats)
        yield _watched(place, environ, 1 if quick else 5)


def _timed(command: list[str], environ: dict[str, str]) -> float:
    begun = time.monotonic()
    subprocess.run(command, env=environ, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def _over_true(environ: dict[str, str], repeats: int) -> float:
    alone, under = [], []
    for _ in range(repeats):
        alone.append(_timed(["true"], environ))
        under.append(_timed([*FAIRTRIAL, "run", "--", "true"], environ))
    return statistics.median(under) - statistics.median(alone)


def _after_the_end(place: Path, environ: dict[str, str], repeats: int, seconds: float = 0.6) -> float:
    waits = []
    stamp = place / "ended"
    for _ in range(repeats):
        command = [*FAIRTRIAL, "run", "--", sys.executable, "-S", "-c", ENDING, str(stamp), str(seconds)]
        subprocess.run(command, env=environ, check=True, stderr=subprocess.DEVNULL)
        waits.append(time.monotonic() - float(stamp.read_text()))
    return statistics.median(waits)


def _engine_named(place: Path, environ: dict[str, str], repeats: int) -> Iterator[Row]:
    """An engine that answers, of which the command makes no use."""
    engine = os.environ.get("FAIRTRIAL_TEST_DOCKER") or os.environ.get("DOCKER_HOST")
    told = f"median of {repeats}, DOCKER_HOST names an engine that answers"
    named = environ | {"DOCKER_HOST": engine or ""}
    how = told if engine is not None else "no engine is named (FAIRTRIAL_TEST_DOCKER)"
    yield Row(
        what="`fairtrial run -- true` over `true`, an engine named",
        value=None if engine is None else _over_true(named, repeats),
        unit="s",
        budget=0.4,
        how=how,
    )
    yield Row(
        what="end of the command → exit, an engine named",
        value=None if engine is None else _after_the_end(place, named, repeats),
        unit="s",
        budget=0.15,
        how=how,
    )


def _watched(place: Path, environ: dict[str, str], repeats: int) -> Row:
    what = "end of the command → exit, a container watched"
    engine = os.environ.get("FAIRTRIAL_TEST_DOCKER") or os.environ.get("DOCKER_HOST")
    if engine is None:
        return Row(what=what, value=None, unit="s", budget=1.3, how="no engine is named (FAIRTRIAL_TEST_DOCKER)")
    stamp = place / "ended"
    try:
        image = ensure_image("ft-busybox", engine, e2e_folder() / "images")
    except ImageUnavailable as why:
        return Row(what=what, value=None, unit="s", budget=1.3, how=str(why))
    waits = []
    script = (
        f'c=$(docker run -d --network none {image} sleep 60); docker exec "$c" true; docker rm -f "$c" >/dev/null; '
        f'exec "{sys.executable}" -S -c "{ENDING}" {stamp} 0'
    )
    for _ in range(repeats):
        command = [*FAIRTRIAL, "run", "--", "sh", "-c", script]
        subprocess.run(command, env=environ | {"DOCKER_HOST": engine}, check=True, stderr=subprocess.DEVNULL)
        waits.append(time.monotonic() - float(stamp.read_text()))
    return Row(
        what=what,
        value=statistics.median(waits),
        unit="s",
        budget=1.3,
        how=f"median of {repeats}, one container run and removed",
    )
