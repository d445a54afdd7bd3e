"""What becomes of a log when its server, or the way to it, fails: what was acknowledged is there, nothing is twice."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import Log, LogWentBack, Signer, StorageError
from gossiplog.log.log import replica_of
from gossiplog.storage.postgres import storage as postgres_storage
from gossiplog.storage.postgres.storage import PostgresStorage
from tests.postgres import Server, own_server
from tests.postgres_proxy import Proxy, proxy_before

TOPIC = "org.example.test"
# With the zero that ends it: the level of a transaction's isolation is READ COMMITTED.
COMMIT = b"COMMIT\0"
Open = Callable[..., Log]
WRITES = pytest.mark.parametrize("doing", ["append", "append_many", "insert", "apply"])


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[Proxy]:
    with proxy_before(postgres_server) as proxy:
        yield proxy


@pytest.fixture
def schema(postgres_url: str) -> str:
    return PostgresStorage(postgres_url).url.schema


class Writing:
    """A log that writes in one of several ways, and what it has acknowledged.

    Args:
        location: of the log.
        doing: which way.
    """

    def __init__(self, location: str, doing: str) -> None:
        self._doing = doing
        self._signer, self._other = Signer(bytes(32)), Signer(b"\1" * 32)
        functions: dict[str, Any] = {"apply": self._apply, "setup": self._setup} if doing == "apply" else {}
        self.log = gossiplog.open(location, TOPIC, signer=self._signer, **functions)
        self.acknowledged: set[str] = set()
        self._number = 0

    @staticmethod
    def _setup(transaction: Any) -> None:
        transaction.execute("CREATE TABLE notes (id text PRIMARY KEY)")

    @staticmethod
    def _apply(message: Any, transaction: Any) -> None:
        transaction.execute("INSERT INTO notes VALUES (%s)", [message.id])

    def write(self) -> None:
        """Write something new; what was refused before is tried again."""
        self._number += 1
        if self._doing in ("append", "apply"):
            written = [self.log.append(self._number)]
        elif self._doing == "append_many":
            written = self.log.append_many([self._number, "more"])
        else:
            value = self._other.sign(TOPIC, 1, [], self._number)[1]
            assert self.log.insert(value)
            written = [gossiplog.core.verify(value, TOPIC)]
        self.acknowledged.update(message.id for message in written)

    def check(self, server: Server, schema: str, *, lost: int = 0) -> None:
        """Check that all that was acknowledged is there once, with its index and the application's rows.

        Args:
            server: to look at.
            schema: of the log.
            lost: how many messages are there besides, of which nobody knows.
        """
        self.log.verify()
        found = [message.id for message in self.log]
        assert len(found) == len(set(found))
        assert self.acknowledged <= set(found)
        assert len(found) == len(self.acknowledged) + lost
        if self._doing == "apply":
            rows = server.run(f"SELECT id FROM {schema}.notes")
            assert sorted(id for (id,) in rows) == sorted(found)


@contextmanager
def writing(location: str, doing: str) -> Iterator[Writing]:
    made = Writing(location, doing)
    with made.log:
        for _ in range(3):
            made.write()
        yield made


@WRITES
@pytest.mark.parametrize("delivered", [True, False])
def test_a_commit_whose_answer_is_lost_is_looked_for(
    proxy: Proxy, postgres_server: Server, schema: str, doing: str, delivered: bool
) -> None:
    with writing(proxy.url(schema), doing) as made:
        before = len(made.log)
        was_cut = proxy.cut_at(COMMIT, delivered=delivered)
        if delivered or doing.startswith("append"):
            # What was planned without a look at the log is planned anew.
            made.write()
        else:
            with pytest.raises(StorageError, match="cannot write to postgresql://"):
                made.write()
            assert len(made.log) == before
        assert was_cut.wait(60)
        made.write()
        made.check(postgres_server, schema)


@WRITES
@pytest.mark.parametrize("at", ["write", "lock"])
def test_a_connection_that_is_cut_within_a_transaction(
    proxy: Proxy, postgres_server: Server, schema: str, doing: str, at: str
) -> None:
    # The statement that adds one message is planned by name.
    write = b"INSERT INTO" if doing == "append_many" else b"EXECUTE gossiplog_"
    pattern = write if at == "write" else b"pg_advisory_xact_lock"
    with writing(proxy.url(schema), doing) as made:
        was_cut = proxy.cut_at(pattern, delivered=False)
        # Nothing of it is stored where that raises.
        with suppress(StorageError):
            made.write()
        assert was_cut.wait(60)
        made.write()
        made.check(postgres_server, schema)


@pytest.mark.parametrize("others", [1, 4], ids=["the first", "all"])
def test_a_commit_that_is_lost_is_not_taken_for_what_another_process_stored(
    proxy: Proxy, postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Another hub that gets the same messages in other batches stores the first ones before they are looked for."""
    signer, replace = Signer(b"\1" * 32), PostgresStorage._replace_writer
    values = [value for _, value in sorted(signer.sign(TOPIC, 1, [], number) for number in range(4))]
    with gossiplog.open(postgres_url, TOPIC) as other, gossiplog.open(proxy.url(schema), TOPIC) as log:

        def replacing(storage: PostgresStorage, failure: StorageError) -> Any:
            other.insert_many(values[:others])
            return replace(storage, failure)

        monkeypatch.setattr(PostgresStorage, "_replace_writer", replacing)
        was_cut = proxy.cut_at(COMMIT, delivered=False)
        if others == 4:
            assert log.insert_many(values).inserted == 4
        else:
            with pytest.raises(StorageError, match="cannot write to postgresql://"):
                log.insert_many(values)
        assert was_cut.wait(60)
        assert len(log) == len(other) == others
        assert log.insert_many(values).inserted == 4 - others
        log.verify()


