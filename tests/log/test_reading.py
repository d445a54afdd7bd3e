"""What is stored is held against its key by every read, and what looks like damage is read again first."""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import CorruptLog, CorruptSource, Log, MemoryStorage, Signer, StorageError, UnknownMessage, core
from gossiplog.log import writing
from gossiplog.log.log import replica_of
from gossiplog.log.reading import read_page, read_rows
from gossiplog.storage.sqlite.tables import SQLiteReader
from tests.damage import make_log
from tests.storage.faults import Faults, inject
from tests.strategies import repeatable

TOPIC = "org.example.test"
SIGNER = Signer(bytes(32))
COUNT = 5
PACKAGE = Path(gossiplog.__file__).parent
# What hands messages out, or builds upon them. Others look for damage, or hold the rows that they read against keys.
CHECKED = (
    "net/**/*.py",
    "cli/**/*.py",
    *(f"log/{name}.py" for name in ("applying", "following", "replica", "writing")),
)


class Stored:
    """A log in memory whose values can be changed as a disk changes them."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        with gossiplog.open(self.storage, TOPIC, signer=SIGNER) as log:
            self.messages = log.append_many([{"n": number} for number in range(COUNT)])
        assert self.storage._tables is not None
        self._rows = self.storage._tables.messages

    @contextmanager
    def flipped(self, sequence: int, bit: int) -> Iterator[None]:
        value, links = self._rows[sequence - 1]
        self._rows[sequence - 1] = (flip(value, bit), links)
        try:
            yield
        finally:
            self._rows[sequence - 1] = (value, links)


def flip(value: bytes, bit: int) -> bytes:
    changed = bytearray(value)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture
def stored() -> Stored:
    return Stored()


def check_nothing_is_built_upon(stored: Stored, bit: int, which: slice = slice(None)) -> None:
    last = stored.messages[-1]
    with stored.flipped(COUNT, bit), gossiplog.open(stored.storage, signer=SIGNER) as log:
        uses: list[Callable[[], object]] = [
            *(lambda: log.append("more"), lambda: log.append_many(["a", "b"]), lambda: log.heads, lambda: log.clock),
            *(lambda: log.root, lambda: log.children(stored.messages[0].id), log.info, replica_of(log).snapshot),
            *(replica_of(log).heads, replica_of(log).next_parents, replica_of(log).state, lambda: log.get(last.id)),
            *(lambda: [*log], lambda: [*log.messages(reverse=True)], lambda: replica_of(log).value(last.id)),
            *(lambda: next(log.subscribe(after=COUNT - 1)), lambda: replica_of(log).arrivals(COUNT - 1, 1)),
            lambda: replica_of(log).page(None, None, reverse=True, limit=9, most_bytes=10**6),
        ]
        for use in uses[which]:
            with pytest.raises(CorruptLog, match=last.id):
                use()
        assert len(log) == COUNT
        with pytest.raises(CorruptLog):
            log.verify()


@repeatable(60)
@given(bit=st.integers(0))
def test_a_flip_in_the_newest_value_is_never_built_upon(bit: int) -> None:
    stored = Stored()
    check_nothing_is_built_upon(stored, bit % (8 * len(stored.messages[-1].value)))


@pytest.mark.integration
def test_no_flip_in_the_newest_value_is_built_upon(stored: Stored) -> None:
    """Each use meets several bits of each byte."""
    for bit in range(8 * len(stored.messages[-1].value)):
        check_nothing_is_built_upon(stored, bit, slice(bit % 3, None, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, signer=SIGNER, synchronous="off") as log:
        log.append_many(range(20))
    return path


def change(path: Path, sql: str, *parameters: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, parameters).rowcount == 1


def rot(path: Path, sequence: int, bit: int = 8 * 150) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        ((value,),) = connection.execute("SELECT value FROM gossiplog_messages WHERE seq = ?", (sequence,))
    change(path, "UPDATE gossiplog_messages SET value = ? WHERE seq = ?", flip(value, bit), sequence)


def test_a_file_whose_newest_value_rotted_is_not_appended_to(path: Path, opened: Callable[..., Log]) -> None:
    with gossiplog.open(path) as log:
        last = [*log][-1]
    rot(path, 20)
    log = opened(path, signer=SIGNER)
    for _ in range(2):
        with pytest.raises(CorruptLog, match=last.id):
            log.append("more")
    assert len(log) == 20


def test_a_head_that_the_index_covers_is_not_built_upon(
    tmp_path: Path, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "INDEX_LAG", 0)
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, signer=SIGNER) as log:
        last = log.append_many(range(20))[-1]
        # Another head, whose value is sound.
        log.insert(Signer(b"\1" * 32).sign(TOPIC, 1, [], "beside")[1])
    rot(path, 20)
    log = opened(path, signer=SIGNER)
    with pytest.raises(CorruptLog, match=last.id):
        log.append("more")
    with pytest.raises(CorruptLog, match=last.id):
        replica_of(log).next_parents()
    assert last.id in log.heads
    change(path, "DELETE FROM gossiplog_messages WHERE seq = 20")
    log = opened(path, signer=SIGNER)
    with pytest.raises(CorruptLog, match=f"{last.id}: it is not there"):
        log.append("more")


def test_two_values_in_each_others_place_are_found(path: Path, opened: Callable[..., Log]) -> None:
    with gossiplog.open(path) as log:
        ids = [message.id for message in log]
    with closing(sqlite3.connect(path)) as connection, connection:
        seven, eight = (
            value for (value,) in connection.execute("SELECT value FROM gossiplog_messages WHERE seq IN (7, 8)")
        )
    change(path, "UPDATE gossiplog_messages SET value = ? WHERE seq = 7", eight)
    change(path, "UPDATE gossiplog_messages SET value = ? WHERE seq = 8", seven)
    log = opened(path)
    for read in (lambda: log.get(ids[6]), lambda: next(log.subscribe(after=6)), lambda: [*log.messages(after=ids[5])]):
        with pytest.raises(CorruptLog, match=ids[6]):
            read()


def test_what_comes_before_damage_is_given_out(path: Path, opened: Callable[..., Log]) -> None:
    with gossiplog.open(path) as log:
        ids = [message.id for message in log]
    rot(path, 8)
    log = opened(path)
    taken: list[str] = []
    with pytest.raises(CorruptLog, match=ids[7]):
        taken.extend(message.id for message in log)
    assert taken == ids[:7]
    arrivals = log.subscribe(after=0)
    assert [message.id for message in next(arrivals)] == ids[:7]
    with pytest.raises(CorruptLog, match=ids[7]):
        next(arrivals)
    with pytest.raises(CorruptSource, match=ids[7]):
        opened().pull(log)


def test_apply_does_not_see_altered_content(path: Path) -> None:
    with gossiplog.open(path) as log:
        ids = [message.id for message in log]
    rot(path, 8)
    seen: list[str] = []
    for _ in range(2):
        with pytest.raises(CorruptLog, match=ids[7]):
            gossiplog.open(path, apply=lambda message, transaction: seen.append(message.id))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'applied'").fetchone() == (7,)
    # The first time for those before it; then for none.
    assert seen == ids[:7]


def test_a_lost_leaf_is_named_by_its_message(path: Path, opened: Callable[..., Log]) -> None:
    with gossiplog.open(path) as log:
        eighth = [*log][7]
    change(path, "DELETE FROM gossiplog_leaves WHERE seq = 8")
    log = opened(path)
    with pytest.raises(CorruptLog, match=f"{eighth.id}: no leaf has its sequence, 8"):
        next(log.subscribe(after=7))


def test_a_lost_message_is_named_by_its_sequence(path: Path, opened: Callable[..., Log]) -> None:
    change(path, "DELETE FROM gossiplog_messages WHERE seq = 8")
    log = opened(path)
    arrivals = log.subscribe(after=0)
    assert len(next(arrivals)) == 7
    with pytest.raises(CorruptLog, match="no message with the sequence 8"):
        next(arrivals)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a log whose index covers all messages."""
    path = tmp_path_factory.mktemp("indexed") / "log.db"
    with pytest.MonkeyPatch.context() as patch, gossiplog.open(path, TOPIC, signer=SIGNER, synchronous="off") as log:
        patch.setattr(writing, "INDEX_LAG", 0)
        log.append_many(range(60))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


