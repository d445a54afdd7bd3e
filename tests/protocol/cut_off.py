"""Syncs over a line with a bandwidth and a round trip, under virtual time, whose streams are cut off early."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from gossiplog import core
from gossiplog.protocol import wire
from gossiplog.protocol.sync import (
    Aborted,
    Client,
    Finished,
    Received,
    Send,
    Server,
    SyncClientConfig,
    SyncServerConfig,
)
from tests.protocol.pipe import TOPIC, frames, reframe

_BUFFER = 2**14
"""Bytes that a stream takes before its sender has to wait."""


class Log:
    """A log as both machines see it, over entries that are no messages: nothing here looks into them."""

    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self.tree = core.Tree()
        self.entries: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self.insert(entries)

    def insert(self, entries: dict[bytes, bytes]) -> None:
        self.tree = self.tree.insert(entries.items())
        # Not as a difference of keys, which looks at all that there are.
        new = [key for key in entries if key not in self.entries]
        if len(new) > len(self._keys) // 8:
            self._keys = sorted([*self._keys, *new])
        else:
            for key in new:
                insort(self._keys, key)
        self.entries |= entries

    def leaves(self, start: bytes, end: bytes | None, limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
        keys = self._keys[bisect_left(self._keys, start) : None if end is None else bisect_left(self._keys, end)]
        return [(key, core.leaf_hash(key, self.entries[key])) for key in keys[:limit]]

    def values(self, keys: Sequence[bytes], limit: int) -> list[bytes] | None:
        values = [self.entries[key] for key in keys]
        return values if sum(map(len, values)) <= limit else None


def entries(clocks: Iterable[int], seed: int, size: int) -> dict[bytes, bytes]:
    """One entry for each clock, with random keys and values of the size."""
    random = Random(seed)
    return {(core.encode_clock(clock) + random.randbytes(20))[:20]: random.randbytes(size) for clock in clocks}


@dataclass(frozen=True)
class Line:
    """What is between client and server.

    Attributes:
        bandwidth: bytes a second towards the client.
        round_trip: seconds.
        breaks: after so many seconds, whatever is on its way.
    """

    bandwidth: float = float("inf")
    round_trip: float = 0.0
    breaks: float = float("inf")


@dataclass
class Attempt:
    """What one stream brought and took; the requests are those that reached the server."""

    client: Client
    received: dict[bytes, bytes]
    finished: bool
    seconds: float
    requests: list[wire.Request] = field(default_factory=list)

    @property
    def asked(self) -> list[int]:
        """How many values each GetValues asked for."""
        return [len(request.keys) for request in self.requests if isinstance(request, wire.GetValues)]


def attempt(local: Log, remote: Log, config: SyncClientConfig, limits: SyncServerConfig, line: Line) -> Attempt:
    """Run one stream to its end."""
    client = Client(local, TOPIC, config=config)
    server = Server(remote, now=0.0, config=limits)
    result = Attempt(client, {}, False, 0.0)
    requests: deque[tuple[float, bytes]] = deque()
    line_free = 0.0

    def take(data: bytes, now: float) -> bool:
        for event in client.receive(data):
            match event:
                case Send(sent):
                    requests.extend((now + line.round_trip / 2, reframe(frame)) for frame in frames(sent))
                case Received(keys, values):
                    assert [*result.received, *keys] == sorted([*result.received, *keys])
                    result.received.update(zip(keys, values, strict=True))
                case Finished():
                    result.finished = True
                    return True
                case Aborted():
                    return True
        return False

    requests.extend((line.round_trip / 2, reframe(frame)) for frame in frames(client.start()))
    while requests:
        arrived, request = requests.popleft()
        began = max(arrived, line_free - _BUFFER / line.bandwidth)
        answer = server.receive(request, began)
        sent = max(began, line_free)
        line_free = sent + len(answer) / line.bandwidth
        result.seconds = line_free + line.round_trip / 2
        result.requests += map(wire.decode_request, frames(request))
        if result.seconds > line.breaks:
            break
        if take(answer, result.seconds):
            return result
    for event in client.end():
        if isinstance(event, Received):
            result.received.update(zip(event.keys, event.values, strict=True))
    return result


def sync(
    local: Log,
    remote: Log,
    limits: SyncServerConfig,
    line: Line,
    config: SyncClientConfig | None = None,
    fruitless: int = 12,
) -> list[Attempt]:
    """Run streams, each from where the one before was cut off, until one comes to its end.

    Raises:
        AssertionError: so many attempts in a row brought neither a message nor a node that is complete.
    """
    attempts: list[Attempt] = []
    config = config or SyncClientConfig()
    idle = 0
    while True:
        last = attempt(local, remote, config, limits, line)
        attempts.append(last)
        local.insert(last.received)
        if last.finished:
            return attempts
        before, config = config, last.client.next_config
        idle = 0 if last.received or config.complete - before.complete else idle + 1
        assert idle < fruitless, f"no progress after {len(attempts)} attempts: {config.most_asked=}, {config.keys=}"
