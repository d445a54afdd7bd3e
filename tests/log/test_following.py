from __future__ import annotations

import signal
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import Log, LogClosed, LogWentBack, LossWarning, Signer, StorageError
from gossiplog.log import following
from gossiplog.log.following import BY_OTHERS
from gossiplog.log.log import replica_of
from gossiplog.storage import base
from tests.storage.announcing import AnnouncingStorage


def test_what_is_there_comes_in_the_order_of_arrival(log: Log, signer: Signer) -> None:
    late = signer.sign(log.topic, 1, [], "late")[1]
    ids = [message.id for message in log.append_many(range(10))]
    log.insert(late)
    arrivals = log.subscribe(after=0, batch_size=4)
    first = next(arrivals)
    assert ([message.id for message in first], first.cursor) == (ids[:4], 4)
    assert next(arrivals).cursor == 8
    last = next(arrivals)
    assert (last[-1].value, last.cursor) == (late, 11)
    assert [message.payload for message in next(log.subscribe(after=first.cursor))] == [4, 5, 6, 7, 8, 9, "late"]


def test_a_batch_of_none_is_refused(log: Log) -> None:
    with pytest.raises(ValueError, match="a batch_size of 0"):
        log.subscribe(batch_size=0)


@pytest.mark.parametrize("number", [-1, 2**63, 2**70])
def test_absurd_numbers_are_refused(log: Log, number: int) -> None:
    with pytest.raises(ValueError, match=f"a cursor of {number}"):
        log.subscribe(after=number)
    with pytest.raises(ValueError, match=f"a batch_size of {number}"):
        log.subscribe(batch_size=number)


def test_a_cursor_at_the_end_waits(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 100.0)
    log.append("first")
    arrivals: list[object] = []
    reading = threading.Event()
    reads: list[int] = []
    reader = log._storage.reader

    def counted(**options: Any) -> Any:
        reads.append(1)
        reading.set()
        return reader(**options)

    monkeypatch.setattr(log._storage, "reader", counted)
    follower = threading.Thread(target=lambda: arrivals.extend(log.subscribe(after=1)))
    follower.start()
    reading.wait()
    log.close()
    follower.join()
    assert arrivals == []
    assert len(reads) < 5


def test_a_cursor_beyond_the_end_is_of_a_log_that_went_back(log: Log) -> None:
    """Who waited for more would never see the messages that take the place of those that it has seen."""
    log.append("first")
    with pytest.raises(LogWentBack, match="it has 1 message, and this program has seen 5"):
        log.subscribe(after=5)


def test_commits_of_this_process_wake_at_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only a wake-up can end the wait.
    monkeypatch.setattr(following, "POLL_SECONDS", 100.0)
    log.append("before")
    arrivals = log.subscribe()
    writers = [threading.Thread(target=log.append, args=(n,)) for n in range(3)]
    for writer in writers:
        writer.start()
    seen: list[object] = []
    while len(seen) < 3:
        seen += [message.payload for message in next(arrivals)]
    for writer in writers:
        writer.join()
    assert sorted(map(str, seen)) == ["0", "1", "2"]


def test_closing_ends_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 100.0)
    arrivals = log.subscribe()
    closer = threading.Thread(target=log.close)
    closer.start()
    assert list(arrivals) == []
    closer.join()


