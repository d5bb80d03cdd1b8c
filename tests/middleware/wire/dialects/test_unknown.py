"""The dialect of last resort reads next to nothing and claims nothing."""

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects.unknown import Unknown
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest

HEAD = RequestHead("POST", "/v1/responses", Headers((("session-id", "s"),)))


def test_a_request_gives_its_sender_and_a_digest() -> None:
    seen = Unknown().read_request(HEAD, "/v1/responses", b"{}")
    assert (seen.operation, seen.session, seen.raw_digest) == ("other", digest("s"), digest(b"{}"))
    assert Unknown().read_request(HEAD, "/", b"").raw_digest is None


def test_a_reply_has_no_end_mark_that_could_be_missing() -> None:
    reader = Unknown().read_reply(ResponseHead(200, Headers()), RequestFacts())
    for _ in range(100):
        assert reader.feed(b"x" * 4096, 1)
    reader.finish(whole=False)
    assert (reader.tally.terminator, reader.tally.unread_frames, reader.tally.provider_id) == (None, 0, None)


def test_an_error_body_names_its_type_and_html_is_known() -> None:
    reader = Unknown().read_reply(ResponseHead(502, Headers()), RequestFacts())
    reader.feed(b'{"error": {"type": "bad_gateway"}}', 1)
    reader.finish(whole=True)
    assert reader.tally.error_type == "bad_gateway"
    page = Unknown().read_reply(ResponseHead(502, Headers((("content-type", "text/html"),))), RequestFacts())
    page.finish(whole=True)
    assert page.tally.html
