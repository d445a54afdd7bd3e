from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from gossiplog import Log, Signer, StorageError
from gossiplog.log import following
from gossiplog.log.log import replica_of
from gossiplog.storage.postgres import changes
from gossiplog.storage.postgres.changes import CommitListener, Connection
from gossiplog.storage.postgres.storage import PostgresStorage
from tests.postgres import Server

Open = Callable[..., Log]
LISTENING = "SELECT pid FROM pg_stat_activity WHERE query = %s"


class Calls:
    """Counts calls, and waits for them."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, reached: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(reached, 60)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def announced(postgres_url: str, opened: Open, signer: Signer, calls: Calls) -> Log:
    """A log whose storage announces the commits of others, and has called once."""
    storage = PostgresStorage(postgres_url)
    log = opened(storage, signer=signer)
    storage.watch(calls)
    calls.wait(lambda: storage.announces_commits and calls.count == 1)
    return log


def listening(server: Server, log: Log) -> list[int]:
    return [pid for (pid,) in server.run(LISTENING, f'LISTEN "{log._storage.channel}"')]  # type: ignore[attr-defined]


def test_commits_of_others_wake_who_follows(
    announced: Log, postgres_url: str, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only an announcement can end the wait.
    for name in ("POLL_SECONDS", "ANNOUNCED_POLL_SECONDS"):
        monkeypatch.setattr(following, name, 1000.0)
    other = opened(PostgresStorage(postgres_url), signer=signer)
    arrivals = announced.subscribe()
    for number in range(3):
        other.append(number)
        assert [message.payload for message in next(arrivals)] == [number]


def test_own_commits_and_those_of_other_logs_are_not_announced(
    announced: Log, calls: Calls, postgres_url: str, new_postgres_url: Callable[[], str], opened: Open, signer: Signer
) -> None:
    elsewhere = opened(PostgresStorage(new_postgres_url()), signer=signer)
    other = opened(PostgresStorage(postgres_url), signer=signer)
    for number in range(3):
        announced.append(number)
        elsewhere.append(number)
    replica_of(announced).index()
    before = calls.count
    other.append("another's")
    # What was announced before would have come before.
    calls.wait(lambda: calls.count > before)
    assert (before, calls.count) == (1, 2)


def test_notifications_of_strangers_say_nothing(
    announced: Log, calls: Calls, postgres_server: Server, opened: Open
) -> None:
    announced.append("first")
    arrivals = announced.subscribe(after=1)
    found: list[object] = []
    follower = threading.Thread(target=lambda: found.extend(arrivals))
    follower.start()
    for payload in ("1000000000", "-1", "", "probe", "\ud7ff", "x" * 7999):
        before = calls.count
        postgres_server.run("SELECT pg_notify(%s, %s)", announced._storage.channel, payload)  # type: ignore[attr-defined]
        calls.wait(lambda: calls.count > before)  # noqa: B023
    announced.append("second")
    announced.close()
    follower.join()
    assert [[message.payload for message in each] for each in found] in ([["second"]], [])  # type: ignore[attr-defined]


def test_a_lost_connection_is_made_anew_and_not_trusted_meanwhile(
    announced: Log, calls: Calls, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "FIRST_RETRY_SECONDS", 0.0)
    storage = announced._storage
    states: list[bool] = []
    storage.watch(lambda: states.append(storage.announces_commits))
    (pid,) = listening(postgres_server, announced)
    postgres_server.run("SELECT pg_terminate_backend(%s, 10000)", pid)
    # Whoever waits is called both times, and looks.
    calls.wait(lambda: calls.count >= 3)
    assert states == [False, True]
    assert listening(postgres_server, announced) != [pid]


def test_the_process_of_a_lost_writer_is_no_longer_its_own(announced: Log, postgres_server: Server) -> None:
    """The server may give its number to the process of another program."""
    announced.append(0)
    storage = announced._storage
    assert isinstance(storage, PostgresStorage)
    process = storage._writing_process
    with pytest.raises(StorageError), storage.transaction() as transaction:  # noqa: PT012
        transaction.position()
        postgres_server.run("SELECT pg_terminate_backend(%s, 10000)", process)
        transaction.position()
    assert process
    assert storage._writing_process == 0
    announced.append(1)
    assert storage._writing_process not in (0, process)


def test_it_ends_with_the_log(announced: Log, postgres_server: Server) -> None:
    assert len(listening(postgres_server, announced)) == 1
    channel = announced._storage.channel  # type: ignore[attr-defined]
    announced.close()
    assert not any(thread.name == "gossiplog commits" for thread in threading.enumerate())
    # The server ends a process once it has noticed.
    with postgres_server.connect() as connection:
        while connection.execute(LISTENING, [f'LISTEN "{channel}"']).fetchall():
            connection.execute("SELECT pg_sleep(0.01)")
    announced._storage.watch(pytest.fail)
    assert not announced._storage.announces_commits


class Deaf:
    """A connection through a pooler that takes LISTEN and lends the connection to others."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: Any, parameters: Any = None) -> object:
        is_listen = parameters is None
        return None if is_listen else self._connection.execute(statement, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_pooler_that_forwards_no_notifications_is_not_believed(
    postgres_server: Server, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "PROBE_SECONDS", 0.01)
    monkeypatch.setattr(changes, "FIRST_RETRY_SECONDS", 0.0)
    tried: list[int] = []
    twice = threading.Event()

    def connect() -> Any:
        tried.append(1)
        if len(tried) == 5:
            assert not listener.is_announcing
            # From now on it does.
            monkeypatch.setattr(changes, "PROBE_SECONDS", 60.0)
            twice.set()
        made = postgres_server.connect()
        return made if twice.is_set() else Deaf(made)

    listener = CommitListener(connect, "gossiplog_1", lambda process: False)
    try:
        listener.add(calls)
        twice.wait(60)
        calls.wait(lambda: listener.is_announcing)
        assert calls.count == 1
    finally:
        listener.close()
    assert not listener.is_announcing


@pytest.mark.parametrize("error", [psycopg.OperationalError("no server"), OSError("no socket")])
def test_a_server_that_is_away_is_tried_again_until_the_end(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "FIRST_RETRY_SECONDS", 0.001)
    tried = Calls()

    def connect() -> Connection:
        tried()
        raise error

    listener = CommitListener(connect, "gossiplog_1", lambda process: False)
    listener.add(pytest.fail)
    tried.wait(lambda: tried.count >= 3)
    # However long it would have waited until the next attempt.
    monkeypatch.setattr(changes, "LAST_RETRY_SECONDS", 1000.0)
    listener.close()
    listener.close()
    before = tried.count
    listener.add(pytest.fail)
    assert not listener.is_announcing
    assert tried.count == before
