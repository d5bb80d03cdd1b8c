"""The pipeline on real sockets and a real store: nobody waits, no span goes twice, every span is counted."""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.exporters.pipeline import TracePipeline
from fairtrial.exporters.settings import settings_of
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.config import ExportConfig
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.database import insert_trial, open_database, open_trial_row
from fairtrial.middleware.store.exports import Counts
from fairtrial.middleware.store.schema import pack
from tests.fakes.collector import Collector, http_collector
from tests.fakes.traced import a_step, a_trial, a_verdict, span_count

LONG_S = 20.0


@contextmanager
def pipeline(
    store: Path, collector: Collector | str, config: ExportConfig | None = None, **more: str
) -> Iterator[TracePipeline]:
    """Started, and closed at the end; `more`: OTEL_BSP_SCHEDULE_DELAY and the like."""
    url = collector if isinstance(collector, str) else collector.url
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "100"} | more
    made = TracePipeline(
        store, settings_of(environ, config), Journal(io.StringIO()), version="0", host="node", first_wait_s=0.3
    )
    made.start()
    try:
        yield made
    finally:
        made.close(0)


def eventually(what: Callable[[], bool], within_s: float = LONG_S) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stored(store: Path, *trials: Trial, wanted: bool = True) -> None:
    """Close these trials in the store, as the observer does."""
    database = open_database(store)
    with database:
        for trial in trials:
            open_trial_row(database, trial, 1, None, None)
            if wanted:
                exports.want(database, trial.trial, None, None, 1)
            insert_trial(database, trial)
    database.close()


def books(store: Path) -> Counts:
    database = open_database(store)
    counts = exports.counts(database)
    database.close()
    assert counts.produced == counts.exported + counts.pending + counts.lost
    return counts


def test_every_span_arrives_once_in_bounded_requests(tmp_path: Path) -> None:
    with (
        http_collector() as collector,
        pipeline(tmp_path / "s.db", collector, OTEL_BSP_MAX_EXPORT_BATCH_SIZE="100") as traces,
    ):
        traces.put(a_trial(steps=50), root_span_id="cd" * 8)
        assert traces.settled(LONG_S)
        counts = traces.close(5)
    assert counts == Counts(produced=span_count(50), exported=span_count(50)) == books(tmp_path / "s.db")
    assert len(collector.seen) == len(set(collector.seen)) == span_count(50)
    assert "cd" * 8 in collector.seen
    assert max(len(got.ids) for got in collector.got) == 100


def test_put_never_waits_for_a_collector_that_hangs(tmp_path: Path) -> None:
    with (
        http_collector(otherwise="hang", probe="hang") as collector,
        pipeline(tmp_path / "s.db", collector, OTEL_EXPORTER_OTLP_TIMEOUT="300") as traces,
    ):
        begun = time.monotonic()
        for _ in range(50):
            traces.put(a_trial())
        assert time.monotonic() - begun < 1.0
        counts = traces.close(10)
    assert counts == Counts(produced=50 * span_count(1), pending=50 * span_count(1)) == books(tmp_path / "s.db")
    assert collector.seen == [], "it was asked without spans, and did not answer"


def test_a_collector_that_hangs_after_a_pause_is_given_no_spans(tmp_path: Path) -> None:
    with (
        http_collector() as collector,
        pipeline(tmp_path / "s.db", collector, OTEL_EXPORTER_OTLP_TIMEOUT="300") as traces,
    ):
        traces.put(a_trial())
        assert traces.settled(LONG_S)
        assert (collector.probes, len(collector.got)) == (1, 1)
        collector.probe = collector.otherwise = "hang"
        time.sleep(1.1)  # an answer proves for a second that somebody is there
        traces.put(a_trial())
        assert traces.close(3).pending == span_count(1)
    assert len(collector.got) == 1


