"""`apply` and `setup`: how their arguments may be annotated, and what statements return."""

from __future__ import annotations

import sqlite3
from typing import Any, assert_type

import anyio
from pydantic import BaseModel

import gossiplog

TOPIC = "org.example.typing"


class Note(BaseModel):
    text: str


class Task(BaseModel):
    title: str


def setup(transaction: gossiplog.ApplyTransaction) -> None:
    transaction.execute("DROP TABLE IF EXISTS notes")
    transaction.execute("CREATE TABLE notes (id TEXT, text TEXT)")


def setup_sqlite(transaction: sqlite3.Connection) -> None:
    transaction.execute("DROP TABLE IF EXISTS notes")
    transaction.execute("CREATE TABLE notes (id TEXT, text TEXT)")


def apply(message: gossiplog.SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
    transaction.execute("INSERT INTO notes VALUES (?, ?)", (message.content_id, message.payload["text"]))


def apply_notes(message: gossiplog.SignedMessage[Note], transaction: gossiplog.ApplyTransaction) -> None:
    transaction.execute("INSERT INTO notes VALUES (:id, :text)", {"id": message.id, "text": message.payload.text})
    rows = transaction.execute("SELECT id, text FROM notes")
    assert_type(rows, gossiplog.Rows)
    assert_type(rows.fetchone(), tuple[Any, ...] | None)
    assert_type(rows.fetchall(), list[tuple[Any, ...]])
    for id, text in transaction.execute("SELECT id, text FROM notes"):
        assert_type((id, text), tuple[Any, Any])
    assert_type(transaction.execute("DELETE FROM notes WHERE id IS NULL").rowcount, int)
    for parent in message.parents:
        assert_type(transaction.content_id(parent), str)


def insert(connection: sqlite3.Connection, id: str, text: str) -> None:
    connection.execute("INSERT INTO notes VALUES (?, ?)", (id, text))


def apply_sqlite(message: gossiplog.SignedMessage[Note], transaction: sqlite3.Connection) -> None:
    insert(transaction, message.content_id, message.payload.text)


def apply_task(message: gossiplog.SignedMessage[Task], transaction: gossiplog.ApplyTransaction) -> None:
    transaction.execute("SELECT ?", (message.payload.title,))


async def apply_later(message: gossiplog.SignedMessage) -> None:
    await anyio.sleep(message.clock)


signer = gossiplog.Signer.generate()
with gossiplog.open(":memory:", TOPIC, apply=apply, setup=setup, signer=signer) as plain:
    assert_type(plain, gossiplog.Log[Any])
    plain.append({"text": "milk"})
with gossiplog.open(":memory:", TOPIC, apply=apply_notes, setup=setup_sqlite, payload=Note, signer=signer) as log:
    assert_type(log, gossiplog.Log[Note])
    log.append(Note(text="milk"))
with gossiplog.open(":memory:", TOPIC, apply=apply_sqlite, setup=setup, payload=Note, signer=signer) as log:
    assert_type(log, gossiplog.Log[Note])
    log.append(Note(text="milk"))
with gossiplog.open(
    ":memory:", TOPIC, apply=lambda message, transaction: transaction.execute("SELECT ?", (message.id,))
) as printing:
    assert_type(printing, gossiplog.Log[Any])


def mistakes(transaction: gossiplog.ApplyTransaction) -> None:
    gossiplog.open(":memory:", apply=apply_task, payload=Note)  # type: ignore[arg-type]  # pyright: ignore
    gossiplog.open(":memory:", apply=apply_later)  # type: ignore[arg-type]  # pyright: ignore
    gossiplog.open(":memory:", setup=apply)  # type: ignore[arg-type]  # pyright: ignore
    transaction.commit()  # type: ignore[attr-defined]  # pyright: ignore
    transaction.execute("SELECT ?", 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


kept: gossiplog.Apply = apply
kept_notes: gossiplog.Apply[Note] = apply_sqlite
