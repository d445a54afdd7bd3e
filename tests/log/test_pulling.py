from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import (
    CorruptSource,
    Log,
    MissingParents,
    NotALog,
    ProtocolError,
    RefusedMessage,
    SignedMessage,
    Signer,
    StorageError,
    TopicMismatch,
    core,
)
from gossiplog.log import pulling
from gossiplog.log.log import replica_of
from gossiplog.log.pulling import _FRUITLESS_STREAMS, _Work, pull
from gossiplog.log.state import Snapshot
from gossiplog.protocol import wire
from gossiplog.protocol.sync import Server, SyncServerConfig, client
from gossiplog.sim.whole.hostile import Forged
from gossiplog.storage.base import SCHEMA
from gossiplog.storage.sqlite.upgrades import OLDEST
from tests.conftest import TOPIC
from tests.threads import in_threads

SCHEMAS = Path(__file__).parents[1] / "storage" / "schemas"


@pytest.fixture
def source(opened: Callable[..., Log], other_signer: Signer) -> Log:
    return opened(signer=other_signer)


def test_an_empty_log_gets_everything(log: Log, source: Log) -> None:
    source.append_many(range(500))
    pulled = log.pull(source)
    assert (pulled.inserted, pulled.duplicates, pulled.refused, pulled.streams) == (500, 0, (), 1)
    assert pulled.requests > 0
    assert 0 < pulled.round_trips <= pulled.requests
    assert pulled.bytes_received > 500 * 100 > pulled.bytes_sent > 0
    assert log.root == source.root
    again = log.pull(source)
    assert (again.inserted, again.bytes_received < 500) == (0, True)
    log.verify()


def test_both_get_what_they_lack(log: Log, source: Log) -> None:
    log.append_many(range(100))
    source.pull(log)
    log.append_many(range(50))
    source.append_many(range(70))
    assert log.pull(source).inserted == 70
    assert source.pull(log).inserted == 50
    assert log.root == source.root
    assert log.heads == source.heads


def test_pulling_from_itself_and_from_an_empty_log(log: Log, source: Log) -> None:
    log.append(1)
    assert log.pull(log).inserted == 0
    assert log.pull(source).inserted == 0


def test_another_topic_is_refused(log: Log, opened: Callable[..., Log]) -> None:
    with pytest.raises(TopicMismatch):
        log.pull(opened(":memory:", "another"))


@pytest.mark.parametrize("limits", [{"requests": 20}, {"bytes": 40_000}, {"requests": 20, "bytes": 60_000}])
def test_an_abort_goes_on_with_a_new_stream(log: Log, source: Log, limits: dict[str, int]) -> None:
    source.append_many({"n": n, "text": "x" * 200} for n in range(600))
    pulled = log.pull(source, sync_server=SyncServerConfig(**limits))
    assert pulled.inserted == 600
    assert pulled.streams > 1
    assert log.root == source.root


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"requests": 6}, {"bytes": 5_000}])
def test_streams_that_find_nothing_missing_are_followed_by_others(
    log: Log, source: Log, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "_FRUITLESS_STREAMS", 4)
    shared = source.append_many(range(700))
    # What only this log has stands all along it, and what it lacks comes after that.
    siblings = [
        core.sign(log.topic, message.clock, message.parents, "a sibling", bytes([7]) * 32)[1]
        for message in shared[1::20]
    ]
    batch = core.verify_batch(siblings, log.topic)
    log.insert_many([*shared, *(batch[index] for index in range(len(batch)))])
    source.append_many(range(40))
    pulled = log.pull(source, sync_server=SyncServerConfig(**limits))
    assert pulled.inserted == 40
    assert pulled.streams > pulling._FRUITLESS_STREAMS


def test_a_source_that_only_aborts_is_given_up(log: Log, source: Log) -> None:
    source.append(1)
    with pytest.raises(ProtocolError, match=f"aborted {_FRUITLESS_STREAMS} streams"):
        log.pull(source, sync_server=SyncServerConfig(requests=0))


def test_both_ways_at_once(tmp_path: Path, opened: Callable[..., Log], signer: Signer, other_signer: Signer) -> None:
    left = opened(tmp_path / "left.db", signer=signer)
    right = opened(tmp_path / "right.db", signer=other_signer)
    left.append_many(range(300))
    right.append_many(range(300))
    in_threads([lambda: left.pull(right), lambda: right.pull(left)])
    assert left.root == right.root
    assert len(left) == 600
    left.verify()
    right.verify()


