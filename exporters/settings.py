"""The `OTEL_…` variables that apply to traces, as one record.

In: the environment, and the section `[export]` of our own settings.  Out: `ExportSettings`, whose `complaints` say in a
sentence what could not be used.  Loads nothing of OpenTelemetry, so that whoever asks for no traces pays nothing.

A variable of traces (`OTEL_EXPORTER_OTLP_TRACES_…`) goes before the general one.  Times are milliseconds, as the
specification has them (Python's own exporter reads seconds).  `OTEL_SERVICE_NAME` is not read: three services speak.

**Source:** OpenTelemetry specification 1.58: protocol/exporter.md, configuration/sdk-environment-variables.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from fairtrial.exporters.bounds import Bounds
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.config import ExportConfig
from fairtrial.middleware.core.masking import mask_url

Protocol = Literal["http/protobuf", "http/json", "grpc"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("http/protobuf", "http/json", "grpc")
Compression = Literal["none", "gzip", "deflate"]
COMPRESSIONS: Final[tuple[Compression, ...]] = ("none", "gzip", "deflate")
PREFIX: Final = "OTEL_EXPORTER_OTLP_"
TRACES_PATH: Final = "v1/traces"
NO_GRPC: Final = (
    "OTLP over gRPC needs grpcio, which is not installed: `pip install '.[grpc]'` in its clone, "
    "or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf and the port of OTLP/HTTP, usually 4318"
)
_SAMPLERS: Final = ("always_on", "always_off", "traceidratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """What the exporter goes by.  Durations in seconds; files are paths; `sampled`: which share of trials is sent."""

    endpoint: str
    protocol: Protocol = "http/protobuf"
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout_s: float = 10.0
    compression: Compression = "none"
    certificate: str | None = None
    client_certificate: str | None = None
    client_key: str | None = field(default=None, repr=False)
    insecure: bool = False
    resource: Mapping[str, str] = field(default_factory=dict[str, str])
    bounds: Bounds = field(default_factory=Bounds)
    batch_spans: int = 512
    queue_spans: int = 2048
    delay_s: float = 5.0
    sampled: float = 1.0
    profile: semconv.GenAiProfile = semconv.GENAI_PROFILES[semconv.GENAI_NEWEST]
    pending_limit_bytes: int = 256 << 20
    complaints: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The endpoint as it may be printed."""
        return mask_url(self.endpoint)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are dialled.  Raises `ValueError` for an endpoint that names none."""
        parts = urlsplit(self.endpoint if "://" in self.endpoint else f"//{self.endpoint}")
        if not parts.hostname:
            raise ValueError(f"{self.shown} names no host")
        default = 443 if parts.scheme == "https" else 80
        return parts.hostname, parts.port or (4317 if self.protocol == "grpc" and not parts.scheme else default)


def asked_for(environ: Mapping[str, str]) -> bool:
    """Whether traces are to be sent: an endpoint is named, or the exporter is named `otlp`, and nothing forbids it."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = _words(environ.get("OTEL_TRACES_EXPORTER", ""))
    if exporters and "otlp" not in exporters:
        return False
    return bool(exporters or environ.get(f"{PREFIX}TRACES_ENDPOINT") or environ.get(f"{PREFIX}ENDPOINT"))


def settings_of(environ: Mapping[str, str], config: ExportConfig | None = None) -> ExportSettings:
    """The settings in force.  What cannot be used is left at its default and said in `complaints`."""
    return _Reader(environ, config or ExportConfig()).settings()


def _words(text: str) -> list[str]:
    return [word.strip().lower() for word in text.split(",") if word.strip()]


