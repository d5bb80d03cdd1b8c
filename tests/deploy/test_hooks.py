"""What goes into a harness's own process: it tells the control page all that it was told, and never holds it up."""

from __future__ import annotations

import ast
import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fairtrial_hooks.harbor import Plugin
from fairtrial_hooks.telling import FAILURES, FINISH_S, MAX_WAITING, Teller, plain

from fairtrial.middleware.core.observations import HarnessOutcome, Note, Observation, decode
from fairtrial.middleware.core.records import Outcome, Trust
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.observer.control import SOURCE, ControlPage
from fairtrial.middleware.steps.words import word_about
from fairtrial.middleware.wire.session import MAX_NAME_CHARS, TRIAL_HEADER

TRIAL = "0197bbbb-0000-7000-8000-000000000001"
TOKEN = "t" * 22
HOSTILE = "../..//outcome?x=1#\r\nHost: evil.example\r\n\r\n\x1b[31m task \N{SNOWMAN}\ud800"


class Page:
    """A real control page on a port."""

    def __init__(self) -> None:
        self.kept: list[Observation] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        source = Source(SOURCE, self.kept.append, host=this_host(), trial=TRIAL)
        self.page = ControlPage(TRIAL, TOKEN, source, begun_ns=time.time_ns())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/t/{TOKEN}"

    async def heard(self, teller: Teller) -> list[tuple[str | None, object]]:
        """Of whom and what, once all was said."""
        await asyncio.to_thread(teller.finish, 30)
        assert all(each.trust is Trust.INSIDE for each in self.kept)
        return [(word_about(each, value := decode(each)), value) for each in self.kept]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    made = Page()
    await made.page.open(made.listener)
    yield made
    await made.page.close()
    made.listener.close()


async def test_words_come_in_their_order_each_with_its_moment(page: Page) -> None:
    teller = Teller(page.url)
    before_ns = time.time_ns()
    teller.mark("task__Ab3", "agent-start")
    teller.outcome("task__Ab3", "failed", reward=0.25, exit_status="AgentTimeoutError")
    teller.mark("task__Ab3", "end", "reward 0.25")
    (about, first), (_, outcome), (_, last) = await page.heard(teller)
    assert isinstance(first, Note) and isinstance(outcome, HarnessOutcome) and isinstance(last, Note)
    assert (about, first.fields["name"], last.text) == ("task__Ab3", "agent-start", "reward 0.25")
    assert before_ns <= int(str(first.fields["at_ns"])) <= int(str(last.fields["at_ns"])) <= time.time_ns()
    assert (outcome.label, outcome.outcome, outcome.reward) == ("task__Ab3", Outcome.FAILED, 0.25)
    assert outcome.exit_status == "AgentTimeoutError"
    assert (teller.said, teller.lost, teller.gone) == (3, 0, False)


async def test_a_hostile_name_or_text_is_bounded_and_reaches_no_other_page(page: Page) -> None:
    teller = Teller(page.url)
    teller.mark(HOSTILE, HOSTILE, HOSTILE * 100)
    teller.outcome("x" * 10_000, "errored", reward=float("nan"), exit_status=HOSTILE)
    teller.mark("", "nobody's")
    teller.mark("\r\n", "a name of which something is left")
    (about, mark), (long, outcome), (odd, _) = await page.heard(teller)
    assert about == "../..//outcome?x=1#?Host: evil.example?[31m task ?" and long == "x" * 200 and odd == "?"
    assert isinstance(mark, Note) and len(mark.text or "") == 200 and mark.fields["name"] == about
    assert isinstance(outcome, HarnessOutcome) and outcome.reward is None
    assert (teller.said, teller.lost) == (3, 1)


def test_a_name_for_a_header_is_plain_and_kept_whole_by_the_relay() -> None:
    assert plain(HOSTILE) == "..-..-outcome-x-1-Host-evil.example-31m-task"
    assert (plain(7), plain("\r\n")) == ("7", "")
    assert len(".".join((plain("t" * 99, 30), plain("s" * 99, 40), "1000000", plain("u" * 22, 40)))) < MAX_NAME_CHARS