def test_from_several_sources_at_once(log: Log, opened: Callable[..., Log]) -> None:
    sources = [opened(signer=Signer(bytes([n]) * 32)) for n in range(4)]
    shared = sources[0].append_many(range(100))
    for number, source in enumerate(sources):
        source.insert_many(shared)
        source.append_many([f"{number} {n}" for n in range(50)])
    in_threads([lambda source=source: log.pull(source) for source in sources])
    assert len(log) == 300
    for source in sources:
        assert source.pull(log).inserted == 150
        assert source.root == log.root
    log.verify()


def test_while_the_source_is_written_to(log: Log, source: Log) -> None:
    source.append_many(range(100))
    in_threads([lambda: log.pull(source), lambda: source.append_many(range(100))])
    log.pull(source)
    assert log.root == source.root


def test_what_the_application_refuses_is_named_and_asked_for_once(
    opened: Callable[..., Log], source: Log, signer: Signer
) -> None:
    calls: list[Any] = []

    def refuse_five(payload: Any) -> None:
        calls.append(payload)
        if payload == 5:
            raise ValueError("five")

    messages = source.append_many(range(600))
    log = opened(payload=refuse_five, signer=signer)
    pulled = log.pull(source, sync_server=SyncServerConfig(bytes=40_000))
    assert pulled.inserted == 5
    assert pulled.streams > 1
    assert [id for id, _ in pulled.refused] == [message.id for message in messages[5:]]
    assert isinstance(pulled.refused[0][1], RefusedMessage)
    assert {type(error) for _, error in pulled.refused[1:]} == {MissingParents}
    assert calls.count(5) == 1


class Hostile(Server):
    """A server that changes its answers after a number of bytes."""

    def __init__(self, snapshot: Snapshot, change: Callable[[wire.Answer], wire.Answer]) -> None:
        super().__init__(snapshot, now=time.monotonic())
        self._change = change

    def receive(self, data: bytes, now: float) -> bytes:
        frames = wire.FrameReader(wire.MAX_ANSWER)
        frames.feed(super().receive(data, now))
        answers = map(wire.decode_answer, iter(frames.next, None))
        return b"".join(wire.encode_answer(self._change(answer)) for answer in answers)


def damage_values(values: Sequence[bytes]) -> wire.Answer:
    return wire.Values([*values[:-1], values[-1][:-1] + b"\0"])


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: wire.Values(answer.values[:-1]) if isinstance(answer, wire.Values) else answer,
        lambda answer: damage_values(answer.values) if isinstance(answer, wire.Values) else answer,
        lambda answer: (
            wire.Children(core.Nodes([*answer.nodes][::-1])) if isinstance(answer, wire.Children) else answer
        ),
        lambda answer: wire.Root(core.Node(64, None, bytes(16))) if isinstance(answer, wire.Root) else answer,
        lambda answer: wire.Found(None) if isinstance(answer, wire.Root) else answer,
    ],
)
def test_a_source_that_breaks_the_rules_is_named(log: Log, source: Log, change: Callable[..., Any]) -> None:
    source.append_many(range(300))
    with pytest.raises(ProtocolError):
        pull(replica_of(log), lambda: Hostile(replica_of(source).snapshot(), change))
    log.verify()
    log.pull(source)
    assert log.root == source.root


@pytest.mark.slow
def test_what_was_verified_before_stays(log: Log, source: Log) -> None:
    source.append_many(range(2000))
    answers = 0

    def change(answer: wire.Answer) -> wire.Answer:
        nonlocal answers
        answers += isinstance(answer, wire.Values)
        return damage_values(answer.values) if isinstance(answer, wire.Values) and answers == 3 else answer

    with pytest.raises(ProtocolError):
        pull(replica_of(log), lambda: Hostile(replica_of(source).snapshot(), change))
    assert 0 < len(log) < 2000
    log.verify()


def forge_signature(message: SignedMessage) -> tuple[bytes, bytes]:
    value = message.value.replace(message.signature, bytes(64))
    return core.verify_batch([value], message.topic).keys[0], value


