"""The commands as a person types them: in a process of their own, on a store that a real run wrote."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import msgspec
import pytest

from fairtrial import __version__
from fairtrial.middleware import cli
from fairtrial.middleware.core import config
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.store.database import open_database


def fairtrial(home: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env = kept | {"HOME": str(home), "PYTHONPATH": os.getcwd(), "DOCKER_HOST": f"unix://{home}/none"} | environ
    return subprocess.run(
        [sys.executable, "-m", "fairtrial", *words], env=env, cwd=home, capture_output=True, text=True, check=False
    )


def on_a_terminal(home: Path, *words: str, columns: int) -> list[str]:
    """The lines that a terminal of so many columns gets."""
    ours, theirs = os.openpty()
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env = kept | {"HOME": str(home), "PYTHONPATH": os.getcwd(), "COLUMNS": str(columns), "LINES": "40"}
    with os.fdopen(ours, "rb", buffering=0) as reader:
        child = subprocess.Popen([sys.executable, "-m", "fairtrial", *words], env=env, cwd=home, stdout=theirs)
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # EIO: the last writer has closed the terminal
            while chunk := reader.read(65536):
                said += chunk
        assert child.wait(timeout=60) == 0
    return said.decode().splitlines()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two trials in its store: `false`, then one with a name that would clear a screen."""
    place = tmp_path_factory.mktemp("home")
    assert fairtrial(place, "run", "--run", "nightly", "--task", "t1", "--", "false").returncode == 1
    assert fairtrial(place, "run", "--name", "evil\x1b[2J", "--", "sh", "-c", "exit 7").returncode == 7
    return place


def test_trials_lists_the_newest_first_and_steers_no_terminal(home: Path) -> None:
    said = fairtrial(home, "trials")
    lines = said.stdout.splitlines()
    assert len(lines) == 3
    assert "exit 7" in lines[1]
    assert "evil" in lines[1]
    assert "t1" in lines[2]
    assert "\x1b" not in said.stdout


def test_trials_can_be_narrowed_and_printed_as_json(home: Path) -> None:
    rows = json.loads(fairtrial(home, "trials", "--run", "nightly", "--json").stdout)
    assert [(row["task"], row["exit_code"], row["blame"]) for row in rows] == [("t1", 1, "indeterminate")]


@pytest.mark.parametrize("words", [("trials",), ("show",)])
def test_on_a_narrow_terminal_no_line_is_wider_and_the_sentence_is_whole(home: Path, words: tuple[str, ...]) -> None:
    lines = on_a_terminal(home, *words, columns=80)
    assert [line for line in lines if len(line) > 80] == []
    sentence = json.loads(fairtrial(home, "trials", "--limit", "1", "--json").stdout)[0]["sentence"]
    assert sentence in " ".join(" ".join(lines).split())


def test_show_last_is_the_newest_and_names_find_their_trial(home: Path) -> None:
    assert "exit 7" in fairtrial(home, "show").stdout
    rows = json.loads(fairtrial(home, "trials", "--json").stdout)
    first = rows[-1]["trial"]
    for wanted in (first, first[-12:]):
        record = msgspec.json.decode(fairtrial(home, "show", wanted, "--json").stdout, type=Trial)
        assert (record.trial, record.task, record.run) == (first, "t1", "nightly")


def test_a_name_of_several_trials_means_the_newest_and_that_is_said(home: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "twins.db")
    for code in ("3", "4"):
        fairtrial(home, "run", "--name", "twin", "--store", store, "--", "sh", "-c", f"exit {code}")
    said = fairtrial(home, "show", "twin", "--store", store)
    assert "booked: failed (exit 4)" in said.stdout
    assert "the newest of 2 trials called 'twin'" in said.stderr


def test_a_trial_is_found_by_its_task_which_the_list_shows(home: Path) -> None:
    said = fairtrial(home, "show", "t1")
    assert (said.returncode, "task: t1" in said.stdout) == (0, True), said.stderr


def test_doctor_takes_a_command_as_it_would_be_typed(home: Path) -> None:
    said = fairtrial(home, "doctor", "sh", "-c", "exit 3", "--json")
    assert (said.returncode, said.stderr) == (0, "")
    assert [row["state"] for row in json.loads(said.stdout) if row["name"] == "command"] == ["ok"]


def test_replay_computes_the_same_and_another_threshold_is_printed(home: Path) -> None:
    said = fairtrial(home, "show", "--replay", "--set", "stall_s=7").stdout
    assert "the same as stored" in said
    assert "stall_s: 90 → 7" in said