async def test_a_trial_that_talks_too_much_does_not_silence_the_others(page: Page) -> None:
    teller = Teller(page.url)
    for _ in range(1002):
        teller.mark("loud", "again")
    teller.mark("quiet", "end")
    heard = await page.heard(teller)
    assert [about for about, _ in heard] == ["loud"] * 1000 + ["quiet"]
    assert (teller.said, teller.lost, teller.gone) == (1001, 2, False)


@pytest.mark.parametrize("status", [404, 410])
async def test_a_page_that_is_over_or_knows_no_names_is_asked_once(page: Page, status: int) -> None:
    teller = Teller(page.url if status == 410 else page.url.replace(TOKEN, "u" * 22))
    if status == 410:
        page.page.shut()
    for _ in range(5):
        teller.mark("one", "again")
    assert await page.heard(teller) == []
    assert teller.gone
    teller.mark("one", "again")
    assert teller.lost >= 2


def test_nobody_on_the_port_costs_no_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    teller = Teller(f"http://127.0.0.1:{port}/t/{TOKEN}")
    began = time.monotonic()
    for _ in range(FAILURES + 2):
        teller.mark("one", "again")
    teller.finish(30)
    assert teller.gone and time.monotonic() - began < 10
    assert teller.said == 0


def test_a_page_that_never_answers_holds_nobody_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        teller = Teller(f"http://127.0.0.1:{listener.getsockname()[1]}/t/{TOKEN}", answer_s=60)
        began = time.monotonic()
        for _ in range(MAX_WAITING + 10):
            teller.mark("one", "again", "text")
        said_s = time.monotonic() - began
        for _ in range(3):
            teller.finish()
        assert said_s < 5 and time.monotonic() - began < said_s + 2 * FINISH_S, "it waits once, not at each end"
        assert teller.lost >= 9


@pytest.mark.parametrize("url", ["", "https://127.0.0.1:1/t/x", "http://", "http://[", "/t/x", "http://127.0.0.1:x/"])
def test_without_an_address_that_can_be_asked_there_is_no_teller(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRTRIAL_CONTROL_URL", url)
    assert Teller.here() is None
    monkeypatch.delenv("FAIRTRIAL_CONTROL_URL")
    assert Teller.here() is None


async def test_harbors_plugin_takes_what_it_does_not_know(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job and events of another Harbor: nothing of it is as expected, and nothing is raised."""
    monkeypatch.delenv("FAIRTRIAL_CONTROL_URL", raising=False)
    silent = Plugin(anything=1)
    await silent.on_job_start(None)
    await silent.on_job_end(None)
    monkeypatch.setenv("FAIRTRIAL_CONTROL_URL", page.url)
    plugin = Plugin()
    await plugin.on_job_start(object())
    await plugin._on_event(object())
    await plugin.on_job_end(None)
    assert page.kept == []


def test_only_the_standard_library_is_imported_and_the_header_is_the_relays(repo_root: Path) -> None:
    folder = repo_root / "deploy" / "hooks" / "fairtrial_hooks"
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text())
        names = {each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
        names |= {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
        outside = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"fairtrial_hooks"}
        assert outside == ({"inspect_ai"} if path.stem == "inspect" else set()), path
    assert f'HEADER = "{TRIAL_HEADER}"' in (folder / "inspect.py").read_text()


def test_the_package_installs_with_both_entry_points(repo_root: Path, tmp_path: Path) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--target", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "install", *options, str(repo_root / "deploy" / "hooks")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    (told,) = tmp_path.glob("fairtrial_hooks-*.dist-info/entry_points.txt")
    assert "[harbor.plugins]\nfairtrial = fairtrial_hooks.harbor:Plugin" in told.read_text()
    assert "[inspect_ai]\nfairtrial = fairtrial_hooks.inspect" in told.read_text()
    assert sorted(path.name for path in (tmp_path / "fairtrial_hooks").glob("*.py")) == [
        "__init__.py",
        "harbor.py",
        "inspect.py",
        "telling.py",
    ]
