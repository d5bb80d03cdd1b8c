"""Which entries of an Env are a door of the run, and that nothing else of a body changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.relay import container_env
from fairtrial.middleware.relay.container_env import Unreadable

TOKEN = "0123456789abcdef0123456789abcdef"
DOOR = f"http://127.0.0.1:4321/t/{TOKEN}"
NEW = f"http://172.17.0.1:4321/t/{TOKEN}"


def moved(body: bytes) -> bytes:
    """The body with every door it names moved to the gateway."""
    asked = container_env.read(body)
    return container_env.rewritten(
        asked,
        {value: f"http://{value.login}172.17.0.1:{value.port}/t/{value.token}{value.rest}" for value in asked.values},
    )


@pytest.mark.parametrize("rest", ["", "/", "/v1", "/v1?x=1", "/api/anthropic#f"])
@pytest.mark.parametrize("login", ["", "user:pass@"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "host.docker.internal", "host.containers.internal"])
def test_a_door_is_found_with_whatever_path_and_login_it_has(rest: str, login: str, host: str) -> None:
    value = f"http://{login}{host}:4321/t/{TOKEN}{rest}"
    (found,) = container_env.read(json.dumps({"Env": ["A=1", f"BASE={value}"]}).encode()).values
    assert (found.name, found.port, found.token, found.rest, found.login) == ("BASE", 4321, TOKEN, rest, login)


@pytest.mark.parametrize(
    "value",
    [
        "http://127.0.0.1:4321",
        "http://127.0.0.1:4321/v1",
        "https://127.0.0.1:4321/t/" + TOKEN,
        "http://127.0.0.2:4321/t/" + TOKEN,
        "http://api.example.com:4321/t/" + TOKEN,
        "http://127.0.0.1:4321/t/" + TOKEN + "0",
        "http://127.0.0.1:4321/t/short/v1",
        " " + DOOR,
        f"{DOOR},{DOOR}",
        json.dumps({"base_url": DOOR}),
        f"--url={DOOR}",
        "",
    ],
)
def test_what_is_not_wholly_a_door_is_no_door(value: str) -> None:
    body = json.dumps({"Env": [f"X={value}"], "Cmd": ["env", f"X={DOOR}"], "Labels": {"url": DOOR}}).encode()
    assert container_env.read(body).values == ()


def test_nothing_but_the_value_changes() -> None:
    body = (
        '{ "Image":"a\\u0062c",\n\t"Big": 123456789012345678901234567890, "F":1.50e+2, "Env" : [ "A=ü\\n", '
        f'"BASE={DOOR}\\/v1" ,\r\n"NO_PROXY=127.0.0.1", "FLAG" ] , "HostConfig":{{"NetworkMode":"my_net", "Memory":0}},'
        f'"Env2":["{DOOR}"]}} '
    ).encode()
    new = moved(body)
    assert new == body.replace(f"{DOOR}\\/v1".encode(), f"{NEW}/v1".encode(), 1)
    assert container_env.read(body).network == "my_net"


def test_the_engine_takes_names_in_any_case_and_so_do_we() -> None:
    assert len(container_env.read(json.dumps({"env": [f"A={DOOR}"]}).encode()).values) == 1


def test_an_env_of_something_inside_is_not_the_containers() -> None:
    body = json.dumps({"Healthcheck": {"Env": [f"A={DOOR}"]}, "Env": None}).encode()
    assert container_env.read(body).values == ()


def test_what_else_matters_is_read() -> None:
    env = ["HTTP_PROXY=http://p:1", "no_proxy=localhost, 10.0.0.0/8", f"A={DOOR}"]
    asked = container_env.read(json.dumps({"Env": env, "HostConfig": {"NetworkMode": "host"}}).encode())
    assert (asked.network, asked.proxy, asked.no_proxy) == ("host", "http_proxy", "localhost, 10.0.0.0/8")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"Env"', b"{", b"\xff{}", b'{"Env":[' + b"[" * 100_000, b'{"Env": ["a", ]}', b"null"]
)
def test_what_is_no_object_is_said_to_be_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        container_env.read(body)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    before=st.dictionaries(st.text(max_size=5), _JSON, max_size=3),
    env=st.lists(st.text(max_size=12) | st.just(f"BASE={DOOR}/v1") | _JSON, max_size=5),
    behind=st.dictionaries(st.text(max_size=5), _JSON, max_size=3),
    ascii_only=st.booleans(),
    indent=st.none() | st.just(2),
)
def test_whatever_the_body_is_only_doors_in_its_env_change(
    before: dict[str, object], env: list[object], behind: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    whole = {**before, "Env": env, **{k: v for k, v in behind.items() if k.lower() != "env"}}
    whole = {k: v for k, v in whole.items() if k == "Env" or k.lower() != "env"}
    body = json.dumps(whole, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    try:
        new = moved(body)
    except Unreadable:
        assert b"\xed" in body, "only lone surrogates cannot be read"
        return
    wanted = {**whole, "Env": [f"BASE={NEW}/v1" if each == f"BASE={DOOR}/v1" else each for each in env]}
    assert json.loads(new) == json.loads(json.dumps(wanted))
    if f"BASE={DOOR}/v1" not in env:
        assert new == body
