"""Write the log of this folder in the schema of the package that is installed: see README.md."""

import sqlite3
import sys
from contextlib import closing

import gossiplog
from gossiplog import core

TOPIC = "schemas.example.com"
ADA, BEN = gossiplog.Signer(b"\x01" * 32), gossiplog.Signer(b"\x02" * 32)


def apply(message, transaction):
    transaction.execute("CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, n INTEGER)")
    transaction.execute("INSERT INTO notes VALUES (?, ?)", (message.id, message.payload["n"]))


def alternative(message, junk):
    """Another encoding: of the payload's map, which gets a key that JavaScript drops."""
    payload = core.cbor_encode(message.payload)
    entry = core.cbor_encode("__proto__") + core.cbor_encode(junk)
    return message.value.removesuffix(payload) + bytes([payload[0] + 1]) + entry + payload[1:]


path = sys.argv[1]
with gossiplog.open(path, TOPIC, apply=apply) as log, gossiplog.open(":memory:", TOPIC) as other:
    log.append_many(({"n": n} for n in range(300)), signer=ADA)
    other.append_many(({"n": n} for n in range(300, 310)), signer=BEN, codec="dag-json")
    log.pull(other)
with gossiplog.open(path) as log:
    (message,) = log.messages(limit=1)
    log.insert_many([alternative(message, junk) for junk in range(3)])
    log.append_many([{"n": 310}, {"n": 311}], signer=BEN)
with closing(sqlite3.connect(path)) as connection:
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("VACUUM")
