"""Episub between real peers, in one process, over sockets of the loopback interface: `python -m benches.real_episub`.

All know the first peer, and one of the others publishes. Measured once the tree has formed: copies of a message beside
each delivery, and whether all came by gossip. Then the peer with the most eager links fails, and messages go on: when
the last of them was late that is not followed by `IN_A_ROW` that reach all others within `LATE_SECONDS`. It prints one
line of JSON.

Some messages are late without a failure, too: peers change neighbours all the time, and what is under way on a link
that is dropped comes after an announcement and a GRAFT, 0.35 s later or more. So the shares of late messages before the
failure and after it are printed beside the time.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.abc

import gossiplog
from gossiplog import Log, Peer, SignedMessage, Signer
from gossiplog.net.routing.kinds import RouterName
from gossiplog.net.service import background

TOPIC = "org.gossiplog.episub"
LATE_SECONDS = 0.5
IN_A_ROW = 10
"""Messages in time after which a tree counts as repaired."""
WARM_UP = 40
"""Messages by which the tree forms."""
_GIVE_UP = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured.

    Attributes:
        peers: how many.
        messages: that were measured.
        copies: payloads beside each delivery, over all peers but the source.
        delivered: the share of deliveries that came to be.
        by_gossip: the share that came by gossip, and not by a sync.
        median: seconds until a message has reached all.
        slowest: likewise, of the slowest message.
        repaired: seconds from the failure until messages reach all others in time, IN_A_ROW of them or all that
            follow.
        late_before: the share of messages before the failure that were late,
        late_after: and after it.
        after: the share of deliveries of messages after the failure.
    """

    peers: int
    messages: int
    copies: float
    delivered: float
    by_gossip: float
    median: float
    slowest: float
    repaired: float
    late_before: float
    late_after: float
    after: float


@dataclass(slots=True, eq=False)
class Member:
    """A peer, and the keys that it got."""

    log: Log
    peer: Peer
    stop: anyio.Event = field(default_factory=anyio.Event)
    failed: bool = False
    keys: set[str] = field(default_factory=set)

    @property
    def eager(self) -> int:
        """How many links messages go to in full."""
        return sum(bool(info.in_mesh) for info in self.peer.peers)


class Bench:
    """The peers.

    Args:
        tasks: that they run in.
        router: of all.
    """

    def __init__(self, tasks: anyio.abc.TaskGroup, router: RouterName) -> None:
        self.members: list[Member] = []
        self._tasks = tasks
        self._router: RouterName = router
        self._arrived = Counter[str]()
        self._arrival = anyio.Event()

    async def add(self, stack: AsyncExitStack, number: int) -> None:
        """Start a peer."""
        signer = Signer((number + 1).to_bytes(32, "big"))
        log = stack.enter_context(gossiplog.open(":memory:", TOPIC, signer=signer))
        keys: set[str] = set()

        def note(message: SignedMessage) -> None:
            keys.add(message.id)
            self._arrived[message.id] += 1
            self._arrival.set()

        known = self.members[0].peer.addresses if self.members else ()
        member = Member(log, Peer(log, bootstrap=known, router=self._router, on_message=note), keys=keys)
        await self._tasks.start(partial(self._run, member))
        self.members.append(member)

    async def _run(self, member: Member, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with member.peer:
            task_status.started()
            await member.stop.wait()

    def fail(self, member: Member) -> None:
        """Have a peer fail."""
        member.failed = True
        member.stop.set()

    @property
    def running(self) -> Sequence[Member]:
        """The peers that have not failed."""
        return [member for member in self.members if not member.failed]

    async def linked(self) -> None:
        """Wait until each peer has three neighbours, or all."""
        least = min(3, len(self.members) - 1)
        while min(sum(bool(info.subscribed) for info in member.peer.peers) for member in self.running) < least:
            await anyio.sleep(0.1)

    async def spread(self, source: Member, number: int) -> float:
        """Append a message, and return the seconds until all have it."""
        began = anyio.current_time()
        message = await anyio.to_thread.run_sync(source.log.append, {"number": number, "text": "x" * 100})
        with anyio.move_on_after(_GIVE_UP):
            while self._arrived[message.id] < len(self.running):
                self._arrival = anyio.Event()
                await self._arrival.wait()
        return anyio.current_time() - began

    def counts(self, members: Sequence[Member]) -> Counter[str]:
        """Return what the routers of peers have counted, together."""
        found = Counter[str]()
        for member in members:
            found.update(member.peer.counters.network)
            found["inserted"] += sum(member.peer.counters.inserted.values())
            found["by_gossip"] += member.peer.counters.inserted.get("gossip", 0)
        return found


async def measure(peers: int = 32, messages: int = 100, router: RouterName = "episub", gap: float = 0.1) -> Result:
    """Run the peers and return what was measured.

    Args:
        peers: how many.
        messages: that are measured, before the failure and after it.
        router: of all.
        gap: seconds between messages.
    """
    async with AsyncExitStack() as stack, background() as tasks:
        bench = Bench(tasks, router)
        for number in range(peers):
            await bench.add(stack, number)
        await bench.linked()
        source = bench.members[1]
        others = [member for member in bench.members if member is not source]
        for number in range(WARM_UP):
            await bench.spread(source, number)
        before, times = bench.counts(others), []
        for number in range(messages):
            times.append(await bench.spread(source, number))
            await anyio.sleep(gap)
        counted = bench.counts(others)
        counted.subtract(before)
        deliveries = messages * len(others)

        inner = max((member for member in others if not member.failed), key=lambda member: member.eager)
        bench.fail(inner)
        failed, later = anyio.current_time(), list[tuple[float, float]]()
        for number in range(messages):
            seconds = await bench.spread(source, number)
            later.append((anyio.current_time() - failed, seconds))
            await anyio.sleep(gap)
        total = len(source.log)
        missing = sum(total - len(member.log) for member in bench.running)
        for member in bench.running:
            member.stop.set()
        return Result(
            peers=peers,
            messages=messages,
            copies=counted["gossip_copies"] / max(1, counted["gossip_received"]),
            delivered=counted["inserted"] / deliveries,
            by_gossip=counted["by_gossip"] / deliveries,
            median=sorted(times)[len(times) // 2],
            slowest=max(times),
            repaired=repaired_after(later),
            late_before=_late_share(times),
            late_after=_late_share([seconds for _, seconds in later]),
            after=1 - missing / (messages * (peers - 2)),
        )


def repaired_after(later: Sequence[tuple[float, float]]) -> float:
    """Return when the last message was late before IN_A_ROW in time, or before the end; 0 if the first was in time.

    Args:
        later: of each message after the failure, when it had reached all, and how long that took.
    """
    found, in_time = 0.0, 0
    for at, seconds in later:
        if seconds > LATE_SECONDS:
            found, in_time = at, 0
        else:
            in_time += 1
            if in_time == IN_A_ROW:
                break
    return found


def _late_share(times: Sequence[float]) -> float:
    return sum(seconds > LATE_SECONDS for seconds in times) / len(times)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=32)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--router", default="episub")
    options = parser.parse_args()
    result = anyio.run(partial(measure, options.peers, options.messages, options.router))
    print(json.dumps({name: getattr(result, name) for name in Result.__dataclass_fields__}))


if __name__ == "__main__":
    main()