@pytest.mark.parametrize("delivered", [True, False])
def test_where_the_server_cannot_be_asked_a_commit_is_in_doubt(
    proxy: Proxy, postgres_server: Server, schema: str, delivered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_storage, "_RESTART_SECONDS", 0.0)
    with writing(proxy.url(schema), "append") as made:
        proxy.refuse()
        was_cut = proxy.cut_at(COMMIT, delivered=delivered)
        with pytest.raises(StorageError, match="the server cannot be asked whether it has stored") as caught:
            made.write()
        assert not isinstance(caught.value, gossiplog.CorruptLog)
        assert was_cut.wait(60)
        proxy.refuse(False)
        made.write()
        made.check(postgres_server, schema, lost=int(delivered))


def test_a_server_that_comes_back_is_asked_what_it_has_stored(
    proxy: Proxy, postgres_server: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            proxy.refuse(False)

    monkeypatch.setattr("time.sleep", pause)
    with writing(proxy.url(schema), "append") as made:
        proxy.refuse()
        proxy.cut_at(COMMIT, delivered=True)
        made.write()
        assert len(pauses) == 3
        made.check(postgres_server, schema)


def test_a_transaction_that_idles_in_apply_is_ended_by_the_server(
    postgres_server: Server, schema: str, opened: Open, signer: Signer
) -> None:
    def setup(transaction: Any) -> None:
        transaction.execute("CREATE TABLE notes (id text PRIMARY KEY)")

    ended: list[int] = []

    def apply(message: gossiplog.SignedMessage, transaction: Any) -> None:
        if message.payload == "slow":
            ended.append(log._storage._writing_process)  # type: ignore[attr-defined]
            wait_for_end(postgres_server, ended[-1])
        transaction.execute("INSERT INTO notes VALUES (%s)", [message.id])

    # Long enough for a busy machine to go on with all other transactions.
    url = postgres_server.url(schema, options="-c idle_in_transaction_session_timeout=200")
    log = opened(url, signer=signer, apply=apply, setup=setup)
    log.append("first")
    with pytest.raises(StorageError, match="cannot write to postgresql://"):
        log.append("slow")
    # It was tried once more, since it may have been the server that was restarted.
    assert len(set(ended)) == 2
    log.append("last")
    assert [message.payload for message in log] == ["first", "last"]
    assert len(postgres_server.run(f"SELECT id FROM {schema}.notes")) == 2
    log.verify()


@contextmanager
def waits_cancelled(server: Server) -> Iterator[None]:
    """Have every commit wait for a synchronous standby that there is not, and an operator cancel each such wait."""
    ended = threading.Event()

    def cancel() -> None:
        with server.connect() as connection:
            while not ended.is_set():
                connection.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
                connection.execute("SELECT pg_sleep(0.01)")

    notices: list[object] = []
    canceller = threading.Thread(target=cancel)
    server.configure(synchronous_standby_names="nobody")
    try:
        canceller.start()
        with server.connect() as connection:
            connection.add_notice_handler(notices.append)
            # Processes of the server read its settings some time after they were changed; until then nobody waits.
            while not notices:
                connection.execute("SELECT pg_logical_emit_message(true, 'waits', 'for a standby')")
        yield
    finally:
        ended.set()
        canceller.join()
        # All that wait go on, those of other tests too.
        server.configure(synchronous_standby_names="")


@pytest.mark.integration
def test_a_wait_for_a_standby_that_is_cancelled_is_in_doubt(own: Server, signer: Signer, opened: Open) -> None:
    log = opened(own.url("cancelled"), TOPIC, signer=signer)
    log.append("before")
    said = "a synchronous standby was cancelled: the messages are stored on this server"
    with waits_cancelled(own), pytest.raises(StorageError, match=said):
        log.append("perhaps on no standby")
    log.append("after")
    assert [message.payload for message in log] == ["before", "perhaps on no standby", "after"]


@pytest.mark.integration
def test_a_log_that_was_replaced_on_no_standby_says_so(own: Server, signer: Signer, opened: Open) -> None:
    url = own.url("replaced")
    with gossiplog.open(url, TOPIC, signer=signer) as log:
        log.append("kept")
    own.run("DELETE FROM replaced.gossiplog_leaves")
    with (
        waits_cancelled(own),
        pytest.raises(StorageError, match="the log is replaced on this server, and perhaps on no"),
    ):
        gossiplog.repair(url)
    assert [message.payload for message in opened(url, TOPIC)] == ["kept"]


def wait_for_end(server: Server, process: int) -> None:
    with server.connect() as connection:
        while connection.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [process]).fetchall():
            connection.execute("SELECT pg_sleep(0.01)")


