"""`gossiplog.protocol.sync`: client and server over an in-memory pipe, and each against one that breaks the rules."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import core, reference
from gossiplog.core import Node, Nodes
from gossiplog.errors import ProtocolError
from gossiplog.protocol import wire
from gossiplog.protocol.sync import Aborted, Client, Finished, Received, Send, Server, SyncClientConfig
from gossiplog.protocol.sync import server as sync_server
from tests.protocol.pipe import (
    MANY,
    SOME,
    TOPIC,
    Entries,
    Outcome,
    Serve,
    frames,
    lacking,
    lie,
    message,
    messages,
    old_entries,
    pull,
    run,
    serve,
)
from tests.strategies import repeatable

# Both logs


@repeatable(25)
@given(st.sets(st.integers(0, SOME)), st.sets(st.integers(0, SOME)), st.integers(0, 2**32))
def test_random_logs_in_random_chunks(ours: set[int], theirs: set[int], seed: int) -> None:
    """Sync client, 1."""
    local, remote = Entries(messages(ours)), Entries(messages(theirs))
    generator = random.Random(seed)

    def cut(data: bytes) -> Iterable[bytes]:
        while data:
            size = generator.randint(1, 3000)
            yield data[:size]
            data = data[size:]

    outcome = run(Client(local, TOPIC), serve(Server(remote, now=0.0)), cut=cut)
    assert list(outcome.received.items()) == list(lacking(local, remote).items())
    assert isinstance(outcome.end, Finished)


@pytest.mark.parametrize("empty", [core.Tree(), reference.Tree()], ids=["core", "reference"])
def test_a_server_over_either_core(empty: core.Tree) -> None:
    """Sync client, 1."""
    local, remote = Entries(messages(range(30))), Entries(messages(range(20, SOME)), empty)
    assert pull(local, remote).received == lacking(local, remote)


def test_byte_by_byte() -> None:
    """Sync client, 1."""
    local, remote = Entries(messages(range(10))), Entries(messages(range(5, 50)))
    server = Server(remote, now=0.0)

    def answer(data: bytes) -> bytes:
        return b"".join(serve(server)(data[index : index + 1]) for index in range(len(data)))

    def cut(data: bytes) -> Iterable[bytes]:
        return (data[index : index + 1] for index in range(len(data)))

    assert run(Client(local, TOPIC), answer, cut=cut).received == lacking(local, remote)


def test_equal_logs_take_one_round_trip() -> None:
    """Sync client, 1 and 3."""
    log = Entries(messages(range(SOME)))
    outcome = pull(log, log)
    assert isinstance(outcome.end, Finished)
    assert (outcome.end.statistics.round_trips, outcome.end.statistics.values) == (1, 0)
    assert outcome.received == {}


def test_empty_logs() -> None:
    """Sync client, 1."""
    full, empty = Entries(messages(range(50))), Entries({})
    assert pull(empty, empty).received == {}
    assert pull(full, empty).received == {}
    assert pull(empty, full).received == lacking(empty, full)


def test_what_came_in_since_the_tree_was_read_is_not_asked_for() -> None:
    """Sync client, 1."""
    local, remote = Entries(messages(range(40))), Entries(messages(range(80)))
    client = Client(local, TOPIC)
    local.insert(messages(range(60)))
    assert run(client, serve(Server(remote, now=0.0))).received == messages(range(60, 80)) | {}


@pytest.mark.slow
def test_round_trips_for_a_longer_log() -> None:
    """Sync client, 2 and 3."""
    shared = old_entries(MANY)
    local, remote = Entries(shared), Entries(shared | messages(range(MANY // 50), MANY + 1))
    outcome = pull(local, remote)
    assert isinstance(outcome.end, Finished)
    assert len(outcome.received) == MANY // 50
    assert outcome.end.statistics.round_trips == len(outcome.flights) <= 5


@pytest.mark.integration
def test_round_trips_for_scattered_messages() -> None:
    """Sync client, 2."""
    shared = old_entries(MANY)
    clocks = random.Random(1).sample(range(2, MANY), MANY // 50)
    scattered = dict(message(number, clock) for number, clock in enumerate(clocks))
    outcome = pull(Entries(shared), Entries(shared | scattered))
    assert isinstance(outcome.end, Finished)
    assert outcome.received == scattered
    assert outcome.end.statistics.round_trips <= 8


def test_what_is_not_answered_is_named() -> None:
    """Sync client, 1."""
    local, remote = Entries(messages(range(SOME))), Entries(messages(range(2 * SOME)))
    client = Client(local, TOPIC)
    assert client.unanswered == ""
    answers = serve(Server(remote, now=0.0))(client.start())
    assert client.unanswered == "its root"
    # The root's answer, behind its length.
    assert list(client.receive(answers[: answers[0] + 1]))
    assert client.unanswered.startswith("node (")
    assert list(client.receive(answers[answers[0] + 1 :]))
    assert client.unanswered == f"the children of node ({remote.tree.root.level}, null)"


def test_statistics_count_what_travelled() -> None:
    """Sync client, 2."""
    local, remote = Entries(messages(range(20))), Entries(messages(range(SOME)))
    sent: list[bytes] = []
    honest = serve(Server(remote, now=0.0))

    def answer(data: bytes) -> bytes:
        sent.append(data)
        return honest(data)

    client = Client(local, TOPIC)
    outcome = run(client, answer)
    assert isinstance(outcome.end, Finished)
    statistics = outcome.end.statistics
    assert statistics == client.statistics
    assert statistics.bytes_sent == sum(map(len, sent))
    assert statistics.bytes_received == sum(outcome.flights)
    assert statistics.requests == sum(len(frames(data)) for data in sent)
    assert statistics.values == len(outcome.received) == SOME - 20


def test_the_window_is_kept() -> None:
    """Sync client, 2."""
    local, remote = Entries({}), Entries(messages(range(SOME), size=200))
    window = 2**12
    outcome = pull(local, remote, SyncClientConfig(window=window))
    assert outcome.received == remote.entries
    assert max(outcome.flights) <= 2 * window < sum(outcome.flights)


def test_values_come_before_the_whole_tree() -> None:
    """Sync client, 2."""
    asked: list[wire.Request] = []
    remote = Entries(messages(range(400)))
    honest = serve(Server(remote, now=0.0))

    def answer(data: bytes) -> bytes:
        asked.extend(map(wire.decode_request, frames(data)))
        return honest(data)

    # The answers about all nodes would fit into the window, but so would the values of the first ones.
    assert run(Client(Entries({}), TOPIC, config=SyncClientConfig(window=2**16)), answer).received == remote.entries
    nodes = [isinstance(request, wire.GetChildren) for request in asked]
    first = next(index for index, request in enumerate(asked) if isinstance(request, wire.GetValues))
    assert 2 * sum(nodes[:first]) < sum(nodes)


# Ends before the end


def aborting(honest: Serve, answers: int, cooldown: int = 5) -> Serve:
    """Answers so many requests, then aborts."""
    left = itertools.count(answers, -1)

    def change(request: wire.Request, answer: wire.Answer) -> wire.Answer:
        return answer if next(left) > 0 else wire.Abort(cooldown)

    return lie(honest, change)


@pytest.mark.parametrize("answers", range(24))
def test_an_abort_at_every_point_then_resumption(answers: int) -> None:
    """Sync client, 6 and 7."""
    numbers = range(150)
    local, remote = Entries(messages(numbers[::3])), Entries(messages(numbers))
    wanted = lacking(local, remote)
    first = Outcome()
    config = SyncClientConfig(keys=10, window=8192)
    client = Client(local, TOPIC, config=config)
    run(client, aborting(serve(Server(remote, now=0.0)), answers), first)
    local.insert(first.received)
    second = pull(local, remote, client.next_config)
    assert list((first.received | second.received).items()) == list(wanted.items())
    assert not first.received.keys() & second.received.keys()
    if isinstance(first.end, Aborted):
        assert first.end.cooldown == 5


def test_a_broken_stream_hands_out_what_had_come() -> None:
    """Sync client, 6 and 7."""
    local, remote = Entries({}), Entries(messages(range(50)))
    server = serve(Server(remote, now=0.0))
    client = Client(local, TOPIC, config=SyncClientConfig(keys=4))
    requests = client.start()
    while sum(isinstance(wire.decode_request(frame), wire.GetValues) for frame in frames(requests)) < 2:
        requests = b"".join(event.data for event in client.receive(server(requests)) if isinstance(event, Send))
    before = client.statistics.values
    list(client.receive(server(requests)[:2500]))
    received, aborted = client.end()
    assert isinstance(received, Received)
    assert received.keys == sorted(remote.entries)[: len(received.keys)]
    assert before < len(received.keys) < len(remote.entries)
    assert aborted == Aborted(0)
    assert list(client.end()) == []


def test_values_that_do_not_fit_into_an_answer_are_asked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 7. Sync server, 3."""
    monkeypatch.setattr(wire, "MAX_FRAME", 2500)
    local, remote = Entries({}), Entries(messages(range(3), size=2000))
    config: SyncClientConfig | None = None
    aborts = 0
    while True:
        client = Client(local, TOPIC, config=config)
        outcome = run(client, serve(Server(remote, now=0.0)))
        local.insert(outcome.received)
        if isinstance(outcome.end, Finished):
            break
        aborts += 1
        config = client.next_config
    assert local.entries == remote.entries
    assert 1 <= aborts <= 3