@pytest.mark.parametrize(
    "words, status, sentence",
    [
        (("show", "nobody"), 1, "no trial matches 'nobody'"),
        (("show", "--set", "stall_s=7"), 2, "add --replay"),
        (("show", "--replay", "--set", "stal_s=7"), 2, "Did you mean stall_s?"),
        (("show", "--replay", "--set", "stall_s"), 2, "NAME=NUMBER"),
        (("trials", "--run", "none"), 1, "no trial of run 'none'; without --run there are some"),
        (("trials", "--run", "none", "--failed"), 1, "that did not pass; without --run and --failed there are some"),
        (("import", "store", "/etc/passwd"), 1, "is no spill file and no store"),
        (("trials", "--store", "/nowhere/store.db"), 1, "there is no store at /nowhere/store.db"),
        (("import", "store", "nothing.jsonl"), 1, "could not be read"),
        (("frobnicate",), 2, "frobnicate"),
        (("show", "--frob"), 2, "--frob"),
        (("demo", "--only", "none"), 2, "there are: oom-kill"),
        (("demo", "none"), 2, "there are: oom-kill"),
        (("demo", "oom-kill", "--only", "529-storm"), 2, "one trial at a time: oom-kill or --only 529-storm"),
        (("run",), 2, "There is no command to run."),
        (("summary",), 2, "There is no run to sum up: --run NAME says which. The newest run here: nightly"),
        (("summary", "--run", "nosuch"), 1, "no trial of run 'nosuch'; the newest run here: nightly"),
        (("compare", "a", "b"), 2, "not built yet"),
        (("import", "harbor", "folder"), 1, "no trial was found"),
        (("import", "horbar", "folder"), 2, "horbar"),
        (("doctor", "nosuch"), 2, "nosuch was not found: it is no command on PATH, no file and no folder. Check its"),
        (("doctor", "nosuch", "-p", "x"), 2, "nosuch was not found"),
        (("doctor", "--jsn"), 2, "--jsn was not found"),
    ],
)
def test_a_wrong_line_gets_a_sentence_with_a_remedy(
    home: Path, words: tuple[str, ...], status: int, sentence: str
) -> None:
    said = fairtrial(home, *words)
    assert (said.returncode, sentence in said.stderr) == (status, True), said.stderr
    assert "Traceback" not in said.stderr


def test_a_trial_that_still_runs_is_shown_as_such_and_closed_when_its_fairtrial_was_killed(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none"}
    command = [sys.executable, "-m", "fairtrial", "run", "--name", "long", "--", "sleep", "60"]
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
    ) as running:
        try:
            deadline = time.monotonic() + 30
            while (said := fairtrial(tmp_path, "show", "long")).returncode and time.monotonic() < deadline:
                time.sleep(0.1)
            told = json.loads(fairtrial(tmp_path, "show", "long", "--json").stdout)
        finally:
            os.killpg(running.pid, signal.SIGKILL)
    assert "this trial still runs. What follows is judged as of now" in said.stderr
    lines = said.stdout.splitlines()
    assert any(line.startswith("  still runs, ") and " so far; 0 steps; all that follows" in line for line in lines)
    assert "VERDICT so far (provisional)  indeterminate" in lines
    assert "The trial still runs, so how it ends is not known yet." in said.stdout
    assert "closed:" not in said.stdout and "stopped" not in said.stdout + said.stderr
    assert (told["provisional"], told["ended"]) == (True, None)
    deadline = time.monotonic() + 30  # the observer closes the trial, or dies and leaves that to whoever looks next
    while "closed: " not in (said := fairtrial(tmp_path, "show", "long")).stdout and time.monotonic() < deadline:
        time.sleep(0.1)
    assert re.search("closed: (incomplete|recovered)", said.stdout)
    assert "provisional" not in said.stdout + fairtrial(tmp_path, "show", "long", "--json").stdout


def test_doctor_reads_a_folder_that_is_called_without_a_slash(home: Path) -> None:
    (home / "k").mkdir()
    (home / "k" / "compose.yaml").write_text("services: {x: {image: y, mem_limit: 1g}}")
    said = fairtrial(home, "doctor", "k")
    assert (said.returncode, said.stdout.splitlines()[0]) == (0, "k/compose.yaml (compose)"), said.stderr


@pytest.mark.parametrize(
    "words, environ, said",
    [(("--require",), {}, "(--require)"), ((), {"FAIRTRIAL_RUN__REQUIRE": "1"}, "(run.require)")],
)
def test_a_required_run_does_not_start_without_its_store(
    home: Path, words: tuple[str, ...], environ: dict[str, str], said: str
) -> None:
    done = fairtrial(home, "run", *words, "--store", "/proc/none/x.db", "--", "echo", "ran", **environ)
    assert (done.returncode, done.stdout) == (69, "")
    assert "The store /proc/none/x.db does not take rows" in done.stderr
    assert said in done.stderr


def test_an_unknown_setting_names_the_nearest(home: Path) -> None:
    (home / "c.toml").write_text("[store]\npaht = '/x'\n")
    said = fairtrial(home, "trials", FAIRTRIAL_CONFIG=str(home / "c.toml"))
    assert said.returncode == 78
    assert "store.path" in said.stderr