class _Reader:
    """Reads each variable once, collecting complaints."""

    def __init__(self, environ: Mapping[str, str], config: ExportConfig) -> None:
        self._environ = environ
        self._config = config
        self._complaints: list[str] = []

    def settings(self) -> ExportSettings:
        protocol = self._protocol()
        sampled = self._sampled()
        delay_ms = self._number("OTEL_BSP_SCHEDULE_DELAY", 5000)
        return ExportSettings(
            endpoint=self._endpoint(protocol),
            protocol=protocol,
            headers=self._pairs("HEADERS", self._signal("HEADERS")),
            timeout_s=self._timeout_s(),
            compression=self._compression(),
            certificate=self._signal("CERTIFICATE"),
            client_certificate=self._signal("CLIENT_CERTIFICATE"),
            client_key=self._signal("CLIENT_KEY"),
            insecure=(self._signal("INSECURE") or "").lower() == "true",
            resource=self._resource(),
            bounds=self._bounds(),
            batch_spans=max(1, self._number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)),
            queue_spans=max(1, self._number("OTEL_BSP_MAX_QUEUE_SIZE", 2048)),
            delay_s=max(0.05, delay_ms / 1000),
            sampled=sampled,
            profile=self._profile(),
            pending_limit_bytes=self._config.pending_limit_bytes,
            complaints=tuple(self._complaints),
        )

    def _complain(self, name: str, value: str, wanted: str) -> None:
        self._complaints.append(f"{name} is {value!r}, but {wanted} is expected; the default is used")

    def _signal(self, name: str) -> str | None:
        """The variable of traces, else the general one; an empty one is unset."""
        return self._environ.get(f"{PREFIX}TRACES_{name}") or self._environ.get(f"{PREFIX}{name}") or None

    def _number(self, name: str, default: int) -> int:
        text = self._environ.get(name, "").strip()
        if not text:
            return default
        if text.isascii() and text.isdigit():
            return int(text)
        self._complain(name, text, "a whole number")
        return default

    def _protocol(self) -> Protocol:
        text = (self._signal("PROTOCOL") or "http/protobuf").strip().lower()
        for known in PROTOCOLS:
            if text == known:
                return known
        self._complain(f"{PREFIX}PROTOCOL", text, "http/protobuf, http/json or grpc")
        return "http/protobuf"

    def _endpoint(self, protocol: Protocol) -> str:
        own = self._environ.get(f"{PREFIX}TRACES_ENDPOINT", "").strip()
        general = self._environ.get(f"{PREFIX}ENDPOINT", "").strip()
        if protocol == "grpc":
            return own or general or "http://localhost:4317"
        if own:
            return own
        return f"{(general or 'http://localhost:4318').rstrip('/')}/{TRACES_PATH}"

    def _timeout_s(self) -> float:
        own = self._number(f"{PREFIX}TRACES_TIMEOUT", self._number(f"{PREFIX}TIMEOUT", 10_000))
        # 0 is "no limit" to some; one export that never ends would keep all others from going.
        return min(own or 10_000, self._number("OTEL_BSP_EXPORT_TIMEOUT", 30_000) or 30_000) / 1000

    def _compression(self) -> Compression:
        text = (self._signal("COMPRESSION") or "none").strip().lower()
        for known in COMPRESSIONS:
            if text == known:
                return known
        self._complain(f"{PREFIX}COMPRESSION", text, "none, gzip or deflate")
        return "none"

    def _pairs(self, name: str, text: str | None) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for item in (text or "").split(","):
            key, equals, value = item.partition("=")
            if equals and key.strip():
                pairs[unquote(key.strip()).lower()] = unquote(value.strip())
            elif item.strip():
                # Its value may be a key: only how it should look is said.
                self._complaints.append(f"an item of {PREFIX}{name} has no `=`; it is left out")
        return pairs

    def _resource(self) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for item in self._environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
            key, equals, value = item.partition("=")
            if equals and key.strip() and key.strip() != semconv.SERVICE_NAME:
                pairs[unquote(key.strip())] = unquote(value.strip())
        return pairs

    def _bounds(self) -> Bounds:
        """Ours are ceilings: a variable may lower them, not raise them."""
        ours = Bounds()
        attributes = self._number("OTEL_ATTRIBUTE_COUNT_LIMIT", 128)
        chars_given = any(
            self._environ.get(name)
            for name in ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
        )
        chars = self._number(
            "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", self._number("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", 0)
        )
        return Bounds(
            attributes=min(128, self._number("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", attributes)),
            text_chars=chars if chars_given else None,
            events=min(ours.events or 0, self._number("OTEL_SPAN_EVENT_COUNT_LIMIT", 128)),
            links=min(ours.links or 0, self._number("OTEL_SPAN_LINK_COUNT_LIMIT", 128)),
            event_attributes=min(
                ours.event_attributes or 0, self._number("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", attributes)
            ),
        )

    def _sampled(self) -> float:
        """Trials are roots of ours, so a parent-based sampler is what it says for roots."""
        name = self._environ.get("OTEL_TRACES_SAMPLER", "").strip().lower().removeprefix("parentbased_")
        if not name or name == "always_on":
            return 1.0
        if name == "always_off":
            return 0.0
        if name not in _SAMPLERS:
            self._complain(
                "OTEL_TRACES_SAMPLER", name, "always_on, always_off or traceidratio, with or without parentbased_"
            )
            return 1.0
        text = self._environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1"
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if 0.0 <= ratio <= 1.0:
            return ratio
        self._complain("OTEL_TRACES_SAMPLER_ARG", text, "a number from 0 to 1")
        return 1.0

    def _profile(self) -> semconv.GenAiProfile:
        name = self._config.genai_names
        if name in semconv.GENAI_PROFILES:
            return semconv.GENAI_PROFILES[name]
        self._complain("export.genai_names", name, " or ".join(semconv.GENAI_PROFILES))
        return semconv.GENAI_PROFILES[semconv.GENAI_NEWEST]


def is_sampled(trace_id: str, part: float) -> bool:
    """Whether a trace is among the sampled ones, as the SDK's `TraceIdRatioBased` has it."""
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased  # late: see the module

    return int(trace_id, 16) & TraceIdRatioBased.TRACE_ID_LIMIT < TraceIdRatioBased.get_bound_for_rate(part)
