"""Agents in real containers, without the host's network: their calls go through the engine's bridge to the model door,
and each call is told with the container that made it.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairtrial.middleware.core.observations import AttemptStarted, MutationSeen
from fairtrial.middleware.demo.script import say
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.under import Under, run_under, seen_in

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

CALL = """
import json, os, sys, urllib.request
body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": sys.argv[1]}]}
body["tools"] = [{"name": "bash", "input_schema": {"type": "object"}}]
url = os.environ.get("ANTHROPIC_BASE_URL", "") + "/v1/messages"
asked = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", "x-api-key": "k"})
try:
    print(json.load(urllib.request.urlopen(asked, timeout=10))["content"][0]["text"])
except OSError as error:
    print(type(error).__name__, getattr(error, "reason", error))
"""


@pytest.fixture
def name(docker_engine: Engine) -> Iterator[str]:
    """A word for containers and networks of this test, which are gone afterwards."""
    word = f"ft-bridge-{uuid.uuid4().hex[:8]}"
    yield word
    if left := docker_engine.containers(f"name={word}"):
        docker_engine.docker("rm", "-f", *left, check=False)
    for network in docker_engine.docker("network", "ls", "-q", "--filter", f"name={word}").stdout.split():
        docker_engine.docker("network", "rm", network, check=False)


def under(script: str, engine: Engine, image: str, folder: Path, name: str, **more: str) -> Under:
    """A shell script as the command of a run; `$CALL TEXT` is a model call, to stand behind an image's name."""
    for part in ("home", "project"):
        (folder / part).mkdir(parents=True)
    (folder / "project" / "call.py").write_text(CALL)
    with running_standin((say("Done."),)) as server:
        environment = clients.clean_environment(
            folder / "home",
            ANTHROPIC_BASE_URL=server.url,
            ANTHROPIC_API_KEY="dummy",
            DOCKER_HOST=engine.docker_host,
            IMAGE=image,
            NAME=name,
            CALL="python3 /p/call.py",
            V=f"{folder}/project:/p",
            **more,
        )
        return run_under(["sh", "-c", script], environment, folder / "project", kept=folder / "kept")


def boxes(run: Under) -> list[str | None]:
    """The container that each model call came from, by their order; whosever trial it is."""
    return [attempt.container_id for attempt in seen_in(run.store, AttemptStarted)]


def rewritten(run: Under) -> list[MutationSeen]:
    """What was changed for containers and execs, each once: every trial of a parted run has all of them."""
    told = [m for m in seen_in(run.store, MutationSeen) if re.search("(container|exec) environment", m.what)]
    return list({(m.what, m.new): m for m in told}.values())


def test_on_every_kind_of_bridge_a_container_reaches_the_door_and_is_known_by_its_id(
    docker_engine: Engine, python_image: str, name: str, tmp_path: Path
) -> None:
    """The default bridge, a network of its own, one without a way out; by create, by exec, by another's network."""
    script = """
    docker network create $NAME-own >/dev/null; docker network create --internal $NAME-in >/dev/null
    docker run --rm -e ANTHROPIC_BASE_URL -v $V --cidfile default $IMAGE $CALL one
    docker run --rm --network $NAME-own -e ANTHROPIC_BASE_URL -v $V --cidfile own $IMAGE $CALL two
    docker run --rm --network $NAME-in -e ANTHROPIC_BASE_URL -v $V --cidfile in $IMAGE $CALL three
    docker run -d --network $NAME-own -v $V --cidfile exec --name $NAME $IMAGE sleep 600 >/dev/null
    docker exec -e ANTHROPIC_BASE_URL $NAME $CALL four
    docker run --rm --network host -e ANTHROPIC_BASE_URL -v $V $IMAGE $CALL five
    docker run --rm --network container:$NAME -e ANTHROPIC_BASE_URL -v $V $IMAGE $CALL six
    """
    run = under(script, docker_engine, python_image, tmp_path, name)
    assert run.outcome.stdout == "Done.\n" * 6, run.told()
    folder = tmp_path / "project"
    ids = [(folder / part).read_text() for part in ("default", "own", "in", "exec")]
    assert boxes(run) == [*ids, None, None], run.told()
    told = [m.what for m in rewritten(run)]
    assert told == ["container environment ANTHROPIC_BASE_URL"] * 3 + ["exec environment ANTHROPIC_BASE_URL"], told


def test_without_a_network_it_is_said_once_and_nothing_is_rewritten(
    docker_engine: Engine, python_image: str, name: str, tmp_path: Path
) -> None:
    script = "for n in 1 2; do docker run --rm --network none -e ANTHROPIC_BASE_URL -v $V $IMAGE $CALL one; done"
    run = under(script, docker_engine, python_image, tmp_path, name)
    assert run.outcome.stdout.count("URLError") == 2, run.told()
    assert run.outcome.stderr.count("it has no network (none)") == 1, run.told()
    assert rewritten(run) == []


