import sqlite3
from contextlib import closing
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, Field

import gossiplog

Text = Annotated[str, Field(min_length=1, max_length=200)]


class Add(BaseModel):
    text: Text
    by: Text
    at: AwareDatetime


class Done(BaseModel):
    item: Text  # the content_id of the message that added it
    by: Text
    at: AwareDatetime


def setup(transaction: gossiplog.ApplyTransaction) -> None:
    transaction.execute("DROP TABLE IF EXISTS changes")
    transaction.execute("CREATE TABLE changes (id TEXT PRIMARY KEY, text TEXT, item TEXT, by TEXT, at TEXT)")


def apply(message: gossiplog.SignedMessage[Add | Done], transaction: gossiplog.ApplyTransaction) -> None:
    row = {"id": message.content_id, "text": None, "item": None} | message.payload.model_dump(mode="json")
    transaction.execute("INSERT INTO changes VALUES (:id, :text, :item, :by, :at)", row)


def open_log(path: str) -> gossiplog.AsyncLogOpening[Add | Done]:
    signer = gossiplog.Signer.load_or_create(f"{path}.key")
    return gossiplog.open_async(path, "org.example.todo", apply=apply, setup=setup, payload=Add | Done, signer=signer)


def items(path: str) -> list[dict[str, Any]]:
    # Of several who did an item, the first by id counts: so replicas agree, whatever reached them first.
    query = """SELECT it.id, it.text, it.by, it.at, done.by AS done_by, done.at AS done_at FROM changes AS it LEFT JOIN
        changes AS done ON done.id = (SELECT min(id) FROM changes WHERE item = it.id) WHERE it.text <> '' ORDER BY 1"""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(query)]
