"""Logs in coroutines, of a type, of several and of any: their types are those of blocking ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import anyio
from pydantic import BaseModel

import gossiplog

TOPIC = "org.example.typing"


class Note(BaseModel):
    text: str


class Done(BaseModel):
    note: str


@dataclass(frozen=True)
class Point:
    x: int


async def several(signer: gossiplog.Signer) -> None:
    async with gossiplog.open_async("async.db", TOPIC, payload=Note | Done, signer=signer) as log:
        assert_type(log, gossiplog.AsyncLog[Note | Done])
        message = await log.append(Note(text="milk"))
        assert_type(message.payload, Note | Done)
        await log.append(Done(note=message.id))
        assert_type([found.payload async for found in log], list[Note | Done])
        assert_type(await log.get(message.id), gossiplog.SignedMessage[Note | Done])
        assert_type(log.blocking, gossiplog.Log[Note | Done])
    async with gossiplog.open_async("async.db") as plain:
        assert_type(plain, gossiplog.AsyncLog[Any])
        assert await plain.count() == 2
    async with gossiplog.open_async(":memory:", TOPIC, payload=Note) as notes:
        assert_type(notes, gossiplog.AsyncLog[Note])


async def one(signer: gossiplog.Signer) -> None:
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
        view = await points.at(message.id)
        assert_type(view, gossiplog.AsyncLogView[Point])
        assert_type(await view.children(message.id, limit=1), tuple[str, ...])
        assert_type(points.blocking, gossiplog.Log[Point])
        assert_type(gossiplog.AsyncLog(points.blocking), gossiplog.AsyncLog[Point])
        gossiplog.Hub(points)


async def any_type(signer: gossiplog.Signer) -> None:
    log = await gossiplog.open_async(":memory:", TOPIC, signer=signer)
    assert_type(log, gossiplog.AsyncLog[Any])
    assert_type(await log.heads(), tuple[str, ...])
    await log.append("anything")
    await log.close()


async def mistakes(log: gossiplog.AsyncLog[Note]) -> None:
    await log.append(Done(note="id"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def main() -> None:
    signer = gossiplog.Signer.generate()
    for program in (several, one, any_type):
        await program(signer)


anyio.run(main)

with gossiplog.open(":memory:", TOPIC, payload=Point) as points, points.subscribe() as blocking:
    assert_type(blocking, gossiplog.Subscription[Point])
