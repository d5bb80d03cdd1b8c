"""Real agents side by side behind one `fairtrial serve`, without a token: each is a trial of its own, by its ids."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairtrial.middleware.core.observations import AttemptEnded, decode
from fairtrial.middleware.demo.script import Scenario
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.clients import Outcome
from tests.e2e.test_standin_clients import SCRIPT
from tests.middleware.relay.serving import Serve, served, until

pytestmark = pytest.mark.usefixtures("claude", "codex")

Command = Callable[[str], list[str]]
Environment = Callable[..., dict[str, str]]

PROMPT = "say hello using bash"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with served(tmp_path) as home:
        yield home


def test_two_of_one_kind_with_one_key_and_one_task_and_another_beside_them_are_three_trials(
    serve: Serve, tmp_path: Path
) -> None:
    with running_standin(Scenario(steps=tuple(SCRIPT), websockets=True)) as server:
        running = serve.start({"anthropic": server.url, "openai": server.url})
        running.wait_for_observer()
        door = {name: f"http://127.0.0.1:{port}" for name, port in running.doors.items()}

        def agent(
            name: str, command: Callable[[str], list[str]], environment: Callable[..., dict[str, str]]
        ) -> Outcome:
            home, project = tmp_path / f"home-{name}", tmp_path / f"project-{name}"
            home.mkdir()
            project.mkdir()
            url = door["anthropic" if name.startswith("claude") else "openai"]
            return clients.run(command(PROMPT), environment(home, url), project)

        with ThreadPoolExecutor(3) as pool:
            kinds: Sequence[tuple[str, Command, Environment]] = (
                ("claude-1", clients.claude_command, clients.claude_environment),
                ("claude-2", clients.claude_command, clients.claude_environment),
                ("codex", clients.codex_command, clients.codex_builtin_environment),
            )
            outcomes = list(pool.map(lambda kind: agent(*kind), kinds))
        assert [outcome.returncode for outcome in outcomes] == [0, 0, 0], [outcome.told() for outcome in outcomes]
        until(lambda: len(serve.rows()) == 3, "there are three trials")
        assert running.end() == 0
    rows = serve.rows()
    assert len(rows) == 3
    by_dialect: dict[str, int] = {}
    for row in rows:
        record = serve.record(row.trial)
        assert [step.index for step in record.steps] == [1, 2], record
        values = [value for o in serve.observations(row.trial) if isinstance(value := decode(o), AttemptEnded)]
        sessions = {value.request.session for value in values if value.request.session is not None}
        assert len(sessions) == 1, "one session, and all of it"
        assert {value.assigned_by for value in values} <= {"id:x-claude-code-session-id", "id:session-id"}
        dialect = record.steps[0].calls[0].dialect or ""
        by_dialect[dialect] = by_dialect.get(dialect, 0) + 1
    assert by_dialect == {"anthropic_messages": 2, "openai_responses": 1}


def test_an_agent_that_is_told_a_header_is_in_the_trial_of_that_name(serve: Serve, tmp_path: Path) -> None:
    with running_standin(SCRIPT) as server:
        running = serve.start({"anthropic": server.url})
        running.wait_for_observer()
        url = f"http://127.0.0.1:{running.doors['anthropic']}"
        more: Mapping[str, str] = {"ANTHROPIC_CUSTOM_HEADERS": "x-fairtrial-trial: nightly-7"}
        environment = clients.claude_environment(tmp_path, url, **more)
        project = tmp_path / "project"
        project.mkdir()
        outcome = clients.run(clients.claude_command(PROMPT), environment, project)
        assert outcome.returncode == 0, outcome.told()
        assert running.end() == 0
        heads = [name.lower() for call in server.calls for name, _ in call.headers]
    assert "x-fairtrial-trial" not in heads
    row = serve.row("nightly-7")
    values = [value for o in serve.observations(row.trial) if isinstance(value := decode(o), AttemptEnded)]
    assert {value.assigned_by for value in values} == {"header"}
    assert len(serve.record(row.trial).steps) == 2
