"""What a hub's honest clients notice of attacks: the table of docs/security.md.

    .venv/bin/python -m benches.attacks [--seconds 20] [--local] [NAME ...]

Two honest clients, each a process, replicate through a hub, one appending 50 messages a second, while a hostile process
uses half a core for one attack; then, on another hub, while a process uses half a core for nothing. All of it is on
this machine, in a network of its own, where the hostile process has an address that is not a loopback one, as a
stranger has.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc

import gossiplog
from benches.pages import DOCS, head, line, rewrite
from gossiplog import Signer, core
from gossiplog.errors import GossipLogError
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.network import Network, open_network
from gossiplog.net.transport.stream import Stream
from gossiplog.protocol import wire
from gossiplog.protocol.wire import GetChildren, GetRoot, Insert, Protocols, Update
from tests.namespaces import ADDRESS, isolated, may_isolate

TOPIC = "attacks.example.com"
PROTOCOLS = Protocols(TOPIC)
SHARE = 0.5
"""Of one core, for an attacker."""
_BIG = 4 * 2**20 - 4096
_INTERVAL = 0.02
_WARM_UP = 1.0
"""Of honest clients: after a first sync a log has its index and a checkpoint to write, attack or not."""
_NAME = "hub.example.org"
"""Of the network's address."""
_MALLORY = Signer(b"\x66" * 32)


class Pace:
    """Keeps the process to a share of a core.

    Args:
        report: a file that gets the number of steps, from time to time.
    """

    def __init__(self, report: Path) -> None:
        self._report = report
        self._steps = 0
        self._tell()
        self._begin, self._used = time.monotonic(), time.process_time()

    async def keep(self) -> None:
        """Count a step; wait until the time that was used is the share of the time that has passed."""
        self._steps += 1
        if time.monotonic() - self._reported > 0.1:
            self._tell()
        used, passed = time.process_time() - self._used, time.monotonic() - self._begin
        await anyio.sleep(max(0.0, used / SHARE - passed))

    def _tell(self) -> None:
        # Whole, whenever it is read.
        draft = self._report.with_suffix(".draft")
        draft.write_text(str(self._steps))
        draft.replace(self._report)
        self._reported = time.monotonic()


@dataclass(frozen=True, slots=True)
class Target:
    """A hub under attack.

    Attributes:
        host: address.
        port: of TCP.
        network: to connect with.
        pace: to keep.
    """

    host: str
    port: int
    network: Network
    pace: Pace

    @property
    def url(self) -> str:
        return f"ws://{self.host}:{self.port}"

    @asynccontextmanager
    async def push(self) -> AsyncIterator[Stream]:
        """A connection with a push stream, whose first Update is sent."""
        async with await self.connect() as connection, await connection.open_stream(PROTOCOLS.push) as stream:
            await stream.send(wire.encode_push(Update([])))
            yield stream

    async def connect(self) -> Connection:
        return await self.network.dial(self.url, PROTOCOLS.all)

    async def socket(self) -> anyio.abc.SocketStream:
        return await anyio.connect_tcp(self.host, self.port)


Attack = Callable[[Target], Awaitable[None]]


async def again(target: Target, attack: Attack) -> None:
    """An attack over and over; the hub ends connections as it likes."""
    while True:
        try:
            await attack(target)
        except* (GossipLogError, OSError, anyio.EndOfStream, anyio.BrokenResourceError):
            await anyio.sleep(0.01)
        await target.pace.keep()


async def busy(target: Target) -> None:
    """Nothing to the hub: a loop that uses as much time."""
    end = time.process_time() + 0.005
    while time.process_time() < end:
        pass


async def garbage(target: Target) -> None:
    """Random bytes as WebSocket messages."""
    async with await target.socket() as socket:
        await socket.send(_upgrade(target))
        await socket.receive()
        while True:
            await socket.send(b"\x82\xfe\x04\x00" + os.urandom(4 + 1024))
            await target.pace.keep()


async def protocol_errors(target: Target) -> None:
    """WebSocket frames that no client may send, and bytes after them."""
    async with await target.socket() as socket:
        await socket.send(_upgrade(target))
        await socket.receive()
        for _ in range(50):
            await socket.send(b"\x82\x05hello" + os.urandom(256))


async def half_open(target: Target) -> None:
    """A thousand requests that never end."""
    sockets: list[anyio.abc.SocketStream] = []
    try:
        for _ in range(1000):
            sockets.append(await target.socket())
            await sockets[-1].send(b"GET /api/clock HTTP/1.1\r\nHost: ")
            await target.pace.keep()
        await anyio.sleep(1)
    finally:
        for socket in sockets:
            await socket.aclose()