def wait_for_lock(server: Server, process: int) -> None:
    """Wait until a connection waits for a lock of another."""
    with server.connect() as connection:
        while not connection.execute("SELECT FROM pg_locks WHERE NOT granted AND pid = %s", [process]).fetchall():
            connection.execute("SELECT pg_sleep(0.01)")


def test_a_deadlock_with_an_applications_own_transaction_is_tried_again(
    postgres_server: Server, schema: str, opened: Open, signer: Signer
) -> None:
    def setup(transaction: Any) -> None:
        transaction.execute("CREATE TABLE counts (name text PRIMARY KEY, n integer)")
        transaction.execute("INSERT INTO counts VALUES ('a', 0), ('b', 0)")

    holds, applying = threading.Event(), threading.Event()
    calls: list[object] = []
    pids: list[int] = []

    def add(name: str) -> str:
        return f"UPDATE {schema}.counts SET n = n + 1 WHERE name = '{name}'"

    def apply(message: gossiplog.SignedMessage, transaction: Any) -> None:
        calls.append(message.payload)
        if len(calls) == 2:
            # The one that is woken first takes the row: this transaction could close the circle anew.
            other.join()
        transaction.execute(add("a"))
        applying.set()
        holds.wait(60)
        # A server looks for a circle once, some time after the wait that may close it has begun.
        if len(calls) == 1:
            wait_for_lock(postgres_server, pids[0])
        transaction.execute(add("b"))

    def hold() -> None:
        with postgres_server.connect() as connection, connection.transaction():
            # It waits, and the log's transaction is the one that notices the circle.
            connection.execute("SET LOCAL deadlock_timeout = '1min'")
            pids.append(connection.info.backend_pid)
            connection.execute(add("b"))
            holds.set()
            applying.wait(60)
            connection.execute(add("a"))

    url = postgres_server.url(schema, user="postgres", options="-c deadlock_timeout=20ms")
    log = opened(url, signer=signer, apply=apply, setup=setup)
    other = threading.Thread(target=hold)
    other.start()
    message = log.append("one")
    other.join()
    assert calls == ["one", "one"], "nobody was the victim of a deadlock"
    assert [each.id for each in log] == [message.id]
    assert postgres_server.run(f"SELECT name, n FROM {schema}.counts ORDER BY name") == [("a", 2), ("b", 2)]
    log.verify()


@pytest.fixture
def small_disk(own_postgres: Callable[..., Server]) -> Iterator[tuple[Server, Path]]:
    """A server, and a disk of a few megabytes in its folder, where this process may mount one."""
    server = own_postgres()
    folder = server.folder / "disk"
    folder.mkdir()
    owner = server.data.stat()
    options = f"size=6m,mode=700,uid={owner.st_uid},gid={owner.st_gid}"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield server, folder
    finally:
        server.stop("immediate")
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


