"""Dials inside a network of the test's own: `unshare --net --mount python -m tests.middleware.relay.inside PLAN`.

In: a plan (JSON).  Out: one JSON list of DIAL records on standard output.  The namespace has loopback and a device
`d0` into which packets vanish, so a connection to one of its neighbours is a SYN that is never answered; `hosts` and
a name server of our own are what the system's resolver sees.

Plan: {loop, url, hosts: {name: [address]}, delay_s: {name: seconds or null}, settings, dials, also, listen, tls, store,
prefer_4}.
`url` has {port} for the port of the servers, which listen on each address of `listen`; `also` is a second upstream,
dialled once while the others are under way; `store` {cafile or capath: path} is mounted over the system's.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import uvloop

from fairtrial.middleware.relay.dial import DialFailed, Dialler
from fairtrial.middleware.relay.ends import HangupWatch
from fairtrial.middleware.relay.settings import RelaySettings, Upstream

NETWORK = """
ip link set lo up
ip link add d0 type veth peer name d1
ip link set d0 up
ip link set d1 up
ip address add 10.9.0.1/24 dev d0
ip -6 address add 2001:db8:9::1/64 dev d0 nodad
ip -6 address add fd00:9::1/64 dev d0 nodad
"""
NEIGHBOURS = ("10.9.0.2", "10.9.0.3", *(f"2001:db8:9::{n}" for n in range(2, 8)))
"""With an address of hardware that nobody has: what is sent to them is dropped."""
ADDRESS_ROW = struct.Struct(">HHHIH4s")


def main() -> None:
    """Set the network up, dial, tell."""
    plan = json.loads(sys.argv[1])
    for line in NETWORK.strip().splitlines():
        subprocess.run(line.split(), check=True)
    for address in NEIGHBOURS:
        neighbour = f"ip neighbour add {address} lladdr 02:00:00:00:00:99 dev d0 nud permanent"
        subprocess.run(neighbour.split(), check=True)
    folder = tempfile.mkdtemp(prefix="ft-inside-")
    hosts = [f"{address} {name}" for name, addresses in plan.get("hosts", {}).items() for address in addresses]
    mount(folder, "/etc/hosts", "127.0.0.1 localhost\n" + "\n".join(hosts) + "\n")
    mount(folder, "/etc/resolv.conf", "nameserver 127.0.0.1\n")
    if plan.get("prefer_4"):
        mount(folder, "/etc/gai.conf", "precedence ::ffff:0:0/96 100\n")
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))  # before anybody asks: a port without a server refuses at once
    threading.Thread(target=answer_names, args=(names, plan.get("delay_s", {})), daemon=True).start()
    paths = ssl.get_default_verify_paths()
    for kind, path in plan.get("store", {}).items():
        subprocess.run(["mount", "--bind", path, getattr(paths, f"openssl_{kind}")], check=True)
    port = listen(plan.get("listen", ["127.0.0.1"]), plan.get("tls"))
    runner = uvloop.new_event_loop if plan["loop"] == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=runner) as loop:
        print(json.dumps(loop.run(dials(plan, port))), flush=True)
        os._exit(0)  # threads that wait for a silent name server would hold the end up


def mount(folder: str, over: str, text: str) -> None:
    """Let a file of ours stand in the place of the system's, in this namespace alone."""
    path = os.path.join(folder, os.path.basename(over))
    with open(path, "w") as file:
        file.write(text)
    subprocess.run(["mount", "--bind", path, os.path.realpath(over)], check=True)


def listen(addresses: list[str], tls: dict[str, str] | None) -> int:
    """One port on each of these addresses; what connects is kept, and spoken TLS with if there is a certificate."""
    port = 0
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        server = socket.create_server((address, port), family=family)
        port = server.getsockname()[1]
        threading.Thread(target=keep, args=(server, tls), daemon=True).start()
    return port


def keep(server: socket.socket, tls: dict[str, str] | None) -> None:
    """Accept for ever."""
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls["chain"], tls["key"])
    kept: list[socket.socket] = []
    while True:
        sock, _ = server.accept()
        try:
            kept.append(sock if context is None else context.wrap_socket(sock, server_side=True))
        except OSError:
            continue


def answer_names(server: socket.socket, delay_s: dict[str, float | None]) -> None:
    """A name server: 127.0.0.1 for each name that is known, after its delay; null is silence."""
    while True:
        query, peer = server.recvfrom(512)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        kind = int.from_bytes(query[at + 1 : at + 3], "big")
        name = ".".join(labels)
        if name in delay_s and delay_s[name] is None:
            continue
        time.sleep(delay_s.get(name) or 0)
        found = name in delay_s and kind == 1
        flags = 0x8180 if name in delay_s else 0x8183
        head = query[:2] + struct.pack(">HHHHH", flags, 1, int(found), 0, 0)
        row = ADDRESS_ROW.pack(0xC00C, 1, 1, 1, 4, socket.inet_aton("127.0.0.1")) if found else b""
        server.sendto(head + query[12 : at + 5] + row, peer)


async def dials(plan: dict[str, Any], port: int) -> list[dict[str, object]]:
    """The records of all dials, `also` last."""
    loop = asyncio.get_running_loop()
    watch = HangupWatch(loop)
    settings = RelaySettings(**plan.get("settings", {}))
    dialler = Dialler(loop, watch, Upstream.parse("x", plan["url"].format(port=port)), settings)
    waiting = [loop.create_task(dial(dialler)) for _ in range(plan.get("dials", 1))]
    if "also" in plan:
        await asyncio.sleep(0.1)
        beside = Dialler(loop, watch, Upstream.parse("y", plan["also"].format(port=port)), settings)
        waiting.append(loop.create_task(dial(beside)))
    return list(await asyncio.gather(*waiting))


async def dial(dialler: Dialler) -> dict[str, object]:
    """One record."""
    began = time.monotonic()
    try:
        link, report = await dialler.dial()
        link.reset()
    except DialFailed as failed:
        report = failed.report
    return report.as_json() | {"spent_s": time.monotonic() - began}


if __name__ == "__main__":
    main()