def test_two_containers_of_one_run_at_once_are_told_apart(
    docker_engine: Engine, python_image: str, name: str, tmp_path: Path
) -> None:
    """Both have called before either is gone, over and over; each call bears the container that made it."""
    script = """
    for n in a b; do
      docker run -d --cidfile $n -e ANTHROPIC_BASE_URL -v $V --name $NAME-$n $IMAGE sleep 600 >/dev/null
    done
    for n in a b; do (for i in 1 2 3 4; do docker exec -e ANTHROPIC_BASE_URL $NAME-$n $CALL $n; done) & done
    wait
    """
    run = under(script, docker_engine, python_image, tmp_path, name)
    assert run.outcome.stdout == "Done.\n" * 8, run.told()
    ids = {part: (tmp_path / "project" / part).read_text() for part in ("a", "b")}
    counted = {part: boxes(run).count(ids[part]) for part in ids}
    assert counted == {"a": 4, "b": 4}, run.told()


@contextlib.contextmanager
def stranger(engine: Engine, image: str, name: str) -> Iterator[str]:
    """A container that is nobody's."""
    yield engine.docker("run", "-d", "--name", f"{name}-stranger", image, "sleep", "600").stdout.strip()


def test_a_strangers_container_gets_nothing_even_with_the_url(
    docker_engine: Engine, python_image: str, name: str, tmp_path: Path
) -> None:
    """It is reset, with and without the token; the run's own container beside it goes on."""
    script = """
    docker run --rm -e ANTHROPIC_BASE_URL $IMAGE sh -c 'echo $ANTHROPIC_BASE_URL' > url
    export DOCKER_HOST=$REAL
    for url in $(cat url) $(sed 's,/t/.*,,' url); do
      docker exec $NAME-stranger python3 -c "
import socket, sys
host, _, rest = '$url'.removeprefix('http://').partition('/')
try:
    sock = socket.create_connection((host.split(':')[0], int(host.split(':')[1])), 10)
    sock.sendall(b'GET /' + rest.encode() + b' HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
    print(sock.recv(100))
except ConnectionResetError:
    print('reset')
"
    done
    """
    with stranger(docker_engine, python_image, name):
        run = under(script, docker_engine, python_image, tmp_path, name, REAL=docker_engine.docker_host)
    assert run.outcome.stdout == "reset\n" * 2, run.told()
    assert boxes(run) == []


def test_two_runs_on_one_engine_keep_to_their_own(
    docker_engine: Engine, python_image: str, name: str, tmp_path: Path
) -> None:
    """A container of one run that is handed the other's URL is turned away there; its own door goes on."""
    script = """
    docker run -d --cidfile box -e ANTHROPIC_BASE_URL -v $V --name $NAME-$ME $IMAGE sleep 600 >/dev/null
    docker exec $NAME-$ME sh -c 'echo $ANTHROPIC_BASE_URL' > $SHARED/$ME.part; mv $SHARED/$ME.part $SHARED/$ME
    n=0; until [ -e $SHARED/$OTHER ] || [ $n = 600 ]; do sleep 0.1; n=$((n+1)); done
    docker exec $NAME-$ME sh -c "ANTHROPIC_BASE_URL=$(cat $SHARED/$OTHER) $CALL theirs"
    docker exec $NAME-$ME $CALL ours
    touch $SHARED/$ME.done
    n=0; until [ -e $SHARED/$OTHER.done ] || [ $n = 600 ]; do sleep 0.1; n=$((n+1)); done
    """

    def one(me: str, other: str) -> Under:
        more = {"ME": me, "OTHER": other, "SHARED": str(tmp_path)}
        return under(script, docker_engine, python_image, tmp_path / f"run-{me}", name, **more)

    with ThreadPoolExecutor(2) as pool:
        runs = {me: pool.submit(one, me, other) for me, other in (("a", "b"), ("b", "a"))}
    for me, future in runs.items():
        run = future.result()
        refused, done = run.outcome.stdout.splitlines()
        assert "reset" in refused.lower(), run.told()
        assert done == "Done.", run.told()
        box = (tmp_path / f"run-{me}" / "project" / "box").read_text()
        assert boxes(run) == [box], run.told()


@pytest.mark.slow
def test_compose_gives_each_service_the_gateway_of_its_own_network(
    docker_engine: Engine, python_image: str, name: str, tmp_path: Path
) -> None:
    try:
        plugins = clients.docker_plugins()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))
    (tmp_path / "compose").mkdir()
    (tmp_path / "compose" / "compose.yaml").write_text(
        f"""
services:
  one: {{image: {python_image}, command: python3 /p/call.py one, environment: [ANTHROPIC_BASE_URL], volumes: ["$V"]}}
  two:
    image: {python_image}
    command: python3 /p/call.py two
    environment: {{ANTHROPIC_BASE_URL: "${{ANTHROPIC_BASE_URL}}/"}}
    volumes: ["$V"]
    networks: [second]
networks: {{second: {{}}}}
"""
    )
    script = f"""
    cd {tmp_path}/compose; docker compose -p {name} up --no-color 2>&1
    docker compose -p {name} down -t 0 >/dev/null 2>&1
    """
    run = under(script, docker_engine, python_image, tmp_path, name, DOCKER_CONFIG=str(plugins))
    assert run.outcome.stdout.count("Done.") == 2, run.told()
    assert len({*boxes(run)} - {None}) == 2, run.told()
    gateways = {m.new.split(":")[1] for m in rewritten(run) if m.new}
    assert len(gateways) == 2, rewritten(run)
