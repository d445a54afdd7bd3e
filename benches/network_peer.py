"""One process of the benchmarks of the network: a hub, a client, listeners, a mesh peer, or a line with a delay.

`network.py` starts it. It prints a line of JSON when it is ready, and one for each command that it reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import anyio

import gossiplog.log
from gossiplog.cli.bench.stage import TOPIC, private_key
from gossiplog.core import SignedMessage, Tree
from gossiplog.log import Log
from gossiplog.log.following import POLL_SECONDS
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.client import connect
from gossiplog.net.http.server import serve
from gossiplog.net.hub import Hub
from gossiplog.net.peer import Peer, driver_of
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.network import Connection, Network, open_network
from gossiplog.net.transport.stream import CHUNK, Stream
from gossiplog.protocol import wire
from gossiplog.protocol.sync import Client, Finished, Send, SyncServerConfig
from gossiplog.protocol.wire import Protocols
from gossiplog.signer import Signer
from gossiplog.storage import MemoryStorage

Command: TypeAlias = Callable[..., Awaitable[object]]
_PROTOCOLS = Protocols(TOPIC)
_READ = 2**20


async def obey(commands: Mapping[str, Command], ready: object) -> None:
    """Does what the lines on standard input say, one at a time, until they end."""

    async def usage() -> Mapping[str, float]:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        # Not getrusage's maximum: that begins with the memory of the process that started this one.
        resident, peak = (int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        return {"cpu": time.process_time(), "resident": resident, "peak": peak}

    print(json.dumps(ready), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        answer = await {**commands, "usage": usage}[order["command"]](**order["arguments"])
        print(json.dumps(answer), flush=True)


# A hub


async def run_hub(path: str) -> None:
    """A hub, which appends when it is told to."""
    signer = Signer(private_key(0))

    async def append(count: int, pause: float, size: int) -> object:
        """Appends so many, and says when each began (on the clock that all processes share) and how long it took."""
        began, took = [], []
        for number in range(count):
            start = time.monotonic()
            payload = {"number": number, "bytes": bytes(size)}
            await asyncio.to_thread(log.append, payload, signer=signer)
            began.append(start)
            took.append(time.monotonic() - start)
            await asyncio.sleep(pause)
        return {"began": began, "took": took}

    with gossiplog.log.open(path, topic=TOPIC) as log:
        # The clients that read everything keep nothing, so after an Abort they would begin anew.
        async with Hub(log, sync_server=SyncServerConfig(time_limit=3600)) as hub, anyio.create_task_group() as tasks:
            address = await tasks.start(serve, hub)
            await obey({"append": append}, address.url("ws"))
            tasks.cancel_scope.cancel()


# A client


async def run_client(path: str, url: str) -> None:
    """A client with a log, which it syncs when it is told to."""
    log = gossiplog.log.open(path, topic=TOPIC)

    async def sync() -> object:
        """Connects, and waits until both sides hold the same."""
        syncs: list[tuple[float, events.SyncEnded]] = []
        started: list[float] = []

        def note(event: events.Event) -> None:
            match event:
                case events.SyncStarted():
                    started.append(time.monotonic())
                case events.SyncEnded():
                    syncs.append((time.monotonic() - started[-1], event))
                case events.Failed(doing, error):
                    raise RuntimeError(f"{doing}: {error}")

        cpu, start = time.process_time(), time.monotonic()
        async with connect(log, url, on_event=note) as client:
            await client.synced()
            seconds = time.monotonic() - start
        return {
            "seconds": seconds,
            "cpu": time.process_time() - cpu,
            "messages": len(log),
            "syncs": len(syncs),
            "sync_seconds": sum(spent for spent, _ in syncs),
            "round_trips": max((ended.statistics.round_trips for _, ended in syncs), default=0),
            "requests": sum(ended.statistics.requests for _, ended in syncs),
            "bytes_received": sum(ended.statistics.bytes_received for _, ended in syncs),
            "bytes_sent": sum(ended.statistics.bytes_sent for _, ended in syncs),
        }

    with log:
        await obey({"sync": sync}, None)


# A program that follows a log


async def run_follower(path: str) -> None:
    """Follows a log, and says when each message came."""
    log = gossiplog.log.open(path, topic=TOPIC, read_only=True)
    with log:
        arrivals = log.subscribe()
        came: asyncio.Queue[float] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def follow() -> None:
            for messages in arrivals:
                at = time.monotonic()
                for _ in messages:
                    loop.call_soon_threadsafe(came.put_nowait, at)

        following = asyncio.create_task(asyncio.to_thread(follow))
        # Until it is told of commits.
        while not replica_of(log).poll_seconds > POLL_SECONDS:
            await asyncio.sleep(0.01)
        await obey({"next": came.get}, None)
        log.close()
        await following


# Several clients with logs


async def run_loggers(folder: str, url: str) -> None:
    """Clients that keep logs in files, which append when they are told to."""
    logs: list[Log] = []
    # When each log reached the number of messages that it has.
    reached: list[tuple[int, float]] = []

    async with contextlib.AsyncExitStack() as stack:

        async def join(count: int, first: int) -> None:
            """Connects so many, whose keys are numbered from one on."""
            for place in range(count):
                signer = Signer(private_key(first + place))
                path = Path(folder) / f"{first + place}.db"
                log = stack.enter_context(gossiplog.log.open(path, topic=TOPIC, signer=signer))
                logs.append(log)
                reached.append((0, 0.0))
                client = connect(log, url, on_message=functools.partial(note, place))
                await stack.enter_async_context(client)
                await client.synced()

        def note(place: int, message: SignedMessage) -> None:
            reached[place] = (reached[place][0] + 1, time.monotonic())

        async def flow(begin: float, period: float, seconds: float) -> float:
            """Has each append once in a period, evenly spread over all; when the last append was begun."""
            times = [begin + period * place / len(logs) for place in range(len(logs))]

            async def append(log: Log, first: float) -> float:
                at = first
                while at < begin + seconds:
                    await asyncio.sleep(max(0.0, at - time.monotonic()))
                    last = time.monotonic()
                    await asyncio.to_thread(log.append, {"at": at, "bytes": bytes(100)})
                    at += period
                return last

            return max(await asyncio.gather(*map(append, logs, times)))

        async def whole(count: int) -> Sequence[float]:
            """When each log had so many messages."""
            while any(number < count for number, _ in reached):
                await asyncio.sleep(0.01)
            return [at for _, at in reached]

        await obey({"join": join, "flow": flow, "whole": whole}, None)


# Many clients that keep no log


class _Empty:
    """An empty log."""

    tree = Tree()

    def leaves(self, start: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
        return []


async def run_listeners(url: str) -> None:
    """Connections to a hub: idle ones that hear of appends, and ones that read the whole log once."""
    connections: list[Connection] = []
    # When each insert arrived, by connection.
    arrived: list[list[float]] = []
    tasks: list[asyncio.Task[None]] = []

    async with open_network(Limits(connections=4096)) as network:

        async def listen(count: int) -> None:
            """Joins so many times."""
            for _ in range(count):
                connection = await network.dial(url, _PROTOCOLS.all)
                stream = await connection.open_stream(_PROTOCOLS.push)
                connections.append(connection)
                heard: list[float] = []
                await stream.send(wire.encode_push(wire.Update([])))
                tasks.append(asyncio.create_task(_refuse(connection)))
                arrived.append(heard)
                tasks.append(asyncio.create_task(hear(stream, heard)))

        async def hear(stream: Stream, heard: list[float]) -> None:
            frames = wire.FrameReader(wire.MAX_FRAME)
            while data := await stream.receive():
                frames.feed(data)
                while (frame := frames.next()) is not None:
                    if isinstance(wire.decode_push(frame), wire.Insert):
                        heard.append(time.monotonic())

        async def heard(count: int) -> object:
            """When each listener got each of the last appends, once all have."""
            while any(len(times) < count for times in arrived):
                await asyncio.sleep(0.01)
            found = [list(times) for times in arrived]
            for times in arrived:
                times.clear()
            return found

        async def read(count: int) -> object:
            """Has so many clients read everything at once: their seconds, and the values that came."""
            start, cpu = time.monotonic(), time.process_time()
            values = await asyncio.gather(*[_read(network, url) for _ in range(count)])
            return {"seconds": time.monotonic() - start, "cpu": time.process_time() - cpu, "values": values}

        await obey({"listen": listen, "heard": heard, "read": read}, None)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _refuse(connection: Connection) -> None:
    """A hub that asks for what a listener holds is told that it is busy."""
    async for _, stream in connection:
        async with stream:
            await stream.send(wire.encode_answer(wire.Abort(60_000)))


async def _read(network: Network, url: str) -> int:
    """Reads a whole log, stream after stream, and keeps none of it; how many values came."""
    async with await network.dial(url, _PROTOCOLS.all) as connection:
        client = Client(_Empty(), TOPIC)
        # A hub waits for a push stream, and drops who opens none.
        push = await connection.open_stream(_PROTOCOLS.push)
        await push.send(wire.encode_push(wire.Update([])))
        listening = asyncio.create_task(_pass_over(push))
        async with await connection.open_stream(_PROTOCOLS.sync) as stream:
            requests: asyncio.Queue[bytes] = asyncio.Queue()
            requests.put_nowait(client.start())

            async def ask() -> None:
                while True:
                    await stream.send(await requests.get())

            asking = asyncio.create_task(ask())
            try:
                while data := await stream.receive(4 * CHUNK):
                    for event in client.receive(data):
                        match event:
                            case Send(frames):
                                requests.put_nowait(frames)
                            case Finished():
                                return client.statistics.values
            finally:
                asking.cancel()
                listening.cancel()
        return client.statistics.values


async def _pass_over(stream: Stream) -> None:
    while await stream.receive():
        pass


# A peer of a mesh


async def run_peer(path: str, number: str, *bootstrap: str) -> None:
    """A peer, which appends when it is told to. Without a path its log is kept in memory."""
    signer = Signer(private_key(int(number)))
    begun: dict[str, float] = {}
    told: dict[str, float] = {}

    heard = asyncio.Event()

    def hear(message: SignedMessage) -> None:
        told[message.id] = time.monotonic()
        heard.set()

    async def connected(least: int) -> None:
        """Waits until it is connected to so many others."""
        while len(peer.peers) < least:
            await driver_of(peer).peers_changed.wait()

    async def flow(times: Sequence[float], size: int) -> None:
        """Appends a message at each time, on the clock that all processes share."""
        for at in times:
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            payload = {"number": number, "text": random.randbytes(size).hex()[:size]}
            start = time.monotonic()
            message = await asyncio.to_thread(log.append, payload, signer=signer)
            begun[message.id] = start

    async def notified(count: int) -> object:
        """Return when it appended what, when it was notified of what, and its peers, after so many notifications."""
        while len(told) < count:
            heard.clear()
            await heard.wait()
        return {"begun": begun, "told": told, "root": log.root.hash.hex(), "connections": len(peer.peers)}

    storage = MemoryStorage() if path == "-" else path
    with gossiplog.log.open(storage, topic=TOPIC) as log:
        async with Peer(log, bootstrap=bootstrap, on_message=hear) as peer:
            await obey({"connected": connected, "flow": flow, "notified": notified}, peer.addresses[0])


# A line with a delay


async def run_line(url: str, seconds: float) -> None:
    """Passes TCP connections on, each byte half the round trip later, in both directions and in any amount.

    Told to stall, it reads no more of what comes from the server.
    """
    target = urlsplit(url)
    delay = seconds / 2
    flowing, always = asyncio.Event(), asyncio.Event()
    flowing.set()
    always.set()
    tasks: set[asyncio.Task[None]] = set()

    async def stall() -> None:
        flowing.clear()

    async def join(near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        # A connection stands after one round trip, of which loopback spares the client the wait.
        opened = asyncio.get_running_loop().time() + seconds
        far, to_far = await asyncio.open_connection(target.hostname, target.port, limit=_READ)
        for source, sink, gate in ((near, to_far, always), (far, to_near, flowing)):
            task = asyncio.create_task(_carry(source, sink, gate, delay, opened))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(join, "127.0.0.1", 0, limit=_READ)
    await obey({"stall": stall}, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()


async def _carry(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event, delay: float, opened: float
) -> None:
    clock = asyncio.get_running_loop().time
    line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        with contextlib.suppress(ConnectionError):
            while (item := await line.get())[1]:
                due, data = item
                await asyncio.sleep(max(0.0, due - clock()))
                sink.write(data)
                await sink.drain()
        sink.close()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(arrive())
        data = b"."
        while data:
            await gate.wait()
            try:
                data = await source.read(_READ)
            except ConnectionError:
                data = b""
            line.put_nowait((max(clock(), opened) + delay, data))


_ROLES: Mapping[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "hub": run_hub,
    "client": run_client,
    "follower": run_follower,
    "loggers": run_loggers,
    "listeners": run_listeners,
    "peer": run_peer,
    "line": lambda url, seconds: run_line(url, float(seconds)),
}

if __name__ == "__main__":
    # Of 500 connections each has a file descriptor.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_ROLES[sys.argv[1]](*sys.argv[2:]))
