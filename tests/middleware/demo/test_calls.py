"""A call survives its log line, and no key gets into one."""

import pytest

from fairtrial.middleware.demo.calls import Call, from_log_line, masked, to_log_line
from fairtrial.middleware.demo.script import Usage


def call(**more: object) -> Call:
    fields: dict[str, object] = {
        "index": 0,
        "connection": 1,
        "peer_port": 4711,
        "method": "POST",
        "path": "/v1/messages?beta=true",
        "prefix": "",
        "route": "messages",
        "headers": (("X-Api-Key", masked("X-Api-Key", "secret")), ("Accept", "*/*")),
        "started_ns": 1,
    }
    return Call(**(fields | more))  # type: ignore[arg-type]  # a test's own keywords


@pytest.mark.parametrize(
    "name, value, shown",
    [
        ("Authorization", "Bearer sk-secret", "Bearer <9 characters>"),
        ("x-api-key", "sk-secret", "<9 characters>"),
        ("X-Goog-Api-Key", "secret", "<6 characters>"),
        ("accept", "application/json", "application/json"),
    ],
)
def test_keys_are_masked_by_header_name(name: str, value: str, shown: str) -> None:
    assert masked(name, value) == shown


def test_a_call_reads_back_from_its_log_line() -> None:
    seen = call(
        body=b'{"a": 1}\xff', usage=Usage(input_tokens=1, output_tokens=2), fault="cut", ended="rst", tools=("bash",)
    )
    line = to_log_line(seen)
    assert line.endswith(b"\n")
    assert from_log_line(line) == seen


def test_headers_are_found_whatever_their_case() -> None:
    assert call().header("x-API-key") == "<6 characters>"
    assert call().header("absent") is None


def test_only_a_json_object_is_a_body_to_look_into() -> None:
    assert call(body=b'{"a": 1}').json() == {"a": 1}
    with pytest.raises(TypeError, match="no JSON object"):
        call(body=b"[]").json()


def test_token_counting_is_no_model_call() -> None:
    assert call().is_model_call
    assert not call(route="count_tokens").is_model_call
