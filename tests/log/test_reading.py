"""What is stored is held against its key by every read, and what looks like damage is read again first."""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import CorruptLog, CorruptSource, Log, MemoryStorage, Signer, StorageError
from gossiplog.log import writing
from gossiplog.storage.sqlite_tables import SQLiteReader
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


def check_nothing_is_built_upon(stored: Stored, bit: int) -> None:
    last = stored.messages[-1]
    with stored.flipped(COUNT, bit), gossiplog.open(stored.storage, signer=SIGNER) as log:
        uses: list[Callable[[], object]] = [
            *(lambda: log.append("more"), lambda: log.append_many(["a", "b"]), lambda: log.heads, lambda: log.clock),
            *(lambda: log.root, lambda: log.children(stored.messages[0].id), log.info, log.snapshot),
            *(log.replica.heads, log.replica.next_parents, log.replica.state, lambda: log.get(last.id)),
            *(lambda: [*log], lambda: [*log.messages(reverse=True)], lambda: log.replica.value(last.id)),
            *(lambda: next(log.subscribe(after=COUNT - 1)), lambda: log.replica.arrivals(COUNT - 1, 1)),
            lambda: log.replica.page(None, None, reverse=True, limit=9, most_bytes=10**6),
        ]
        for use in uses:
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
    for bit in range(8 * len(stored.messages[-1].value)):
        check_nothing_is_built_upon(stored, bit)


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
        log.replica.next_parents()
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
        log.replay(lambda message: taken.append(message.id))
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
        *(lambda: log.insert(first), lambda: log.heads, lambda: log.frontier(first.id, 0), log.replica.try_writing),
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
            return [(name, flip(value, 900)) for name, value in found]
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
    with gossiplog.open(path) as log, pytest.raises(CorruptLog):
        use(log)
