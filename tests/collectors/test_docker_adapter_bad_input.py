"""Engines that cannot be watched, and words that are none: one clear sentence, that source off, all else on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.collectors.docker_adapter import DockerUpstream
from fairtrial.collectors.facade import Collectors
from fairtrial.collectors.parse.docker import parse_container, parse_event, parse_exec
from fairtrial.middleware.core.observations import CoverageChanged, HostCounters
from tests.collectors.fake_engine import FakeEngine
from tests.collectors.keep import Kept, eventually
from tests.collectors.test_docker_events import A, Case
from tests.collectors.test_facade import collectors

TRAVERSING = ("../../images/x", "a/../../b", "..", "a?all=1", "a#b", "a%2e%2e", "a b", "a\n", "é" * 3, "a" * 129, "")


async def told_of(url: str) -> tuple[Kept, CoverageChanged]:
    """What the collectors of a trial say of this engine, and all that they wrote."""
    kept = Kept()
    them: Collectors = collectors(kept, docker=DockerUpstream(url=url))
    await them.start()

    def said() -> list[CoverageChanged]:
        return [v for v in kept.of(CoverageChanged) if v.source == "collector.docker_events"]

    await eventually(said)
    await them.finish(1.0)
    await them.close()
    return kept, said()[-1]


@pytest.mark.parametrize(
    "version, said",
    [
        ({"ApiVersion": "1.39", "Version": "18.09.1"}, "the engine 18.09.1 speaks API 1.39, and fairtrial needs 1.40"),
        ({"ApiVersion": "9.9", "MinAPIVersion": "2.0"}, "speaks no API older than 2.0"),
        ({"Platform": "not an engine"}, "does not say which version of the API"),
    ],
    ids=["too old", "too new", "no engine"],
)
async def test_an_engine_of_another_time_is_off_with_a_sentence_and_all_else_is_on(
    tmp_path: Path, version: dict[str, str], said: str
) -> None:
    engine = FakeEngine(tmp_path / "e.sock")
    engine.version = version
    await engine.start()
    kept, told = await told_of(engine.url)
    await engine.stop()
    assert told.state == "off"
    assert told.why is not None
    assert said in told.why
    assert "events" not in "".join(engine.asked), "it is not spoken to"
    on = {v.source for v in kept.of(CoverageChanged) if v.state == "on"}
    assert on >= {"collector.cgroup", "collector.vmstat"}
    assert kept.of(HostCounters)[-1].edge == "last"


async def test_an_engine_newer_than_known_is_spoken_to_in_the_newest_known_version(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.engine.version = {"ApiVersion": "1.99", "MinAPIVersion": "1.44", "Version": "40.0"}
    await case.engine.start()
    await case.begin()
    assert {path.split("/")[1] for path in case.engine.asked} == {"version", "v1.52"}
    case.events.close()
    await case.engine.stop()


async def test_a_server_that_speaks_no_http_is_off_with_a_sentence(tmp_path: Path) -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"\x00\xffSSH-2.0-junk\r\n")
        writer.close()

    server = await asyncio.start_unix_server(garbage, tmp_path / "e.sock")
    _, told = await told_of(f"unix://{tmp_path}/e.sock")
    server.close()
    await server.wait_closed()
    assert told.state == "off"
    assert told.why


_WITHOUT_RIGHTS = """
import os, sys, threading
from fairtrial.collectors.docker_adapter import DockerAdapter, DockerUpstream
import asyncio

class Listener:
    def __init__(self): self.why = asyncio.Event(); self.said = None
    def on_up(self, engine, *, again): raise AssertionError("it was let in")
    def on_event(self, event): pass
    def on_strange(self, what): pass
    def on_down(self, why): self.said = why; self.why.set()

async def main():
    listener = Listener()
    adapter = DockerAdapter(DockerUpstream(url="unix://" + sys.argv[1]), since_ns=0, listener=listener)
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    adapter.start()
    await asyncio.wait_for(listener.why.wait(), 20)
    adapter.close()
    print(listener.said)

asyncio.run(main())
"""


@pytest.mark.root
async def test_no_permission_on_the_socket_is_said_with_the_group_that_would_have_it(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "e.sock")
    await engine.start()
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        os.chmod(folder, 0o755)
    os.chmod(tmp_path / "e.sock", 0o600)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WITHOUT_RIGHTS, str(tmp_path / "e.sock"), stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    await engine.stop()
    assert process.returncode == 0
    assert "e.sock: Permission denied for uid 65534 (is it in the group `docker`?)" in out.decode()
    assert engine.asked == []


@pytest.mark.parametrize("name", TRAVERSING)
def test_what_is_no_id_is_read_as_none(name: str) -> None:
    """Ids become parts of paths: of requests to the engine, and of cgroup directories."""
    assert parse_container({"Id": name}) is None
    assert parse_exec({"ID": name}) is None
    assert parse_event({"Type": "container", "Action": "start", "id": name, "Actor": {"ID": name}}) is None
    exec_event = {"Type": "container", "Action": "exec_die", "Actor": {"ID": A, "Attributes": {"execID": name}}}
    assert parse_event(exec_event) is None


def test_a_containers_own_label_is_no_exec() -> None:
    """Labels stand among an event's attributes; one of them must not make its events unreadable."""
    told = parse_event(
        {"Type": "container", "Action": "die", "Actor": {"ID": A, "Attributes": {"execID": "../x", "exitCode": "3"}}}
    )
    assert told is not None
    assert (told.exec_id, told.exit_code) == (None, 3)


async def test_an_event_with_traversal_characters_asks_for_nothing_and_is_said(tmp_path: Path) -> None:
    case = Case(tmp_path)
    await case.engine.start()
    await case.begin()
    case.engine.say("../../images/json?", "start")
    case.engine.say("../../images/json?", "die")
    await eventually(lambda: any("no id" in (v.why or "") for v in case.kept.of(CoverageChanged)))
    await case.ours()
    assert not any(".." in path or "images" in path for path in case.engine.asked)
    said = [v for v in case.kept.of(CoverageChanged) if "no id" in (v.why or "")]
    assert [v.containers_missed for v in said] == [True]
    case.events.close()
    await case.engine.stop()


async def test_a_container_gone_before_inspect_is_told_by_its_events_with_name_role_and_end(tmp_path: Path) -> None:
    case = Case(tmp_path)
    await case.engine.start()
    await case.begin()
    labels = {"com.docker.compose.project": "p", "com.docker.compose.service": "db", "fairtrial.trial": "t"}
    for action, more in (("create", {}), ("start", {}), ("die", {"exitCode": "3"}), ("destroy", {})):
        case.engine.say(A, action, name="p-db-1", image="postgres", **labels, **more)
    await eventually(case.gone)
    (gone,) = case.gone()
    assert (gone.exit_code, gone.ended_by) == (3, "exit")
    seen = case.seen()[-1]
    assert (seen.name, seen.image, seen.role, seen.join) == ("p-db-1", "postgres", "service", "label")
    case.events.close()
    await case.engine.stop()