async def churn(target: Target) -> None:
    """Connections that end as soon as they stand."""
    async with target.push():
        pass


async def silent(target: Target) -> None:
    """Two hundred clients that join and read nothing."""
    async with anyio.create_task_group() as tasks:

        async def join() -> None:
            async with target.push():
                await anyio.sleep(30)

        for _ in range(200):
            tasks.start_soon(join)
            await target.pace.keep()


async def unsorted(target: Target) -> None:
    """Pushes of 4 MiB, of many small maps whose keys are not sorted, under a signature that does not hold."""
    entry = b"\xa2\x61\x62\x00\x61\x61\x00"
    count = _BIG // len(entry)
    payload = b"\x9a" + count.to_bytes(4, "big") + entry * count
    value = _forged(payload)
    await _push(target, lambda: [value])


async def signatures(target: Target) -> None:
    """Pushes of messages whose signatures do not hold."""
    values = [_forged(core.cbor_encode({"n": n})) for n in range(256)]
    await _push(target, lambda: values)


async def alternatives(target: Target) -> None:
    """Encodings of one message, 64 KiB each."""
    _, value = _MALLORY.sign(TOPIC, 1, [], {"amount": 100})
    payload = core.cbor_encode({"amount": 100})
    entry = core.cbor_encode("__proto__")

    def batch() -> list[bytes]:
        junk = (core.cbor_encode(os.urandom(2**15).hex()) for _ in range(16))
        return [value.removesuffix(payload) + b"\xa2" + entry + other + payload[1:] for other in junk]

    await _push(target, batch)


async def orphans(target: Target) -> None:
    """Messages whose parents nobody has."""

    def batch() -> list[bytes]:
        parents = [core.encode_id(core.encode_clock(1) + os.urandom(19)) for _ in range(64)]
        return [_MALLORY.sign(TOPIC, 2, [parent], os.urandom(16))[1] for parent in parents]

    await _push(target, batch)


async def roots(target: Target) -> None:
    """Messages that follow nothing."""
    await _push(target, lambda: [_MALLORY.sign(TOPIC, 1, [], os.urandom(16))[1] for _ in range(64)])


async def chain(target: Target) -> None:
    """Messages of one author, each of which follows the one before."""
    clock, parents = 0, list[str]()

    def batch() -> list[bytes]:
        nonlocal clock, parents
        values: list[bytes] = []
        for _ in range(64):
            clock += 1
            key, value = _MALLORY.sign(TOPIC, clock, parents, os.urandom(16))
            parents = [core.encode_id(key)]
            values.append(value)
        return values

    await _push(target, batch)


async def requests(target: Target) -> None:
    """Sync requests whose answers are not read."""
    async with await target.connect() as connection, await connection.open_stream(PROTOCOLS.sync) as stream:
        await stream.send(wire.encode_request(GetRoot()))
        while True:
            for _ in range(32):
                await stream.send(wire.encode_request(GetChildren(1, None)))
            await target.pace.keep()


async def readers(target: Target) -> None:
    """Eight readers of a payload of 4 MiB, over HTTP, that hang up at the first byte."""
    await _read(target, 1)


async def whole_readers(target: Target) -> None:
    """Eight readers of a payload of 4 MiB, over HTTP, to its end."""
    await _read(target, sys.maxsize)


async def stalled_readers(target: Target) -> None:
    """Eight readers of a payload of 4 MiB, over HTTP, that stop reading."""
    await _read(target, 1, stalls=8.0)


