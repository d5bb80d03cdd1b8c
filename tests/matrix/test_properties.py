"""The properties of VERDICTS section 2, on the whole engine: trials made by chance, and trials that were recorded.

Taking an observation away together with its coverage never makes a proof of infra; what the agent wrote never changes
the blame; order and repeats do not matter.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.thresholds import Thresholds, load
from fairtrial.middleware.core.observations import GapSeen, Note, Observation, encode_value
from fairtrial.middleware.core.records import Blame, Grade, Trust, Verdict
from fairtrial.middleware.steps.assembler import assemble
from tests.matrix import generated
from tests.matrix.cases import ALL
from tests.matrix.confusion import differences, found_in
from tests.matrix.recorded import RECORDED, read
from tests.matrix.scenario import Scenario
from tests.middleware.attribution.scene import ended, summary

KEPT: Final = {name: read(name) for name in RECORDED}
PROOF: Final = (Blame.INFRA, Grade.PROVED)
WORDS: Final = ["Killed", "API Error: Overloaded", "No space left on device", "overloaded_error", "oom-kill", "429"]


def observed(source: int | str) -> list[Observation]:
    """A trial by its seed, or a recorded one by its name."""
    return KEPT[source] if isinstance(source, str) else generated.trial(source).observations


sources = st.one_of(st.integers(0, 2**32), st.sampled_from(RECORDED))


def verdict_on(observations: Sequence[Observation]) -> Verdict:
    trial = next(o.subject.trial for o in observations if o.subject.trial is not None)
    return judge(assemble(observations, trial))


def blinded(observations: Sequence[Observation], gone: Sequence[Observation]) -> list[Observation]:
    """Without some observations *and their coverage*: their source is shown to have been blind at that time."""
    lost = {id(o) for o in gone}
    left = [o for o in observations if id(o) not in lost]
    for number, o in enumerate(gone):
        door = o.source.startswith("door.model")
        gap = GapSeen(
            source="observer" if o.source in {"run", "observer"} else o.source,
            families=["model_api"] if door else ["memory", "cpu", "network", "node", "disk"],
            since_ns=o.wall_ns - 10**9,
            until_ns=o.wall_ns + 10**6,
            lost_records=1,
        )
        told = {"source": "feed", "source_id": "gap", "seq": number, "kind": gap.kind, "value": encode_value(gap)}
        left.append(msgspec.structs.replace(o, id=f"{o.id}-gap", **told))
    return left


@given(sources, st.lists(st.integers(0, 2**16), min_size=1, max_size=5))
@settings(max_examples=400, deadline=None)
def test_taking_away_observations_with_their_coverage_never_makes_a_proof_of_infra(
    source: int | str, places: list[int]
) -> None:
    told = observed(source)
    gone = [told[place] for place in {place % len(told) for place in places}]
    whole, blind = verdict_on(told), verdict_on(blinded(told, gone))
    if (whole.blame, whole.grade) != PROOF:
        assert (blind.blame, blind.grade) != PROOF, blind.sentence


@given(sources, st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_order_and_repeats_do_not_matter(source: int | str, seed: int) -> None:
    told = observed(source)
    chance = random.Random(seed)
    mixed = [*told, *chance.sample(told, len(told) // 3)]
    chance.shuffle(mixed)
    assert msgspec.json.encode(verdict_on(mixed)) == msgspec.json.encode(verdict_on(told))


@given(sources, st.sampled_from(RECORDED), st.sampled_from(WORDS), st.integers(0, 100))
@settings(max_examples=300, deadline=None)
def test_what_the_agent_wrote_never_changes_the_verdict(source: int | str, copied: str, words: str, where: int) -> None:
    """It may tell everything that a recorded fault left, as long as it can only say so from inside; and any words."""
    told = observed(source)
    trial = next(o.subject.trial for o in told if o.subject.trial is not None)
    at = told[min(where, len(told) - 1)]
    forged = [
        msgspec.structs.replace(
            o,
            id=f"{o.id}-forged",
            source_id="agent",
            seq=number,
            trust=Trust.INSIDE,
            wall_ns=at.wall_ns + number,
            subject=msgspec.structs.replace(o.subject, trial=trial),
        )
        for number, o in enumerate(KEPT[copied])
        if o.kind not in {"trial.started", "trial.ended", "attempt.started", "attempt.ended"}
    ]
    note = Note(event="agent.wrote", text=words)
    written = {"kind": note.kind, "value": encode_value(note), "source_id": "agent", "seq": len(forged)}
    said = msgspec.structs.replace(at, id=f"{at.id}-said", trust=Trust.INSIDE, **written)
    before, after = verdict_on(told), verdict_on([*(_worded(o, words) for o in told), *forged, said])
    assert (summary(after), ended(after)) == (summary(before), ended(before))


def _worded(o: Observation, words: str) -> Observation:
    """The same, with the model's own words in a reply that came whole."""
    reply = o.value.get("reply")
    if o.kind != "attempt.ended" or o.value.get("outcome", "ok") != "ok" or not isinstance(reply, dict):
        return o
    if (reply.get("status") or 0) >= 300 or reply.get("error_in_stream") or reply.get("html"):
        return o
    uses = [dict(use) | {"name": words} for use in reply.get("tool_calls", [])]
    changed = {"error_type": words, "text_digest": words, "error_names": ["quota", "credit"], "tool_calls": uses}
    return msgspec.structs.replace(o, value=dict(o.value) | {"reply": reply | changed})


def thresholds_of(scenario: Scenario) -> Thresholds:
    """Those that the scenario set by its environment."""
    prefix = "FAIRTRIAL_VERDICT__"
    told = {k.removeprefix(prefix).lower(): float(v) for k, v in scenario.environment.items() if k.startswith(prefix)}
    return load(told)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_trial_is_judged_anew_as_it_was_written_down(name: str) -> None:
    scenario = next(s for s in ALL if s.name == name)
    observations = read(name)
    trial = next(o.subject.trial for o in observations if o.subject.trial is not None)
    assembly = assemble(observations, trial)
    found = found_in(msgspec.structs.replace(assembly.trial, verdict=judge(assembly, thresholds_of(scenario))))
    assert found is not None
    wrong = differences(scenario.right, found)
    if wrong and scenario.awaits is not None:
        pytest.xfail(f"{wrong[0]}; awaits {scenario.awaits}")
    assert not wrong, [*wrong, found.sentence]


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_names_no_machine_and_no_secret(name: str) -> None:
    text = b"\n".join(msgspec.json.encode(o) for o in KEPT[name]).decode()
    for word in ("/home/", "/root/", "/work/", "/tmp/", "dummy"):
        assert word not in text
