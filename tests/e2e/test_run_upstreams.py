"""Upstreams as people have them, under `fairtrial run`: proxies, CA bundles, IPv6, sockets, paths, several at once.

The agent is as small as can be, since what is tried is the way from the door to the upstream.
"""

import contextlib
import http.server
import json
import shutil
import socket
import ssl
import threading
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import trustme

from fairtrial.middleware.core.records import Blame, EndedAs
from fairtrial.middleware.demo.script import say
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.corporate import running_proxy
from tests.e2e.under import FAIRTRIAL, NO_DOCKER, Under, ended_by, missed, passed, run_under, step_call

SCRIPT = (say("Done."),)
AGENT = """
import json, os, sys, urllib.request
TOOL = {"name": "bash", "description": "Run.", "input_schema": {"type": "object", "properties": {}}}
BODIES = {
    "/messages": {"max_tokens": 9, "tools": [TOOL]},
    "/chat/completions": {"tools": [{"type": "function", "function": {"name": "bash", "parameters": {}}}]},
}
for variable, path in (pair.split("=") for pair in sys.argv[1:]):
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    body |= next(more for end, more in BODIES.items() if path.endswith(end))
    request = urllib.request.Request(os.environ[variable] + path, json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
            print(answer.status, path, flush=True)
    except OSError as error:
        sys.exit(f"{variable}: {error}")
"""
MESSAGES = "ANTHROPIC_BASE_URL=/v1/messages"
CHAT = "OPENAI_BASE_URL=/chat/completions"


def ask(
    home: Path,
    project: Path,
    kept: Path,
    *asks: str,
    options: tuple[str, ...] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
    **more: str,
) -> Under:
    """The agent asks at each `VARIABLE=path` in turn."""
    environment = clients.clean_environment(home, **NO_DOCKER, **more, **variables)
    return run_under([FAIRTRIAL[0], "-c", AGENT, *asks], environment, project, kept=kept, options=options)


def went_well(under: Under, calls: int = 1) -> None:
    assert under.outcome.stdout.count("200 ") == calls, under.told()
    assert not (told := missed(under, passed())), told


