"""What a run knows before its doors open."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.errors import ConfigError, StoreError
from fairtrial.middleware.relay.prepare import Prepared, oom_kills, prepare
from fairtrial.middleware.relay.runopts import RunOptions


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ft-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def ready(home: Path, options: RunOptions | None = None, **environ: str) -> Prepared:
    base = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "FAIRTRIAL_RUN__DOCKER": "0", **environ}
    return prepare(options or RunOptions(command=("true",)), base, mask=set(), began=clock.now())


def test_hello_holds_what_the_observer_needs_and_no_secret(home: Path) -> None:
    options = RunOptions(
        command=("agent", "--api-key", "s3cret"),
        name="n",
        headroom=2.0,
        upstreams=(("openai", "http://me:hunter2@h/v1"),),
    )
    prepared = ready(home, options)
    hello = prepared.hello()
    assert hello["command"] == ["agent", "--api-key", "***"]
    assert hello["tokens"] == {prepared.token: prepared.trial}
    assert "hunter2" not in str(hello["options"])
    assert hello["store"] == f"{home}/.local/state/fairtrial/store.db"
    assert int(str(hello["boot_ns"])) >= int(str(hello["mono_ns"]))
    assert any(note.event == "headroom.not_applied" and note.say for note in prepared.notes)


def test_the_store_is_named_by_option_variable_or_settings(home: Path) -> None:
    assert ready(home, FAIRTRIAL_STORE=f"{home}/e/s.db").store == f"{home}/e/s.db"
    option = RunOptions(command=("true",), store=f"{home}/o/s.db")
    assert ready(home, option, FAIRTRIAL_STORE=f"{home}/e/s.db").store == f"{home}/o/s.db"
    assert (home / "o").stat().st_mode & 0o777 == 0o700


def test_upstreams_of_the_settings_are_used_and_the_option_beats_them(home: Path) -> None:
    file = home / "c.toml"
    file.write_text("[upstreams]\nanthropic = 'http://settings'\nopenai = 'http://both'\n")
    option = RunOptions(command=("true",), upstreams=(("openai", "http://option"),))
    doors = {door.name: door.origin for door in ready(home, option, FAIRTRIAL_CONFIG=str(file)).plan.doors}
    assert doors["anthropic"] == "http://settings"
    assert doors["openai"] == "http://option"


@pytest.mark.parametrize(
    "text, said", [("[upstreams]\nmistral = 'http://h'\n", "routes"), ("[routes]\nX = 'h:80'\n", "in full"), ("x", "")]
)
def test_a_wrong_setting_is_noted_or_with_require_refused(home: Path, text: str, said: str) -> None:
    file = home / "c.toml"
    file.write_text(text)
    (note,) = ready(home, FAIRTRIAL_CONFIG=str(file)).notes
    assert note.event == "config.rejected"
    assert said in note.text
    with pytest.raises(ConfigError):
        ready(home, RunOptions(command=("true",), require=True), FAIRTRIAL_CONFIG=str(file))


def test_the_run_of_an_outer_trial_is_kept_unless_named_anew(home: Path) -> None:
    assert ready(home, FAIRTRIAL_RUN="outer").run == "outer"
    assert ready(home, RunOptions(command=("true",), run="inner"), FAIRTRIAL_RUN="outer").run == "inner"
    assert ready(home).run is None


@pytest.mark.parametrize("content", ["", "no database " * 1000])
def test_with_require_a_store_that_takes_no_rows_is_refused_before_the_start(home: Path, content: str) -> None:
    path = home / "s.db"
    path.write_text(content) if content else path.mkdir()
    ready(home, FAIRTRIAL_STORE=str(path))
    with pytest.raises(StoreError) as caught:
        ready(home, RunOptions(command=("true",), require=True), FAIRTRIAL_STORE=str(path))
    assert caught.value.exit_code == 69
    assert str(path) in caught.value.what
    path.unlink() if content else path.rmdir()
    ready(home, RunOptions(command=("true",), require=True), FAIRTRIAL_STORE=str(path))


def test_a_misspelt_variable_is_said_before_the_command_starts(home: Path) -> None:
    (note,) = ready(home, FAIRTRIAL_STOR="/x").notes
    assert note.say
    assert "FAIRTRIAL_STORE?" in note.text


def test_the_count_of_oom_kills_is_read_or_not_known(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 17\nthp 0\n")
    assert oom_kills(str(tmp_path / "vmstat")) == 17
    (tmp_path / "vmstat").write_text("nr_free_pages 1\nxoom_kill 17\n")
    assert oom_kills(str(tmp_path / "vmstat")) is None
    assert oom_kills(str(tmp_path / "none")) is None
