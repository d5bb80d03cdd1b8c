"""Each `OTEL_…` variable that applies, what it does, and what a wrong one says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fairtrial.exporters.bounds import Bounds
from fairtrial.exporters.settings import ExportSettings, asked_for, is_sampled, settings_of
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.config import ExportConfig

OTLP = "OTEL_EXPORTER_OTLP_"


@pytest.mark.parametrize(
    "environ, asked",
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "zipkin"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "no"}, True),
    ],
)
def test_traces_are_sent_only_where_they_were_asked_for(environ: dict[str, str], asked: bool) -> None:
    assert asked_for(environ) is asked


@pytest.mark.parametrize(
    "environ, endpoint",
    [
        ({}, "http://localhost:4318/v1/traces"),
        ({f"{OTLP}ENDPOINT": "http://h:1"}, "http://h:1/v1/traces"),
        ({f"{OTLP}ENDPOINT": "http://h:1/base/"}, "http://h:1/base/v1/traces"),
        ({f"{OTLP}ENDPOINT": "http://h:1", f"{OTLP}TRACES_ENDPOINT": "http://t:2/as/is"}, "http://t:2/as/is"),
        ({f"{OTLP}PROTOCOL": "grpc"}, "http://localhost:4317"),
        ({f"{OTLP}PROTOCOL": "grpc", f"{OTLP}ENDPOINT": "https://h:1"}, "https://h:1"),
    ],
)
def test_the_endpoint_of_traces_goes_before_the_general_one(environ: dict[str, str], endpoint: str) -> None:
    assert settings_of(environ).endpoint == endpoint


@pytest.mark.parametrize(
    "name, value, field, expected",
    [
        ("PROTOCOL", "http/json", "protocol", "http/json"),
        ("PROTOCOL", " GRPC ", "protocol", "grpc"),
        ("TIMEOUT", "2500", "timeout_s", 2.5),
        ("COMPRESSION", "gzip", "compression", "gzip"),
        ("COMPRESSION", "deflate", "compression", "deflate"),
        ("CERTIFICATE", "/ca.pem", "certificate", "/ca.pem"),
        ("CLIENT_CERTIFICATE", "/c.pem", "client_certificate", "/c.pem"),
        ("CLIENT_KEY", "/k.pem", "client_key", "/k.pem"),
        ("INSECURE", "true", "insecure", True),
        ("HEADERS", "Authorization=Bearer%20abc, x = y ", "headers", {"authorization": "Bearer abc", "x": "y"}),
    ],
)
def test_the_variable_of_traces_goes_before_the_general_one(
    name: str, value: str, field: str, expected: object
) -> None:
    default = getattr(settings_of({}), field)
    assert default != expected
    assert getattr(settings_of({f"{OTLP}{name}": value}), field) == expected
    both = settings_of({f"{OTLP}TRACES_{name}": value, f"{OTLP}{name}": "7"})
    assert getattr(both, field) == expected
    assert getattr(settings_of({f"{OTLP}{name}": ""}), field) == default


@pytest.mark.parametrize(
    "environ, field, expected",
    [
        ({}, "batch_spans", 512),
        ({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10"}, "batch_spans", 10),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "99"}, "queue_spans", 99),
        ({"OTEL_BSP_SCHEDULE_DELAY": "200"}, "delay_s", 0.2),
        ({"OTEL_BSP_EXPORT_TIMEOUT": "400"}, "timeout_s", 0.4),
        ({"OTEL_BSP_EXPORT_TIMEOUT": "40000"}, "timeout_s", 10.0),
        ({f"{OTLP}TIMEOUT": "0"}, "timeout_s", 10.0),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "sampled", 0.0),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, "sampled", 1.0),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, "sampled", 0.25),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}, "sampled", 0.5),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, "sampled", 1.0),
        ({"OTEL_RESOURCE_ATTRIBUTES": "team=a%20b,service.name=no,x"}, "resource", {"team": "a b"}),
        ({"OTEL_SERVICE_NAME": "no"}, "resource", {}),
    ],
)
def test_the_other_variables(environ: dict[str, str], field: str, expected: object) -> None:
    assert getattr(settings_of(environ), field) == expected


@pytest.mark.parametrize(
    "environ, bounds",
    [
        ({}, Bounds()),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "5"}, Bounds(attributes=5)),
        ({"OTEL_ATTRIBUTE_COUNT_LIMIT": "6"}, Bounds(attributes=6, event_attributes=6)),
        (
            {"OTEL_ATTRIBUTE_COUNT_LIMIT": "6", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "5"},
            Bounds(attributes=5, event_attributes=6),
        ),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "999"}, Bounds()),
        ({"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "9"}, Bounds(text_chars=9)),
        ({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "8"}, Bounds(text_chars=8)),
        ({"OTEL_SPAN_EVENT_COUNT_LIMIT": "2"}, Bounds(events=2)),
        ({"OTEL_SPAN_LINK_COUNT_LIMIT": "1"}, Bounds(links=1)),
        ({"OTEL_SPAN_LINK_COUNT_LIMIT": "500"}, Bounds()),
        ({"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "3"}, Bounds(event_attributes=3)),
    ],
)
def test_limits_may_be_lowered_and_never_raised(environ: dict[str, str], bounds: Bounds) -> None:
    assert settings_of(environ).bounds == bounds


@pytest.mark.parametrize(
    "environ, said",
    [
        ({f"{OTLP}PROTOCOL": "smoke"}, "http/protobuf, http/json or grpc"),
        ({f"{OTLP}TIMEOUT": "10s"}, "a whole number"),
        ({f"{OTLP}COMPRESSION": "brotli"}, "none, gzip or deflate"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "a whole number"),
        ({"OTEL_TRACES_SAMPLER": "jaeger_remote"}, "always_on, always_off or traceidratio"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}, "a number from 0 to 1"),
        ({f"{OTLP}HEADERS": "Bearer sk-secret"}, "has no `=`"),
    ],
)
def test_what_cannot_be_used_is_said_and_the_default_stays(environ: dict[str, str], said: str) -> None:
    settings = settings_of(environ)
    (complaint,) = settings.complaints
    assert said in complaint
    assert "sk-secret" not in complaint
    plain = settings_of({})
    assert (settings.timeout_s, settings.compression, settings.queue_spans, settings.sampled) == (
        plain.timeout_s,
        plain.compression,
        plain.queue_spans,
        plain.sampled,
    )


def test_our_own_section_chooses_names_and_the_size_of_the_outbox() -> None:
    settings = settings_of({}, ExportConfig(genai_names="1.41", pending_limit_bytes=5))
    assert settings.profile.schema_url.endswith("1.41.0")
    assert settings.pending_limit_bytes == 5
    wrong = settings_of({}, ExportConfig(genai_names="0.1"))
    assert wrong.profile == semconv.GENAI_PROFILES["newest"]
    assert "newest or 1.41" in wrong.complaints[0]


def test_no_key_is_shown() -> None:
    settings = settings_of({f"{OTLP}HEADERS": "authorization=very-secret", f"{OTLP}ENDPOINT": "http://u:pw@h:1"})
    assert "very-secret" not in repr(settings)
    assert "pw" not in settings.shown


@pytest.mark.parametrize(
    "endpoint, address",
    [
        ("http://h", ("h", 80)),
        ("https://h/v1/traces", ("h", 443)),
        ("http://h:4318/v1/traces", ("h", 4318)),
        ("h:4317", ("h", 4317)),
        ("http://[::1]:9", ("::1", 9)),
    ],
)
def test_the_address_is_what_will_be_dialled(endpoint: str, address: tuple[str, int]) -> None:
    assert ExportSettings(endpoint=endpoint).address == address


def test_an_endpoint_without_a_host_is_told() -> None:
    with pytest.raises(ValueError, match="names no host"):
        _ = ExportSettings(endpoint="http://").address


def test_the_sampled_part_is_told_from_the_lower_half_of_the_trace_id() -> None:
    low, high = "f" * 16 + "0" * 16, "0" * 16 + "f" * 16
    assert [is_sampled(low, 0.01), is_sampled(high, 0.99), is_sampled(high, 1.0), is_sampled(low, 0.0)] == [
        True,
        False,
        True,
        False,
    ]


def test_reading_the_settings_loads_nothing_of_opentelemetry() -> None:
    program = (
        "import sys, fairtrial.exporters.settings; "
        "print(sorted({'opentelemetry', 'google', 'grpc', 'httpx'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
