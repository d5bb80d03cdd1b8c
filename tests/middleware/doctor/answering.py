"""Something that answers as an engine does, on a unix socket."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer


@contextlib.contextmanager
def answering_engine(socket: Path, answer: Callable[[], Mapping[str, object]]) -> Iterator[str]:
    """Answers every GET with what `answer` gives; yields its address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer()).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "unix"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            return

    with UnixStreamServer(str(socket), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"unix://{socket}"
        finally:
            server.shutdown()
            thread.join()
