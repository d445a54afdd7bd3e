from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import CorruptLog, Log, Signer, core
from gossiplog.log import arrival_check, audit, writing
from gossiplog.log.audit import Audit
from gossiplog.log.state import State
from gossiplog.reference.ancestors import write_links
from gossiplog.storage.sqlite.tables import SQLiteReader
from tests.damage import Damage, make_damage, make_log, parametrized
from tests.storage.damage import damage
from tests.storage.faults import inject


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two authors' messages, all indexed, that came in several batches, not in the order of their ids."""
    path = tmp_path_factory.mktemp("intact") / "log.db"
    make_log(path)
    return path


@pytest.fixture
def braid(intact: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the intact log, to damage."""
    # What is appended to it is indexed at once, too.
    monkeypatch.setattr(writing, "INDEX_LAG", 0)
    shutil.copy(intact, path)
    return path


def test_a_sound_log(braid: Path, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_check, "_PAGE", 50)
    log = opened(braid)
    steps: list[tuple[int, int]] = []
    verified = log.verify(progress=lambda *figures: steps.append(figures))
    assert (verified.messages, verified.root) == (len(log), log.root)
    assert steps == [(min(done, len(log)), len(log)) for done in range(50, len(log) + 50, 50)]


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR_READ])
@pytest.mark.parametrize("words", ["integrity_check", "gossiplog_children", "gossiplog_leaves"])
def test_an_error_of_the_disk_that_passes_is_no_damage(
    braid: Path, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    faults = inject(monkeypatch)
    log = opened(braid)
    with faults.failing(code, words):
        assert log.verify().messages == len(log)
    assert len(faults.failed) == 1


@pytest.mark.parametrize("method", ["arrivals", "links", "leaf_rows", "children", "contents", "heads", "level1"])
def test_rows_that_are_read_wrongly_once_are_no_damage(
    braid: Path, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """What a check finds through one connection is looked for through another before it counts as damage."""
    log = opened(braid)
    right, make = getattr(SQLiteReader, method), SQLiteReader.__init__
    connection_of: dict[SQLiteReader, sqlite3.Connection] = {}
    connections = []

    def begin(reader: SQLiteReader, connection: sqlite3.Connection) -> None:
        make(reader, connection)
        connection_of[reader] = connection

    def read(reader: SQLiteReader, *arguments: object) -> object:
        connections.append(connection_of[reader])
        # A page that was read wrongly stays in the cache of its connection.
        if connections[-1] is connections[0]:
            found = right(reader, *arguments)
            if method == "links":
                return [b"", *found[1:]]
            return type(found)([*found][1:]) if isinstance(found, list) else dict([*found.items()][1:])
        return right(reader, *arguments)

    monkeypatch.setattr(SQLiteReader, "__init__", begin)
    monkeypatch.setattr(SQLiteReader, method, read)
    assert log.verify().messages == len(log)
    assert len(set(map(id, connections))) > 1


def test_an_empty_log_is_sound(log: Log) -> None:
    assert log.verify().messages == 0


def test_it_is_sound_while_it_is_written_to(log: Log) -> None:
    log.append_many(range(100))
    assert log.verify(progress=lambda *_: log.append("more")).messages == 100


def test_it_is_sound_while_the_index_is_written(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_check, "_PAGE", 50)
    log.append_many(range(200))
    # The first of them takes all into the index, which ended before when the check began.
    assert log.verify(progress=lambda *_: log.append_many(range(100))).messages == 200


@parametrized
def test_damage_is_named(braid: Path, damage: Damage) -> None:
    make_damage(braid, damage)
    with pytest.raises(CorruptLog) as corrupt, gossiplog.open(braid) as log:
        log.verify()
    assert any(damage.words in found for found in corrupt.value.problems)
    assert " LOG" not in str(corrupt.value)
    assert f" {braid}" in str(corrupt.value)


@parametrized
def test_no_more_than_what_is_damaged_is_named(braid: Path, damage: Damage) -> None:
    """A message that descends from a damaged one is sound."""
    make_damage(braid, damage)
    with pytest.raises(CorruptLog) as corrupt, gossiplog.open(braid) as log:
        log.verify()
    assert len(corrupt.value.problems) < 12 or damage.name in ("children lost", "alternative lost")


@pytest.mark.parametrize("at", ["'X'", "substr(value, 1, 60) || 'XXXXXXXX' || substr(value, 69)", "zeroblob(200)"])
def test_a_damaged_message_is_named_by_its_leaf_and_nothing_that_follows_from_it(braid: Path, at: str) -> None:
    """The hash of damaged bytes is the id of no message; the parents of a damaged head are no further damage."""
    with closing(sqlite3.connect(braid)) as connection, connection:
        ids = {seq: core.encode_id(key) for key, seq in connection.execute("SELECT key, seq FROM gossiplog_leaves")}
        damaged = (20, max(ids))
        connection.execute(f"UPDATE gossiplog_messages SET value = CAST({at} AS BLOB) WHERE seq IN (?, ?)", damaged)
    with pytest.raises(CorruptLog) as corrupt, gossiplog.open(braid, read_only=True) as log:
        log.verify()
    expected = [f"sequence {sequence}: message {ids[sequence]}: " for sequence in damaged]
    assert [problem[: len(start)] for problem, start in zip(corrupt.value.problems, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("UPDATE gossiplog_messages SET value = zeroblob(200) WHERE seq = 20", "sequence 20: "),
        ("DELETE FROM gossiplog_messages WHERE seq = 20", "no message with the sequence 20"),
        ("UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = 20", "its leaf is not that of its value"),
        ("DELETE FROM gossiplog_leaves WHERE seq = 20", "is not under its key"),
    ],
)
def test_damage_after_the_index_is_named(
    path: Path, sql: str, problem: str, signer: Signer, opened: Callable[..., Log]
) -> None:
    opened(path, signer=signer).append_many(range(30))
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'indexed'").fetchone() == (0,)
        assert connection.execute(sql).rowcount > 0
    log = opened(path)
    with pytest.raises(CorruptLog) as corrupt:
        log.verify()
    assert any(problem in found for found in corrupt.value.problems)


def verify_with(log: Log, tree: core.Tree, count: int) -> None:
    """Checks a log as if this process held another tree over its first messages."""
    Audit(log._storage, log.topic, State(count, tree, ()), None).run()


@pytest.mark.parametrize("grown", [False, True], ids=["newest", "older"])
def test_a_tree_in_memory_that_is_not_the_one_over_the_leaves(
    braid: Path, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, grown: bool
) -> None:
    monkeypatch.setattr(audit, "_NODES", 2)
    log = opened(braid)
    count, tree = len(log), log._states.newest.tree
    if grown:
        # What the process holds is the state before these, which another one has written.
        with opened(braid) as other:
            other.append_many(range(100), signer=Signer.generate())
    verify_with(log, tree, count)
    top = [(node.key or b"", node.hash) for node in tree.nodes(1)]
    assert len(top) > 3
    swapped = [(key, hash) for (key, _), (_, hash) in zip(top, reversed(top), strict=True)]
    for rows in (top[:-1], swapped, []):
        with pytest.raises(CorruptLog, match="the tree in memory is not the one over the leaves: levels ") as corrupt:
            verify_with(log, core.Tree.open(rows, count if rows else 0), count)
        assert len(corrupt.value.problems) == 1


def test_damage_of_the_stored_tree_is_not_blamed_on_memory(braid: Path, opened: Callable[..., Log]) -> None:
    log = opened(braid)
    with closing(sqlite3.connect(braid)) as connection, connection:
        connection.execute("UPDATE gossiplog_tree SET hash = zeroblob(16) WHERE key = x''")
    with pytest.raises(CorruptLog) as corrupt:
        log.verify()
    (problem,) = corrupt.value.problems
    assert problem.startswith("the tree's node (level 1, anchor)")


def test_problems_without_end_are_cut_off(braid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_check, "MOST_PROBLEMS", 5)
    with closing(sqlite3.connect(braid)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = zeroblob(200)")
    with gossiplog.open(braid) as log, pytest.raises(CorruptLog) as corrupt:
        log.verify()
    assert len(corrupt.value.problems) == 5


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE gossiplog_messages SET value = 'text'",
        "UPDATE gossiplog_messages SET value = 7",
        "UPDATE gossiplog_messages SET value = zeroblob(200)",
    ],
)
def test_damaged_messages_are_named_where_they_are_read(braid: Path, sql: str, opened: Callable[..., Log]) -> None:
    with closing(sqlite3.connect(braid)) as connection, connection:
        connection.execute(sql)
    log = opened(braid)
    calls: list[Callable[[], object]] = [
        lambda: list(log),
        lambda: log.get(log.heads[0]),
        lambda: log.info(),
        lambda: next(log.subscribe(after=0)),
        lambda: log.children(log.frontier(log.heads[0], 1)[0]),
        lambda: opened(braid, apply=lambda *_: None),
    ]
    for call in calls:
        with pytest.raises(CorruptLog, match=r"the stored message (of sequence )?[0-9a-v]+: ") as error:
            call()
        assert str(error.value).endswith(
            f"; `gossiplog repair {braid} --from SOURCE` repairs it from a replica,"
            f" `gossiplog doctor {braid}` says more"
        )


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE gossiplog_messages SET links = x'ff'",
        "UPDATE gossiplog_messages SET links = 3.5",
        "DELETE FROM gossiplog_messages WHERE seq = (SELECT max(seq) FROM gossiplog_messages)",
        "DELETE FROM gossiplog_heads",
        "INSERT INTO gossiplog_heads VALUES (zeroblob(20), 1)",
        "INSERT INTO gossiplog_heads VALUES ('abc', 'abc')",
        "UPDATE gossiplog_leaves SET hash = 'abc'",
    ],
)
def test_nothing_is_appended_to_what_is_damaged(
    braid: Path, sql: str, signer: Signer, opened: Callable[..., Log]
) -> None:
    with closing(sqlite3.connect(braid)) as connection:
        connection.execute(sql)
        before = connection.execute("SELECT count(*) FROM gossiplog_messages").fetchone()
        connection.commit()
        with pytest.raises(CorruptLog):
            opened(braid).append_many(range(100), signer=signer)
        assert connection.execute("SELECT count(*) FROM gossiplog_messages").fetchone() == before


def test_damaged_links_and_leaves_are_named_where_they_are_read(braid: Path, opened: Callable[..., Log]) -> None:
    log = opened(braid)
    ids = [message.id for message in log]
    with closing(sqlite3.connect(braid)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET links = x'ff'")
        connection.execute("UPDATE gossiplog_leaves SET hash = 'abc'")
    with pytest.raises(CorruptLog, match="a stored record"):
        log.is_ancestor(ids[0], ids[-1])
    with pytest.raises(CorruptLog, match="a stored record"):
        log.frontier(ids[-1], 1)
    with pytest.raises(CorruptLog):
        opened().pull(log)


@pytest.mark.parametrize(("table", "leaf"), [("leaves", True), ("children", False)])
def test_a_damaged_file_is_named(braid: Path, table: str, leaf: bool, opened: Callable[..., Log]) -> None:
    damage(braid, f"gossiplog_{table}", leaf=leaf)
    log = opened(braid)
    with pytest.raises(CorruptLog) as corrupt:
        log.verify()
    assert corrupt.value.problems[0].startswith("SQLite: ")
    assert corrupt.value.problems[-1].endswith("database disk image is malformed")


@pytest.mark.parametrize("table", ["messages", "tree", "leaves", "heads"])
def test_a_file_too_damaged_to_open_is_named(braid: Path, table: str) -> None:
    damage(braid, f"gossiplog_{table}")
    with pytest.raises(CorruptLog, match="malformed"):
        gossiplog.open(braid)


def test_nothing_is_read_from_or_inserted_into_a_damaged_file(
    braid: Path, signer: Signer, opened: Callable[..., Log]
) -> None:
    early = signer.sign("org.example.test", 1, [], "early")[1]
    damage(braid, "gossiplog_leaves", leaf=True)
    log = opened(braid)
    calls: list[Callable[[], object]] = [lambda: list(log), lambda: log.insert(early)]
    for call in calls:
        with pytest.raises(CorruptLog, match="malformed"):
            call()


def test_links_that_earlier_versions_wrote_are_sound(path: Path, opened: Callable[..., Log], signer: Signer) -> None:
    """Two sides name 130 roots each, which a chain covers: the search is wide, the frontier is not."""
    topic = "org.example.test"

    def signed(clock: int, parents: list[str], payload: object) -> core.SignedMessage:
        _, value = signer.sign(topic, clock, parents, payload, "dag-cbor")
        return core.verify(value, topic)

    roots = [signed(1, [], number) for number in range(260)]
    chain = [signed(2, sorted(root.id for root in roots[:130]), "chain")]
    chain.append(signed(3, sorted([chain[0].id, *(root.id for root in roots[130:])]), "chain"))
    sides = [[signed(1, [], f"side {side}")] for side in range(2)]
    for line in (chain, *sides):
        while line[-1].clock < 7:
            line.append(signed(line[-1].clock + 1, [line[-1].id], "next"))
    for side, line in enumerate(sides):
        line[-1] = signed(7, sorted([line[-2].id, *(root.id for root in roots[side * 130 : side * 130 + 130])]), side)
    last = signed(8, sorted(line[-1].id for line in (chain, *sides)), "last")
    log = opened(path)
    inserted = log.insert_many([*roots, *chain, *sides[0], *sides[1], last])
    assert (inserted.inserted, len(log)) == (len(log), 260 + 6 + 14 + 1)
    count = len(log)
    with closing(sqlite3.connect(path)) as database, database:
        (record,) = database.execute("SELECT links FROM gossiplog_messages WHERE seq = ?", (count,)).fetchone()
        clock, (parents, *others) = core.link_record(count, record)
        assert (clock, len(parents), others) == (8, 3, [[], []])
        records = dict(database.execute("SELECT seq, links FROM gossiplog_messages"))
        frontiers = [
            core.frontier(count, target, lambda asked: [records[each] for each in asked]) for target in (7, 6, 4)
        ]
        assert [len(found) for found in frontiers] == [3, 3, 3]
        earlier = write_links(count, clock, frontiers)
        database.execute("UPDATE gossiplog_messages SET links = ? WHERE seq = ?", (earlier, count))
    assert log.verify().messages == count
    with closing(sqlite3.connect(path)) as database, database:
        wrong = write_links(count, clock, [parents, frontiers[1][:2], frontiers[2]])
        database.execute("UPDATE gossiplog_messages SET links = ? WHERE seq = ?", (wrong, count))
    with pytest.raises(CorruptLog, match=f"sequence {count}: its links"):
        log.verify()


def test_links_that_were_left_out_for_their_cost_are_sound(
    path: Path, opened: Callable[..., Log], signer: Signer
) -> None:
    """The cores search for them in different ways. The parents are always there, first or last."""
    log = opened(path)
    log.append_many(range(8), signer=signer)
    with closing(sqlite3.connect(path)) as database, database:
        (record,) = database.execute("SELECT links FROM gossiplog_messages WHERE seq = 8").fetchone()
    assert core.link_record(8, record) == (8, [[7], [6], [4]])
    for links, is_sound in (
        ([[7], [], []], True),
        ([[7], [6], []], True),
        ([[7], [6], [3]], False),
        ([[6], [], []], False),
        ([[], [], [], [7]], True),
        ([[], [], [], [6]], False),
    ):
        with closing(sqlite3.connect(path)) as database, database:
            changed = write_links(8, 8, links)
            database.execute("UPDATE gossiplog_messages SET links = ? WHERE seq = 8", (changed,))
        if is_sound:
            assert log.verify().messages == 8
        else:
            with pytest.raises(CorruptLog, match="sequence 8: its links"):
                log.verify()
