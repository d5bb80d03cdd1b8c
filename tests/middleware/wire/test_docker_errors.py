"""Engines' messages by kind; each is one that was seen or stands in the engine's source."""

import pytest

from fairtrial.middleware.wire.docker_errors import kind_of


@pytest.mark.parametrize(
    "message, kind",
    [
        ("toomanyrequests: You have reached your pull rate limit. You may increase the limit by", "rate_limited"),
        ("write /var/lib/docker/overlay2/x/diff/a: no space left on device", "no_space"),
        ("pull access denied for nope, repository does not exist or may require 'docker login': denied", "denied"),
        ("No such image: nope:latest", "no_image"),
        ("manifest for busybox:nope not found: manifest unknown: manifest unknown", "no_image"),
        ("invalid reference format: repository name must be lowercase", "bad_name"),
        ('Get "https://r.test/v2/": dial tcp: lookup r.test: no such host', "dns"),
        ('Get "https://r.test/v2/": tls: failed to verify certificate: x509: certificate has expired', "tls"),
        ("received unexpected HTTP status: 503 Service Unavailable", "registry_error"),
        ('error parsing HTTP 502 response body: invalid character: "<html>"', "registry_error"),
        ('error parsing HTTP 404 response body: no error details found in HTTP response body: "{}"', "no_image"),
        ('error parsing HTTP 429 response body: no error details found in HTTP response body: "{}"', "rate_limited"),
        ('error parsing HTTP 403 response body: no error details found in HTTP response body: "{}"', "denied"),
        ("unauthorized: authentication required", "denied"),
        ('Get "http://127.0.0.1:9/v2/": dial tcp 127.0.0.1:9: connect: connection refused', "unreachable"),
        (
            'Get "https://r.test/v2/": net/http: request canceled (Client.Timeout exceeded while awaiting headers)',
            "timeout",
        ),
        (
            "driver failed programming external connectivity: Bind for 0.0.0.0:80: port is already allocated",
            "port_taken",
        ),
        ('Conflict. The container name "/a" is already in use by container "ab"', "name_taken"),
        (
            'OCI runtime create failed: container_linux.go: exec: "nope": executable file not found in $PATH: unknown',
            "no_command",
        ),
        ('could not select device driver "" with capabilities: [[gpu]]', "no_device"),
        ("Container ab is not running", "not_running"),
        ("No such container: ab", "no_container"),
        ("could not find bridge docker0: route ip+net: no such network interface", "no_network"),
        ("failed to create shim task: ttrpc: closed: unknown", "runtime_gone"),
        ("something new", None),
        ("", None),
    ],
)
def test_a_message_is_of_its_kind(message: str, kind: str | None) -> None:
    assert kind_of(message) == kind


def test_a_message_without_end_is_read_up_to_a_bound() -> None:
    assert kind_of("x" * 5000 + "No such image") is None
