"""Upgrades of files that earlier versions wrote. The files come from `schemas/`."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

import gossiplog
from gossiplog.core import SignedMessage
from gossiplog.errors import CorruptLog, NewerSchema, StorageError
from gossiplog.log import Log
from gossiplog.storage.base import SCHEMA, Position
from gossiplog.storage.sqlite import upgrades
from gossiplog.storage.sqlite.storage import SQLiteStorage
from gossiplog.storage.sqlite.upgrades import OLDEST
from tests.storage.plant import UNREADABLE, UNSIGNED, plant

SCHEMAS = Path(__file__).parent.parent / "schemas"
TOPIC = "schemas.example.com"
# Own messages do not follow alternative encodings any more, since a version of schema 3.
ROOTS = dict.fromkeys((2, 3), "892c732e19ab3cd0d4c15e44a4cd0fc6") | {4: "cca6ee739bd49ef000088323625297c3"}


@pytest.fixture
def former(tmp_path: Path) -> Callable[[int], Path]:
    """Copies the file of a schema."""

    def copy(schema: int) -> Path:
        return Path(shutil.copy(SCHEMAS / f"schema-{schema}.db", tmp_path))

    return copy


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def check_log(log: Log, schema: int) -> None:
    assert (len(log), log.verify().root.hash.hex()) == (315, ROOTS[schema])
    alternatives = [message for message in log if not message.canonical]
    assert len(alternatives) == 3
    (content,) = {log.content_id(message.id) for message in alternatives}
    assert log.get(content).canonical
    assert log.content_id(content) == content


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA + 1))
def test_every_schema_opens(former: Callable[[int], Path], schema: int) -> None:
    path = former(schema)
    seen: list[tuple[int, int]] = []
    with gossiplog.open(path, progress=lambda *figures: seen.append(figures)) as log:
        check_log(log, schema)
    assert seen == ([(315, 315)] if schema == 2 else [])
    with closing(sqlite3.connect(path)) as connection:
        meta = dict(connection.execute("SELECT name, value FROM gossiplog_meta"))
        rows = connection.execute("SELECT seq FROM gossiplog_alternatives ORDER BY seq").fetchall()
    assert rows == [(311,), (312,), (313,)]
    assert (meta["schema"], meta["generation"], meta["apply_version"], meta["rebuild"]) == (SCHEMA, 0, 1, 0)
    assert len(meta["identity"]) == 32
    with gossiplog.open(path, progress=lambda done, total: pytest.fail("upgraded twice")) as log:
        check_log(log, schema)


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA))
def test_an_upgrade_that_fails_leaves_the_file_as_it_was(
    former: Callable[[int], Path], schema: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = former(schema)
    before = dump(path)

    def fail(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # The last step ends with it.
        patch.setattr(upgrades, "new_meta", fail)
        with pytest.raises(KeyboardInterrupt):
            gossiplog.open(path)
    assert dump(path) == before
    if schema == 2:
        with pytest.raises(KeyboardInterrupt):
            gossiplog.open(path, progress=fail)
        assert dump(path) == before
    with gossiplog.open(path) as log:
        check_log(log, schema)


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA))
@pytest.mark.parametrize("option", ["mode=ro", "immutable=1"])
def test_a_log_that_cannot_be_written_is_read_as_it_is(former: Callable[[int], Path], schema: int, option: str) -> None:
    path = former(schema)
    before = path.read_bytes()
    with gossiplog.open(f"file:{path}?{option}") as log:
        check_log(log, schema)
        with pytest.raises(StorageError, match="read-only"):
            log.append({"n": 0}, signer=gossiplog.Signer(bytes(32)))
    assert path.read_bytes() == before


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA + 1))
def test_every_schema_has_the_position_of_a_log_without_versions(former: Callable[[int], Path], schema: int) -> None:
    storage = SQLiteStorage(former(schema), read_only=True)
    storage.open(None, create=False)
    with closing(storage), storage.reader() as reader:
        assert reader.position() == Position(count=315, applied=310, indexed=300, alternative=313)


def test_two_open_a_former_log_at_once(former: Callable[[int], Path]) -> None:
    path = former(OLDEST)
    upgrades: list[int] = []

    def open_log(_: int) -> None:
        with gossiplog.open(path, progress=lambda done, total: upgrades.append(done)) as log:
            check_log(log, OLDEST)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(open_log, range(2)))
    assert upgrades == [315]


def test_a_damaged_message_is_found_by_the_check_not_by_the_upgrade(former: Callable[[int], Path]) -> None:
    path = former(OLDEST)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 7")
    with gossiplog.open(path) as log, pytest.raises(CorruptLog, match="sequence"):
        log.verify()


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA))
@pytest.mark.parametrize("is_upgraded", [False, True])
def test_an_index_that_rots_is_named(former: Callable[[int], Path], schema: int, is_upgraded: bool) -> None:
    """Before, the log had another root, until a version that stores what the index was had written it anew."""
    path = former(schema)
    if is_upgraded:
        gossiplog.open(path).close()
    # Another hash, or none: an upgrade takes over the tree that it finds, if that is one.
    change = "CAST(substr(hash, 1, 15) || x'00' AS BLOB)" if is_upgraded else "x'00'"
    with closing(sqlite3.connect(path)) as connection, connection:
        row = "(SELECT key FROM gossiplog_tree ORDER BY key LIMIT 1 OFFSET 2)"
        connection.execute(f"UPDATE gossiplog_tree SET hash = {change} WHERE key = {row}")
    named = "another root" if is_upgraded else "the tree"
    with pytest.raises(CorruptLog, match=named), gossiplog.open(path) as log:
        assert log.root


def test_a_log_that_a_newer_version_upgrades_meanwhile_is_not_written(former: Callable[[int], Path]) -> None:
    path = former(SCHEMA)
    with gossiplog.open(path) as log:
        (message,) = log.messages(limit=1)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = 'schema'", (SCHEMA + 1,))
        with pytest.raises(NewerSchema, match=f"from {SCHEMA} to {SCHEMA + 1}: open it again"):
            log.insert(message)


def test_apply_goes_on_after_an_upgrade(former: Callable[[int], Path]) -> None:
    seen: list[int] = []

    def apply(message: SignedMessage, transaction: Any) -> None:
        seen.append(message.payload["n"])

    with gossiplog.open(former(OLDEST), apply=apply):
        # The three encodings of the first message, on which it ran before, are passed over.
        assert seen == [310, 311]


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA + 1))
def test_a_message_that_this_version_refuses_does_not_keep_others_from_being_read(
    former: Callable[[int], Path], schema: int, tmp_path: Path
) -> None:
    path = former(schema)
    sequence, id = plant(path, TOPIC, indexed=True)
    with gossiplog.open(path) as log:
        assert len(log) == sequence == 316
        assert id in log
        assert [message.payload["n"] for message in log.messages(reverse=True, limit=2)] == [311, 310]
        # It has the smallest clock, and the messages after it can be read, since it is named.
        with pytest.raises(CorruptLog, match=f"the stored message {id}: .*repair"):
            list(log.messages())
        assert len(list(log.messages(after=id))) > 300
        log.append({"n": 312}, signer=gossiplog.Signer(bytes(32)))
        with pytest.raises(CorruptLog, match=f"sequence {sequence}: .*gossiplog repair") as found:
            log.verify()
        assert found.value.problems[0].startswith(f"sequence {sequence}: ")


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA + 1))
def test_a_signature_that_this_version_refuses_is_found_by_the_check(
    former: Callable[[int], Path], schema: int
) -> None:
    path = former(schema)
    sequence, id = plant(path, TOPIC, UNSIGNED, indexed=True)
    with gossiplog.open(path) as log:
        assert log.get(id).payload == 1
        assert len(list(log.messages())) == sequence == 316
        log.append({"n": 312}, signer=gossiplog.Signer(bytes(32)))
        with pytest.raises(CorruptLog, match=f"sequence {sequence}: .*signature.*gossiplog repair"):
            log.verify()


@pytest.mark.parametrize("payload", [UNREADABLE, UNSIGNED], ids=["unreadable", "unsigned"])
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA + 1))
def test_recovery_leaves_out_what_this_version_refuses(
    former: Callable[[int], Path], schema: int, indexed: bool, payload: bytes, tmp_path: Path
) -> None:
    path = former(schema)
    sequence, _ = plant(path, TOPIC, payload, indexed=indexed)
    read: list[tuple[int, int]] = []
    recovered = gossiplog.recover(path, tmp_path / "new.db", progress=lambda *figures: read.append(figures))
    assert (recovered.inserted, recovered.duplicates, read[-1]) == (315, 0, (316, 316))
    assert [number for number, _ in recovered.refused] == [sequence]
    with gossiplog.open(tmp_path / "new.db") as log:
        check_log(log, schema)