def with_rotten_key(path: Path, sequence: int, bit: int) -> tuple[Path, str]:
    """Copy a log, flip a bit of a leaf's key where it stands, out of order or not; return the copy and the id."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT key, hash FROM gossiplog_leaves WHERE seq = ?", (sequence,))
        ((key, hash),) = rows.fetchall()
    copy = path.with_name("copy.db")
    content = path.read_bytes()
    assert content.count(key + hash) == 1
    copy.write_bytes(content.replace(key + hash, flip(key, bit) + hash))
    return copy, core.encode_id(key)


@pytest.mark.slow
@repeatable(40)
@given(st.integers(0, 8 * 20 - 1), st.integers(1, 59))
def test_a_message_whose_leaf_key_rotted_is_not_unknown(indexed: Path, bit: int, sequence: int) -> None:
    """A message whose key rotted is not said to be absent."""
    path, id = with_rotten_key(indexed, sequence, bit)
    with gossiplog.open(path) as log:
        uses: list[Callable[[], object]] = [
            *(lambda: log.get(id), lambda: id in log, lambda: log.content_id(id), lambda: log.frontier(id, 0)),
            *(lambda: log.is_ancestor(id, id), lambda: log.children(id), lambda: replica_of(log).value(id)),
            lambda: replica_of(log).frontiers(id, 10, 10**6),
        ]
        for use in uses:
            with pytest.raises(CorruptLog, match=f"`gossiplog doctor {path}`"):
                use()


def test_a_message_whose_sequence_rotted_is_not_taken_for_another(indexed: Path) -> None:
    """Before, questions about ancestors were answered for the message at the wrong sequence."""
    with gossiplog.open(indexed, read_only=True) as log:
        first, *_, id, other = [message.id for message in log][:40]
    path = indexed.with_name("copy.db")
    path.write_bytes(indexed.read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_leaves SET seq = 12 WHERE key = ?", (core.decode_id(id),))
    with gossiplog.open(path) as log:
        uses: list[Callable[[], object]] = [
            *(lambda: log.is_ancestor(first, id), lambda: log.is_ancestor(id, other), lambda: log.frontier(id, 5)),
            *(lambda: log.children(id), lambda: replica_of(log).frontiers(id, 10, 10**6)),
        ]
        for use in uses:
            with pytest.raises(CorruptLog, match=f"the stored message {id}: the value"):
                use()
        assert log.is_ancestor(first, other)


_BOUNDS = st.none() | st.integers(0, 59)


def check_range(
    path: Path,
    lost: str | None,
    after: str | None,
    before: str | None,
    reverse: bool,
    limit: int | None,
    page: int,
    wanted: list[str],
) -> None:
    """Check that each way to read a range returns the wanted ids, or names damage where an id was lost.

    Args:
        path: of the log.
        lost: id of the message whose leaf is damaged; None in a sound log.
        after: id before the range; None begins at the first.
        before: id after the range; None ends at the last.
        reverse: whether the ids descend.
        limit: most messages of the range; None reads all.
        page: most messages of a page where there is no limit.
        wanted: ids.
    """
    keys = [None if id is None else core.decode_id(id) for id in (after, before)]
    with gossiplog.open(path, read_only=True) as log:
        uses: list[Callable[[], list[str]]] = [
            lambda: [message.id for message in log.messages(after=after, before=before, reverse=reverse, limit=limit)],
            lambda: [
                core.encode_id(key)
                for key, _ in replica_of(log).page(*keys, reverse=reverse, limit=limit or page, most_bytes=10**6)[0]
            ],
        ]
        for use in uses:
            try:
                assert use() == wanted
                assert lost not in wanted
            except CorruptLog:
                assert lost is not None


@pytest.mark.slow
@repeatable(40)
@given(
    bit=st.integers(0, 8 * 20 - 1),
    sequence=st.integers(1, 59),
    after=_BOUNDS,
    before=_BOUNDS,
    reverse=st.booleans(),
    limit=st.none() | st.integers(1, 60),
)
def test_a_rotten_leaf_key_keeps_no_message_from_a_range(
    indexed: Path, bit: int, sequence: int, after: int | None, before: int | None, reverse: bool, limit: int | None
) -> None:
    """Before, the range ended at the key without an error, or began behind it."""
    with gossiplog.open(indexed, read_only=True) as log:
        ids = [message.id for message in log]
    low, high = (None if place is None else ids[place] for place in (after, before))
    between = [id for id in ids if (low is None or id > low) and (high is None or id < high)]
    wanted = (between[::-1] if reverse else between)[:limit]
    path, lost = with_rotten_key(indexed, sequence, bit)
    check_range(indexed, None, low, high, reverse, limit, 60, wanted)
    check_range(path, lost, low, high, reverse, limit, 60, wanted)


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a log of three pages, whose index covers all messages."""
    path = tmp_path_factory.mktemp("paged") / "log.db"
    with pytest.MonkeyPatch.context() as patch, gossiplog.open(path, TOPIC, signer=SIGNER, synchronous="off") as log:
        patch.setattr(writing, "INDEX_LAG", 0)
        log.append_many(range(600))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


