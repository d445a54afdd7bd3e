"""An in-memory log and an in-memory pipe between the two machines of the sync protocol."""

from __future__ import annotations

import functools
import os
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from gossiplog import core
from gossiplog.protocol import wire
from gossiplog.protocol.sync import Aborted, Client, Finished, Received, Send, Server, SyncClientConfig

TOPIC = "org.example.sync"
PRIVATE_KEY = bytes(range(32))
# Messages of a log: the reference implementation is slower.
ON_REFERENCE = os.environ.get("GOSSIPLOG_CORE") == "python"
SOME = 60 if ON_REFERENCE else 400
MANY = 1_500 if ON_REFERENCE else 50_000


@functools.cache
def message(number: int, clock: int = 1, size: int = 8) -> tuple[bytes, bytes]:
    """A signed message (key, value); the parent of one with a clock above 1 is made up, which no signature shows."""
    parents = [] if clock == 1 else [core.encode_id((core.encode_clock(clock - 1) + bytes(20))[:20])]
    return core.sign(TOPIC, clock, parents, {"number": number, "padding": "x" * size}, PRIVATE_KEY)


def messages(numbers: Iterable[int], clock: int = 1, size: int = 8) -> dict[bytes, bytes]:
    """Some of them, as entries of a tree."""
    return dict(message(number, clock, size) for number in numbers)


class Entries:
    """A log as both machines see it, over entries in memory. It does not look at parents."""

    def __init__(self, entries: dict[bytes, bytes], empty: core.Tree | None = None) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.tree = core.Tree() if empty is None else empty
        self._leaves: list[tuple[bytes, bytes]] = []
        self.insert(entries)

    def insert(self, entries: dict[bytes, bytes]) -> None:
        self.tree = self.tree.insert(entries.items())
        self.entries |= entries
        self._leaves = sorted((key, core.leaf_hash(key, value)) for key, value in self.entries.items())

    def leaves(self, start: bytes, end: bytes | None, limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
        first = bisect_left(self._leaves, start, key=itemgetter(0))
        after = None if end is None else bisect_left(self._leaves, end, key=itemgetter(0))
        return self._leaves[first:after][:limit]

    def values(self, keys: Sequence[bytes], limit: int) -> list[bytes] | None:
        values = [self.entries[key] for key in keys]
        return values if sum(map(len, values)) <= limit else None


@dataclass
class Outcome:
    """What a client handed out, and the sizes of what travelled in each flight of answers."""

    received: dict[bytes, bytes] = field(default_factory=dict)
    invalid: list[bytes] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    flights: list[int] = field(default_factory=list)
    end: Aborted | Finished | None = None


Serve = Callable[[bytes], bytes]
Cut = Callable[[bytes], Iterable[bytes]]


def serve(server: Server, now: float = 0.0) -> Serve:
    """What a driver does with a server."""

    def answer(data: bytes) -> bytes:
        answers = []
        while part := server.receive(data, now):
            answers.append(part)
            data = b""
        return b"".join(answers)

    return answer


def lie(honest: Serve, change: Callable[[wire.Request, wire.Answer], wire.Answer]) -> Serve:
    """A server whose answers are changed on their way."""

    def answer(data: bytes) -> bytes:
        changed = [
            change(wire.decode_request(request), wire.decode_answer(honest_answer))
            for request in frames(data)
            for honest_answer in frames(honest(reframe(request)))
        ]
        return b"".join(map(wire.encode_answer, changed))

    return answer


def frames(data: bytes) -> list[bytes]:
    """The frames in a whole number of them."""
    reader = wire.FrameReader(wire.MAX_ANSWER)
    reader.feed(data)
    return list(iter(reader.next, None))


def reframe(frame: bytes) -> bytes:
    """A frame behind its length again."""
    return wire.encode_request(wire.decode_request(frame))


def whole(data: bytes) -> Iterable[bytes]:
    """A stream that is not cut."""
    return [data]


def run(client: Client, answer: Serve, outcome: Outcome | None = None, cut: Cut = whole) -> Outcome:
    """Drives a client to its end. What was received before a violation is in the outcome given."""
    outcome = Outcome() if outcome is None else outcome
    requests = client.start()
    while requests:
        answers = answer(requests)
        outcome.flights.append(len(answers))
        requests = b""
        for part in cut(answers):
            for event in client.receive(part):
                match event:
                    case Send(data):
                        requests += data
                    case Received():
                        batch, violation = event.verify()
                        bad = {index for index, _ in batch.invalid}
                        outcome.batches.append(len(batch))
                        outcome.invalid += [batch.keys[index] for index in bad]
                        for index in sorted(set(range(len(batch))) - bad):
                            item = batch[index]
                            assert isinstance(item, core.SignedMessage)
                            outcome.received[item.key] = item.value
                        if violation is not None:
                            raise violation
                    case Aborted() | Finished():
                        outcome.end = event
        if outcome.end is not None:
            return outcome
    return outcome


def pull(local: Entries, remote: Entries, config: SyncClientConfig | None = None) -> Outcome:
    return run(Client(local, TOPIC, config=config), serve(Server(remote, now=0.0)))


def old_entries(count: int) -> dict[bytes, bytes]:
    """Entries of clocks 1, 2, 3, … that are no messages: both logs have them, so their values do not travel."""
    generator = random.Random(count)
    return {(core.encode_clock(clock) + generator.randbytes(20))[:20]: b"" for clock in range(1, count + 1)}


def lacking(local: Entries, remote: Entries) -> dict[bytes, bytes]:
    """What a sync has to bring, in the order in which it has to."""
    return {key: remote.entries[key] for key in sorted(remote.entries.keys() - local.entries.keys())}
