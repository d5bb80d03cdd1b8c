"""A first process that was killed from outside its namespace: suspected only where no command of the model's could."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import DoorContainer, ExecEnded, ExecStarted, ToolUse
from tests.middleware.attribution.boxes import engine, event, failed, gone, inside, seen
from tests.middleware.attribution.scene import BOX, Scene, ended, summary


def killed(told: Scene | None = None, **facts: object) -> Scene:
    """Its first process dies while a command of the model's runs."""
    told = inside(inside(told or seen(Scene())), ends=False)
    fields: dict[str, object] = {"init_signal": 9}
    return gone(told, **(fields | facts))  # type: ignore[arg-type]


def test_a_sigkill_that_nobody_inside_can_have_sent_is_suspected_of_infra() -> None:
    verdict = failed(killed()).verdict()
    assert summary(verdict) == ("infra", "suspected", "unknown.outside", 2)
    assert ended(verdict) == ("unknown.outside", "proved", 2)
    assert "nothing says by whom" in verdict.sentence


@pytest.mark.parametrize(
    "waited_s, blame, ending", [(0.0, "infra", ("unknown.outside", "proved", 2)), (0.5, "indeterminate", None)]
)
def test_an_engine_that_tells_late_of_a_death_hides_neither_the_command_that_died_nor_its_step(
    waited_s: float, blame: str, ending: tuple[str, str, int] | None
) -> None:
    told = inside(inside(seen(Scene())), exit_code=137)  # 0.1 s ago
    told = told.call(tools=0, seconds=0.05).waited(waited_s)  # and the agent has said its last word
    verdict = gone(told, init_signal=9).end(1).verdict()
    assert (verdict.blame, ended(verdict)) == (blame, ending)


@pytest.mark.parametrize("code, step", [(0, 3), (126, 1)], ids=["the box still worked", "it was dead by then"])
def test_a_command_that_killed_itself_while_the_box_went_on_is_not_what_the_death_struck(code: int, step: int) -> None:
    told = seen(Scene())
    for name, ended_with in (("a", 137), ("b", code), ("c", None)):
        told.call(seconds=0.05, tool_calls=[ToolUse(id=name, name="bash", text_digest=name)])
        told.tell(ExecStarted(container_id=BOX, exec_id=name, pid=9, text_digest=name), told.events)
        told.waited(0.05)
        if ended_with is not None:
            told.tell(ExecEnded(container_id=BOX, exec_id=name, exit_code=ended_with), told.events)
            told.waited(0.01)
    verdict = failed(gone(told, init_signal=9)).verdict()
    assert summary(verdict) == ("infra", "suspected", "unknown.outside", step)


def test_a_first_process_that_exited_with_137_was_killed_by_nobody() -> None:
    verdict = failed(killed(init_signal=0)).verdict()
    assert verdict.blame == "model"
    assert ended(verdict) is None


@pytest.mark.parametrize("namespace", [False, None])
def test_in_a_shared_namespace_a_command_of_the_trial_may_have_killed_it(namespace: bool | None) -> None:
    told = killed(seen(Scene(), own_pid_namespace=namespace))
    assert failed(told).verdict().blame == "indeterminate"


def test_where_the_models_commands_run_on_the_host_they_may_have_killed_it() -> None:
    told = seen(Scene()).call().ran(0).call()
    told.tell(ExecStarted(container_id=BOX, exec_id="live", pid=9), told.events)
    assert failed(gone(told.waited(), init_signal=9)).verdict().blame == "indeterminate"


def test_a_command_on_the_host_beside_one_that_still_runs_inside_may_have_killed_it() -> None:
    """The harness gave up to wait for the second step's command; the third step's runs beside the container."""
    told = inside(inside(seen(Scene())), ends=False).call(tools=1)
    assert failed(gone(told.waited(0.1), init_signal=9)).verdict().blame == "indeterminate"


def test_a_command_on_the_host_right_behind_one_that_ended_itself_with_137_may_have_killed_it() -> None:
    told = inside(inside(seen(Scene())), exit_code=137).call(tools=1, seconds=0.05)
    assert failed(gone(told.waited(0.1), init_signal=9)).verdict().blame == "indeterminate"


def test_an_old_kernel_tells_nothing_so_it_stays_nobodys() -> None:
    assert failed(killed(init_signal=None)).verdict().blame == "indeterminate"


def test_a_kill_for_memory_or_through_the_runtime_has_its_own_name() -> None:
    told = inside(inside(seen(Scene())), ends=False)
    assert failed(gone(told.oom(), by="oom", init_signal=9)).verdict().cause == "container.oom_kill"
    told = event(inside(inside(seen(Scene())), ends=False), "kill", signal=9)
    assert failed(gone(told, by="runtime_kill:9", init_signal=9)).verdict().cause == "container.killed"


def test_a_kill_that_the_trials_own_client_asked_for_is_not_from_outside() -> None:
    told = inside(inside(seen(Scene())), ends=False)
    told.tell(DoorContainer(action="remove", container_id=BOX, status=204, started_wall_ns=told.wall()), told.events)
    assert failed(gone(told, init_signal=9)).verdict().cause != "unknown.outside"


def test_one_that_went_with_its_engine_is_the_engines() -> None:
    told = engine(inside(inside(seen(Scene()))).call(), "lost")
    gone(told, init_signal=9)
    assert failed(engine(told, "back", restarted=True)).verdict().cause == "runtime.daemon_fault"
