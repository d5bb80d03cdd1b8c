"""The engine: what outranks what, what blocks a verdict, and the properties of VERDICTS section 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import (
    CoverageChanged,
    GapSeen,
    Note,
    Observation,
    ReplyFacts,
    ToolUse,
    TrialEnded,
    encode_value,
)
from fairtrial.middleware.core.records import Blame, Grade, Outcome, Trust, Verdict, Victim
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.attribution.scene import (
    MIB,
    Scene,
    ended,
    full_tmpfs,
    model_failed,
    storm,
    summary,
)


def booked(scene: Scene, outcome: Outcome) -> Verdict:
    """The verdict when a harness's own result, not the exit code, says how the trial ended."""
    assembly = scene.assembly()
    trial = msgspec.structs.replace(assembly.trial, outcome=outcome, outcome_source="harbor")
    return judge(Assembly(trial=trial, placed=assembly.placed, attempt_call=assembly.attempt_call))


# --- what blocks a verdict ------------------------------------------------------------------------------------------


def test_a_trial_without_an_end_is_nobodys() -> None:
    told = Scene().call().ran(0).refused(529, times=9)
    verdict = told.verdict()
    assert summary(verdict) == ("indeterminate", None, None, None)
    assert verdict.final_after is None


@pytest.mark.parametrize("build", [model_failed, storm, full_tmpfs])
@pytest.mark.parametrize("source", ["observer", "store"])
def test_a_lost_observer_or_a_changed_store_is_nobodys(build: Callable[[], Scene], source: str) -> None:
    told = build()
    lost = Scene(box=False)
    lost.s = 0.5
    told.observations.append(lost.tell(GapSeen(source=source, why="killed"), lost.runner))
    assert told.verdict().blame == "indeterminate"


def test_a_gap_of_the_door_in_the_decisive_window_is_nobodys() -> None:
    told = storm()
    told.gap(since=5.0, until=6.0)
    verdict = told.verdict()
    assert verdict.blame == "indeterminate"
    assert "not watched without a gap" in verdict.sentence


def test_a_gap_of_the_door_before_the_decisive_window_costs_nothing() -> None:
    told = model_failed()
    told.gap(since=0.2, until=0.3)
    assert told.verdict().blame == "model"


def test_a_door_that_went_off_before_the_end_is_a_gap_and_at_the_end_is_none() -> None:
    early = Scene().call().ran(0).refused(529, times=3)
    early.tell(CoverageChanged(source="door.model.anthropic", families=["model_api"], state="lost"), early.door)
    assert early.waited(9).end(1).verdict().blame == "indeterminate"
    late = storm()
    late.tell(CoverageChanged(source="door.model.anthropic", families=["model_api"], state="off"), late.door)
    assert late.verdict().blame == "infra"


def test_an_outcome_that_nobody_recorded_is_nobodys() -> None:
    assert Scene().call().ran(0).end(None).verdict().blame == "indeterminate"


def test_no_observations_at_all_are_nobodys() -> None:
    assert Scene().verdict([]).blame == "indeterminate"


# --- what outranks what ---------------------------------------------------------------------------------------------


def test_a_trial_booked_as_passed_by_its_harness_has_no_blame_but_its_dead_harness_is_said() -> None:
    verdict = booked(storm(), Outcome.PASSED)
    assert summary(verdict) == ("none", None, None, None)
    assert ended(verdict) == ("model_api.overloaded", "proved", 2)
    assert "although" in verdict.sentence
    assert verdict.answers.reward_valid == "unknown"
    assert [p.cause for p in verdict.present] == ["model_api.overloaded"]


def test_a_trial_booked_as_failed_by_its_harness_is_judged_whatever_the_exit_code() -> None:
    told = Scene().call().ran(0).refused(529, times=3).end(0)
    assert summary(booked(told, Outcome.FAILED)) == ("infra", "proved", "model_api.overloaded", 2)


def test_the_earliest_event_with_three_yeses_wins_over_a_stronger_looking_suspicion() -> None:
    told = Scene().call().ran(137, oom=True, victim=Victim(comm="x", pid=1, rss=MIB)).refused(500, times=2).end(1)
    assert summary(told.verdict())[:3] == ("infra", "proved", "model_api.server_error")


def test_a_proved_terminal_event_wins_over_an_earlier_bent_step() -> None:
    told = Scene().call().ran(0).cut()
    told.turns += 1
    verdict = told.call().ran(0).refused(529, times=2).end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "model_api.overloaded", 4)
    assert verdict.against != []


def test_what_ended_the_trial_comes_before_what_bent_it_when_both_are_only_suspected() -> None:
    told = Scene().call().ran(0).cut()
    told.turns += 1
    verdict = told.call().ran(137, oom=True).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 3)


def test_many_alike_present_events_are_told_in_one_row() -> None:
    told = Scene()
    for _ in range(6):
        told.refused(529).call().ran(0)
    verdict = told.call(tools=0).end(1).verdict()
    assert len(verdict.present) == 1
    assert "6 times, in steps 1-6" in verdict.present[0].why


