"""A log for coroutines: its types are those of the blocking one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import anyio

import gossiplog

TOPIC = "org.example.typing"


@dataclass(frozen=True)
class Point:
    x: int


async def main() -> None:
    signer = gossiplog.Signer.generate()
    async with gossiplog.open_async(":memory:", TOPIC, payload=Point, signer=signer) as points:
        assert_type(points, gossiplog.AsyncLog[Point])
        message = await points.append(Point(1))
        assert_type(message.payload.x, int)
        assert_type(await points.get(message.id), gossiplog.SignedMessage[Point])
        async for each in points.messages():
            assert_type(each.payload, Point)
        async for each in points:
            assert_type(each.payload, Point)
        subscription = points.subscribe(after=0)
        assert_type(subscription, gossiplog.AsyncSubscription[Point])
        async for messages in subscription:
            assert_type(messages[0].payload, Point)
            subscription.close()
        assert_type(points.blocking, gossiplog.Log[Point])
        assert_type(gossiplog.AsyncLog(points.blocking), gossiplog.AsyncLog[Point])
        gossiplog.Hub(points)
    log = await gossiplog.open_async(":memory:", TOPIC, signer=signer)
    assert_type(log, gossiplog.AsyncLog[Any])
    assert_type(await log.heads(), tuple[str, ...])
    await log.append("anything")
    await log.close()


anyio.run(main)

with gossiplog.open(":memory:", TOPIC, payload=Point) as points, points.subscribe() as blocking:
    assert_type(blocking, gossiplog.Subscription[Point])