@pytest.mark.slow
@repeatable(30)
@given(
    place=st.integers(0, 599),
    start=st.integers(0, 599),
    length=st.integers(1, 600),
    reverse=st.booleans(),
    is_limited=st.booleans(),
)
def test_a_range_that_has_lost_a_row_in_its_midst_is_named(
    paged: Path, place: int, start: int, length: int, reverse: bool, is_limited: bool
) -> None:
    """A leaf that is not there any more: before, the page passed over it, unless it was the first of the page."""
    with gossiplog.open(paged, read_only=True) as log:
        ids = [message.id for message in log]
    wanted = ids[start : start + length]
    low = ids[start - 1] if start else None
    high = ids[start + length] if start + length < len(ids) else None
    limit = len(wanted) if is_limited else None
    if is_limited:
        low, high = (None, high) if reverse else (low, None)
    if reverse:
        wanted.reverse()
    copy = paged.with_name("copy.db")
    copy.write_bytes(paged.read_bytes())
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_leaves WHERE key = ?", (core.decode_id(ids[place]),))
    check_range(paged, None, low, high, reverse, limit, 600, wanted)
    check_range(copy, ids[place], low, high, reverse, limit, 600, wanted)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_with_messages_outside_its_range_is_named(stored: Stored, reverse: bool) -> None:
    """SQLite looks for one end of a range, and reads on from where a rotten key has led it."""
    sound = [(message.key, bytes(16), message.value) for message in stored.messages]

    class Misled(SQLiteReader):
        def __init__(self) -> None:
            pass

        def page(self, *_: object) -> list[tuple[bytes, bytes, bytes]]:
            return sound[::-1] if reverse else sound

    within = (sound[0][0][:-1], None) if not reverse else (None, sound[-1][0] + b"\0")
    assert read_rows(Misled(), *within, reverse, 9, COUNT)
    bounds = (None, sound[-1][0]) if reverse else (sound[0][0], None)
    for read in (read_rows, partial(read_page, topic=TOPIC)):
        with pytest.raises(CorruptLog, match="not in the order of their keys"):
            read(Misled(), after=bounds[0], before=bounds[1], reverse=reverse, limit=9, count=COUNT)