def test_the_verdict_says_its_thresholds_its_revision_and_when_it_is_final() -> None:
    told = storm()
    verdict = judge(told.assembly(), revision=3)
    assert verdict.thresholds["headroom_k"] == 3.0
    assert verdict.revision == 3
    assert verdict.final_after is not None
    assert verdict.final_after > (told.assembly().trial.ended or "")


# --- look-alikes: what must never come out as infra -----------------------------------------------------------------


def own_kill() -> Scene:
    return Scene().call().ran(137).call(tools=0).end(1)


def own_kill_of_its_harness() -> Scene:
    return Scene().call().waited().end(None, signal=9)


def endless_loop() -> Scene:
    return Scene().call().ran(124, seconds=3600).call(tools=0).end(1)


def wrong_request() -> Scene:
    return Scene().call().ran(0).refused(400).end(1)


def stopped_for_length() -> Scene:
    return Scene().call().ran(0).call(tools=0, stop_reason="length").end(1)


def printed_words() -> Scene:
    told = Scene().call(text_digest="Killed", error_type="overloaded_error").ran(1)
    told.tell(Note(event="agent.printed", text="API Error: Overloaded. Killed. No space left on device"), told.runner)
    return told.call(tools=0).end(1)


def junk_at_the_door() -> Scene:
    told = Scene().call()
    for _ in range(3):
        junk = msgspec.structs.replace(told.request(), user_agent="curl/8.5.0", session=None)
        told.attempt(ReplyFacts(status=529, error_type="overloaded_error"), outcome="error", request=junk, seconds=0.1)
    return told.call(tools=0).end(1)


def junk_after_the_last_word() -> Scene:
    told = Scene().call().ran(1).call(tools=0)
    junk = msgspec.structs.replace(told.request(), user_agent="curl/8.5.0", session=None)
    told.attempt(ReplyFacts(status=529, error_type="overloaded_error"), outcome="error", request=junk, seconds=0.1)
    return told.end(1)


def killed_fairtrial() -> Scene:
    return Scene().call().ran(137, oom=True).refused(529, times=5)


LOOK_ALIKES = [
    own_kill,
    own_kill_of_its_harness,
    endless_loop,
    wrong_request,
    stopped_for_length,
    printed_words,
    junk_at_the_door,
    junk_after_the_last_word,
    killed_fairtrial,
]


@pytest.mark.parametrize("build", LOOK_ALIKES, ids=lambda b: b.__name__)
def test_a_look_alike_is_never_infra(build: Callable[[], Scene]) -> None:
    verdict = build().verdict()
    assert verdict.blame is not Blame.INFRA
    if build is not killed_fairtrial:
        assert verdict.terminated_by is None


@pytest.mark.parametrize("build", [own_kill, endless_loop, stopped_for_length, printed_words, junk_after_the_last_word])
def test_these_look_alikes_are_the_models(build: Callable[[], Scene]) -> None:
    assert build().verdict().blame is Blame.MODEL


# --- properties -----------------------------------------------------------------------------------------------------


def recovered_oom() -> Scene:
    return Scene().call().ran(137, oom=True).call().ran(0).call(tools=0).end(1)


def recovered_529() -> Scene:
    return Scene().call().ran(0).refused(529, times=2).call().ran(0).call(tools=0).end(1)


def passed() -> Scene:
    return Scene().call().ran(137, oom=True).call().ran(0).refused(529).call(tools=0).end(0)


def kept_cut() -> Scene:
    told = Scene().call().ran(0).cut()
    told.turns += 1
    return told.call().ran(0).call(tools=0).end(1)


def refused_key() -> Scene:
    return Scene().refused(401, times=3).end(1)


def cancelled() -> Scene:
    return Scene().call().ran(0).call().waited().end(130, forwarded=[2])


SCENES: list[Callable[[], Scene]] = [
    model_failed,
    storm,
    full_tmpfs,
    own_kill,
    junk_at_the_door,
    printed_words,
    wrong_request,
    recovered_oom,
    recovered_529,
    passed,
    kept_cut,
    refused_key,
    cancelled,
]

scenes = st.sampled_from(SCENES)


def comparable(verdict: Verdict) -> bytes:
    return msgspec.json.encode(verdict)


