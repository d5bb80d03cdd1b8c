"""Keys that a model's words ask to be typed, whole and in pieces, and what is not kept."""

from __future__ import annotations

import json

import pytest

from fairtrial.middleware.core.commands import MAX_TYPED, text_digest
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import ReplyText, typed_digests

KEYS = ['echo "it\'s"\n', "C-c", "ls \\\n\t-la é\n"]
ASKED = json.dumps({"plan": "p", "commands": [{"keystrokes": each, "duration": 0.2} for each in KEYS]})
XML = "<response><commands>" + "".join(f'<keystrokes duration="1">{each}</keystrokes>' for each in KEYS)


@pytest.mark.parametrize("text", [ASKED, f"Sure:\n```json\n{ASKED}\n```", XML, ASKED[:-3]])
@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
def test_keys_are_found_in_whatever_pieces_they_come(text: str, size: int) -> None:
    reply, tally = ReplyText(), Tally()
    for at in range(0, len(text), size):
        reply.add(text[at : at + size])
    reply.note(tally)
    assert tally.typed_digests == [text_digest(each) for each in KEYS]
    assert tally.text_chars == len(text)


@pytest.mark.parametrize(
    "text", ["", "words", '"keystrokes": 3', '"keystrokes": "open', "<keystrokes>", '"keystrokes":" "']
)
def test_words_that_ask_for_no_keys_have_none(text: str) -> None:
    reply, tally = ReplyText(), Tally()
    reply.add(text)
    reply.note(tally)
    assert tally.typed_digests == []


def test_too_many_keys_are_cut_and_too_long_a_text_tells_none() -> None:
    one = '{"keystrokes": "ls"}'
    assert len(typed_digests(one * (MAX_TYPED + 5))) == MAX_TYPED
    reply, tally = ReplyText(), Tally()
    for _ in range(30_000):
        reply.add(one)
    reply.note(tally)
    assert tally.typed_digests == []
