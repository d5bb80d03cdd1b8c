"""What a serve is to do, from settings: every wrong one is a sentence with a remedy, and each key has its variable."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from fairtrial.middleware.core import config
from fairtrial.middleware.core.errors import ConfigError, UsageError
from fairtrial.middleware.relay import serve_opts
from fairtrial.middleware.relay.serve_plan import Place, ServePlan, parse_place, plan, read_settings

ANTHROPIC = {"anthropic": "https://api.anthropic.com"}
SECRET = "0123456789abcdef0123456789abcdef"


def planned(serve: Mapping[str, object], environ: Mapping[str, str] | None = None) -> ServePlan:
    return plan(config.load({"serve": dict(serve)}, environ or {}, {}), {"HOME": "/nowhere"}, "/work")


# --- doors ----------------------------------------------------------------------------------------------------------


def test_upstreams_get_ports_in_their_order_but_those_that_have_a_place_of_their_own() -> None:
    made = planned(
        {
            "upstreams": {"anthropic": "https://a", "openai": "https://b/v1", "vllm-2": "http://c:8000"},
            "port": 9000,
            "listen": {"openai": "unix:/run/x.sock"},
        }
    )
    assert [(door.upstream.name, str(door.place)) for door in made.doors] == [
        ("anthropic", "127.0.0.1:9000"),
        ("openai", "unix:/run/x.sock"),
        ("vllm-2", "127.0.0.1:9001"),
    ]
    assert made.doors[1].upstream.base_path == "/v1"
    assert made.health == Place("127.0.0.1", 8789)
    assert made.store == "/nowhere/.local/state/fairtrial/store.db"


def test_port_0_is_any_port_for_each() -> None:
    made = planned({"upstreams": {"a": "https://a", "b": "https://b"}, "port": 0})
    assert [door.place.port for door in made.doors] == [0, 0]


@pytest.mark.parametrize(
    "text, place",
    [
        ("127.0.0.1:80", Place("127.0.0.1", 80)),
        ("localhost:80", Place("127.0.0.1", 80)),
        ("[::1]:80", Place("::1", 80)),
        ("::1:80", Place("::1", 80)),
        ("0.0.0.0:0", Place("0.0.0.0", 0)),
        ("unix:/a/b", Place(path="/a/b")),
        ("unix:///a/b", Place(path="/a/b")),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert parse_place("serve.listen.a", text) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "80",
        ":80",
        "example.com:80",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "unix:relative",
        "unix:/" + "x" * 120,
    ],
)
def test_what_is_no_place_names_its_setting(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_place("serve.listen.a", text)
    assert "`serve.listen.a`" in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "serve, said",
    [
        ({}, "no upstream to serve"),
        ({"upstreams": {"Big Name": "https://a"}}, "no name for an upstream"),
        ({"upstreams": {"a": "ftp://a"}}, "none that can be relayed to"),
        ({"upstreams": {"a": "https://user:secret@a"}}, "none that can be relayed to"),
        ({"upstreams": {"a": "https://a"}, "listen": {"b": "127.0.0.1:1"}}, "'b', which is no upstream"),
        ({"upstreams": {"a": "https://a", "b": "https://b"}, "listen": {"b": "127.0.0.1:8790"}}, "both listen"),
        ({"upstreams": {"a": "https://a"}, "keys": {"a b": "sk-1"}}, "no name for a trial"),
        ({"upstreams": {"a": "https://a"}, "keys": {"a": SECRET, "b": SECRET}}, "another trial's"),
        ({"upstreams": {"a": "https://a"}, "peers": {"a": "10.0.0"}}, "no IP address"),
        ({"upstreams": {"a": "https://a"}, "idle_s": 0}, "serve.idle_s"),
        ({"upstreams": {"a": "https://a"}, "drain_s": -1}, "serve.drain_s"),
        ({"upstreams": {"a": "https://a"}, "max_trials": 0}, "serve.max_trials"),
        ({"upstreams": {"a": "https://a"}, "health": "somewhere"}, "serve.health"),
        ({"upstreams": {"a": "https://a"}, "health": "unix:/x"}, "serve.health"),
        ({"upstreams": {"a": "https://a"}, "metrics": "9464"}, "serve.metrics"),
        ({"upstreams": {"a": "https://a"}, "access_token": "short"}, "not fit for a path"),
        ({"upstreams": {"a": "https://a"}, "access_token": "with/slash" * 4}, "not fit for a path"),
        ({"upstreams": {"a": "https://a"}, "access_file": "/nowhere/at/all"}, "cannot be read"),
        ({"upstreams": {"a": "https://a"}, "access_file": "/x", "access_token": SECRET}, "Both"),
    ],
)
def test_each_wrong_setting_is_a_sentence_with_a_remedy_and_without_secrets(
    serve: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(serve)
    assert said in caught.value.what
    assert caught.value.remedy and caught.value.exit_code == 78
    assert "secret@" not in str(caught.value) and SECRET not in str(caught.value)


# --- who may ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.7"])
def test_beyond_loopback_a_secret_or_a_word_is_wanted(address: str) -> None:
    wide = {"upstreams": ANTHROPIC, "address": address}
    with pytest.raises(ConfigError, match="asks for no secret") as caught:
        planned(wide)
    assert "openssl rand -hex 16" in caught.value.remedy and "serve.unguarded" in caught.value.remedy
    assert planned(wide | {"unguarded": True}).secret is None
    assert planned(wide | {"access_token": SECRET}).secret == SECRET


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "unix:/a"])
def test_within_the_machine_none_is_wanted(listen: str) -> None:
    assert planned({"upstreams": ANTHROPIC, "listen": {"anthropic": listen}}).secret is None


def test_the_secret_may_lie_in_a_file_and_is_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    made = planned({"upstreams": ANTHROPIC, "access_file": str(file)})
    assert made.secret == SECRET
    assert SECRET not in repr(made)


# --- sources of settings -------------------------------------------------------------------------------------------


def test_the_command_line_adds_to_the_upstreams_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('[serve]\nport = 9000\n[serve.upstreams]\nanthropic = "https://a"\nopenai = "https://b"\n')
    words = [
        "--config",
        str(file),
        "--upstream",
        "openai=https://c",
        "--listen",
        "openai=unix:/x",
        "--listen",
        "[::1]:7",
    ]
    settings = read_settings(
        serve_opts.parse([*words, "--drain", "5", "--idle", "60", "--run", "r", "--store", "/s"]), {}
    )
    serve = settings.serve
    assert serve.upstreams == {"anthropic": "https://a", "openai": "https://c"}
    assert serve.listen == {"openai": "unix:/x"}
    assert (serve.address, serve.port) == ("::1", 7)
    assert (serve.drain_s, serve.idle_s, serve.run, settings.store.path) == (5.0, 60.0, "r", "/s")


def test_a_socket_without_a_name_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match="names no upstream") as caught:
        read_settings(serve_opts.parse(["--listen", "unix:/x"]), {"HOME": "/nowhere"})
    assert "--listen anthropic=unix:/x" in caught.value.remedy


def test_an_upstream_without_a_name_says_what_to_write() -> None:
    with pytest.raises(UsageError, match="has no name") as caught:
        serve_opts.parse(["--upstream", "https://api.anthropic.com"])
    assert "--upstream anthropic=" in caught.value.remedy


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_settings(serve_opts.parse(["--config", str(tmp_path / "none.toml")]), {})


EXAMPLES: dict[str, tuple[str, object]] = {
    "upstreams": ("anthropic=https://a openai=https://b/v1", {"anthropic": "https://a", "openai": "https://b/v1"}),
    "listen": ("anthropic=unix:/x", {"anthropic": "unix:/x"}),
    "address": ("::1", "::1"),
    "port": ("9", 9),
    "access_token": (SECRET, SECRET),
    "access_file": ("/x", "/x"),
    "unguarded": ("yes", True),
    "keys": ("one=sk-1 two=sk-2", {"one": "sk-1", "two": "sk-2"}),
    "peers": ("one=10.0.0.5", {"one": "10.0.0.5"}),
    "run": ("nightly", "nightly"),
    "drain_s": ("1.5", 1.5),
    "flush_s": ("2", 2.0),
    "idle_s": ("3", 3.0),
    "max_trials": ("4", 4),
    "health": ("127.0.0.1:5", "127.0.0.1:5"),
    "health_hosts": ("a,b", "a,b"),
    "metrics": ("127.0.0.1:6", "127.0.0.1:6"),
}


def test_there_is_an_example_of_every_key() -> None:
    assert set(EXAMPLES) == set(config.ServeConfig.__dataclass_fields__)


@pytest.mark.parametrize("key", sorted(EXAMPLES))
def test_every_key_may_stand_in_the_environment_as_in_the_file(key: str) -> None:
    text, value = EXAMPLES[key]
    by_variable = config.load({}, {f"FAIRTRIAL_SERVE__{key.upper()}": text}, {})
    assert by_variable == config.load({"serve": {key: value}}, {}, {})
    assert by_variable != config.Config(), "it is no default"
    assert config.load(config.to_tree(by_variable), {}, {}) == by_variable


@pytest.mark.parametrize("text", ["anthropic", "=https://a", "anthropic=https://a,openai"])
def test_a_table_in_a_variable_is_name_text_pairs(text: str) -> None:
    if "," in text:  # a comma may stand in a URL: it parts nothing
        assert config.load({}, {"FAIRTRIAL_SERVE__UPSTREAMS": text}, {}).serve.upstreams == {
            "anthropic": "https://a,openai"
        }
        return
    with pytest.raises(ConfigError, match="NAME=TEXT"):
        config.load({}, {"FAIRTRIAL_SERVE__UPSTREAMS": text}, {})


def test_config_show_prints_value_and_origin_and_masks_the_secret(tmp_path: Path, repo_root: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        f'[serve]\nport = 9000\naccess_token = "{SECRET}"\nkeys = {{ one = "{SECRET}" }}\n'
        '[serve.upstreams]\nanthropic = "https://u:p4ss@a/"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "fairtrial", "config", "show", "--config", str(file)],
        env={"PATH": "/usr/bin", "PYTHONPATH": str(repo_root), "HOME": str(tmp_path), "FAIRTRIAL_SERVE__DRAIN_S": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    shown = tomllib.loads(done.stdout)["serve"]
    assert shown["access_token"] == "***" and shown["keys"] == {"one": "***"}
    assert shown["upstreams"] == {"anthropic": "https://***@a/"}
    assert (shown["port"], shown["drain_s"]) == (9000, 7.0)
    lines = {line.partition(" =")[0]: line for line in done.stdout.splitlines()}
    assert "# from this file." in lines["port"]
    assert "# from FAIRTRIAL_SERVE__DRAIN_S." in lines["drain_s"]
    assert "# default." in lines["idle_s"]
    assert SECRET not in done.stdout and "p4ss" not in json.dumps(shown)
