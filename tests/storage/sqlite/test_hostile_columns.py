"""Every column of a log's tables with every odd value, every table dropped or renamed: each call ends typed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import CorruptLog, GossipLogError, Log, NotALog, Signer
from gossiplog.log import writing
from gossiplog.log.log import replica_of
from gossiplog.storage.sqlite.tables import BESIDE, TABLES
from tests.strategies import alternative, repeatable

TOPIC = "org.example.test"
SIGNER = Signer(bytes(32))
TEXT = "CAST(x'ff00fe' AS TEXT)"
ODD = [
    *("NULL", "''", "x''", "'text'", "x'00'", "-1", "0", "1", "9223372036854775807", "-9223372036854775808", "1e300"),
    *("1.5", TEXT, "zeroblob(20)", "zeroblob(70000)", "hex({column})", "CAST({column} AS TEXT)"),
]


def columns(table: str) -> list[str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in TABLES:
            connection.execute(statement)
        return [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]


NAMES = [statement.split("(")[0].split()[-1] for statement in TABLES if statement.startswith("CREATE TABLE")]
COLUMNS = [(table, column) for table in NAMES for column in columns(table)]
PLACES = [(table, column, "1") for table, column in COLUMNS if table != "gossiplog_meta"]
PLACES += [
    (table, column, f"{columns(table)[0]} = (SELECT {end}({columns(table)[0]}) FROM {table})")
    for table, column in COLUMNS
    for end in ("min", "max")
    if table != "gossiplog_meta"
]


def meta_names(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM gossiplog_meta")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "log.db"
    with pytest.MonkeyPatch.context() as patch, gossiplog.open(path, TOPIC, signer=SIGNER, synchronous="off") as log:
        patch.setattr(writing, "INDEX_LAG", 8)
        log.append_many(range(8))
        log.insert_many([SIGNER.sign(TOPIC, 1, [], number)[1] for number in range(8)])
        # What the index does not cover.
        last = log.append({"more": 1})
        log.append("newest")
        log.insert(alternative(last.value))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


def change(path: Path, *statements: str) -> bool:
    """Return whether the statements could be executed: some values a column cannot have."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("PRAGMA writable_schema = ON")
        with suppress(sqlite3.IntegrityError), connection:
            for statement in statements:
                connection.execute(statement)
            return True
    return False


@cache
def roots() -> list[bytes]:
    """Messages without parents that the log lacks: more than a page of them."""
    return [SIGNER.sign(TOPIC, 1, [], payload)[1] for payload in [*range(8, 300), "inserted"]]


def reads(log: Log, ids: list[str]) -> Iterator[Callable[[], object]]:
    first, last = ids[0], ids[-1]
    yield lambda: [*log.messages()]
    yield lambda: [*log.messages(reverse=True, limit=3)]
    yield lambda: [*log.messages(after=first, before=last)]
    for id in (first, last, ids[len(ids) // 2], "0" * 32):
        yield lambda id=id: log.get(id)
        yield lambda id=id: log.children(id)
        yield lambda id=id: log.frontier(id, 3)
        yield lambda id=id: log.is_ancestor(first, id)
        yield lambda id=id: log.content_id(id)
        yield lambda id=id: id in log
        yield lambda id=id: replica_of(log).value(id)
        yield lambda id=id: replica_of(log).frontiers(id, 99, 10**6)
    yield lambda: len(log)
    yield lambda: log.count(after=first)
    yield lambda: log.heads
    yield lambda: log.clock
    yield lambda: log.root
    yield replica_of(log).snapshot
    yield replica_of(log).next_parents
    yield replica_of(log).try_writing
    yield lambda: replica_of(log).page(None, None, reverse=False, limit=9, most_bytes=10**6)
    yield lambda: replica_of(log).arrivals(0, 9)
    yield lambda: first_of(log)


def uses(log: Log, other: Path) -> Iterator[Callable[[], object]]:
    yield lambda: log.verify()
    yield log.info
    with gossiplog.open(":memory:", TOPIC, signer=SIGNER) as empty:
        yield lambda: empty.pull(log)
    yield lambda: log.pull(other)
    yield lambda: log.append("appended")
    yield lambda: log.append_many(range(3))
    yield lambda: log.insert(roots()[-1])
    yield lambda: log.insert_many(roots()[:-1])
    yield lambda: log.rebuild()


def first_of(log: Log) -> object:
    # There may be none, and then it would wait.
    return next(log.subscribe(after=0)) if len(log) else None


def apply(message: object, transaction: object) -> None:
    pass


WAYS: list[dict[str, Any]] = [{}, {"read_only": True}, {"apply": apply}]


def check(path: Path, ids: list[str], other: Path, options: dict[str, Any]) -> None:
    """Open a log, and call everything."""
    try:
        log = gossiplog.open(path, signer=SIGNER, synchronous="off", **options)
    except (CorruptLog, NotALog, gossiplog.StorageError):
        return
    with log:
        # A read is the same with `apply` as without it.
        for use in chain(() if "apply" in options else reads(log, ids), uses(log, other)):
            with suppress(GossipLogError):
                use()


@pytest.fixture(scope="module")
def ids(made: Path) -> list[str]:
    with gossiplog.open(made) as log:
        return [message.id for message in log]


def mutations(made: Path) -> list[list[str]]:
    found = [
        [f"UPDATE OR IGNORE {table} SET {column} = {value.format(column=column)} WHERE {rows}"]
        for (table, column, rows), value in product(PLACES, ODD)
    ]
    found += [
        [f"UPDATE gossiplog_meta SET {column} = {value.format(column=column)} WHERE name = '{name}'"]
        for column, name, value in product(("name", "value"), meta_names(made), ODD)
    ]
    found += [[f"DELETE FROM gossiplog_meta WHERE name = '{name}'"] for name in meta_names(made)]
    for name in NAMES:
        found += [[f"DROP TABLE {name}"], [f"ALTER TABLE {name} RENAME TO other"], [f"DELETE FROM {name}"]]
        found += [[f"ALTER TABLE {name} RENAME TO {name}_more"], [f"ALTER TABLE {name} ADD COLUMN more"]]
    found += [["DROP INDEX gossiplog_contents"]]
    found += [
        [f"UPDATE sqlite_schema SET {column} = {value.format(column=column)} WHERE name = '{name}'"]
        for column, value, name in product(("name", "tbl_name", "sql", "type", "rootpage"), ODD, NAMES)
    ]
    return found


def tried(made: Path, ids: list[str], folder: Path, statements: list[str]) -> None:
    """Open a log that was changed in every way: each time anew, since what an earlier one writes may mend it."""
    path, other = folder / "log.db", folder / "other.db"
    for options in WAYS:
        for each in (path, other):
            shutil.copy(made, each)
            for rest in BESIDE:
                each.with_name(f"{each.name}{rest}").unlink(missing_ok=True)
        if not change(path, *statements):
            return
        try:
            check(path, ids, other, options)
        except Exception as error:
            error.add_note(f"{statements}, opened with {options}")
            raise


@pytest.mark.integration
@repeatable(60)
@given(data=st.data())
def test_no_call_ends_untyped(
    data: st.DataObject, made: Path, ids: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tried")
    tried(made, ids, folder, data.draw(st.sampled_from(mutations(made))))


@pytest.mark.integration
def test_no_call_ends_untyped_over_a_seventh_of_the_changes(made: Path, ids: list[str], tmp_path: Path) -> None:
    for statements in mutations(made)[::7]:
        tried(made, ids, tmp_path, statements)