@pytest.mark.integration
def test_a_full_disk_refuses_what_it_has_no_room_for(
    small_disk: tuple[Server, Path], opened: Open, signer: Signer
) -> None:
    server, disk = small_disk
    server.run(f"CREATE TABLESPACE small LOCATION '{disk}'")
    server.run("GRANT CREATE ON TABLESPACE small TO public")
    url = server.url(options="-c default_tablespace=small")
    log = opened(url, signer=signer)
    filler = disk / "filler"
    filler.write_bytes(bytes(2 * 2**20))
    stored: list[str] = []

    def fill() -> None:
        while True:
            stored.append(log.append("x" * 2**17).id)

    with pytest.raises(StorageError, match="the server's disk is full"):
        fill()
    assert stored
    # It can be read, and written as soon as there is room.
    assert {message.id for message in log} == set(stored)
    filler.unlink()
    stored.append(log.append("last").id)
    assert {message.id for message in log} == set(stored)
    log.verify()


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that the tests of this module break, one after the other; each has a schema of its own."""
    with own_server(fsync="on", full_page_writes="on") as server:
        yield server


@pytest.mark.integration
@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_a_server_that_restarts_has_what_was_acknowledged(own: Server, how: str) -> None:
    schema = f"restarted_{how}"
    with writing(own.url(schema), "append") as made:
        ended = threading.Event()

        def restart() -> None:
            if how == "kill":
                own.kill()
                own.start()
            else:
                own.restart(how)
            ended.set()

        restarting = threading.Thread(target=restart)
        restarting.start()
        failures = 0
        while not ended.is_set():
            try:
                made.write()
            except StorageError:
                failures += 1
        restarting.join()
        made.write()
        found = len(made.log)
        # What was in doubt when the server went may have been stored.
        made.check(own, schema, lost=found - len(made.acknowledged))
        assert found - len(made.acknowledged) <= failures


@pytest.mark.integration
def test_a_standby_is_read_from_and_refuses_writes_until_it_is_promoted(
    own: Server, signer: Signer, opened: Open
) -> None:
    first = opened(own.url("followed"), TOPIC, signer=signer)
    first.append_many(range(3))
    standby = own.standby()
    try:
        own.wait_for_replay(standby)
        with gossiplog.open(standby.url("followed"), read_only=True) as log:
            assert [message.payload for message in log] == [0, 1, 2]
            log.verify()
            with pytest.raises(StorageError, match="read-only"):
                log.append("more", signer=signer)
            arrivals = log.subscribe()
            first.append("replayed")
            # Nothing is announced there: it is looked for.
            assert [message.payload for message in next(arrivals)] == ["replayed"]
            assert not log._storage.announces_commits
        with opened(standby.url("followed"), signer=signer) as log:
            assert replica_of(log).write_refusal == "the server is a standby, which takes no writes"
            with pytest.raises(StorageError, match="takes no writes: it is a standby"):
                log.append("refused")
            # The standby stops following, and lacks what its server acknowledges then.
            standby.run("SELECT pg_wal_replay_pause()")
            first.append("lost")
            assert len(log) == 4
            own.stop("immediate")
            standby.run("SELECT pg_wal_replay_resume()")
            standby.promote()
            (count,) = standby.run("SELECT count(*) FROM followed.gossiplog_messages")[0]
            log.append("goes on")
            assert len(log) == count + 1
            log.verify()
    finally:
        standby.stop("immediate")
        own.start()


@pytest.mark.integration
def test_who_has_seen_more_than_the_server_that_took_over_says_so(own: Server, signer: Signer, tmp_path: Path) -> None:
    with proxy_before(own) as way:
        log = gossiplog.open(way.url("failed_over"), TOPIC, signer=signer)
        log.append_many(range(3))
        standby = own.standby("second")
        try:
            own.wait_for_replay(standby)
            standby.end_following()
            log.append_many(["lost", "too"])
            replica = gossiplog.open(tmp_path / "replica.db", TOPIC)
            replica.pull(log)
            root = log.root
            standby.promote()
            way.redirect(standby)
            for call in (lambda: len(log), lambda: log.append("more"), lambda: log.root):
                with pytest.raises(LogWentBack, match="it has 3 messages, and this program has seen 5"):
                    call()
            log.close()
            with gossiplog.open(way.url("failed_over"), TOPIC, signer=signer) as again, replica:
                again.pull(replica)
                assert again.root == root
                again.verify()
        finally:
            standby.stop("immediate")
