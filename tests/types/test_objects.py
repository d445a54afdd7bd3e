"""Convergence of all types: replicas with the same messages have the same tables, whatever came in which order."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg.rows
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import CID, Signer
from gossiplog.core import SignedMessage
from gossiplog.errors import StorageError
from gossiplog.types import Counter, List, Map, Object, Objects, Register, Set, objects
from tests.conftest import POSTGRES
from tests.log.histories import SIGNERS, History, arrivals, histories
from tests.places import Place
from tests.strategies import TOPIC, repeatable
from tests.types.histories import (
    ALL,
    OBJECTS,
    SETTINGS,
    TEXT,
    TITLE,
    TODO,
    VOTES,
    connected,
    operation,
    payload,
    rows,
    state,
)


@pytest.fixture(params=["sqlite", POSTGRES])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Returns places for logs, each a new one."""
    if request.param == "postgres":
        new_url = request.getfixturevalue("new_postgres_url")
        return lambda: Place(new_url())
    numbers = itertools.count()
    return lambda: Place(tmp_path / f"{next(numbers)}.db")


@pytest.fixture
def examples(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Settings of a property that makes its own logs."""
    return repeatable(60, storage=request.node.callspec.params["new_place"])


def replica(place: Place, order: list[SignedMessage], cuts: list[int]) -> None:
    """Insert messages in batches, the first of which was stored before the program had `apply`."""
    if cuts[0]:
        with gossiplog.open(place.location, TOPIC) as log:
            log.insert_many(order[: cuts[0]])
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log:
        for start, end in itertools.pairwise([*cuts, len(order)]):
            result = log.insert_many(order[start:end])
            assert result.refused == ()
        assert len(log) == len(order)


def model(history: History) -> list[Any]:
    """What all types but the list say of operations, by their definitions, from all messages and their ancestors."""
    contents = {message.id: message.content_id for message in history.messages}
    payloads = {message.content_id: message.payload for message in sorted(history.messages, key=lambda one: one.id)}
    past: dict[str, set[str]] = {content: set() for content in payloads}
    for id, ancestors in history.past.items():
        past[contents[id]] |= {contents[one] for one in ancestors}
    title: Any = "none"
    entries: dict[str, Any] = {}
    votes: dict[str, int] = {}
    elements: dict[str, set[str]] = {}
    for content, found in sorted(payloads.items()):
        key = found.get("key")
        if found["object"] == "title":
            title = found["set"]
        elif found["object"] == "settings":
            entries.pop(key, None)
            entries |= {key: found["set"]} if "set" in found else {}
        elif found["object"] == "votes":
            votes[key] = votes.get(key, 0) + found["add"]
        elif found["object"] == "order" and "add" in found:
            removals = [
                other
                for other, removal in payloads.items()
                if removal["object"] == "order"
                and removal["key"] == key
                and "remove" in removal
                # 1 and True are equal in Python.
                and repr(removal["remove"]) == repr(found["add"])
            ]
            if not any(content in past[other] for other in removals):
                elements.setdefault(key, set()).add(repr(found["add"]))
    return [title, entries, votes, elements]


def converge(new_place: Callable[[], Place], history: History, data: st.DataObject) -> None:
    found = []
    for _ in range(2):
        order = data.draw(arrivals(history.messages))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), min_size=1, max_size=4)))
        place = new_place()
        replica(place, order, cuts)
        found.append((rows(place), state(place)))
    assert found[0] == found[1]
    # All is built anew, in batches.
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, apply_version=2, setup=ALL.setup) as log:
        log.verify()
    assert (rows(place), state(place)) == found[0]


@pytest.mark.slow
def test_replicas_converge(new_place: Callable[[], Place], examples: Callable[[Any], Any]) -> None:
    @given(histories(30, payload), st.data())
    @examples
    def over_histories(history: History, data: st.DataObject) -> None:
        converge(new_place, history, data)

    over_histories()


def are_as_defined(place: Place, order: list[SignedMessage], history: History) -> None:
    replica(place, order, [0])
    with connected(place) as database:
        elements = {key: {repr(element) for element in TODO.get(database, key=key)} for key in TODO.keys(database)}
        found = [TITLE.get(database, "none"), SETTINGS.all(database), VOTES.all(database), elements]
        for key, texts in elements.items():
            assert [TODO.contains(database, element, key=key) for element in ("x", 1, True)] == [
                repr(element) in texts for element in ("x", 1, True)
            ]
    assert found == model(history)


@pytest.mark.slow
def test_types_are_as_they_are_defined(new_place: Callable[[], Place], examples: Callable[[Any], Any]) -> None:
    @given(histories(30, operation), st.data())
    @examples
    def over_histories(history: History, data: st.DataObject) -> None:
        are_as_defined(new_place(), data.draw(arrivals(history.messages)), history)

    over_histories()


def test_replicas_that_write_and_pull(tmp_path: Path) -> None:
    places = [Place(tmp_path / f"{number}.db") for number in range(3)]
    logs = [
        gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup, signer=signer)
        for place, signer in zip(places, SIGNERS, strict=True)
    ]
    try:
        for turn in range(3):
            for number, (log, place) in enumerate(zip(logs, places, strict=True)):
                with connected(place) as database:
                    log.append(TITLE.set(f"{turn} of {number}"))
                    log.append(VOTES.add(1))
                    log.append(TODO.add(turn))
                    log.append(TODO.remove(turn - 1))
                    log.append(TEXT.insert(database, len(TEXT.get(database)), f"{turn}{number}"))
            for log, other in itertools.permutations(logs, 2):
                assert log.pull(other).refused == ()
        states = [state(place) for place in places]
        assert states[0] == states[1] == states[2]
        assert states[0][2] == {"": 9}
        assert states[0][4] == {"": [2]}
        assert len(states[0][5][""]) == 9
    finally:
        for log in logs:
            log.close()


@pytest.mark.parametrize("name", ["", "A", "1a", "a b", 'a"b', "gossiplog_a", "sqlite_x", "pg_x", "a" * 49])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of an object"):
        Register(name)


def test_what_is_no_name_and_no_object() -> None:
    wrong: Any = 1
    with pytest.raises(TypeError, match=r"^a name is 1: expected text$"):
        Register(wrong)
    wrong = "title"
    with pytest.raises(TypeError, match=r"^expected objects, such as Register\('title'\), not 'title'$"):
        Objects(wrong)


# The last two would be read as bytes and as a map.
_LOOKS = ({"/": {"bytes": 1}}, {"/": {"bytes": "AA"}}, CID(b"\x12\x01a"))
VALUES_WITHOUT_A_FORM = (float("nan"), float("inf"), "\ud800", object(), {1: 2}, *_LOOKS)


@pytest.mark.parametrize("value", VALUES_WITHOUT_A_FORM)
def test_values_that_apply_would_pass_over(value: Any, tmp_path: Path) -> None:
    """Those of registers, maps and lists were only refused by `append`, which does not name the value."""
    items = List("items")
    with gossiplog.open(tmp_path / "log.db", TOPIC, apply=items.apply, setup=items.setup):
        database = sqlite3.connect(tmp_path / "log.db")
    makes = (
        lambda: Register("title").set(value),
        lambda: Map("done").set("key", value),
        lambda: Set("tags").add(value),
        lambda: Set("tags").remove(value),
        lambda: items.insert(database, 0, 1, value),
    )
    for make in makes:
        with pytest.raises(ValueError, match=r"^the value has no dag-json form: "):
            make()
    database.close()


def test_values_are_read_alike(new_place: Callable[[], Place], signer: Signer) -> None:
    """By `get` one, by `all` all, and `keys` has those of `all`."""
    place = new_place()
    board = gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup, signer=signer)
    with board as log, connected(place) as database:
        for key in ("b", "a"):
            log.append_many([SETTINGS.set(key, 1), VOTES.add(2, key=key), TODO.add("milk", key=key)])
            log.append(TEXT.insert(database, 0, "x", key=key))
        log.append_many([SETTINGS.set("c", 1), SETTINGS.delete("c"), TODO.add("milk", key="c")])
        log.append_many([TODO.remove("milk", key="c"), TEXT.insert(database, 0, "x", key="c")])
        log.append(TEXT.delete(database, 0, key="c"))
        assert SETTINGS.all(database) == {"a": 1, "b": 1}
        assert VOTES.all(database) == {"a": 2, "b": 2}
        assert TODO.all(database) == {"a": ["milk"], "b": ["milk"]}
        assert TEXT.all(database) == {"a": ["x"], "b": ["x"]}
        for each in (VOTES, TODO, TEXT):
            assert {key: each.get(database, key=key) for key in each.keys(database)} == each.all(database)
        assert SETTINGS.keys(database) == ["a", "b"]
        assert (VOTES.get(database), TODO.get(database), TEXT.get(database)) == (0, [], [])


def test_objects_have_tables_of_their_own() -> None:
    with pytest.raises(ValueError, match='several objects use the table "a"'):
        Objects(Register("a"), Map("a"))
    with pytest.raises(ValueError, match='several objects use the table "a_deleted"'):
        Objects(List("a"), Set("a_deleted"))
    assert repr(Counter("a")) == "Counter('a')"


@pytest.mark.parametrize("each", OBJECTS, ids=lambda each: each.name)
def test_one_object_alone(each: Object, new_place: Callable[[], Place], signer: Signer) -> None:
    place = new_place()
    with gossiplog.open(place.location, TOPIC, apply=each.apply, setup=each.setup, signer=signer) as log:
        log.append(TITLE.set("title"))
        log.append(SETTINGS.set("key", "value"))
        log.append(VOTES.add(2))
        log.append(TODO.add("x"))
        log.append({"object": "text", "key": "", "insert": ["a"], "parent": "", "side": "right"})
        log.append("nothing")
    with connected(place) as database:
        for table in each._tables():
            (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert count == (0 if table.endswith('_deleted"') else 1)
        others = [table for other in OBJECTS if other is not each for table in other._tables()]
        (known,) = database.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema()"
            " AND table_name IN ('title', 'settings', 'votes', 'order', 'text')"
            if place.is_postgres
            else "SELECT count(*) FROM sqlite_schema WHERE name IN ('title', 'settings', 'votes', 'order', 'text')"
        ).fetchone()
        assert (known, len(others)) == (1, 6 - len(each._tables()))


def test_a_type_of_payloads_beside_objects(tmp_path: Path) -> None:
    """An application has messages of its own, and calls the objects from its `apply`."""
    path = tmp_path / "log.db"
    with gossiplog.open(
        path, TOPIC, payload=dict[str, Any], apply=ALL.apply, setup=ALL.setup, signer=SIGNERS[0]
    ) as log:
        log.append({"text": "a note"})
        log.append(VOTES.add(3))
    with connected(Place(path)) as database:
        assert VOTES.get(database) == 3


@pytest.mark.parametrize("table", ["title (a TEXT)", "title (key TEXT, value TEXT)", 'Title (key TEXT, "Id" TEXT)'])
def test_a_table_of_the_application_is_not_dropped(place: Place, table: str) -> None:
    """SQLite takes no notice of case, and Postgres takes names without quotes in lower case."""
    gossiplog.open(place.location, TOPIC).close()
    with connected(place) as database:
        database.execute(f"CREATE TABLE {table}")
        database.execute(f"INSERT INTO title VALUES ({', '.join(repr('mine') for _ in table.split(','))})")
        if not place.is_postgres:
            database.execute("COMMIT")
        with pytest.raises(
            StorageError, match=r"^the database has a table '[Tt]itle' already, with the columns .*rename"
        ):
            gossiplog.open(place.location, TOPIC, apply=TITLE.apply, setup=TITLE.setup)
        assert database.execute("SELECT * FROM title").fetchone()[0] == "mine"


def test_an_object_takes_the_table_of_another_type(place: Place, signer: Signer) -> None:
    types = (Register, Map, Counter, Set, List)
    for version, each in enumerate((*types, *types), 1):
        title = each("title")
        with gossiplog.open(place.location, TOPIC, apply=title.apply, apply_version=version, setup=title.setup):
            columns = [column.split()[0] for column in title._tables()['"title"'] if not column.startswith("PRIMARY")]
            with connected(place) as database:
                names = [found[0] for found in database.execute("SELECT * FROM title").description]
            assert names == columns
            assert tuple(columns) in objects._LAYOUTS


def test_rows_of_any_form(place: Place, signer: Signer) -> None:
    """The application's connection may give it dicts: reading took the names of columns for values."""
    board = gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup, signer=signer)
    with board as log, connected(place) as database:
        log.append_many([TITLE.set("Errands"), SETTINGS.set("a", 1), VOTES.add(5, key="k"), TODO.add("milk")])
        log.append(TEXT.insert(database, 0, "x"))
        expected = state(place)
        connection: Any = database
        connection.row_factory = psycopg.rows.dict_row if place.is_postgres else as_dict
        found = [each.all(database) for each in (SETTINGS, VOTES, TODO, TEXT)]
        assert found == [{"a": 1}, {"k": 5}, {"": ["milk"]}, {"": ["x"]}]
        assert (TITLE.get(database), VOTES.keys(database)) == ("Errands", ["k"])
        assert VOTES.by_author(database, key="k") == {signer.did: 5}
        assert TODO.contains(database, "milk")
        assert TEXT.insert(database, 1, "y")["side"] == "right"
        assert expected == state(place)


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def test_text_that_is_read_as_bytes(tmp_path: Path) -> None:
    with gossiplog.open(tmp_path / "log.db", TOPIC, apply=ALL.apply, setup=ALL.setup, signer=SIGNERS[0]) as log:
        log.append(SETTINGS.set("a", 1))
    with connected(Place(tmp_path / "log.db")) as database:
        connection: Any = database
        connection.text_factory = bytes
        with pytest.raises(TypeError, match=r"^the connection's text_factory is <class 'bytes'>: expected str$"):
            SETTINGS.keys(database)
