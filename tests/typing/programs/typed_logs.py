"""Logs with a model as the type of their payloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

from pydantic import BaseModel

import gossiplog


class Note(BaseModel):
    text: str


class Task(BaseModel):
    title: str


signer = gossiplog.Signer.generate()
with gossiplog.open("typed.db", "org.example.typing", payload=Note, signer=signer) as log:
    assert_type(log, gossiplog.Log[Note])
    message = log.append(Note(text="milk"))
    assert_type(message, gossiplog.SignedMessage[Note])
    assert_type(message.payload, Note)
    assert_type(message.raw_payload, Any)
    assert_type(log.append_many([Note(text="tea")]), list[gossiplog.SignedMessage[Note]])
    assert_type(log.get(message.id).payload.text, str)
    assert_type(log.messages(reverse=True), Iterator[gossiplog.SignedMessage[Note]])
    assert_type([found.payload for found in log], list[Note])
    arrivals = next(log.subscribe(after=0))
    assert_type(arrivals, gossiplog.Arrivals[Note])
    assert_type(arrivals[0].payload, Note)
    assert_type(arrivals.cursor, int)
    assert_type(log.insert_many(log).inserted, int)


def mistakes(log: gossiplog.Log[Note]) -> None:
    log.append(Task(title="milk"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    log.append({"text": "milk"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    log.append_many([Note(text="a"), 5])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    _ = log.get("id").payload.title  # type: ignore[attr-defined]  # pyright: ignore
    log.get("id").payload = Note(text="a")  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def any_log(log: gossiplog.Log) -> int:
    """Functions that do not look at payloads take every log."""
    return len(log)


def latest(log: gossiplog.Log[Note]) -> Note | None:
    for message in log.messages(reverse=True, limit=1):
        return message.payload
    return None


def title(message: gossiplog.SignedMessage[Note | Task]) -> str:
    """A message of a narrower type is one of the wider."""
    return message.payload.text if isinstance(message.payload, Note) else message.payload.title


with gossiplog.open("typed.db", payload=Note) as log, gossiplog.open("typed.db") as plain:
    assert any_log(log) == any_log(plain) == 2
    assert latest(log) == Note(text="tea")
    assert title(log.get(message.id)) == "milk"
    other: gossiplog.Log[Task] = log  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