@given(scenes, st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_order_and_repeats_do_not_matter(build: Callable[[], Scene], seed: int) -> None:
    told = build()
    assert comparable(told.verdict(told.shuffled(seed))) == comparable(told.verdict())


def blinded(told: Scene, gone: list[Observation]) -> list[Observation]:
    """The scene without some observations *and their coverage*: their source is shown to have been blind then."""
    left = [o for o in told.observations if o not in gone]
    for o in gone:
        families = ["model_api"] if o.source.startswith("door") else ["memory", "cpu", "network", "node", "disk"]
        source = "observer" if o.source == "run" else o.source
        gap = GapSeen(
            source=source,
            families=families,
            since_ns=o.wall_ns - 10**9,
            until_ns=o.wall_ns + 10**6,
            lost_records=1,
        )
        left.append(
            msgspec.structs.replace(
                o,
                id=o.id + "-gap",
                source="feed",
                source_id="gap",
                kind=gap.kind,
                seq=o.seq * 1000 + len(left),
                value=encode_value(gap),
            )
        )
    return left


@given(scenes, st.data())
@settings(max_examples=400, deadline=None)
def test_taking_away_an_observation_with_its_coverage_never_makes_a_proof_of_infra(
    build: Callable[[], Scene], data: st.DataObject
) -> None:
    told = build()
    whole = told.verdict()
    gone = data.draw(st.lists(st.sampled_from(told.observations), min_size=1, max_size=4, unique_by=id))
    blind = told.verdict(blinded(told, gone))
    if (whole.blame, whole.grade) != (Blame.INFRA, Grade.PROVED):
        assert (blind.blame, blind.grade) != (Blame.INFRA, Grade.PROVED)


WORDS = st.sampled_from(
    ["Killed", "API Error: Overloaded", "No space left on device", "overloaded_error", "\x1b[2J", "oom-kill", "429"]
)


@given(scenes, WORDS, st.integers(0, 10))
@settings(max_examples=150, deadline=None)
def test_words_that_the_agent_wrote_never_change_the_blame(build: Callable[[], Scene], words: str, where: int) -> None:
    told = build()
    whole = told.verdict()
    at = told.observations[min(where, len(told.observations) - 1)]
    forged = [
        msgspec.structs.replace(
            o, id=o.id + "-forged", source_id="agent", seq=n, trust=Trust.INSIDE, wall_ns=at.wall_ns + n
        )
        for n, o in enumerate([*storm().observations, *full_tmpfs().observations])
        if o.kind in {"cgroup.oom_kill", "kernel.oom_kill", "container.event", "coverage", "coverage.gap"}
    ]
    note = Note(event="agent.wrote", text=words)
    told.tell(note, told.runner, trust=Trust.INSIDE)
    changed: list[Observation] = []
    for o in told.observations:
        value = dict(o.value)
        reply = value.get("reply")
        if o.kind == "attempt.ended" and value.get("outcome", "ok") == "ok" and isinstance(reply, dict):
            uses = [ToolUse(id=u.get("id"), name=words) for u in reply.get("tool_calls", [])]
            value["reply"] = reply | {
                "error_type": words,
                "text_digest": words,
                "error_names": ["quota", "credit"],
                "tool_calls": msgspec.to_builtins(uses),
            }
        changed.append(msgspec.structs.replace(o, value=value))
    after = told.verdict([*changed, *forged])
    assert summary(after) == summary(whole)
    assert ended(after) == ended(whole)


@given(scenes)
@settings(max_examples=len(SCENES) * 2, deadline=None)
def test_a_verdict_keeps_to_the_table_of_causes(build: Callable[[], Scene]) -> None:
    verdict = build().verdict()
    named = [p.cause for p in verdict.present]
    if verdict.cause is not None:
        named.append(verdict.cause)
        assert verdict.blame in CAUSES[verdict.cause].may_blame
        assert verdict.grade is not None
    if verdict.terminated_by is not None:
        named.append(verdict.terminated_by.cause)
    assert all(CAUSES[name].built for name in named)
    assert verdict.sentence.endswith(".")
    assert all(c.isprintable() for c in verdict.sentence)


def behind_serve(told: Scene, *, why: str | None, closed: Literal["normal", "incomplete"] = "incomplete") -> Verdict:
    """The same trial as `fairtrial serve` records it: no command, and an end that fairtrial gave it."""
    for observation in told.observations:
        if observation.kind == "trial.started":
            observation.value.pop("command", None)
    told.tell(TrialEnded(closed=closed, why=why), told.runner)
    return told.verdict()


def test_a_trial_that_serve_closed_while_it_was_open_says_so_and_suspects_no_tampering() -> None:
    verdict = behind_serve(Scene().call(tools=0), why="fairtrial serve was ended")
    assert verdict.blame is Blame.INDETERMINATE
    assert "was open when fairtrial closed it (fairtrial serve was ended)" in verdict.sentence
    assert "may have been stopped" not in verdict.sentence
    lost = Scene().call(tools=0)
    lost.gap(since=0.2, until=0.5, source="observer", families=["model_api"])
    assert "another user" not in behind_serve(lost, why=None, closed="normal").sentence


def test_a_call_that_serve_cut_is_fairtrials_doing_and_nobody_elses() -> None:
    told = Scene().attempt(
        ReplyFacts(status=200, provider_id=True, started_content=True, terminator=False),
        outcome="proxy_shutdown",
        first_failure="fairtrial",
        closed_by="fairtrial",
        close_kind="abort",
    )
    verdict = behind_serve(told, why="fairtrial serve was ended", closed="normal")
    causes = {present.cause for present in verdict.present} | {verdict.cause}
    assert "harness.client_timeout" not in causes
    assert any(cause is not None and cause.startswith("observer.") for cause in causes)