def test_a_log_that_cannot_be_read_is_closed_all_the_same(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_CLOSING_SECONDS", 0.01)
    begun, end, reading = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        with log._storage.transaction():
            begun.set()
            end.wait()

    def follow() -> None:
        reading.set()
        assert list(log.subscribe(after=0)) == []

    threads = [threading.Thread(target=hang), threading.Thread(target=follow)]
    try:
        for thread, event in zip(threads, (begun, reading), strict=True):
            thread.start()
            event.wait()
        with pytest.raises(StorageError, match="hang"):
            log.close()
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_commits_through_another_connection_are_found(
    tmp_path: Path, opened: Callable[..., Log], signer: Signer
) -> None:
    log, other = opened(tmp_path / "log.db"), opened(tmp_path / "log.db", signer=signer)
    arrivals = log.subscribe()
    writer = threading.Thread(target=other.append, args=("other",))
    writer.start()
    assert [message.payload for message in next(arrivals)] == ["other"]
    writer.join()


def test_commits_that_a_database_announces_wake_at_once(
    tmp_path: Path, opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only an announcement can end the wait.
    monkeypatch.setattr(following, "ANNOUNCED_POLL_SECONDS", 100.0)
    storage = AnnouncingStorage(tmp_path / "log.db")
    log, other = opened(storage), opened(tmp_path / "log.db", signer=signer)
    arrivals = log.subscribe()

    def write() -> None:
        # Not before the follower waits: it would find the message, and never watch.
        storage.watched.wait()
        other.append("other")
        storage.announce()

    writer = threading.Thread(target=write)
    writer.start()
    assert [message.payload for message in next(arrivals)] == ["other"]
    writer.join()


def test_a_storage_is_watched_once_and_only_where_somebody_waits(
    tmp_path: Path, opened: Callable[..., Log], signer: Signer
) -> None:
    storage = AnnouncingStorage(tmp_path / "log.db")
    log = opened(storage, signer=signer)
    log.append("first")
    assert len(next(log.subscribe(after=0))) == 1
    assert storage.watchers == []
    heard: list[int | None] = []
    for _ in range(2):
        with replica_of(log).listening(heard.append):
            storage.announce()
    replica_of(log).count()
    assert len(storage.watchers) == 1
    assert heard == [BY_OTHERS, BY_OTHERS]


def test_a_storage_that_could_not_be_watched_is_tried_again(
    tmp_path: Path, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the system starts no more threads: nobody was told of others' commits from then on."""
    storage = AnnouncingStorage(tmp_path / "log.db")
    log = opened(storage)

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "watch", fail)
        with pytest.raises(RuntimeError, match="thread"), replica_of(log).listening(lambda _: None):
            pass
    heard: list[int | None] = []
    with replica_of(log).listening(heard.append):
        storage.announce()
    assert heard == [BY_OTHERS]


def test_what_is_announced_is_looked_for_rarely(
    tmp_path: Path, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = AnnouncingStorage(tmp_path / "log.db")
    log = opened(storage)
    assert replica_of(log).poll_seconds == following.ANNOUNCED_POLL_SECONDS
    # As where the connection is lost that brings the announcements.
    monkeypatch.setattr(storage, "is_announcing", False)
    assert replica_of(log).poll_seconds == following.POLL_SECONDS < following.ANNOUNCED_POLL_SECONDS


@pytest.mark.parametrize("by", ["deletion", "replacement"])
def test_a_follower_of_a_file_that_lost_its_name_ends(tmp_path: Path, signer: Signer, by: str) -> None:
    """It waited without end, beside a new file of the name to which others wrote."""
    path, other = tmp_path / "log.db", tmp_path / "other.db"
    with gossiplog.open(path, "topic", signer=signer) as log:
        log.append("first")
    warned = pytest.warns(LossWarning, match="was deleted") if by == "deletion" else nullcontext()
    with warned, gossiplog.open(path, read_only=True) as log:
        arrivals = log.subscribe(after=0)
        assert len(next(arrivals)) == 1
        if by == "deletion":
            path.unlink()
        else:
            gossiplog.open(other, "topic").close()
            other.replace(path)
        with pytest.raises(
            StorageError, match=rf"the file {path} was (deleted|replaced by another file) while the log was open"
        ):
            next(arrivals)


@pytest.fixture
def only_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a wake-up can end a wait."""
    monkeypatch.setattr(following, "POLL_SECONDS", 1000.0)
    monkeypatch.setattr(following, "ANNOUNCED_POLL_SECONDS", 1000.0)


@pytest.mark.usefixtures("only_woken")
def test_another_thread_ends_one_alone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()
    watch = log._notifier.watch
    monkeypatch.setattr(log._notifier, "watch", lambda: (watch(), waits.set()))
    subscription, other = log.subscribe(after=0), log.subscribe(after=0)
    found: list[object] = []
    follower = threading.Thread(target=lambda: found.append(list(subscription)))
    follower.start()
    waits.wait()
    subscription.close()
    follower.join()
    assert found == [[]]
    with pytest.raises(StopIteration):
        next(subscription)
    log.append(1)
    assert len(next(other)) == 1
    assert log._notifier._listeners == {}


@pytest.mark.usefixtures("only_woken")
def test_a_signal_handler_ends_the_wait_that_it_interrupts(log: Log) -> None:
    subscription = log.subscribe()
    before = signal.signal(signal.SIGALRM, lambda *_: subscription.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert list(subscription) == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_block_ends_it(log: Log) -> None:
    log.append(1)
    with log.subscribe(after=0) as subscription:
        assert len(next(subscription)) == 1
        assert iter(subscription) is subscription
    assert list(subscription) == []


@pytest.mark.usefixtures("only_woken")
def test_two_threads_do_not_share_one(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()
    watch = log._notifier.watch
    monkeypatch.setattr(log._notifier, "watch", lambda: (watch(), waits.set()))
    with log.subscribe() as subscription:
        follower = threading.Thread(target=lambda: list(subscription))
        follower.start()
        waits.wait()
        with pytest.raises(
            RuntimeError,
            match=r"^another thread or task waits for the next of these: give each an iterator of its own$",
        ):
            next(subscription)
    follower.join()


def test_one_that_begins_on_a_closed_log_says_so(log: Log) -> None:
    """One from the start of the log ended without a word."""
    log.append(1)
    running = log.subscribe(after=0)
    log.close()
    assert list(running) == []
    for after in (0, 1, None):
        with pytest.raises(LogClosed):
            log.subscribe(after=after)
    with pytest.raises(LogClosed):
        log.at(0)


def test_one_that_raised_has_ended(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    subscription = log.subscribe()

    def fail(*_: object) -> None:
        raise StorageError("the disk")

    with monkeypatch.context() as patch:
        patch.setattr(log._notifier, "look", fail)
        with pytest.raises(StorageError):
            next(subscription)
    log.append(1)
    with pytest.raises(StopIteration):
        next(subscription)


def test_no_wakings_pile_up_while_one_is_behind(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step left those of its own time: of 8,000 that found messages at once 13,000 were left."""
    look = log._notifier.look

    def overtaken(after: int, batch: int) -> Any:
        log.append(after)
        return look(after, batch)

    log.append(0)
    monkeypatch.setattr(log._notifier, "look", overtaken)
    log._notifier.watch()
    with log.subscribe(after=0, batch_size=1) as subscription:
        assert [next(subscription)[0].payload for _ in range(10)] == [0, *range(9)]
        assert subscription._wakings.qsize() == 1


def test_one_listener_more_costs_the_same_beside_thousands(log: Log) -> None:
    """Each that came or went copied them all: of 10,000 idle subscriptions the event loop was busy for seconds."""
    heard: list[int | None] = []
    notifier = log._notifier
    with ExitStack() as stack:
        for _ in range(5000):
            stack.enter_context(notifier.listening(heard.append))
        most = []
        for _ in range(5):
            tracemalloc.start()
            try:
                with notifier.listening(heard.append):
                    pass
                most.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
        notifier.closed()
    # A copy of them took 40,000; another thread may allocate something meanwhile.
    assert min(most) < 10_000
    # Postgres may have announced something else meanwhile.
    assert heard.count(None) == 5000
    notifier.closed()
    assert heard.count(None) == 5000
