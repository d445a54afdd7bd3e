"""`gossiplog.protocol.sync.client`: what the client asks for, and in which order; and servers that lie to it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence

import pytest

from gossiplog import core
from gossiplog.core import Node, Nodes
from gossiplog.errors import ProtocolError
from gossiplog.protocol import wire
from gossiplog.protocol.sync import Client, Finished, Received, Send, Server, SyncClientConfig
from gossiplog.protocol.sync import client as sync_client
from gossiplog.reference.node import parent_hash
from tests.protocol.endless import Endless
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


def requested(client: Client, server: Serve) -> list[list[wire.Request]]:
    """Run a client to its end; return its requests, by flights."""
    flights: list[list[wire.Request]] = []

    def answer(data: bytes) -> bytes:
        flights.append([wire.decode_request(frame) for frame in frames(data)])
        return server(data)

    assert isinstance(run(client, answer).end, Finished)
    return flights


def fill(config: SyncClientConfig | None = None, size: int = 200) -> list[list[wire.Request]]:
    """The requests of a log that fills."""
    return requested(
        Client(Entries({}), TOPIC, config=config), serve(Server(Entries(messages(range(SOME), size=size)), now=0.0))
    )


def test_nodes_with_the_smallest_keys_are_asked_about_first() -> None:
    """Sync client, 2."""
    for flight in fill():
        keys = [request.key or b"" for request in flight if isinstance(request, wire.GetChildren)]
        assert keys == sorted(keys)


def test_values_are_asked_for_in_few_requests() -> None:
    """Sync client, 2: of more keys each time."""
    sizes = [len(request.keys) for flight in fill() for request in flight if isinstance(request, wire.GetValues)]
    assert sum(sizes) == SOME
    assert len(sizes) <= 6
    # As well where each answer is taken alone.
    counts: list[int] = []
    server = serve(Server(Entries(messages(range(SOME), size=200)), now=0.0))

    def answer(data: bytes) -> bytes:
        requests = map(wire.decode_request, frames(data))
        counts.extend(len(request.keys) for request in requests if isinstance(request, wire.GetValues))
        return server(data)

    def cut(data: bytes) -> Iterable[bytes]:
        return [wire.encode_answer(wire.decode_answer(frame)) for frame in frames(data)]

    run(Client(Entries({}), TOPIC, config=SyncClientConfig(keys=sync_client.MOST_KEYS)), answer, cut=cut)
    assert sum(counts) == SOME
    assert len(counts) <= 8
    few = fill(SyncClientConfig(keys=4))
    sizes = [len(request.keys) for flight in few for request in flight if isinstance(request, wire.GetValues)]
    assert len(sizes) <= 12


def test_the_window_is_used() -> None:
    """Sync client, 2: and not exceeded, where values are as long as was expected."""
    (value,) = messages([1], size=200).values()
    window = 2**14
    flights = fill(SyncClientConfig(window=window, keys=sync_client.MOST_KEYS, value_size=len(value)))
    expected = [
        sum(len(request.keys) * len(value) for request in flight if isinstance(request, wire.GetValues))
        for flight in flights
    ]
    assert window / 2 < max(expected) <= window * 1.1
    assert len(flights) <= 3 * sum(expected) / window


@pytest.mark.slow
def test_no_node_is_asked_for_twice() -> None:
    """Sync client, 3: the children of guesses are used when the walk comes to them."""
    shared = old_entries(MANY)
    local, remote = Entries(shared), Entries(shared | messages(range(MANY // 50), MANY + 1))
    asked = [
        request
        for flight in requested(Client(local, TOPIC), serve(Server(remote, now=0.0)))
        for request in flight
        if isinstance(request, wire.GetChildren)
    ]
    assert len(asked) == len({(request.level, request.key) for request in asked})


@pytest.mark.slow
def test_children_that_came_early_are_used() -> None:
    """Sync client, 3: where the server's tree is so much higher that the walk comes to the guesses late."""
    everything = old_entries(MANY)
    local, remote = Entries({key: everything[key] for key in sorted(everything)[:40]}), Entries(everything)
    client, server = Client(local, TOPIC), serve(Server(remote, now=0.0))
    asked: list[tuple[int, bytes | None]] = []
    requests = client.start()
    while requests:
        decoded = map(wire.decode_request, frames(requests))
        asked += [(request.level, request.key) for request in decoded if isinstance(request, wire.GetChildren)]
        requests = b"".join(event.data for event in client.receive(server(requests)) if isinstance(event, Send))
    assert client.statistics.values == MANY - 40
    assert len(asked) == len(set(asked))


def test_values_come_before_the_end() -> None:
    """Sync client, 1."""
    remote = Entries(messages(range(5)))
    client, server = Client(Entries({}), TOPIC), serve(Server(remote, now=0.0))
    events = [Send(client.start())]
    while isinstance(events[-1], Send):
        events = list(client.receive(server(events[-1].data)))
    assert [type(event) for event in events] == [Received, Finished]


