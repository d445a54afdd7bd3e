"""Versions of `apply`, `setup`, and rebuilds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import gossiplog
from gossiplog.core import SignedMessage
from gossiplog.errors import ApplicationMismatch, CorruptLog, RefusedMessage, StorageError
from gossiplog.log import Log, applying
from tests.places import Place

TOPIC = "applying.example.com"
COUNT = 10
OPENED = """
import sys, gossiplog
from gossiplog.log import applying

applying.WORKING_SECONDS = 0.0

def setup(transaction):
    transaction.execute("DROP TABLE IF EXISTS notes")
    transaction.execute("CREATE TABLE notes (n INTEGER PRIMARY KEY, version INTEGER)")

def apply(message, transaction):
    transaction.execute("INSERT INTO notes VALUES (?, 2)", (message.payload,))
    print(message.payload, flush=True)
    sys.stdin.readline()

gossiplog.open(sys.argv[1], apply=apply, apply_version=2, setup=setup).close()
"""


class App:
    """An application that keeps payloads in a table, with its version."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.ran: list[Any] = []
        self.limit: int | None = None

    def setup(self, transaction: gossiplog.ApplyTransaction) -> None:
        self.ran.append("setup")
        transaction.execute("DROP TABLE IF EXISTS notes")
        transaction.execute("CREATE TABLE notes (n INTEGER PRIMARY KEY, version INTEGER)")

    def apply(self, message: SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
        if self.limit is not None and message.payload >= self.limit:
            raise ValueError("enough")
        self.ran.append(message.payload)
        transaction.execute(self.insert, (message.payload, self.version))

    def open(self, place: Place, **options: Any) -> Log:
        arguments = {"apply_version": self.version, "setup": self.setup, **options}
        self.insert = place.sql("INSERT INTO notes VALUES (?, ?)")
        return gossiplog.open(place.location, TOPIC, apply=self.apply, signer=gossiplog.Signer(bytes(32)), **arguments)


@pytest.fixture(autouse=True)
def _transactions_end_by_count_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ten messages take one transaction on a busy machine, too: one ends after an eighth of a second."""
    monkeypatch.setattr(applying, "WORKING_SECONDS", 600.0)


def rows(place: Place) -> list[tuple[int, int]]:
    return place.rows("SELECT n, version FROM notes ORDER BY n")


def expected(version: int, count: int = COUNT) -> list[tuple[int, int]]:
    return [(number, version) for number in range(count)]


@pytest.fixture
def full(place: Place) -> Place:
    """A log with ten messages, whose tables version 1 wrote."""
    with App(1).open(place) as log:
        log.append_many(range(COUNT))
    return place


def test_setup_makes_the_tables_of_a_new_log(place: Place) -> None:
    app = App(3)
    with app.open(place) as log:
        assert rows(place) == []
        log.append(0)
        info = log.info()
        assert (info.apply_version, info.applied, info.is_rebuilding) == (3, 1, False)
    with app.open(place):
        assert app.ran == ["setup", 0]


def test_a_new_version_builds_the_tables_anew(full: Place) -> None:
    app = App(2)
    seen: list[tuple[int, int]] = []
    with app.open(full, progress=lambda *figures: seen.append(figures)) as log:
        assert app.ran == ["setup", *range(COUNT)]
        assert rows(full) == expected(2)
        assert seen == [(COUNT, COUNT)]
        assert log.info().apply_version == 2
        log.append(COUNT)
    with app.open(full):
        assert app.ran == ["setup", *range(COUNT + 1)]


def test_a_lower_version_is_refused_with_the_way_back(full: Place) -> None:
    App(2).open(full).close()
    with pytest.raises(ApplicationMismatch, match=r"version 2 of `apply`, this is version 1: .* above 2"):
        App(1).open(full)
    assert rows(full) == expected(2)


def test_a_process_of_an_older_version_writes_nothing_any_more(full: Place) -> None:
    with App(1).open(full) as old, App(2).open(full) as new:
        with pytest.raises(ApplicationMismatch, match="run the newer program"):
            old.append(COUNT)
        new.append(COUNT)
        assert rows(full) == expected(2, COUNT + 1)


def test_rebuild_of_a_log_that_is_open_with_apply(full: Place) -> None:
    app = App(1)
    with app.open(full) as log:
        full.rows("DELETE FROM notes")
        log.rebuild()
        assert rows(full) == expected(1)
        assert app.ran == ["setup", *range(COUNT)]
        assert not log.info().is_rebuilding


def test_a_process_of_an_older_version_requests_no_rebuild(full: Place) -> None:
    with App(1).open(full) as old, App(2).open(full) as new:
        with pytest.raises(ApplicationMismatch, match="run the newer program"):
            old.rebuild()
        assert not new.is_rebuilding


def test_rebuild_without_apply_is_for_the_next_with_it(full: Place) -> None:
    full.rows("DELETE FROM notes")
    with gossiplog.open(full.location) as log:
        log.rebuild()
        assert log.info().is_rebuilding
    with pytest.raises(ApplicationMismatch, match="because a rebuild was requested"):
        App(1).open(full, setup=None)
    with App(1).open(full) as log:
        assert rows(full) == expected(1)
        assert not log.info().is_rebuilding


def test_a_requested_rebuild_runs_in_a_process_that_has_the_log_open(full: Place) -> None:
    with App(1).open(full) as log, gossiplog.open(full.location) as other:
        full.rows("DELETE FROM notes")
        other.rebuild()
        log.append(COUNT)
        assert rows(full) == expected(1, COUNT + 1)


def test_setup_that_is_given_for_the_first_time_runs(place: Place) -> None:
    place.rows("CREATE TABLE notes (n INTEGER PRIMARY KEY, version INTEGER)")
    with App(1).open(place, setup=None) as log:
        log.append_many(range(COUNT))
    place.rows("DELETE FROM notes")
    app = App(1)
    with app.open(place):
        assert app.ran[0] == "setup"
        assert rows(place) == expected(1)
    with App(1).open(place, setup=None) as log:
        log.append(COUNT)


@pytest.mark.parametrize("has_setup", [False, True])
def test_rows_are_not_lost_with_dropped_tables(place: Place, has_setup: bool) -> None:
    """Issue 19, 11: tables dropped, a new `apply`, and only what comes from then on was in them."""
    create = "CREATE TABLE notes (n INTEGER PRIMARY KEY, version INTEGER)"
    if not has_setup:
        place.rows(create)
    with App(1).open(place, **({} if has_setup else {"setup": None})) as log:
        log.append_many(range(COUNT))
    place.rows("DROP TABLE notes")
    if not has_setup:
        with pytest.raises(ApplicationMismatch, match=r"1 table is missing: notes, and there is no `setup`"):
            App(1).open(place, setup=None)
    with App(1).open(place) as log:
        log.append(COUNT)
        assert rows(place) == expected(1, COUNT + 1)


def test_a_table_that_apply_itself_drops_is_not_missing(place: Place) -> None:

    def apply(message: SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("DROP TABLE IF EXISTS last")
        if message.payload:
            transaction.execute("CREATE TABLE last (n INTEGER)")
            transaction.execute(place.sql("INSERT INTO last VALUES (?)"), (message.payload,))

    signer = gossiplog.Signer(bytes(32))
    with gossiplog.open(place.location, TOPIC, apply=apply, signer=signer) as log:
        log.append_many([1, 2])
        log.append(0)
    gossiplog.open(place.location, apply=apply).close()


def test_a_table_of_a_refused_message_is_not_missing(place: Place) -> None:

    def apply(message: SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute(f"CREATE TABLE t{message.payload} (n INTEGER)")
        if message.payload:
            raise ValueError("no")

    with gossiplog.open(place.location, TOPIC, apply=apply, signer=gossiplog.Signer(bytes(32))) as log:
        with pytest.raises(RefusedMessage):
            log.append(1)
        log.append(0)
    gossiplog.open(place.location, apply=apply).close()


def test_setup_that_raises_changes_nothing(full: Place) -> None:
    def setup(transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("DROP TABLE notes")
        raise ArithmeticError("no tables")

    with pytest.raises(ArithmeticError, match="no tables"):
        App(2).open(full, setup=setup)
    assert rows(full) == expected(1)
    with gossiplog.open(full.location) as log:
        assert log.info().apply_version == 1


def test_setup_must_not_touch_the_log(full: Place) -> None:
    def setup(transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("DELETE FROM gossiplog_messages")

    with pytest.raises(StorageError, match="`apply` and `setup` must not"):
        App(2).open(full, setup=setup)


def test_an_exception_of_apply_leaves_the_rebuild_where_it_came_to(full: Place) -> None:
    app = App(2)
    app.limit = 6
    with pytest.raises(
        RefusedMessage, match=r"enough; .* being built anew from all messages, for version 2"
    ) as refused:
        app.open(full)
    assert "a program without" not in str(refused.value)
    with gossiplog.open(full.location) as log:
        info = log.info()
        assert (info.apply_version, info.applied, info.is_rebuilding) == (2, 6, True)
    app.limit = None
    with app.open(full):
        assert rows(full) == expected(2)
        assert app.ran == ["setup", *range(COUNT)]


def test_rebuilds_run_in_batches_with_progress(full: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "WORKING_SECONDS", -1.0)
    seen: list[tuple[int, int]] = []
    with App(1).open(full) as log:
        log.rebuild(progress=lambda *figures: seen.append(figures))
    assert seen == [(done, COUNT) for done in range(1, COUNT + 1)]
    assert rows(full) == expected(1)


def test_a_former_file_counts_as_version_1(tmp_path: Path) -> None:
    former = Path(__file__).parent.parent / "storage" / "schemas" / "schema-3.db"
    path = tmp_path / "log.db"
    path.write_bytes(former.read_bytes())
    seen: list[int] = []
    with gossiplog.open(path, apply=lambda message, _: seen.append(message.payload["n"])) as log:
        assert log.info().apply_version == 1
    # The two messages that `apply` had not seen.
    assert seen == [310, 311]
    seen.clear()
    with gossiplog.open(
        path, apply=lambda message, _: seen.append(message.payload["n"]), apply_version=2, setup=lambda _: None
    ):
        assert sorted(seen) == list(range(312))


def test_a_log_in_memory_has_versions(opened: Callable[..., Log]) -> None:
    storage = gossiplog.MemoryStorage()
    seen: list[Any] = []
    options: dict[str, Any] = {"apply": lambda message, _: seen.append(message.payload)}
    with gossiplog.open(storage, TOPIC, signer=gossiplog.Signer(bytes(32)), **options) as log:
        log.append_many([1, 2])
    with gossiplog.open(storage, apply_version=2, setup=lambda _: seen.append("setup"), **options) as log:
        assert seen == [1, 2, "setup", 1, 2]
        log.rebuild()
        assert seen == [1, 2, *["setup", 1, 2] * 2]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"apply_version": 0, "apply": lambda message, transaction: None}, ValueError),
        ({"apply_version": "2", "apply": lambda message, transaction: None}, TypeError),
        ({"apply_version": 2**63, "apply": lambda message, transaction: None}, ValueError),
        ({"apply_version": 2}, ValueError),
        ({"setup": lambda transaction: None}, ValueError),
        ({"setup": lambda: None, "apply": lambda message, transaction: None}, TypeError),
    ],
)
def test_what_open_refuses(tmp_path: Path, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"apply_version|setup"):
        gossiplog.open(tmp_path / "log.db", TOPIC, **options)
    assert not (tmp_path / "log.db").exists()


def test_rebuild_needs_setup_where_apply_is_given(full: Place) -> None:
    with App(1).open(full, setup=None) as log:
        with pytest.raises(ApplicationMismatch, match="open the log with setup="):
            log.rebuild()
        assert not log.info().is_rebuilding


@pytest.mark.parametrize("value", ["x", 2, None, "[" * 100_000])
@pytest.mark.parametrize("name", ["setup", "tables"])
def test_damaged_notes_of_the_tables(full: Place, name: str, value: str | int | None) -> None:
    if full.is_postgres and value is None:
        # No column of its tables is null.
        full.rows("DELETE FROM gossiplog_meta WHERE name = ?", name)
    else:
        stored = str(value) if full.is_postgres else value
        full.rows("UPDATE gossiplog_meta SET value = ? WHERE name = ?", stored, name)
    with pytest.raises(CorruptLog, match=r"`setup` has run is|the application's tables are named"):
        App(1).open(full)


@pytest.mark.integration
def test_a_rebuild_survives_kills(tmp_path: Path) -> None:
    """Processes that are killed leave the rebuild to the next; each row is there once."""
    place = Place(tmp_path / "log.db")
    count = 400
    with App(1).open(place) as log:
        log.append_many(range(count))
    random = Random(19)
    kills = 0
    for _ in range(200):
        command = [sys.executable, "-c", OPENED, str(place.location)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            # It waits within `apply` for a line before it goes on.
            for _ in range(random.randrange(80)):
                if not process.stdout.readline():
                    break
                process.stdin.write("\n")
            process.kill()
            kills += 1
        with gossiplog.open(place.location) as log:
            info = log.info()
        assert info.apply_version in (1, 2)
        assert info.is_rebuilding == (info.apply_version == 2 and info.applied < count)
        assert rows(place) == expected(info.apply_version, info.applied)
        if not info.is_rebuilding and info.apply_version == 2:
            break
    assert kills > 1
    with App(2).open(place):
        assert rows(place) == expected(2, count)
