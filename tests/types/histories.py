"""Objects of each type on one log, and payloads for them as anybody may make them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from hypothesis import strategies as st
from psycopg import sql

from gossiplog import core
from gossiplog.core import SignedMessage
from gossiplog.storage.postgres.url import PostgresURL
from gossiplog.types import Counter, Database, List, Map, Object, Objects, Register, Set
from tests.places import Place
from tests.strategies import build, values

TITLE, SETTINGS, VOTES, TODO, TEXT = Register("title"), Map("settings"), Counter("votes"), Set("order"), List("text")
OBJECTS = (TITLE, SETTINGS, VOTES, TODO, TEXT)
ALL = Objects(*OBJECTS)

_KEYS = st.sampled_from(["", "a", "é"])
# Of which two may well be equal, and some nearly so.
_SMALL = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["x", "y"]))
_WRONG = st.one_of(
    values.map(lambda value: build(core, value)),
    st.sampled_from(
        ["\0", "k" * 1001, "é" * 501, 2**63, -(2**64), 2**31 + 1, 1.5, True, {}, [], [[]], {"/": "x"}, b"\0", "left"]
    ),
    st.sampled_from([["x"] * 1001, "0" * 32, f"{'0' * 32}.0", f"{'0' * 32}.01", f"{'w' * 32}.0", [f"{'0' * 32}.999"]]),
)


def payload(draw: st.DrawFn, before: Sequence[SignedMessage]) -> Any:
    """An operation, or what a stranger makes of one: anything in the place of anything, or anything at all."""
    found = operation(draw, before)
    match draw(st.integers(0, 7)):
        case 0:
            field = draw(st.sampled_from([*found]))
            return found | {field: draw(_WRONG)}
        case 1:
            field = draw(st.sampled_from([*found]))
            return {key: value for key, value in found.items() if key != field}
        case 2:
            return draw(_WRONG)
        case _:
            return found


def operation(draw: st.DrawFn, before: Sequence[SignedMessage]) -> dict[str, Any]:
    """An operation of any object."""
    key = draw(_KEYS)
    match draw(st.sampled_from(OBJECTS)):
        case Register() as one:
            return one.set(draw(_SMALL))
        case Map() as one:
            return one.set(key, draw(_SMALL)) if draw(st.booleans()) else one.delete(key)
        case Counter() as one:
            return one.add(draw(st.integers(-5, 5)), key=key)
        case Set() as one:
            # More adds, so that some are there to be removed.
            element = draw(st.sampled_from(["x", 1, True]))
            return one.remove(element, key=key) if draw(st.integers(0, 2)) == 0 else one.add(element, key=key)
        case _:
            # Of any messages: those that it does not follow, too, and those that insert nothing.
            known = [f"{message.content_id}.{number}" for message in before for number in range(2)]
            if known and draw(st.integers(0, 3)) == 0:
                return {"object": "text", "key": "", "delete": draw(st.lists(st.sampled_from(known), max_size=3))}
            side = draw(st.sampled_from(["left", "right"]))
            parent = draw(st.sampled_from(["", *known]))
            inserted = draw(st.lists(_SMALL, min_size=1, max_size=3))
            return {"object": "text", "key": "", "insert": inserted, "parent": parent, "side": side}


@contextmanager
def connected(place: Place) -> Iterator[Database]:
    """A connection of another program to the tables."""
    if not place.is_postgres:
        with closing(sqlite3.connect(place.location)) as connection:
            yield connection
        return
    url = PostgresURL.parse(place.location)
    with psycopg.connect(url.conninfo, autocommit=True) as server:
        server.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(url.schema)))
        yield server


def rows(place: Place, *objects: Object) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of the tables of some objects, or of all."""
    with connected(place) as database:
        return {
            table: sorted(map(tuple, database.execute(f"SELECT * FROM {table}").fetchall()), key=repr)
            for each in objects or OBJECTS
            for table in each._tables()
        }


def state(place: Place) -> list[Any]:
    """What a program reads."""
    keys = ["", "a", "é"]
    with connected(place) as database:
        return [
            TITLE.get(database, "none"),
            SETTINGS.all(database),
            VOTES.all(database),
            [VOTES.by_author(database, key=key) for key in keys],
            TODO.all(database),
            TEXT.all(database),
            [each.keys(database) for each in (SETTINGS, VOTES, TODO, TEXT)],
        ]