def test_what_a_dead_collector_did_not_get_is_sent_by_the_next_start(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with pipeline(store, "http://127.0.0.1:1") as traces:
        traces.put(a_trial(steps=3))
        begun = time.monotonic()
        assert traces.close(10).pending == span_count(3)
        assert time.monotonic() - begun < 5, "a refused connection is not waited for"
        assert traces.trouble is not None
        assert "127.0.0.1:1" in traces.trouble
    with http_collector() as collector, pipeline(store, collector) as traces:
        counts = traces.close(LONG_S)
    assert counts == Counts(produced=span_count(3), exported=span_count(3))
    assert len(collector.seen) == len(set(collector.seen)) == span_count(3)


@pytest.mark.parametrize("word", ["503", "429", "502", "504", "408"])
def test_a_busy_collector_is_asked_again_and_gets_each_span_once(tmp_path: Path, word: str) -> None:
    with http_collector(word, word) as collector, pipeline(tmp_path / "s.db", collector) as traces:
        traces.put(a_trial())
        eventually(lambda: traces.counts().exported == span_count(1))
    assert len(collector.taken) == len(set(collector.taken)) == span_count(1)
    assert len(collector.got) == 3
    assert collector.probes == 3, "after each failure it is asked without spans first"


@pytest.mark.slow
def test_retry_after_is_honoured(tmp_path: Path) -> None:
    with http_collector("429:2") as collector, pipeline(tmp_path / "s.db", collector) as traces:
        traces.put(a_trial())
        eventually(lambda: len(collector.got) == 1)
        first = time.monotonic()
        eventually(lambda: len(collector.got) == 2)
        assert time.monotonic() - first >= 1.9


@pytest.mark.slow
def test_retry_after_is_honoured_by_the_next_start_too(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with http_collector("503:3") as collector:
        with pipeline(store, collector) as traces:
            traces.put(a_trial())
            eventually(lambda: len(collector.got) == 1)
            assert traces.close(1).pending == span_count(1)
        first = time.monotonic()
        with pipeline(store, collector) as traces:
            traces.put(a_trial())
            eventually(lambda: len(collector.got) == 3)
            assert time.monotonic() - first >= 1.5
            eventually(lambda: traces.counts().exported == 2 * span_count(1))


def test_what_the_collector_rejected_is_counted_as_dropped(tmp_path: Path) -> None:
    with http_collector("partial:2") as collector, pipeline(tmp_path / "s.db", collector) as traces:
        traces.put(a_trial())
        assert traces.close(LONG_S) == Counts(
            produced=span_count(1), exported=span_count(1) - 2, dropped={"rejected": 2}
        )
    assert len(collector.got) == 1


@pytest.mark.parametrize("word", ["400", "500", "415"])
def test_a_refused_batch_is_dropped_counted_and_not_sent_again(tmp_path: Path, word: str) -> None:
    with http_collector(word) as collector, pipeline(tmp_path / "s.db", collector) as traces:
        traces.put(a_trial())
        traces.put(a_trial())
        counts = traces.close(LONG_S)
    assert (counts.exported, counts.dropped) == (span_count(1), {f"http_{word[0]}xx": span_count(1)})
    assert len(collector.got) == 2


def test_a_request_that_is_too_large_is_halved_until_it_fits(tmp_path: Path) -> None:
    with http_collector("413", "413", "413") as collector, pipeline(tmp_path / "s.db", collector) as traces:
        traces.put(a_trial(steps=4))
        counts = traces.close(LONG_S)
    assert counts == Counts(produced=span_count(4), exported=span_count(4))
    assert len(collector.taken) == len(set(collector.taken)) == span_count(4)


def test_a_single_span_that_is_too_large_is_dropped(tmp_path: Path) -> None:
    with http_collector(otherwise="413") as collector, pipeline(tmp_path / "s.db", collector) as traces:
        traces.put(a_trial())
        counts = traces.close(LONG_S)
    assert counts == Counts(produced=span_count(1), dropped={"too_large": span_count(1)})


@pytest.mark.parametrize("word", ["401", "403", "404", "307"])
def test_wrong_keys_or_a_wrong_address_lose_nothing(tmp_path: Path, word: str) -> None:
    store = tmp_path / "s.db"
    with http_collector(otherwise=word) as collector, pipeline(store, collector) as traces:
        traces.put(a_trial())
        traces.put(a_trial())
        assert traces.close(10).pending == 2 * span_count(1)
        assert len(collector.got) == 1, "one is enough to know"
    with http_collector() as collector, pipeline(store, collector) as traces:
        assert traces.close(LONG_S).exported == 2 * span_count(1)


@pytest.mark.parametrize("word", ["die", "reset", "hang", "drip"])
def test_a_batch_whose_fate_is_unknown_is_never_sent_again(tmp_path: Path, word: str) -> None:
    with (
        http_collector(word) as collector,
        pipeline(tmp_path / "s.db", collector, OTEL_EXPORTER_OTLP_TIMEOUT="500") as traces,
    ):
        traces.put(a_trial())
        eventually(lambda: traces.counts().lost > 0)
        traces.put(a_trial())
        eventually(lambda: traces.counts().exported > 0)
        counts = traces.close(5)
    assert counts == Counts(produced=2 * span_count(1), exported=span_count(1), dropped={"unconfirmed": span_count(1)})
    assert len(collector.seen) == len(set(collector.seen)) == 2 * span_count(1)


def test_a_connection_that_breaks_while_sending_makes_no_span_go_twice(tmp_path: Path) -> None:
    with (
        http_collector("half") as collector,
        pipeline(tmp_path / "s.db", collector, OTEL_BSP_MAX_EXPORT_BATCH_SIZE="100000") as traces,
    ):
        traces.put(a_trial(steps=300))
        eventually(lambda: traces.counts().exported + traces.counts().lost == span_count(300))
        counts = traces.close(5)
    # Where all of a request fitted into the socket's buffers, nobody knows; else it is sent again.
    assert set(counts.dropped) <= {"unconfirmed"}
    assert len(collector.seen) == len(set(collector.seen)) == counts.exported


def test_a_killed_process_trace_is_sent_once_by_the_next_start_as_incomplete(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    stored(store, a_trial(closed="recovered"))
    with http_collector() as collector:
        for _ in range(2):
            with pipeline(store, collector) as traces:
                assert traces.close(LONG_S) == Counts(produced=span_count(1), exported=span_count(1))
    (got,) = collector.got
    assert len(got.ids) == span_count(1)
    assert semconv.INCOMPLETE.encode() in got.body


def test_a_trial_whose_trace_nobody_asked_for_is_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    stored(store, a_trial(), wanted=False)
    with http_collector() as collector, pipeline(store, collector) as traces:
        assert traces.close(LONG_S) == Counts()
    assert collector.seen == []


def test_a_batch_that_a_killed_process_was_sending_is_not_sent_again(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with pipeline(store, "http://127.0.0.1:1") as traces:
        traces.put(a_trial())
        traces.close(5)
    database = open_database(store)
    assert exports.claim(database, now_ns=time.time_ns(), lease_ns=300_000_000) is not None
    database.close()
    with http_collector() as collector, pipeline(store, collector) as traces:
        eventually(lambda: traces.counts().lost > 0)
        assert traces.close(5) == Counts(produced=span_count(1), dropped={"unconfirmed": span_count(1)})
    assert collector.seen == []


def test_a_revised_verdict_is_a_linked_span_and_nothing_goes_twice(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    first = a_trial(cause=None, steps=0)
    first = msgspec.structs.replace(first, steps=[a_step(1, oom_kills=None)])
    revised = msgspec.structs.replace(first, steps=[a_step(1)], verdict=a_verdict(revision=2))
    with http_collector() as collector, pipeline(store, collector) as traces:
        stored(store, first)
        traces.put(first)
        assert traces.settled(LONG_S)
        stored(store, revised)
        traces.put(revised)
        traces.put(revised)
        assert traces.settled(LONG_S)
        counts = traces.close(5)
    assert len(collector.seen) == len(set(collector.seen)) == counts.exported == counts.produced
    late = collector.got[-1].body
    for name in (semconv.SPAN_VERDICT, semconv.SPAN_OOM_KILL, semconv.SPAN_LATE_EVIDENCE):
        assert name.encode() in late
    assert counts.produced == span_count(1) - 1 + 3


def test_a_store_that_takes_nothing_is_stood_in_for_and_the_rest_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    store = tmp_path / "file" / "s.db"
    with http_collector() as collector, pipeline(store, collector) as traces:
        traces.put(a_trial())
        assert traces.close(LONG_S) == Counts(produced=span_count(1), exported=span_count(1))
    assert len(collector.seen) == span_count(1)
    with pipeline(store, "http://127.0.0.1:1") as traces:
        traces.put(a_trial())
        assert traces.close(5) == Counts(produced=span_count(1), dropped={"store_failed": span_count(1)})


def test_without_a_store_only_what_is_surely_new_of_a_revised_verdict_goes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with http_collector() as collector, pipeline(tmp_path / "file" / "s.db", collector) as traces:
        traces.put(a_trial(verdict=a_verdict(revision=2)))
        assert traces.close(LONG_S) == Counts(produced=1, exported=1)
    assert semconv.SPAN_VERDICT.encode() in collector.got[0].body


def test_without_a_store_and_a_collector_memory_is_bounded_and_the_loss_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    settings = settings_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY": "50"})
    traces = TracePipeline(
        tmp_path / "file" / "s.db", settings, Journal(io.StringIO()), version="0", host=None, memory_bytes=10_000
    )
    traces.start()
    for _ in range(40):
        traces.put(a_trial())
    assert traces.settled(LONG_S)
    eventually(lambda: traces.counts().produced == 40 * span_count(1))
    during = traces.counts()
    assert during.pending + during.dropped["store_limit"] == during.produced
    assert 0 < during.pending < during.produced / 2
    after = traces.close(1)
    assert after.pending == 0
    assert after.lost == after.produced == 40 * span_count(1)


def test_a_trial_that_a_failing_store_knows_is_not_sent_from_memory(tmp_path: Path) -> None:
    """The next start finds it and sends it: from here it would go twice."""
    store = tmp_path / "s.db"
    trial = a_trial()
    stored(store, trial)
    database = open_database(store)
    database.execute("CREATE TRIGGER full BEFORE INSERT ON export_batches BEGIN SELECT RAISE(FAIL, 'full'); END")
    database.commit()
    with http_collector() as collector:
        with pipeline(store, collector) as traces:
            traces.put(trial)
            assert traces.settled(LONG_S)
            traces.close(1)
        assert collector.seen == []
        database.execute("DROP TRIGGER full")
        database.commit()
        with pipeline(store, collector) as traces:
            assert traces.close(LONG_S) == Counts(produced=span_count(1), exported=span_count(1))
        assert len(collector.seen) == len(set(collector.seen)) == span_count(1)
    database.close()


def test_a_trial_that_cannot_be_laid_out_keeps_no_other_from_it(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    broken, whole = a_trial(started="the day before"), a_trial()
    left = a_trial()
    stored(store, left)
    database = open_database(store)
    with database:
        exports.want(database, "poison", None, None, 0)
        database.execute("INSERT INTO trials (trial, started_ns, closed) VALUES ('poison', 0, 'normal')")
        body = pack(msgspec.json.encode(msgspec.structs.replace(broken, trial="poison")))
        database.execute("INSERT INTO verdicts VALUES ('poison', 1, '', 0, ?)", (body,))
    database.close()
    with http_collector() as collector, pipeline(store, collector) as traces:
        traces.put(broken)
        traces.put(whole)
        counts = traces.close(LONG_S)
    assert counts.exported == 2 * span_count(1) == len(collector.seen)
    assert counts.lost == counts.dropped["bug"] == counts.produced - counts.exported > 0


def test_more_than_the_queue_holds_is_found_in_the_store_or_counted(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    trials = [a_trial() for _ in range(30)]
    unknown = a_trial()
    stored(store, *trials)
    with http_collector() as collector:
        with pipeline(store, collector, OTEL_BSP_MAX_QUEUE_SIZE="1") as traces:
            for trial in (*trials, unknown):
                traces.put(trial)
            counts = traces.close(LONG_S)
        lost = counts.dropped.get("queue", 0)
        assert counts.produced == counts.exported + lost
        assert counts.exported in (30 * span_count(1), 31 * span_count(1))
        assert (lost > 0) == (counts.exported == 30 * span_count(1))
        assert len(collector.seen) == len(set(collector.seen)) == counts.exported


def test_an_outage_costs_disk_within_its_limit_and_every_span_is_counted(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    limit = ExportConfig(pending_limit_bytes=20_000)
    with pipeline(store, "http://127.0.0.1:1", limit) as traces:
        for _ in range(60):
            traces.put(a_trial())
        counts = traces.close(10)
    assert counts.produced == 60 * span_count(1) == counts.pending + counts.dropped["store_limit"]
    assert 0 < counts.pending < counts.produced
    with http_collector() as collector, pipeline(store, collector, limit) as traces:
        after = traces.close(LONG_S)
    assert after == Counts(produced=counts.produced, exported=counts.pending, dropped=counts.dropped)
    assert len(collector.seen) == len(set(collector.seen)) == counts.pending


@pytest.mark.parametrize("sampler, exported", [("always_off", 0), ("always_on", span_count(1))])
def test_the_sampler_decides_about_whole_trials(tmp_path: Path, sampler: str, exported: int) -> None:
    with (
        http_collector() as collector,
        pipeline(tmp_path / "s.db", collector, OTEL_TRACES_SAMPLER=sampler) as traces,
    ):
        traces.put(a_trial())
        assert traces.close(LONG_S) == Counts(produced=exported, exported=exported)


def test_the_older_genai_names_go_out_under_their_schema(tmp_path: Path) -> None:
    with (
        http_collector() as collector,
        pipeline(tmp_path / "s.db", collector, ExportConfig(genai_names="1.41")) as traces,
    ):
        traces.put(a_trial())
        traces.close(LONG_S)
    body = collector.got[0].body
    assert semconv.CACHE_CREATION_TOKENS.encode() in body
    assert b"https://opentelemetry.io/schemas/1.41.0" in body
    assert semconv.CACHE_WRITE_TOKENS.encode() not in body


def test_grpc_without_grpcio_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "fairtrial.exporters.over_grpc", raising=False)
    with pipeline(tmp_path / "s.db", "http://127.0.0.1:1", OTEL_EXPORTER_OTLP_PROTOCOL="grpc") as traces:
        traces.put(a_trial())
        assert traces.close(5).pending == span_count(1)
        assert traces.trouble is not None
        assert "pip install '.[grpc]'" in traces.trouble


WORDS = st.sampled_from(
    ["ok", "partial:3", "400", "401", "413", "429", "429:0", "503", "503:0", "die", "reset", "hang", "half", "drip"]
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    script=st.lists(WORDS, max_size=12),
    probes=st.lists(st.sampled_from(["ok", "400", "503", "die", "hang", "401"]), min_size=1, max_size=4),
    sessions=st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=1, max_size=4),
)
def test_any_interleaving_of_answers_and_restarts_balances_the_books_and_sends_nothing_twice(
    script: list[str], probes: list[str], sessions: list[list[int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder, http_collector(*script) as collector:
        store = Path(folder) / "s.db"
        produced = 0
        for number, session in enumerate(sessions):
            collector.probe = probes[number % len(probes)]
            with pipeline(
                store, collector, OTEL_EXPORTER_OTLP_TIMEOUT="150", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="20"
            ) as traces:
                for steps in session:
                    traces.put(a_trial(steps=steps))
                    produced += span_count(steps)
                traces.close(1.5)
            counts = books(store)
            assert counts.produced == produced
            assert only_refused_ones_came_again(collector)
            assert counts.exported <= len(collector.taken) == len(set(collector.taken))


def only_refused_ones_came_again(collector: Collector) -> bool:
    """A span may be shown again to a collector that said no, never to one that said yes or nothing."""
    final = ("ok", "partial", "die", "reset", "hang", "drip", "400")
    done: set[str] = set()
    for got in collector.got:
        if done & set(got.ids):
            return False
        if got.said.startswith(final):
            done |= set(got.ids)
    return True
