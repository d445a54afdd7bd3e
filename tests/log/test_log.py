"""Reading a log and what it says of itself. The other methods are tested by the modules of `gossiplog.log`."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import DecodeError, Log, LogClosed, MemoryStorage, Signer, UnknownMessage, core
from gossiplog.log import log as log_module
from gossiplog.log.log import replica_of
from gossiplog.log.walks import child_sequences

UNKNOWN = "0" * 32


def chain(log: Log, count: int) -> list[str]:
    return [message.id for message in log.append_many(range(count))]


def test_an_empty_log(log: Log) -> None:
    assert (len(log), log.clock, log.heads, list(log)) == (0, 1, (), [])
    assert log.root == core.Tree().root
    assert bool(log)
    assert log.topic == "org.example.test"
    assert UNKNOWN not in log


def test_messages_are_found_by_their_ids(log: Log) -> None:
    message = log.append({"text": "hi"})
    assert log.get(message.id) == message
    assert message.id in log
    assert message.id + "0" not in log
    assert 7 not in log
    with pytest.raises(UnknownMessage, match=f"message {UNKNOWN} is not in the log"):
        log.get(UNKNOWN)
    with pytest.raises(DecodeError):
        log.get("no id")


def test_ranges(log: Log) -> None:
    ids = chain(log, 600)
    assert [message.id for message in log.messages()] == ids
    assert [message.id for message in log.messages(reverse=True)] == ids[::-1]
    assert [message.id for message in log.messages(after=ids[10], before=ids[400])] == ids[11:400]
    assert [message.id for message in log.messages(after=ids[10], reverse=True, limit=300)] == ids[:-301:-1]
    assert [message.id for message in log.messages(limit=0)] == []
    assert [message.id for message in log.messages(after=ids[5], before=ids[2])] == []
    assert [message.payload for message in log.messages(limit=3)] == [0, 1, 2]


def test_ranges_are_counted(log: Log) -> None:
    ids = chain(log, 20)
    assert log.count() == 20
    assert log.count(after=ids[3]) == 16
    assert log.count(before=ids[3]) == 3
    assert log.count(after=ids[3], before=ids[7]) == 3
    assert log.count(after=ids[7], before=ids[3]) == 0
    with pytest.raises(DecodeError):
        log.count(before="no id")


def test_bad_ranges_are_refused_at_once(log: Log) -> None:
    with pytest.raises(ValueError, match="a limit of -1"):
        log.messages(limit=-1)
    with pytest.raises(DecodeError):
        log.messages(after="no id")


def test_the_log_may_be_written_to_while_it_is_read(log: Log) -> None:
    ids = chain(log, 300)
    taken = []
    for message in log.messages():
        taken.append(message.id)
        log.append("more") if len(taken) < 5 else None
    assert taken == ids
    assert len(log) == 304


def test_a_chain_and_its_ancestors(log: Log) -> None:
    ids = chain(log, 70)
    assert log.is_ancestor(ids[0], ids[69])
    assert not log.is_ancestor(ids[69], ids[0])
    assert not log.is_ancestor(ids[5], ids[5])
    assert log.frontier(ids[69], 64) == (ids[63],)
    assert log.frontier(ids[69], 100) == (ids[68],)
    assert log.frontier(ids[69], 0) == ()
    assert log.children(ids[3]) == (ids[4],)
    assert log.children(ids[69]) == ()


def test_branches(log: Log, signer: Signer, other_signer: Signer, opened: Callable[..., Log]) -> None:
    first = log.append("first")
    other = opened()
    other.insert(first)
    left = log.append("left")
    right = other.append("right", signer=other_signer)
    log.insert(right)
    assert log.heads == tuple(sorted([left.id, right.id]))
    assert log.children(first.id) == log.heads
    for limit in range(4):
        few = log.children(first.id, limit=limit)
        assert len(few) == min(limit, 2)
        assert {*few} <= {*log.heads}
    assert not log.is_ancestor(left.id, right.id)
    merge = log.append("merge")
    assert merge.parents == tuple(sorted([left.id, right.id]))
    assert log.frontier(merge.id, 2) == merge.parents
    assert log.frontier(merge.id, 1) == (first.id,)
    assert (log.clock, log.heads) == (4, (merge.id,))


class Copied(list[tuple[int, int]]):
    """A list that counts what slices of it copy."""

    total = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            found = Copied(found)
            Copied.total += len(found)
        return found


@pytest.mark.parametrize("limit", [None, 100])
def test_each_child_is_looked_at_once(
    tmp_path: Path, opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """The whole list was copied for every few of them: 80,000 children took 10 seconds."""
    log = opened(tmp_path / "log.db", signer=signer)
    first = log.append("first")
    log.insert_many([signer.sign(log.topic, 2, [first.id], number)[1] for number in range(200)])
    replica_of(log).index()
    monkeypatch.setattr(log_module, "child_sequences", lambda *arguments: Copied(child_sequences(*arguments)))
    monkeypatch.setattr(Copied, "total", 0)
    assert len(log.children(first.id, limit=limit)) == (limit or 200)
    assert 0 < Copied.total <= 2 * 200


def test_a_limit_of_none_is_no_damage(tmp_path: Path, opened: Callable[..., Log], signer: Signer) -> None:
    """A sound log whose index covers all children was said to be damaged."""
    log = opened(tmp_path / "log.db", signer=signer)
    first = log.append("first")
    second = log.append("second")
    replica_of(log).index()
    for reading in (log, log.at(2), log.at(second.id)):
        assert reading.children(first.id, limit=0) == ()
        assert reading.children(first.id, limit=1) == (second.id,)
        with pytest.raises(ValueError, match=r"^a limit of -1: expected 0 or more$"):
            reading.children(first.id, limit=-1)
        with pytest.raises(TypeError, match=r"^a limit of True: expected an integer$"):
            reading.children(first.id, limit=True)
        with pytest.raises(TypeError, match=r"^a limit of '1': expected an integer$"):
            reading.messages(limit="1")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["is_ancestor", "frontier", "children"])
def test_ancestry_of_unknown_messages(log: Log, method: str) -> None:
    id = log.append(1).id
    arguments = {"is_ancestor": [(id, UNKNOWN), (UNKNOWN, id)], "frontier": [(UNKNOWN, 1)], "children": [(UNKNOWN,)]}
    for pair in arguments[method]:
        with pytest.raises(UnknownMessage):
            getattr(log, method)(*pair)


@pytest.mark.parametrize("clock", [-1, 2**53, 2**70])
def test_clocks_that_no_message_has(log: Log, clock: int) -> None:
    id = log.append(1).id
    with pytest.raises(ValueError, match=f"a clock of {clock}"):
        log.frontier(id, clock)


def test_a_clock_is_an_integer(log: Log) -> None:
    id = log.append(1).id
    with pytest.raises(TypeError, match="a clock of '1': expected an integer"):
        log.frontier(id, "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a clock of True: expected an integer"):
        log.frontier(id, True)


def test_the_root_is_that_of_the_entries(log: Log) -> None:
    log.append_many(range(200))
    assert log.root == core.Tree().insert((message.key, message.value) for message in log).root


def test_info(log: Log, other_signer: Signer) -> None:
    log.append(1)
    message = log.append(2, signer=other_signer)
    info = log.info()
    assert (info.topic, info.messages, info.clock, info.authors) == ("org.example.test", 2, 3, 2)
    assert (info.heads, info.root) == ((message.id,), log.root)
    assert info.bytes > 200


def test_a_snapshot_stays(log: Log) -> None:
    log.append_many(range(50))
    snapshot = replica_of(log).snapshot()
    keys = [message.key for message in log]
    later = log.append("later").key
    assert len(snapshot.tree) == 50
    assert len(snapshot.leaves(b"", None)) == 50
    values = snapshot.values(keys, 2**20) or []
    assert [core.read_message(value, log.topic).key for value in values] == keys
    for missing in (later, bytes(20)):
        with pytest.raises(KeyError, match=re.escape(repr(missing))):
            snapshot.values([keys[0], missing], 2**20)
    size = sum(map(len, values))
    assert snapshot.values(keys, size) == values
    assert snapshot.values(keys, size - 1) is None
    assert snapshot.values([keys[0]] * 2, len(values[0])) is None
    assert len(replica_of(log).snapshot().leaves(b"", None)) == 51


def test_after_close_every_call_says_so(signer: Signer, opened: Callable[..., Log]) -> None:
    log = opened(MemoryStorage(), signer=signer)
    message = log.append(1)
    log.close()
    log.close()
    calls: list[Callable[[], object]] = [
        lambda: log.append(1),
        lambda: log.append_many([1]),
        lambda: log.insert(message),
        lambda: log.insert_many([message]),
        lambda: log.pull(log),
        lambda: log.get(message.id),
        lambda: message.id in log,
        lambda: len(log),
        lambda: list(log),
        lambda: log.messages(),
        lambda: log.heads,
        lambda: log.clock,
        lambda: log.root,
        lambda: log.is_ancestor(message.id, message.id),
        lambda: log.frontier(message.id, 1),
        lambda: log.children(message.id),
        lambda: log.subscribe(),
        lambda: replica_of(log).snapshot(),
        lambda: log.info(),
        lambda: log.verify(),
    ]
    for call in calls:
        with pytest.raises(LogClosed):
            call()


def test_it_is_a_context_manager(log: Log) -> None:
    with log as same:
        assert same is log
    with pytest.raises(LogClosed):
        len(log)
    gc.collect()


@pytest.mark.slow
def test_a_snapshot_reads_ahead_and_answers_the_same(log: Log) -> None:
    log.append_many(range(3000))
    snapshot = replica_of(log).snapshot()
    nodes = snapshot.tree.nodes(1)
    ends = [*(node.key for node in nodes[1:]), None]
    spans = [(node.key or b"", end) for node, end in zip(nodes, ends, strict=True)]
    everything = replica_of(log).snapshot().leaves(b"", None)
    assert len(everything) == 3000
    for order in (spans, spans[::-1], spans[::2] + spans[1::2]):
        for start, end in order:
            expected = [leaf for leaf in everything if start <= leaf[0] and (end is None or leaf[0] < end)]
            assert list(snapshot.leaves(start, end)) == expected
    log.append("later")
    assert list(snapshot.leaves(b"", None)) == list(everything)


@pytest.mark.parametrize("wrong", ["alice.key", "did:key:z6Mk", b"\0" * 32, Path("alice.key")], ids=repr)
def test_a_signer_is_no_path_and_no_name(opened: Callable[..., Log], wrong: Any) -> None:
    reason = r"a signer is a gossiplog\.Signer, not \w+: gossiplog\.Signer\.load\(path\) reads a key file"
    with pytest.raises(TypeError, match=reason):
        opened(signer=wrong)
    log = opened()
    with pytest.raises(TypeError, match=reason):
        log.append(1, signer=wrong)
    log.signer = wrong
    with pytest.raises(TypeError, match=reason):
        log.append_many([1, 2])
    assert len(log) == 0


def test_a_log_shows_where_it_is_and_whether_it_is_open(tmp_path: Path) -> None:
    for location, place in (
        (tmp_path / "log.db", tmp_path / "log.db"),
        (":memory:", ":memory:"),
        (MemoryStorage(), "memory"),
    ):
        with gossiplog.open(location, "notes") as log:
            assert repr(log) == f"<Log 'notes' in {place}>"
        assert repr(log) == f"<Log 'notes' in {place}, closed>"


def test_read_only_is_for_paths_and_without_apply(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read_only is for paths"):
        gossiplog.open(MemoryStorage(), "notes", read_only=True)
    with pytest.raises(ValueError, match="apply writes"):
        gossiplog.open(tmp_path / "log.db", apply=print, read_only=True)


def test_a_message_is_no_id_but_is_in_the_log(log: Log) -> None:
    message = log.append(1)
    assert message in log
    calls: list[Callable[[Any], object]] = [
        log.get,
        log.content_id,
        log.children,
        lambda value: log.messages(after=value),
        lambda value: log.count(before=value),
        lambda value: log.is_ancestor(message.id, value),
        replica_of(log).value,
        lambda value: replica_of(log).frontiers(value, 1, 1),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"expected the id of a message, as message\.id, not SignedMessage"):
            call(message)


def test_an_id_is_no_cursor(log: Log) -> None:
    with pytest.raises(TypeError, match=r"after is '0+': expected the `cursor` of a list .*messages\(after=\.\.\.\)"):
        log.subscribe(after=UNKNOWN)  # type: ignore[arg-type]
