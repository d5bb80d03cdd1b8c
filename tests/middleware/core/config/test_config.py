"""The tree loads from table, environment and overrides in that order, and names the nearest key of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairtrial.middleware.core import config
from fairtrial.middleware.core.errors import ConfigError


def test_nothing_given_is_the_defaults() -> None:
    assert config.load({}, {}, {}) == config.Config()


def test_the_command_line_beats_the_environment_which_beats_the_file() -> None:
    toml = {"store": {"path": "/file"}, "end": {"verdict_wait_s": 1, "verdict_wait_start_s": 4.5}}
    environ = {"FAIRTRIAL_STORE": "/environ", "FAIRTRIAL_END__VERDICT_WAIT_S": "0.5", "PATH": "/bin"}
    loaded = config.load(toml, environ, {"store.path": "/argv", "run.adapt": None})
    assert loaded.store.path == "/argv"
    assert loaded.end.verdict_wait_s == 0.5
    assert loaded.end.verdict_wait_start_s == 4.5
    assert loaded.run.adapt is False
    assert config.load(toml, {"FAIRTRIAL_STORE": "/environ"}, {}).store.path == "/environ"


@pytest.mark.parametrize(
    "toml, nearest",
    [
        ({"end": {"verdict_wait": 1.0}}, "end.verdict_wait_s"),
        ({"ende": {"verdict_wait_s": 1.0}}, "end.verdict_wait_s"),
        ({"stroe": {"path": "/x"}}, "store.path"),
        ({"store": {"pth": "/x"}}, "store.path"),
        ({"feed_limit_bytes": 3}, "relay.feed_limit_bytes"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest_valid_one(toml: dict[str, object], nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(toml, {}, {})
    assert f"`{nearest}`" in caught.value.remedy


def test_an_unknown_key_in_the_environment_is_named_with_its_variable() -> None:
    with pytest.raises(ConfigError, match="FAIRTRIAL_END__VERDIKT_WAIT_S") as caught:
        config.load({}, {"FAIRTRIAL_END__VERDIKT_WAIT_S": "1"}, {})
    assert "end.verdict_wait_s" in caught.value.remedy


@pytest.mark.parametrize(
    "toml, said",
    [
        ({"end": {"verdict_wait_s": "soon"}}, "a number is expected"),
        ({"run": {"adapt": 1}}, "true or false is expected"),
        ({"relay": {"feed_limit_bytes": True}}, "a whole number is expected"),
        ({"upstreams": {"anthropic": 3}}, "a table of texts is expected"),
        ({"end": 3}, "is a section"),
    ],
)
def test_a_value_of_the_wrong_kind_says_what_is_expected(toml: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        config.load(toml, {}, {})
    assert caught.value.remedy.startswith(("It means: ", "Write `["))


def test_a_wrong_value_in_the_environment_is_an_error_and_an_empty_one_is_not_given() -> None:
    with pytest.raises(ConfigError, match="FAIRTRIAL_RUN__ADAPT"):
        config.load({}, {"FAIRTRIAL_RUN__ADAPT": "perhaps"}, {})
    assert config.load({}, {"FAIRTRIAL_STORE": ""}, {}).store.path is None
    assert config.load({}, {"FAIRTRIAL_RUN__ADAPT": "yes"}, {}).run.adapt is True


def test_variables_that_fairtrial_gives_to_its_child_are_no_settings() -> None:
    assert config.load({}, {"FAIRTRIAL_TRIAL": "x", "FAIRTRIAL_RUN": "y"}, {}) == config.Config()


def test_the_tree_survives_being_written_and_loaded() -> None:
    toml: dict[str, object] = {
        "upstreams": {"openai": "http://h/v1"},
        "store": {"path": "/s"},
        "verdict": {"headroom_k": 2},
    }
    loaded = config.load(toml, {}, {})
    assert config.load(config.to_tree(loaded), {}, {}) == loaded


def test_every_leaf_is_described_and_secrets_are_masked() -> None:
    toml: dict[str, object] = {
        "upstreams": {"openai": "http://u:pw@h/v1"},
    }
    effective = config.Effective(config.load(toml, {}, {}), {"upstreams": "a file"})
    shown = {setting.key: setting for setting in config.describe(effective)}
    assert all(setting.doc.endswith(".") for setting in shown.values())
    assert "pw" not in str(shown["upstreams"].value)
    assert shown["upstreams"].source == "a file"
    assert shown["end.verdict_wait_s"].source is None


def test_every_given_setting_names_its_source_and_the_strongest_wins(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[store]\npath = '/f'\n[run]\nadapt = true\n[upstreams]\nopenai = 'http://h'\n")
    environ = {"FAIRTRIAL_CONFIG": str(file), "FAIRTRIAL_STORE": "/e", "FAIRTRIAL_VERDICT__STALL_S": "7"}
    sources = config.read_sources(environ, {"run.require": True, "store.path": None}).sources
    assert sources == {
        "store.path": "FAIRTRIAL_STORE",
        "run.adapt": str(file),
        "upstreams": str(file),
        "verdict.stall_s": "FAIRTRIAL_VERDICT__STALL_S",
        "run.require": "the command line",
    }


def test_a_misspelt_variable_is_named_and_foreign_ones_are_left_alone() -> None:
    ours = {"FAIRTRIAL_STORE": "x", "FAIRTRIAL_TRIAL": "x", "FAIRTRIAL_RUN": "x", "FAIRTRIAL_END__VERDICT_WAIT_S": "1"}
    assert config.mistyped(ours | {"FAIRTRIAL_TEST_DOCKER": "x", "FAIRTRIAL_CI": "1", "FAIRTRIAL_RUNS": "3"}) == [
        "FAIRTRIAL_RUNS is no variable of fairtrial's and has no effect. Did you mean FAIRTRIAL_RUN?"
    ]
    (sentence,) = config.mistyped({"FAIRTRIAL_STOR": "/x"})
    assert "FAIRTRIAL_STORE?" in sentence


def test_the_file_is_found_where_the_xdg_specification_says(tmp_path: Path) -> None:
    assert config.config_path({"HOME": "/h"}) == "/h/.config/fairtrial/config.toml"
    assert config.config_path({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == "/c/fairtrial/config.toml"
    assert config.config_path({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == "/h/.config/fairtrial/config.toml"
    assert config.config_path({"FAIRTRIAL_CONFIG": "/f", "XDG_CONFIG_HOME": "/c"}) == "/f"
    assert config.read({"HOME": str(tmp_path)}, {}) == config.Config()


def test_a_broken_or_missing_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    with pytest.raises(ConfigError, match="does not exist"):
        config.read({"FAIRTRIAL_CONFIG": str(file)}, {})
    file.write_text("[store\n")
    with pytest.raises(ConfigError, match=r"config\.toml cannot be read"):
        config.read({"FAIRTRIAL_CONFIG": str(file)}, {})
    file.write_text("[store]\npaht = '/x'\n")
    with pytest.raises(ConfigError, match=r"In .*config\.toml: .*store\.paht") as caught:
        config.read({"FAIRTRIAL_CONFIG": str(file)}, {})
    assert "store.path" in caught.value.remedy


def test_a_threshold_of_the_settings_reaches_the_verdict() -> None:
    assert config.load({}, {"FAIRTRIAL_VERDICT__STALL_S": "7"}, {}).verdict.stall_s == 7