def test_a_long_value_comes_although_others_come_before_it_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 7: anybody can make messages that stand in front, as fast as they are taken."""
    monkeypatch.setattr(wire, "MAX_FRAME", 2500)
    local = Entries({})
    remote = Entries(messages(range(20), clock=5) | messages([1000], clock=5, size=2400))
    clients = [Client(local, TOPIC)]
    while not isinstance((outcome := run(clients[-1], serve(Server(remote, now=0.0)))).end, Finished):
        assert len(clients) < 8
        local.insert(outcome.received)
        remote.insert(messages(range(100 * len(clients), 100 * len(clients) + 20)))
        clients.append(Client(local, TOPIC, config=clients[-1].next_config))
    local.insert(outcome.received)
    assert local.entries == remote.entries


# Nodes with more children than an answer has room for


@pytest.fixture
def few_in_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_server, "_MOST_CHILDREN", 100)
    monkeypatch.setattr(sync_server, "PART", 32)


def ground(count: int) -> dict[bytes, bytes]:
    """Messages none of which begins a page, which costs their author one in 32: all are on the first one."""
    made = messages(range(count + count // 8))
    chosen = {key: value for key, value in made.items() if not core.is_boundary(core.leaf_hash(key, value))}
    return dict(sorted(chosen.items())[:count])


class Bounded(Entries):
    """A log whose leaves are read in small parts alone."""

    most = 0

    def leaves(self, start: bytes, end: bytes | None, limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
        found = super().leaves(start, end, limit)
        self.most = max(self.most, len(found))
        return found


def pull_on(local: Entries, answer: Callable[[], Serve]) -> tuple[Outcome, list[Client]]:
    """Pull, going on after each Abort, three times at most."""
    outcome, clients = Outcome(), [Client(local, TOPIC)]
    while not isinstance(run(clients[-1], answer(), outcome).end, Finished) and len(clients) < 4:
        clients.append(Client(local, TOPIC, config=clients[-1].next_config))
        outcome.end = None
    return outcome, clients


@pytest.mark.usefixtures("few_in_an_answer")
@pytest.mark.parametrize("shared", [0, 5, 150])
def test_a_page_of_very_many_leaves_comes_in_parts(shared: int) -> None:
    """Sync client, 8."""
    entries = ground(200)
    remote = Bounded(entries)
    remote.tree = core.Tree.open([(b"", remote.tree.node(1, None).hash)], len(entries))
    local = Entries(dict(random.Random(3).sample(sorted(entries.items()), shared)))
    outcome, clients = pull_on(local, lambda: serve(Server(remote, now=0.0)))
    assert isinstance(outcome.end, Finished)
    assert list(outcome.received.items()) == list(lacking(local, remote).items())
    assert remote.most <= 101
    assert len(clients) == 2


@pytest.mark.parametrize("shared", [0, 1, 7])
def test_children_of_all_levels_come_in_parts(shared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 8."""
    monkeypatch.setattr(sync_server, "_MOST_CHILDREN", 2)
    monkeypatch.setattr(sync_server, "PART", 3)
    entries = messages(range(SOME))
    remote = Entries(entries)
    local = Entries(dict(sorted(entries.items())[: SOME * shared // 8]))
    outcome, _ = pull_on(local, lambda: serve(Server(remote, now=0.0)))
    assert isinstance(outcome.end, Finished)
    assert list(outcome.received.items()) == list(lacking(local, remote).items())


@pytest.mark.usefixtures("few_in_an_answer")
@pytest.mark.parametrize("what", ["left out", "changed", "ended"])
def test_parts_that_are_not_those_of_the_node(what: str) -> None:
    """Sync client, 8."""
    remote = Entries(ground(200))

    def change(request: wire.Request, answer: wire.Answer) -> wire.Answer:
        if isinstance(request, wire.GetChildren) and isinstance(answer, wire.Children) and request.after:
            nodes = [*answer.nodes]
            match what:
                case "left out":
                    del nodes[3:4]
                case "changed":
                    nodes = [Node(0, node.key, b"\xff" * 16) for node in nodes]
                case _:
                    nodes = []
            return wire.Children(Nodes(nodes))
        return answer

    local = Entries({})
    with pytest.raises(ProtocolError, match="do not hash to the parent's"):
        pull_on(local, lambda: lie(serve(Server(remote, now=0.0)), change))


def test_a_server_that_does_not_know_parts_answers_with_all() -> None:
    entries = messages(range(SOME))
    remote = Entries(entries)
    honest = serve(Server(remote, now=0.0))

    def answer(data: bytes) -> bytes:
        requests = [wire.decode_request(frame) for frame in frames(data)]
        plain = [
            wire.GetChildren(request.level, request.key) if isinstance(request, wire.GetChildren) else request
            for request in requests
        ]
        return honest(b"".join(map(wire.encode_request, plain)))

    outcome = run(Client(Entries({}), TOPIC, config=SyncClientConfig(parts=True)), answer)
    assert isinstance(outcome.end, Finished)
    assert outcome.received == entries