def test_where_everything_is_lacking_no_node_is_complete() -> None:
    """Sync client, 7."""
    end = pull(Entries({}), Entries(messages(range(SOME)))).end
    assert isinstance(end, Finished)
    assert end.statistics.complete == 0


def test_batches_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 5."""
    monkeypatch.setattr(sync_client, "_BATCH_BYTES", 2000)
    outcome = pull(Entries({}), Entries(messages(range(50), size=200)), SyncClientConfig(keys=4, window=2**13))
    assert sum(outcome.batches) == 50
    assert max(outcome.batches) <= 16


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 5."""
    monkeypatch.setattr(sync_client, "_BATCH_MESSAGES", 16)
    outcome = pull(Entries({}), Entries(messages(range(50))), SyncClientConfig(keys=4, window=4096))
    assert sum(outcome.batches) == 50
    assert max(outcome.batches) < 16 + 16


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 5."""
    monkeypatch.setattr(sync_client, "_HELD_PAUSE", 8)
    monkeypatch.setattr(sync_client, "_HELD_DROP", 4)
    local, remote = Entries(messages(range(0, SOME, 7))), Entries(messages(range(SOME)))
    assert list(pull(local, remote).received.items()) == list(lacking(local, remote).items())


def test_of_much_that_is_held_one_request_is_under_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 5."""
    local, remote = Entries(messages(range(0, SOME, 7))), Entries(messages(range(SOME)))
    monkeypatch.setattr(sync_client, "_HELD_PAUSE", 0)
    flights = requested(Client(local, TOPIC), serve(Server(remote, now=0.0)))
    asked = [sum(isinstance(request, wire.GetChildren) for request in flight) for flight in flights]
    assert max(asked[2:]) == 1


