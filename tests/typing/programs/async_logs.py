"""Logs in coroutines, of a type and of several."""

from __future__ import annotations

from typing import Any, assert_type

import anyio
from pydantic import BaseModel

import gossiplog


class Note(BaseModel):
    text: str


class Done(BaseModel):
    note: str


async def main() -> None:
    signer = gossiplog.Signer.generate()
    async with gossiplog.open_async("async.db", "org.example.typing", payload=Note | Done, signer=signer) as log:
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
    async with gossiplog.open_async(":memory:", "org.example.typing", payload=Note) as notes:
        assert_type(notes, gossiplog.AsyncLog[Note])


async def mistakes(log: gossiplog.AsyncLog[Note]) -> None:
    await log.append(Done(note="id"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


anyio.run(main)
