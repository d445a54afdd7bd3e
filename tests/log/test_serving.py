from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gossiplog import CorruptLog, CorruptSource, Log, Signer
from gossiplog.log import writing
from gossiplog.log.log import replica_of
from gossiplog.log.serving import LogServer
from gossiplog.protocol import wire


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql).rowcount > 0


@pytest.fixture(autouse=True)
def all_is_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "INDEX_LAG", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "source.db"


@pytest.fixture
def source(path: Path, signer: Signer, opened: Callable[..., Log]) -> Log:
    log = opened(path, signer=signer)
    log.append_many(range(300))
    return log


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("DELETE FROM gossiplog_messages WHERE seq = 7", "it is not there"),
        ("DELETE FROM gossiplog_leaves WHERE seq = 7", "the tree: "),
        ("UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = 7", "the tree: "),
        ("UPDATE gossiplog_leaves SET hash = 'abc' WHERE seq = 7", ""),
    ],
)
def test_a_damaged_source_answers_for_itself(
    source: Log, path: Path, sql: str, problem: str, opened: Callable[..., Log]
) -> None:
    change(path, sql)
    log = opened()
    with pytest.raises(CorruptSource, match=f"^the source's log is damaged: .*{problem}"):
        log.pull(source)
    log.verify()


def test_a_source_whose_new_state_is_damaged(
    source: Log, path: Path, signer: Signer, opened: Callable[..., Log]
) -> None:
    opened(path, signer=signer).append(1)
    change(path, "UPDATE gossiplog_messages SET value = 'abc' WHERE seq = 301")
    with pytest.raises(CorruptSource):
        opened().pull(source)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = 299",
        "UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = 300",
        "DELETE FROM gossiplog_leaves WHERE seq = 300",
        "DELETE FROM gossiplog_leaves WHERE seq = 7",
        "DELETE FROM gossiplog_tree WHERE key > x'' AND key = (SELECT max(key) FROM gossiplog_tree)",
    ],
)
def test_a_damaged_log_does_not_blame_a_sound_source(
    source: Log, tmp_path: Path, sql: str, other_signer: Signer, opened: Callable[..., Log]
) -> None:
    path = tmp_path / "log.db"
    log = opened(path)
    log.pull(source)
    # One beside the first messages, and one at the end that follows an early one, which is looked for by its key alone.
    early, *_, last = source
    for parents in ([early], [early, last]):
        clock = 1 + max(parent.clock for parent in parents)
        source.insert(other_signer.sign(source.topic, clock, [parent.id for parent in parents], "more")[1])
    log.close()
    change(path, sql)
    with pytest.raises(CorruptLog, match=r"^the log is damaged: "):
        opened(path).pull(source)


@pytest.mark.parametrize("both", [True, False])
def test_a_lost_parent_is_not_the_sources_hole(
    source: Log, tmp_path: Path, other_signer: Signer, both: bool, opened: Callable[..., Log]
) -> None:
    path = tmp_path / "log.db"
    opened(path).pull(source)
    # Who has inserted the parent itself knows it.
    log = opened(path)
    early, *_, last = source
    parents = [early.id, last.id] if both else [last.id]
    source.insert(other_signer.sign(source.topic, last.clock + 1, parents, "more")[1])
    change(path, "DELETE FROM gossiplog_leaves WHERE seq = 1")
    if both:
        with pytest.raises(CorruptLog, match=r"^the log is damaged: the tree: the leaves loaded"):
            log.pull(source)
    else:
        assert log.pull(source).inserted == 1


def test_a_source_with_a_wrong_value_names_it(source: Log, path: Path, opened: Callable[..., Log]) -> None:
    seventh = [*source][6]
    change(
        path, "UPDATE gossiplog_messages SET value = (SELECT value FROM gossiplog_messages WHERE seq = 6) WHERE seq = 7"
    )
    with pytest.raises(CorruptSource, match=f"the stored message {seventh.id}: "):
        opened().pull(source)


@pytest.mark.parametrize("damaged", [1, 2, 7, 150, 299])
@pytest.mark.parametrize("damage", ["value", "row", "leaf"])
def test_what_comes_before_the_damage_is_pulled(
    source: Log, path: Path, damaged: int, damage: str, opened: Callable[..., Log]
) -> None:
    """Nothing was, where a hub over the same file gave some: the answers that were ready were dropped."""
    ids = [message.id for message in source]
    kept = path.read_bytes(), path.with_name("source.db-wal").read_bytes()
    change(
        path,
        {
            "value": f"UPDATE gossiplog_messages SET value = x'00' WHERE seq = {damaged}",
            "row": f"DELETE FROM gossiplog_messages WHERE seq = {damaged}",
            "leaf": f"UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = {damaged}",
        }[damage],
    )
    log = opened()
    for _ in range(2):
        with pytest.raises(CorruptSource, match="is damaged: .*" if damage == "leaf" else ids[damaged - 1]):
            log.pull(source)
        pulled = [message.id for message in log]
        assert pulled == ids[: len(pulled)]
        # The leaves of a node are asked for together.
        assert len(pulled) == damaged - 1 or (damage == "leaf" and damaged - 60 < len(pulled) < damaged)
    log.verify()
    source.close()
    for place, content in zip((path, path.with_name("source.db-wal")), kept, strict=True):
        place.write_bytes(content)
    path.with_name("source.db-shm").unlink(missing_ok=True)
    assert log.pull(path).inserted == len(ids) - len(pulled)


def test_a_source_with_a_leaf_that_no_search_finds_is_damaged(tmp_path: Path, opened: Callable[..., Log]) -> None:
    """Flip linear:log.db:74208:0 of tests.rot: it was said to abort streams without sending a message."""
    path = tmp_path / "flipped.db"
    with opened(path, signer=Signer(bytes(32))) as log:
        log.append_many(range(150))
        keys = [message.key for message in log]
    # The types of the key, of 20 bytes, and of the hash (https://sqlite.org/fileformat2.html, "Record Format").
    blobs, text = bytes([12 + 2 * 20, 12 + 2 * 16]), bytes([13 + 2 * 20])
    content = path.read_bytes()
    for key in keys[2::30]:
        at = next(
            at for at in range(len(content)) if content[at : at + 2] == blobs and content[at + 3 : at + 23] == key
        )
        path.write_bytes(content[:at] + text + content[at + 1 :])
        with opened(path, read_only=True) as source, pytest.raises(CorruptSource):
            opened().pull(source)
    path.write_bytes(content)


def test_damaged_leaves_are_not_served_in_parts(source: Log, path: Path) -> None:
    """A client that asks for children in parts, as after a reset of its stream, blamed the source."""
    change(path, "UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = 150")
    snapshot = replica_of(source).snapshot()
    server = LogServer(replica_of(source).snapshot, None)
    key = [message.key for message in source][149]
    nodes = [child.key for child in snapshot.tree.span(snapshot.tree.root.level, None) if child.level == 1]
    node = max(found for found in nodes if found is not None and found <= key)
    request = wire.encode_request(wire.GetChildren(1, node, b""))
    with pytest.raises(CorruptSource, match="the leaves loaded for the node"):
        server.receive(request, time.monotonic())