class Company:
    """A CA that only the company knows, and certificates of it for localhost."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost")
        self.ca, chain, key = folder / "ca.pem", folder / "chain.pem", folder / "key.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        issued.private_key_pem.write_to_path(str(key))
        chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self.tls = (chain, key)
        self._authority = authority

    def client_certificate(self, folder: Path) -> tuple[Path, Path]:
        """(certificate, key) by which a client of the company shows itself."""
        issued = self._authority.issue_cert("agent@fair.test")
        chain, key = folder / "client.pem", folder / "client.key"
        issued.private_key_pem.write_to_path(str(key))
        chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return chain, key


@pytest.fixture
def company(tmp_path: Path) -> Company:
    """One for each test."""
    return Company(tmp_path)


@pytest.mark.parametrize(
    "variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "SSL_CERT_DIR"]
)
def test_a_companys_ca_is_trusted_by_whatever_variable_names_it(
    variable: str, home: Path, project: Path, tmp_path: Path, company: Company
) -> None:
    named = company.ca
    if variable == "SSL_CERT_DIR":
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("no openssl command to hash a certificate's name")
        named = tmp_path / "certificates"
        named.mkdir()
        hashed = clients.run([openssl, "x509", "-hash", "-noout", "-in", str(company.ca)], {}, tmp_path).stdout.strip()
        (named / f"{hashed}.0").write_bytes(company.ca.read_bytes())
    with running_standin(SCRIPT, tls=company.tls) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        named_by: dict[str, str] = {variable: str(named), "ANTHROPIC_BASE_URL": url}
        under = ask(home, project, tmp_path / "kept", MESSAGES, variables=named_by)
    went_well(under)
    attempt = step_call(under.trial, 1).attempts[0]
    assert None not in {attempt.dns, attempt.connect, attempt.tls}, under.told()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_with_a_login_whatever_it_is_reached_by(
    scheme: str, home: Path, project: Path, tmp_path: Path, company: Company
) -> None:
    with (
        running_standin(SCRIPT, tls=company.tls) as server,
        running_proxy(
            server.port, tmp_path, login="me:secret", tls=company.tls if scheme == "https" else None
        ) as proxy,
    ):
        under = ask(
            home,
            project,
            tmp_path / "kept",
            MESSAGES,
            ANTHROPIC_BASE_URL="https://localhost",
            HTTPS_PROXY=proxy.url.replace("://", "://me:secret@"),
            SSL_CERT_FILE=str(company.ca),
        )
        assert set(proxy.requests) == {"CONNECT localhost:443 HTTP/1.1"}
    went_well(under)
    attempt = step_call(under.trial, 1).attempts[0]
    assert attempt.via_proxy == proxy.url.partition("://")[2], under.told()
    assert "secret" not in under.outcome.stderr + (tmp_path / "kept" / "trial.json").read_text()


def test_an_https_proxy_that_wants_a_login_is_the_operators(
    home: Path, project: Path, tmp_path: Path, company: Company
) -> None:
    with (
        running_standin(SCRIPT, tls=company.tls) as server,
        running_proxy(server.port, tmp_path, login="me:secret", tls=company.tls) as proxy,
    ):
        under = ask(
            home,
            project,
            tmp_path / "kept",
            MESSAGES,
            ANTHROPIC_BASE_URL="https://localhost",
            HTTPS_PROXY=proxy.url,
            SSL_CERT_FILE=str(company.ca),
        )
    assert not (told := missed(under, ended_by(Blame.OPERATOR, "operator.auth", 1, ended_as=EndedAs.NEVER_RAN))), told


class _Gateway(http.server.BaseHTTPRequestHandler):
    """A model API behind a company's gateway."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        usage = {"input_tokens": 3, "output_tokens": 1}
        reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
        body = json.dumps(reply | {"content": [{"type": "text", "text": "Done."}], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class calls it
        """Tests print nothing."""


@pytest.mark.parametrize("shown", [True, False])
def test_a_gateway_that_wants_a_client_certificate_gets_that_of_claude_code(
    shown: bool, home: Path, project: Path, tmp_path: Path, company: Company
) -> None:
    certificate, key = company.client_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*company.tls)
    context.load_verify_locations(company.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Gateway) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            more = {"CLAUDE_CODE_CLIENT_CERT": str(certificate), "CLAUDE_CODE_CLIENT_KEY": str(key)} if shown else {}
            under = ask(
                home,
                project,
                tmp_path / "kept",
                MESSAGES,
                variables=more,
                ANTHROPIC_BASE_URL=f"https://localhost:{server.server_address[1]}",
                CODEX_CA_CERTIFICATE=str(company.ca),
            )
        finally:
            server.shutdown()
            thread.join()
    if shown:
        went_well(under)
    else:
        assert under.outcome.returncode == 1, under.told()


def test_an_upstream_that_has_ipv6_alone(home: Path, project: Path, tmp_path: Path) -> None:
    try:
        with running_standin(SCRIPT, host="::1") as server:
            under = ask(home, project, tmp_path / "kept", MESSAGES, ANTHROPIC_BASE_URL=server.url)
    except RuntimeError as error:
        pytest.skip(f"no ::1 on this machine: {error}")
    went_well(under)


@contextlib.contextmanager
def on_a_socket(path: Path, port: int) -> Generator[None, None, None]:
    """A unix socket that leads to a port."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    threading.Thread(target=lead, args=(near, port), daemon=True).start()

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def lead(near: socket.socket, port: int) -> None:
    with near, socket.create_connection(("127.0.0.1", port)) as far:
        back = threading.Thread(target=copy, args=(far, near))
        back.start()
        copy(near, far)
        back.join()


def copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    folder = tmp_path_factory.mktemp("s")
    yield folder
    shutil.rmtree(folder)


def test_an_upstream_on_a_unix_socket(home: Path, project: Path, tmp_path: Path, short: Path) -> None:
    with running_standin(SCRIPT) as server, on_a_socket(short / "llm.sock", server.port):
        quoted = str(short / "llm.sock").replace("/", "%2F")
        under = ask(
            home,
            project,
            tmp_path / "kept",
            MESSAGES,
            CHAT,
            options=(
                "--upstream",
                f"anthropic=unix://{short}/llm.sock",
                "--upstream",
                f"openai=http+unix://{quoted}/v1",
            ),
        )
        paths = [call.path for call in server.model_calls]
    assert under.outcome.stdout.count("200 ") == 2, under.told()
    assert paths == ["/v1/messages", "/v1/chat/completions"]
    assert under.trial.coverage.families["model_api"].level == "full", under.told()


def test_claude_code_by_the_socket_that_it_was_told_of_is_seen_and_its_requests_stay_as_they_are(
    claude: Path, home: Path, project: Path, tmp_path: Path, short: Path
) -> None:
    """ANTHROPIC_UNIX_SOCKET beats the base URL, of which only path and Host are left."""
    with running_standin(SCRIPT) as server, on_a_socket(short / "api.sock", server.port):
        environment = clients.claude_environment(
            home, "http://api.fair.test/base", ANTHROPIC_UNIX_SOCKET=str(short / "api.sock"), **NO_DOCKER
        )
        under = run_under(clients.claude_command("say hello"), environment, project, kept=tmp_path / "kept")
        calls = server.model_calls
    assert json.loads(under.outcome.stdout)["result"] == "Done.", under.told()
    assert not (told := missed(under, passed())), told
    assert [(call.path, call.header("host")) for call in calls] == [("/base/v1/messages?beta=true", "api.fair.test")]
    assert step_call(under.trial, 1).attempts[0].request_id == calls[0].request_id
    assert claude.exists()


def test_several_providers_at_once_each_by_its_own_port_and_with_its_own_path(
    home: Path, project: Path, tmp_path: Path
) -> None:
    """GLM's way (`/api/anthropic`), an OpenAI-compatible one with a path, and a third by a variable of its own."""
    with running_standin(SCRIPT) as first, running_standin(SCRIPT) as second, running_standin(SCRIPT) as third:
        under = ask(
            home,
            project,
            tmp_path / "kept",
            MESSAGES,
            CHAT,
            "GLM_BASE_URL=/v1/messages",
            MESSAGES,
            options=("--route", f"GLM_BASE_URL={third.url}/api/anthropic"),
            ANTHROPIC_BASE_URL=f"{first.url}/api/anthropic",
            OPENAI_BASE_URL=f"{second.url}/compatible-mode/v1",
        )
        paths = [[call.path for call in server.model_calls] for server in (first, second, third)]
    assert under.outcome.stdout.count("200 ") == 4, under.told()
    assert paths == [
        ["/api/anthropic/v1/messages"] * 2,
        ["/compatible-mode/v1/chat/completions"],
        ["/api/anthropic/v1/messages"],
    ]
    told = json.loads((tmp_path / "kept" / "trial.json").read_text())
    doors = {
        mutation["what"]: mutation["new"].split("/t/")[0]
        for mutation in told["mutations"]
        if "BASE_URL" in mutation["what"]
    }
    assert len({doors[f"environment {name}_BASE_URL"] for name in ("ANTHROPIC", "OPENAI", "GLM")}) == 3, doors


def test_an_upstream_that_never_answers_the_connection_is_given_up_at_the_budget(
    home: Path, project: Path, tmp_path: Path
) -> None:
    """A listener whose queue is full drops the SYN: the client alone would wait for two minutes."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            full = stack.enter_context(socket.socket())
            full.setblocking(False)
            full.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        under = ask(home, project, tmp_path / "kept", MESSAGES, ANTHROPIC_BASE_URL=url)
    assert under.outcome.returncode == 1, under.told()
    assert 9 < under.outcome.duration_s < 60, under.told()
    attempt = step_call(under.trial, 1).attempts[0]
    assert (attempt.errno, attempt.close_kind, attempt.closed_by) == ("ETIMEDOUT", "dial", "upstream"), under.told()
    assert "no answer in 10 s" in under.verdict.sentence