def test_config_show_is_toml_with_a_source_for_each_setting(home: Path) -> None:
    file = home / "set.toml"
    file.write_text("[verdict]\nstall_s = 7\n[routes]\nMY_URL = 'http://h'\n")
    said = fairtrial(home, "config", "show", FAIRTRIAL_STORE="/x/y.db", FAIRTRIAL_CONFIG=str(file))
    assert said.returncode == 0
    assert 'path = "/x/y.db"   # from FAIRTRIAL_STORE.' in said.stdout
    assert "stall_s = 7.0   # from this file." in said.stdout
    assert "# runtime_dir is unset   # default." in said.stdout
    again = config.load(tomllib.loads(said.stdout), {}, {})
    assert again == config.load(tomllib.loads(file.read_text()), {"FAIRTRIAL_STORE": "/x/y.db"}, {})
    assert "config.toml (not there)" in fairtrial(home, "config", "show").stdout.splitlines()[0]


def test_config_show_says_what_is_wrong_and_still_lists_the_keys(home: Path) -> None:
    file = home / "broken.toml"
    file.write_text("[end]\nverdict_wait_s = 'soon'\n")
    said = fairtrial(home, "config", "show", FAIRTRIAL_CONFIG=str(file), FAIRTRIAL_STOR="/x")
    assert said.returncode == 78
    assert "a number is expected. It means: Longest wait" in said.stderr
    assert "verdict_wait_s = 1.0   # default." in said.stdout
    assert "FAIRTRIAL_STOR is no variable of fairtrial's" in said.stdout
    tomllib.loads(said.stdout)


def test_a_list_of_nothing_says_so_and_as_json_it_is_empty(home: Path, tmp_path: Path) -> None:
    nothing = fairtrial(home, "trials", "--run", "none", "--json")
    assert (nothing.returncode, json.loads(nothing.stdout)) == (0, [])
    store = tmp_path / "empty.db"
    open_database(store).close()
    empty = fairtrial(home, "trials", "--store", str(store))
    assert (empty.returncode, "there is no trial yet" in empty.stderr) == (1, True)


@pytest.mark.parametrize("words", [("trials",), ("show",), ("import", "store")])
def test_help_is_not_eaten_by_markup(home: Path, words: tuple[str, ...]) -> None:
    said = " ".join(fairtrial(home, *words, "--help", COLUMNS="200").stdout.split())
    assert "(default: $FAIRTRIAL_STORE, else the state folder)" in said
    assert ("The store to write" if "import" in words else "The store to read") in said


def test_a_store_comes_back_from_a_spill_file(home: Path, tmp_path: Path) -> None:
    (home / "damaged").mkdir()
    (home / "damaged" / "store.db").write_text("no database " * 1000)
    run = fairtrial(home, "run", "--store", str(home / "damaged" / "store.db"), "--", "false")
    assert run.returncode == 1
    spill = next((home / "damaged").glob("spill-*.jsonl"))
    assert str(spill) in run.stderr
    target = str(tmp_path / "new.db")
    assert "and 1 trial read" in fairtrial(home, "import", "store", str(spill), "--store", target).stdout
    assert "failed (exit 1)" in fairtrial(home, "show", "--store", target).stdout


@pytest.mark.parametrize("target", ["-", "/dev/stdout", "/dev/fd/1", "link"])
def test_the_record_goes_to_standard_output_behind_what_the_command_wrote(
    home: Path, tmp_path: Path, target: str
) -> None:
    """Into a file, which opening `/dev/stdout` anew would cut off, and never over the device itself."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", "fairtrial", "run", "--json", target, "--", "echo", "first"]
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    with (tmp_path / "out").open("w") as out:
        subprocess.run(command, env=env, cwd=tmp_path, stdout=out, stderr=subprocess.DEVNULL, check=True)
    assert (tmp_path / "link").is_symlink()
    first, _, rest = (tmp_path / "out").read_text().partition("\n")
    assert first == "first"
    assert msgspec.json.decode(rest, type=Trial).command == ["echo", "first"]
    assert Path("/dev/stdout").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


def test_help_names_the_jobs_and_the_version_is_printed(home: Path) -> None:
    said = fairtrial(home, "--help").stdout
    for word in ("Run an agent", "Read what happened", "This machine", "run", "show", "doctor", "demo", "trials"):
        assert word in said
    assert fairtrial(home, "--version").stdout.strip() == f"fairtrial {__version__}"
    assert fairtrial(home, "run", "--help").returncode == 0


def test_start_up_of_run_loads_neither_typer_nor_rich() -> None:
    program = (
        "import sys; from fairtrial.middleware.relay import runopts, supervise, session; "
        "print(sorted({'typer', 'rich', 'msgspec', 'docker', 'aiohttp', 'sqlite3'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
    assert cli.app.info.name == "fairtrial"