def test_of_too_much_that_is_held_answers_are_dropped_and_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 5: but for the next in order, so each flight brings one."""
    local, remote = Entries(messages(range(0, SOME, 7))), Entries(messages(range(SOME)))
    monkeypatch.setattr(sync_client, "_HELD_DROP", 4)
    flights = requested(Client(local, TOPIC), serve(Server(remote, now=0.0)))
    asked = [[request for request in flight if isinstance(request, wire.GetChildren)] for flight in flights]
    nodes = {(request.level, request.key) for flight in asked for request in flight}
    assert len(nodes) < sum(map(len, asked))
    assert len(flights) <= len(nodes) + 5


def test_skipped_keys_are_not_requested() -> None:
    """Sync client, 1."""
    remote = Entries(messages(range(50)))
    skipped = frozenset(messages([7, 31]))
    outcome = pull(Entries({}), remote, SyncClientConfig(skip=skipped))
    assert isinstance(outcome.end, Finished)
    assert outcome.received.keys() == remote.entries.keys() - skipped


def test_a_message_with_a_bad_signature_comes_marked() -> None:
    """Sync client, 4."""
    _, value = message(3)
    damaged = value.replace(b"number\x03", b"number\x04")
    bad = core.encode_clock(1) + hashlib.sha256(damaged).digest()[:19]
    outcome = pull(Entries({}), Entries(messages(range(3)) | {bad: damaged}))
    assert outcome.invalid == [bad]
    assert outcome.received == messages(range(3))
    assert isinstance(outcome.end, Finished)


# A server that lies

OTHER = Node(1, b"\x55" * 20, bytes(16))
Change = Callable[[wire.Request, wire.Answer], wire.Answer]


def changed(kind: type[wire.Answer], change: Callable[..., wire.Answer]) -> Change:
    """Changes the answers of one kind."""
    return lambda request, answer: change(request, answer) if isinstance(answer, kind) else answer


def renode(node: Node, **other: object) -> Node:
    fields = {"level": node.level, "key": node.key, "hash": node.hash} | other
    return Node(**fields)  # type: ignore[arg-type]


def with_last(answer: wire.Children, **other: object) -> wire.Children:
    *nodes, last = answer.nodes
    return wire.Children(Nodes([*nodes, renode(last, **other)]))


LIES: dict[str, tuple[Change, str]] = {
    "root with a key": (
        changed(wire.Root, lambda _, answer: wire.Root(renode(answer.node, key=bytes(20)))),
        "the root has a key",
    ),
    "root of no empty tree": (
        changed(wire.Root, lambda _, answer: wire.Root(renode(answer.node, level=0))),
        "a root of level 0",
    ),
    "root too high": (changed(wire.Root, lambda _, answer: wire.Root(renode(answer.node, level=65))), "level is 65"),
    "level that does not fall": (
        changed(
            wire.Children,
            lambda _, answer: wire.Children(Nodes(renode(node, level=node.level + 1) for node in answer.nodes)),
        ),
        "level|children",
    ),
    "key out of range": (changed(wire.Children, lambda _, answer: with_last(answer, key=bytes(20))), "children"),
    "keys out of order": (
        changed(wire.Children, lambda _, answer: wire.Children(Nodes([*answer.nodes][:1] + [*answer.nodes][:0:-1]))),
        "children",
    ),
    "a child less": (changed(wire.Children, lambda _, answer: wire.Children(Nodes([*answer.nodes][:-1]))), "children"),
    "no children": (changed(wire.Children, lambda _, answer: wire.Children(Nodes([]))), "children"),
    "another hash": (changed(wire.Children, lambda _, answer: with_last(answer, hash=b"\xff" * 16)), "children"),
    "a value less": (
        changed(wire.Values, lambda _, answer: wire.Values(answer.values[:-1])),
        "values in answer to GetValues of .* keys: the first without one is",
    ),
    "a value more": (
        changed(wire.Values, lambda _, answer: wire.Values([*answer.values, b"more"])),
        "values in answer to GetValues of .* keys",
    ),
    "values exchanged": (
        changed(wire.Values, lambda _, answer: wire.Values(answer.values[::-1])),
        "the value for message .* is one of message",
    ),
    "no message": (
        changed(wire.Values, lambda _, answer: wire.Values([b"nothing", *answer.values[1:]])),
        "the value for message .* is no message",
    ),
    "another kind": (
        changed(wire.Children, lambda _, answer: wire.Values([])),
        "an answer of the kind Values to GetChildren",
    ),
    "a node that was not asked for": (
        changed(wire.Found, lambda _, answer: wire.Found(OTHER)),
        "in answer to GetNode of",
    ),
    "a hint that the walk contradicts": (
        changed(wire.Found, lambda request, answer: wire.Found(Node(request.level, request.key, b"\x01" * 16))),
        "another hash than the server advertised before|not below the server's root",
    ),
    "a hint above the root": (
        lambda request, answer: (
            wire.Root(core.Tree().insert(messages(range(2)).items()).root)
            if isinstance(answer, wire.Root)
            else wire.Found(Node(request.level, request.key, b"\x01" * 16))
            if isinstance(request, wire.GetNode)
            else answer
        ),
        "not below the server's root",
    ),
}


@pytest.mark.parametrize(("change", "named"), LIES.values(), ids=LIES)
def test_lies(change: Change, named: str) -> None:
    """Sync client, 4 and 6."""
    local, remote = Entries(messages(range(100))), Entries(messages(range(300)))
    outcome = Outcome()
    with pytest.raises(ProtocolError, match=named):
        run(Client(local, TOPIC), lie(serve(Server(remote, now=0.0)), change), outcome)
    assert outcome.received.items() <= lacking(local, remote).items()
    assert outcome.end is None


def test_a_hint_that_the_walk_never_confirms() -> None:
    """Sync client, 3 and 6."""
    log = Entries(messages(range(300)))

    def change(request: wire.Request, answer: wire.Answer) -> wire.Answer:
        match answer:
            case wire.Found(Node() as node) if node.level < log.tree.root.level:
                return wire.Found(renode(node, hash=b"\x01" * 16))
        return answer

    with pytest.raises(ProtocolError, match="which its own tree does not hold"):
        run(Client(log, TOPIC), lie(serve(Server(log, now=0.0)), change))


def test_what_was_verified_before_a_lie_stays() -> None:
    """Sync client, 6."""
    remote = Entries(messages(range(100)))
    wrong = sorted(remote.entries)[60]

    def change(request: wire.Request, answer: wire.Answer) -> wire.Answer:
        if isinstance(request, wire.GetValues) and isinstance(answer, wire.Values):
            return wire.Values(
                [b"?" if key == wrong else value for key, value in zip(request.keys, answer.values, strict=True)]
            )
        return answer

    outcome = Outcome()
    with pytest.raises(ProtocolError, match=f"the value for message {core.encode_id(wrong)} is no message"):
        run(Client(Entries({}), TOPIC), lie(serve(Server(remote, now=0.0)), change), outcome)
    assert list(outcome.received) == sorted(remote.entries)[:60]


def test_another_value_for_a_key_that_is_there() -> None:
    """Sync client, 4 and 6."""
    entries = messages(range(100))
    key = min(entries)
    local = Entries(entries)
    with pytest.raises(ProtocolError, match=f"the leaf {key.hex()} has another hash"):
        pull(local, Entries(entries | {key: b"another"}))


def test_a_small_server_costs_a_large_log_few_reads() -> None:
    """Sync client, 1."""

    class Counted(Entries):
        read = 0

        def leaves(self, start: bytes, end: bytes | None, limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
            found = super().leaves(start, end, limit)
            self.read += len(found)
            return found

    entries = messages(range(SOME * 5))
    local = Counted(entries)
    few = dict(random.Random(1).sample(sorted(entries.items()), 5)) | messages([SOME * 6])
    assert pull(local, Entries(few)).received == messages([SOME * 6])
    assert local.read < 6 * 200


def test_local_leaves_are_read_once() -> None:
    """Sync client, 1: however many keys a node of the server has."""

    class Counted(Entries):
        read = 0

        def leaves(self, start: bytes, end: bytes | None) -> Sequence[tuple[bytes, bytes]]:
            found = super().leaves(start, end)
            self.read += len(found)
            return found

    local = Counted(messages(range(SOME)))
    assert pull(local, Entries(messages(range(SOME + 1)))).received == messages([SOME])
    assert local.read < 300


def test_an_answer_to_no_request() -> None:
    """Sync client, 6."""
    log = Entries({})
    client = Client(log, TOPIC)
    answer = serve(Server(log, now=0.0))(client.start())
    assert len(list(client.receive(answer))) == 1
    with pytest.raises(ProtocolError, match="an answer after the last one"):
        list(client.receive(answer))
    client = Client(log, TOPIC)
    client.start()
    with pytest.raises(ProtocolError, match=r"an answer \(Root\) to no request"):
        list(client.receive(answer * 2))


def test_an_oversized_answer_is_refused_at_its_length() -> None:
    """Sync client, 5."""
    with pytest.raises(ProtocolError, match="at most 16777216"):
        list(Client(Entries({}), TOPIC).receive(b"\xff\xff\xff\xff\x0f"))


def test_a_root_with_one_child() -> None:
    """Sync client, 6."""
    log = Entries(messages(range(5)))
    below = log.tree.root
    root = Node(below.level + 1, None, parent_hash([below]))

    def change(request: wire.Request, answer: wire.Answer) -> wire.Answer:
        if isinstance(request, wire.GetRoot):
            return wire.Root(root)
        return wire.Children(Nodes([below])) if request == wire.GetChildren(root.level, None) else answer

    def answer(data: bytes) -> bytes:
        (request,) = frames(data)
        return wire.encode_answer(change(wire.decode_request(request), wire.Abort(0)))

    with pytest.raises(ProtocolError, match="the root has one child"):
        run(Client(Entries({}), TOPIC), answer)


@pytest.mark.slow
def test_an_endless_tree() -> None:
    """Sync client, 5."""
    tree = Endless()

    def respond(data: bytes) -> bytes:
        return b"".join(wire.encode_answer(tree.answer(wire.decode_request(frame))) for frame in frames(data))

    client = Client(Entries({}), TOPIC, config=SyncClientConfig(window=2**16))
    with pytest.raises(ProtocolError, match=r"the value for message .* is no message"):
        run(client, respond)
    assert client.statistics.requests < 5000


def test_another_node_in_the_roots_place() -> None:
    """Sync client, 4: advertised by a server that has the same log."""
    log = Entries(messages(range(300)))
    top = log.tree.root.level

    def change(request: wire.Request, answer: wire.Answer) -> wire.Answer:
        return wire.Found(Node(top, None, bytes(16))) if request == wire.GetNode(top, None) else answer

    with pytest.raises(ProtocolError, match="not below the server's root"):
        run(Client(log, TOPIC), lie(serve(Server(log, now=0.0)), change))


def test_a_node_above_the_root() -> None:
    """Sync client, 4: although all other hints are honest."""
    local, remote = Entries(messages(range(300))), Entries(messages(range(2)))

    def change(request: wire.Request, answer: wire.Answer) -> wire.Answer:
        if isinstance(request, wire.GetNode) and request.level > remote.tree.root.level:
            return wire.Found(Node(request.level, request.key, bytes(16)))
        return wire.Found(None) if isinstance(request, wire.GetNode) else answer

    with pytest.raises(ProtocolError, match="not below the server's root"):
        run(Client(local, TOPIC), lie(serve(Server(remote, now=0.0)), change))


def test_what_came_in_one_piece_with_a_violation_is_handed_out() -> None:
    """Sync client, 6: before the error."""
    remote = Entries(messages(range(5)))
    server = serve(Server(remote, now=0.0))
    client = Client(Entries({}), TOPIC)
    requests = client.start()
    while not any(isinstance(wire.decode_request(frame), wire.GetValues) for frame in frames(requests)):
        requests = b"".join(event.data for event in client.receive(server(requests)) if isinstance(event, Send))
    events = client.receive(server(requests) + wire.encode_answer(wire.Values([])))
    received = next(events)
    assert isinstance(received, Received)
    assert received.keys == sorted(remote.entries)[: len(received.keys)] != []
    with pytest.raises(ProtocolError, match="to no request"):
        next(events)