async def posts(target: Target) -> None:
    """Bodies of 4 MiB, of nested lists, over HTTP."""
    body = (b"[" * 499 + b"]" * 499 + b",") * (_BIG // 999)
    async with await target.socket() as socket:
        await socket.send(_post(target, len(body)) + body)
        await socket.receive()


async def slow_posts(target: Target) -> None:
    """Bodies of 4 MiB, over HTTP, of which a few bytes come now and then."""
    async with anyio.create_task_group() as tasks:

        async def post() -> None:
            async with await target.socket() as socket:
                await socket.send(_post(target, _BIG))
                for _ in range(60):
                    await socket.send(b"[")
                    await target.pace.keep()
                    await anyio.sleep(0.5)

        for _ in range(16):
            tasks.start_soon(post)


ATTACKS: dict[str, Attack] = {
    function.__name__: function
    for function in (
        *(garbage, protocol_errors, half_open, churn, silent, unsorted, signatures),
        *(alternatives, orphans, roots, chain, requests, readers, whole_readers, stalled_readers, posts, slow_posts),
    )
}


def _upgrade(target: Target) -> bytes:
    return (
        f"GET / HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def _get(host: str, port: int, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()


def _post(target: Target, length: int) -> bytes:
    """The head of a request with a message."""
    return (
        f"POST /api/messages HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


async def _read(target: Target, size: int, stalls: float = 0.0) -> None:
    """Ask for the messages eight times at once, read some bytes of each answer, and wait for some seconds."""
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            async with await target.socket() as socket:
                await socket.send(_get(target.host, target.port, "/api/messages"))
                left = size
                with suppress(anyio.EndOfStream):
                    while left > 0:
                        left -= len(await socket.receive(min(left, 2**16)))
                await anyio.sleep(stalls)

        for _ in range(8):
            tasks.start_soon(read)


def _forged(payload: bytes) -> bytes:
    """A stored value whose signature does not hold."""
    _, value = _MALLORY.sign(TOPIC, 1, [], None)
    return value[:-1] + payload


async def _push(target: Target, batch: Callable[[], Sequence[bytes]]) -> None:
    """Push batch after batch, until the hub hangs up."""
    async with target.push() as stream, anyio.create_task_group() as tasks:

        async def drain() -> None:
            while await stream.receive():
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(drain)
        while True:
            for value in batch():
                await stream.send(wire.encode_push(Insert(_key(value), value)))
                await target.pace.keep()


def _key(value: bytes) -> bytes:
    return core.read_batch([value], TOPIC).keys[0]


async def attack(name: str, host: str, port: int, report: Path) -> None:
    """The hostile process."""
    async with open_network() as network:
        target = Target(host, port, network, Pace(report))
        await again(target, busy if name == busy.__name__ else ATTACKS[name])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What honest clients noticed.

    Attributes:
        messages: how many of them arrived.
        lost: how many did not.
        delivery: milliseconds from append to arrival, 99th percentile.
        clock: milliseconds of GET /api/clock, 99th percentile.
        resident: most MiB of the hub.
        steps: of the attacker: messages, requests or connections.
    """

    messages: int
    lost: int
    delivery: float
    clock: float
    resident: float
    steps: int


async def honest(url: str, seconds: float) -> tuple[list[float], list[float], int]:
    """Seconds of each delivery and each GET /api/clock; and how many messages did not arrive.

    Those of the first _WARM_UP seconds are not among them.
    """
    parts = urlsplit(url)
    clocks: list[float] = []
    sent = 0

    async def look() -> None:
        host, port = str(parts.hostname), int(parts.port or 0)
        while True:
            begin = time.monotonic()
            async with await anyio.connect_tcp(host, port) as socket:
                await socket.send(_get(host, port, "/api/clock"))
                await socket.receive()
            clocks.append(time.monotonic() - begin)
            await anyio.sleep(_INTERVAL)

    signer = Signer.generate()
    # As elsewhere, each client has a process, and so an interpreter's lock, of its own.
    command = [sys.executable, "-m", "benches.attacks", "--follow", url, signer.did]
    with tempfile.TemporaryDirectory() as folder, gossiplog.open(Path(folder) / "log.db", TOPIC, signer=signer) as log:
        async with (
            await anyio.open_process(command, stderr=None) as reader,
            gossiplog.connect(log, url) as client,
            anyio.create_task_group() as tasks,
        ):
            assert reader.stdin is not None
            assert reader.stdout is not None
            await _synced(client)
            await reader.stdout.receive()
            begin = time.monotonic() + _WARM_UP
            while (now := time.monotonic()) < begin + seconds:
                if now >= begin and not sent:
                    tasks.start_soon(look)
                await anyio.to_thread.run_sync(log.append, {"sent": now, "counts": now >= begin})
                sent += now >= begin
                await anyio.sleep(_INTERVAL)
            await reader.stdin.send(f"{sent}\n".encode())
            answer = b""
            with suppress(anyio.EndOfStream):
                while True:
                    answer += await reader.stdout.receive()
            tasks.cancel_scope.cancel()
    delays = json.loads(answer)
    return delays, clocks, sent - len(delays)


async def follow(url: str, author: str) -> None:
    """Print a line when the log is in step, then the seconds from append to arrival of an author's messages.

    Their number is read from the standard input meanwhile.
    """
    delays: list[float] = []

    def arrived(message: gossiplog.SignedMessage) -> None:
        if message.author == author and message.payload["counts"]:
            delays.append(time.monotonic() - message.payload["sent"])

    with tempfile.TemporaryDirectory() as folder, gossiplog.open(Path(folder) / "log.db", TOPIC) as log:
        async with gossiplog.connect(log, url, on_message=arrived) as client:
            await _synced(client)
            print(flush=True)
            sent = int(await anyio.to_thread.run_sync(sys.stdin.readline))
            with anyio.move_on_after(10):
                while len(delays) < sent:
                    await anyio.sleep(0.1)
    print(json.dumps(delays), flush=True)


async def _synced(client: gossiplog.Client) -> None:
    # Under an attack with valid messages there is always something left to sync.
    with anyio.move_on_after(20):
        await client.synced()


def measure(name: str, seconds: float, host: str) -> Outcome:
    """Measure one attack, on a hub of its own.

    Args:
        name: of the attack.
        seconds: for which it lasts.
        host: the address from which the hub is attacked, and at which it listens besides 127.0.0.1.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hub.db"
        with gossiplog.open(path, TOPIC, signer=Signer.generate()) as log:
            log.append_many([{"n": n} for n in range(1000)])
            log.append([[] for _ in range(_BIG - 1024)])
        serve = [sys.executable, "-m", "gossiplog", "serve", str(path), "--hub", "0.0.0.0:0", "--allow-host", host]
        hub = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert hub.stdout is not None
        port = urlsplit(json.loads(hub.stdout.readline())["hub"]).port
        url = f"ws://127.0.0.1:{port}"
        report = Path(folder) / "steps"
        hostile = [sys.executable, "-m", "benches.attacks", "--attack", name, host, str(port), report]
        attacker = subprocess.Popen(hostile, stderr=subprocess.DEVNULL)
        try:
            # On a busy machine it takes seconds to start.
            while attacker.poll() is None and not report.exists():
                time.sleep(0.1)
            time.sleep(2)
            if attacker.poll() is not None:
                raise RuntimeError(f"the attacker ended with {attacker.returncode}")
            delays, clocks, lost = anyio.run(honest, url, seconds)
            if attacker.poll() is not None:
                raise RuntimeError(f"the attacker ended with {attacker.returncode} during the attack")
            resident, steps = _resident(hub.pid), int(report.read_text())
        finally:
            for process in (attacker, hub):
                process.kill()
                process.communicate()
    return Outcome(len(delays), lost, 1000 * _p99(delays), 1000 * _p99(clocks), resident, steps)


def _p99(durations: Sequence[float]) -> float:
    ordered = sorted(durations)
    return ordered[int(0.99 * (len(ordered) - 1))] if ordered else float("inf")


def _resident(process: int) -> float:
    (line,) = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"Of {', '.join(ATTACKS)}; all by default.")
    parser.add_argument("--seconds", type=float, default=20.0, help="Of each attack.")
    parser.add_argument("--local", action="store_true", help="Attack from a loopback address, which has no limits.")
    parser.add_argument("--isolated", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--attack", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--follow", nargs=2, help=argparse.SUPPRESS)
    arguments: Any = parser.parse_args()
    if arguments.attack:
        name, host, port, report = arguments.attack
        anyio.run(attack, name, host, int(port), Path(report))
        return
    if arguments.follow:
        anyio.run(follow, *arguments.follow)
        return
    unknown = {*arguments.names} - ATTACKS.keys()
    if unknown:
        parser.error(f"there is no attack {', '.join(sorted(unknown))}: expected some of {', '.join(ATTACKS)}")
    if not arguments.local and not arguments.isolated:
        if not may_isolate(_NAME):
            parser.error("this system makes no network namespace for this user: run it as root, or with --local")
        command = isolated([sys.executable, "-m", "benches.attacks", "--isolated", *sys.argv[1:]], _NAME)
        os.execvp(command[0], command)
    host = "127.0.0.1" if arguments.local else ADDRESS
    names = arguments.names or [*ATTACKS]
    compared = [title for each in ("delivery, p99", "/api/clock, p99", "hub") for title in (each, "beside a loop")]
    lines = head(["attack"], [*compared, "steps"])
    print("\n".join(lines), flush=True)
    for name in names:
        under, beside = (measure(each, arguments.seconds, host) for each in (name, busy.__name__))
        lines.append(row(name, under, beside))
        print(lines[-1], flush=True)
    if len(names) == len(ATTACKS) and not arguments.local:
        rewrite(DOCS / "security.md", {"attacks": lines})


def row(name: str, under: Outcome, beside: Outcome) -> str:
    """The line of an attack, and of the busy loop that was measured next to it."""
    what = (ATTACKS[name].__doc__ or "").strip().rstrip(".")
    lost = f", {under.lost} late" if under.lost else ""
    return line(
        f"`{name}`: {what}",
        f"{under.delivery:.0f} ms{lost}",
        f"{beside.delivery:.0f} ms",
        f"{under.clock:.0f} ms",
        f"{beside.clock:.0f} ms",
        f"{under.resident:.0f} MiB",
        f"{beside.resident:.0f} MiB",
        f"{under.steps:,}",
    )


if __name__ == "__main__":
    main()