def test_a_source_that_holds_an_invalid_message_is_named(log: Log, source: Log) -> None:
    messages = source.append_many(range(5))
    entries = dict([*((message.key, message.value) for message in messages[:-1]), forge_signature(messages[-1])])
    with pytest.raises(ProtocolError, match="invalid message"):
        pull(replica_of(log), lambda: Server(Forged(entries), now=time.monotonic()))
    assert len(log) == 4
    log.verify()


@pytest.mark.integration
def test_a_failure_ends_the_pull_while_other_batches_are_under_way(
    log: Log, source: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Four batches.
    monkeypatch.setattr(client, "_BATCH_MESSAGES", 64)
    messages = source.append_many(range(250))
    entries = dict([*((message.key, message.value) for message in messages), forge_signature(messages[34])])
    with pytest.raises(ProtocolError, match="invalid message"):
        pull(replica_of(log), lambda: Server(Forged(entries), now=time.monotonic()))
    log.verify()


def test_all_that_is_under_way_is_waited_for_and_the_first_failure_raised(log: Log) -> None:
    thread = ThreadPoolExecutor(1)
    work = _Work(replica_of(log), thread, thread)
    failures = [ValueError("first"), None, ValueError("third")]
    for failure in failures:
        future: Future[None] = Future()
        future.set_exception(failure) if failure else future.set_result(None)
        work.writing.append(future)
    with pytest.raises(ValueError, match="first"):
        work.wait()
    assert not work.writing


def test_a_source_whose_log_has_holes_is_named(log: Log, source: Log) -> None:
    messages = source.append_many(range(10))
    entries = {message.key: message.value for message in messages if message.payload != 4}
    with pytest.raises(ProtocolError, match=f"holes: message {messages[5].id}"):
        pull(replica_of(log), lambda: Server(Forged(entries), now=time.monotonic()))
    assert len(log) == 4


def test_a_source_that_asks_to_wait_for_weeks_is_named(log: Log, source: Log) -> None:
    source.append(1)
    with pytest.raises(ProtocolError, match="asks to wait for 4000000000 ms"):
        log.pull(source, sync_server=SyncServerConfig(requests=0, cooldown=4_000_000_000))


@pytest.mark.parametrize("kind", [Path, str, lambda path: path.as_uri()], ids=["path", "text", "uri"])
def test_a_file_is_pulled_from(log: Log, tmp_path: Path, other_signer: Signer, kind: Callable[[Path], Any]) -> None:
    path = tmp_path / "theirs.db"
    with gossiplog.open(path, TOPIC, signer=other_signer) as theirs:
        theirs.append_many(range(300))
        # Also while another program has it open, and writes to it.
        assert log.pull(kind(path)).inserted == 300
        theirs.append(300)
        assert log.pull(kind(path)).inserted == 1
        assert log.root == theirs.root


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA))
def test_a_file_that_is_pulled_from_is_not_upgraded(tmp_path: Path, schema: int) -> None:
    path = Path(shutil.copy(SCHEMAS / f"schema-{schema}.db", tmp_path))
    before = path.read_bytes()
    with gossiplog.open(":memory:", "schemas.example.com") as log:
        assert log.pull(path).inserted > 0
    assert path.read_bytes() == before


def test_a_file_that_is_no_log_is_not_pulled_from(log: Log, tmp_path: Path) -> None:
    with pytest.raises(NotALog, match=r"there is no log .*none\.db$"):
        log.pull(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    with gossiplog.open(tmp_path / "other.db", "other"), pytest.raises(TopicMismatch):
        log.pull(tmp_path / "other.db")
    with pytest.raises(
        StorageError, match=r"gossiplog sync LOG SOURCE --topic TOPIC gets a hub.s log, gossiplog\.connect in"
    ):
        log.pull("wss://hub.example.org/?token=secret")
    with pytest.raises(
        TypeError, match=r"pull takes a Log, such as `blocking` of an AsyncLog, or the path or URL of one, not int"
    ):
        log.pull(7)  # type: ignore[arg-type]


def test_a_damaged_file_that_is_pulled_from_is_to_blame(log: Log, tmp_path: Path, other_signer: Signer) -> None:
    path = tmp_path / "theirs.db"
    with gossiplog.open(path, TOPIC, signer=other_signer) as theirs:
        theirs.append_many(range(300))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = 'x' WHERE name = 'indexed'")
    with pytest.raises(CorruptSource, match="the source's log is damaged"):
        log.pull(path)
