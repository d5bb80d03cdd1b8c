"""A stand-in for the observer process: decodes the feed, writes each record as a JSON line, answers as told.

Run as `observer.py --feed-fd N`.  FAKE_OBSERVER_DIR: the folder for `<n>.jsonl`, n counting the processes from 1.
FAKE_OBSERVER: JSON with `crash` (numbers of the processes that exit at once), `silent` (never answers), `lines`,
`gate`, `containers`.  It also says what it inherited: its descriptors, session and group.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fairtrial.middleware.wire.feed import Decoder, Kind, Record, encode_json


def main() -> int:
    link = socket.socket(fileno=int(sys.argv[sys.argv.index("--feed-fd") + 1]))
    plan = json.loads(os.environ.get("FAKE_OBSERVER", "{}"))
    folder = Path(os.environ["FAKE_OBSERVER_DIR"])
    number, log = next(claimed(folder))
    if number in plan.get("crash", []):
        print(f"observer {number} crashes as told", file=sys.stderr)
        return 9

    def write(value: dict[str, object]) -> None:
        log.write(json.dumps(value) + "\n")
        log.flush()

    write(
        {
            "kind": "START",
            "pid": os.getpid(),
            "sid": os.getsid(0),
            "pgid": os.getpgid(0),
            "fds": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
            "feed": link.fileno(),
            "log": log.fileno(),
            "status": [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Sig")],
        }
    )
    decoder = Decoder()
    while chunk := link.recv(1 << 16):
        for record in decoder.feed(chunk):
            write(shown(record))
            if record.kind == Kind.HELLO:
                link.sendall(encode_json(Kind.READY, {"pid": os.getpid()}))
                if "containers" in plan:
                    link.sendall(encode_json(Kind.WATCHED, {"containers": plan["containers"]}))
            if record.kind == Kind.BYE and not plan.get("silent"):
                answer = {"lines": plan.get("lines", ["fairtrial: stand-in verdict"]), "gate": plan.get("gate")}
                link.sendall(encode_json(Kind.VERDICT, answer))
                write({"kind": "END"})
                return 0
    write({"kind": "EOF"})
    return 0


def claimed(folder: Path) -> Iterator[tuple[int, IO[str]]]:
    """The first number that no other observer of this test has taken, and its file."""
    for number in itertools.count(1):
        try:
            log = (folder / f"{number}.jsonl").open("x", encoding="utf-8")
        except FileExistsError:
            continue
        yield number, log


def shown(record: Record) -> dict[str, object]:
    value: dict[str, object] = {"kind": Kind(record.kind).name, "t_ns": record.t_ns, "conn": record.conn}
    facts = record.json()
    if facts:
        value["json"] = facts
    else:
        value["text"] = record.payload.decode("latin-1")
    return value


if __name__ == "__main__":
    sys.exit(main())