@pytest.mark.slow
@repeatable(40)
@given(st.integers(0, 8 * 20 - 1), st.integers(1, 60))
def test_a_rotten_leaf_key_is_not_served(indexed: Path, bit: int, sequence: int) -> None:
    """Also where the bit is one of the clock, or of a boundary of the tree, which looks like a broken rule."""
    path, _ = with_rotten_key(indexed, sequence, bit)
    with gossiplog.open(":memory:", TOPIC) as other, pytest.raises(CorruptSource):
        other.pull(path)


def test_a_message_that_is_not_there_is_unknown_beside_sound_ones(indexed: Path) -> None:
    absent = [core.encode_id(core.encode_clock(clock) + bytes(19)) for clock in (1, 30, 100)]
    with gossiplog.open(indexed, read_only=True) as log:
        for id in absent:
            assert id not in log
            with pytest.raises(UnknownMessage):
                log.get(id)


def test_a_message_that_arrives_after_it_was_looked_for_is_no_damage(
    indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gossiplog.open(indexed, read_only=True) as log:
        last = next(log.messages(reverse=True))
        monkeypatch.setattr(SQLiteReader, "sequences", lambda *_: {})
        assert last not in log


def test_an_index_with_another_root_is_named_by_what_needs_it(tmp_path: Path, indexed: Path) -> None:
    """A bit of a row of the tree: before, the log had another root, and messages were appended to it."""
    path = tmp_path / "log.db"
    path.write_bytes(indexed.read_bytes())
    with gossiplog.open(path) as log:
        first = next(iter(log))
    changes = [
        "UPDATE gossiplog_tree SET hash = zeroblob(16) WHERE key = x''",
        "INSERT INTO gossiplog_heads SELECT key, seq FROM gossiplog_leaves WHERE seq = 20",
        "UPDATE gossiplog_meta SET value = replace(value, ' 1', ' 2') WHERE name = 'index_fingerprint'",
    ]
    for sql in changes:
        path.write_bytes(indexed.read_bytes())
        change(path, sql)
        with gossiplog.open(path, signer=SIGNER) as log:
            uses: list[Callable[[], object]] = [
                *(lambda: log.root, lambda: log.heads, lambda: log.append("more"), log.info, log.verify),
                *(replica_of(log).snapshot, replica_of(log).root),
            ]
            for use in uses:
                with pytest.raises(CorruptLog, match=f"`gossiplog doctor {path}`"):
                    use()
            assert log.get(first.id) == first
            assert len(list(log)) == 60
    # An index that a version without the check has written since.
    path.write_bytes(indexed.read_bytes())
    change(path, "UPDATE gossiplog_meta SET value = '40 ' || value WHERE name = 'index_fingerprint'")
    with gossiplog.open(path, signer=SIGNER) as log:
        log.append("more")
        assert log.verify().messages == 61


def test_an_index_that_repeats_or_lacks_leaves_ends_the_messages(
    indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit in the number of a page of the leaves: before, there were other messages without an error."""
    right = SQLiteReader.page
    with gossiplog.open(indexed, read_only=True) as log:
        lost = list(log)[7].key
        changes: list[Callable[[list[Any]], list[Any]]] = [
            lambda rows: [row for row in rows if row[0] != lost],
            lambda rows: [*rows[5:], *rows[:5]],
            lambda rows: [*rows[:1], *rows],
        ]
        for wrong in changes:

            def page(*of: Any, wrong: Callable[[list[Any]], list[Any]] = wrong) -> list[Any]:
                return wrong([*right(*of)])

            monkeypatch.setattr(SQLiteReader, "page", page)
            for reverse in (False, True):
                with pytest.raises(CorruptLog, match="leaves"):
                    list(log.messages(reverse=reverse))
        monkeypatch.setattr(SQLiteReader, "page", lambda *of: right(*of)[::-1])
        with pytest.raises(CorruptLog, match="the leaves are not in the order of their keys"):
            replica_of(log).page(None, None, reverse=False, limit=9, most_bytes=10**6)


def test_a_topic_that_rotted_is_no_other_log(tmp_path: Path, indexed: Path) -> None:
    """The log is not served under the other topic."""
    path = tmp_path / "log.db"
    path.write_bytes(indexed.read_bytes())
    change(path, "UPDATE gossiplog_meta SET value = 'org.example.tesu' WHERE name = 'topic'")
    with pytest.raises(CorruptLog, match=r"stored as 'org\.example\.tesu', and the messages are of the topic"):
        gossiplog.open(path)
    # Where the value is what rotted, the log opens, and the read that meets it says so.
    path.write_bytes(indexed.read_bytes())
    with gossiplog.open(path) as log:
        first = next(iter(log))
    place = first.value.index(TOPIC.encode())
    rot(path, 1, 8 * place)
    with gossiplog.open(path) as log, pytest.raises(CorruptLog, match=first.id):
        log.get(first.id)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return inject(monkeypatch)


PASSING = [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ]
WORDS = ["gossiplog_messages", "gossiplog_leaves", "gossiplog_meta", "BEGIN"]


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("code", PASSING)
def test_an_error_of_the_disk_that_passes_ends_no_call(
    path: Path, faults: Faults, opened: Callable[..., Log], code: int, words: str
) -> None:
    with faults.failing(code, "SELECT"):
        log = opened(path, signer=SIGNER)
    assert len(faults.failed) == 1
    first, *_ = log
    calls: list[Callable[[], object]] = [
        *(lambda: log.get(first.id), lambda: [*log], lambda: next(log.subscribe(after=0)), lambda: log.root),
        *(lambda: log.append("more"), lambda: log.append("more"), lambda: log.children(first.id), log.info),
        *(lambda: log.insert(first), lambda: log.heads, lambda: log.frontier(first.id, 0), replica_of(log).try_writing),
        *(lambda: opened().pull(log), lambda: log.is_ancestor(first.id, first.id), lambda: first in log),
    ]
    for call in calls:
        opened(path, signer=SIGNER).append("another process's")
        with faults.failing(code, words):
            call()
    assert len(faults.failed) > 8
    assert log.verify().messages == len(log) == 20 + 2 + len(calls)


@pytest.mark.parametrize("code", PASSING)
def test_an_error_of_the_disk_that_stays_ends_the_call(
    path: Path, faults: Faults, opened: Callable[..., Log], code: int
) -> None:
    log = opened(path, signer=SIGNER)
    kind = StorageError if code & 0xFF == sqlite3.SQLITE_IOERR else CorruptLog
    for call in (lambda: [*log], lambda: log.append("more")):
        with faults.failing(code, "gossiplog_", times=2), pytest.raises(kind, match="injected"):
            call()
    log.append("more")
    assert log.verify().messages == 21


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR_READ])
def test_a_commit_that_failed_is_not_repeated(
    path: Path, faults: Faults, opened: Callable[..., Log], code: int
) -> None:
    log = opened(path, signer=SIGNER)
    with faults.failing(code, "COMMIT"), pytest.raises(StorageError, match="injected"):
        log.append("more")
    assert faults.failed == ["COMMIT /* gossiplog */"]
    assert len(log) == 20
    log.append("more")
    assert log.verify().messages == 21


@pytest.mark.parametrize("method", ["arrivals", "values", "page"])
def test_a_value_that_is_read_wrongly_once_is_read_again(
    path: Path, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    right = getattr(SQLiteReader, method)
    log = opened(path, signer=SIGNER)
    first = next(iter(log))
    wrong = [2, 1]

    def read(*arguments: Any) -> Any:
        found = right(*arguments)
        if wrong and found:
            wrong.pop()
            if isinstance(found, dict):
                return {key: flip(value, 900) for key, value in found.items()}
            return [(*names, flip(value, 900)) for *names, value in found]
        return found

    monkeypatch.setattr(SQLiteReader, method, read)
    call: Callable[[], object] = {
        "arrivals": lambda: next(log.subscribe(after=0)),
        "values": lambda: log.get(first.id),
        "page": lambda: [*log],
    }[method]
    with pytest.raises(CorruptLog):
        call()
    wrong.append(1)
    call()
    assert not wrong


@pytest.mark.slow
def test_messages_are_read_where_they_are_held_against_their_keys() -> None:
    sources = [source for pattern in CHECKED for source in PACKAGE.glob(pattern)]
    assert len(sources) > 80
    for source in sources:
        calls = (node.func for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call))
        raw = {
            call.attr
            for call in calls
            if isinstance(call, ast.Attribute)
            and isinstance(call.value, ast.Name)
            and call.value.id in ("reader", "transaction")
            and call.attr in ("page", "values", "arrivals")
        }
        assert not raw, f"{source} reads without a look at the keys: use gossiplog.log.reading"


@pytest.mark.parametrize(
    ("sql", "use"),
    [
        ("UPDATE gossiplog_leaves SET seq = 9999 WHERE seq = 20", list),
        ("UPDATE gossiplog_leaves SET seq = 9999 WHERE seq = 20", lambda log: log.count(after=next(iter(log)).id)),
        ("UPDATE gossiplog_messages SET seq = 9999 WHERE seq = 20", list),
        ("DELETE FROM gossiplog_leaves WHERE seq = 20", list),
        ("DELETE FROM gossiplog_children", lambda log: [log.children(message.id) for message in log.messages(limit=9)]),
        ("INSERT INTO gossiplog_children VALUES (1, 40)", lambda log: log.children(next(log.subscribe(after=0))[0].id)),
    ],
)
def test_rows_without_their_message_are_named(tmp_path: Path, sql: str, use: Callable[[Log], object]) -> None:
    """Each was passed over, so that messages or children were missing without an error."""
    path = tmp_path / "log.db"
    make_log(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)
    with gossiplog.open(path) as log, pytest.raises(CorruptLog, match=f"`gossiplog doctor {path}`"):
        use(log)
