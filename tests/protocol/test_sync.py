"""`gossiplog.protocol.sync`: client and server over an in-memory pipe, and each against one that breaks the rules."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import core, reference
from gossiplog.core import Node, Nodes
from gossiplog.errors import ProtocolError
from gossiplog.protocol import sync_client, sync_server, wire
from gossiplog.protocol.sync import Aborted, Client, ClientConfig, Finished, Received, Send, Server, ServerConfig
from tests.protocol.endless import Endless
from tests.protocol.pipe import TOPIC, Entries, Outcome, Serve, frames, lie, message, messages, run, serve
from tests.strategies import repeatable

TWIN = os.environ.get("GOSSIPLOG_CORE") == "python"
SOME = 60 if TWIN else 400
MANY = 1_500 if TWIN else 50_000


def pull(local: Entries, remote: Entries, config: ClientConfig | None = None) -> Outcome:
    return run(Client(local, TOPIC, config=config), serve(Server(remote, now=0.0)))


def old_entries(count: int) -> dict[bytes, bytes]:
    """Entries of clocks 1, 2, 3, … that are no messages: both logs have them, so their values do not travel."""
    generator = random.Random(count)
    return {(core.encode_clock(clock) + generator.randbytes(20))[:20]: b"" for clock in range(1, count + 1)}


def lacking(local: Entries, remote: Entries) -> dict[bytes, bytes]:
    """What a sync has to bring, in the order in which it has to."""
    return {key: remote.entries[key] for key in sorted(remote.entries.keys() - local.entries.keys())}


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


@pytest.mark.parametrize("empty", [core.Tree(), reference.Tree()], ids=["core", "twin"])
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


def test_round_trips_for_a_longer_log() -> None:
    """Sync client, 2 and 3."""
    shared = old_entries(MANY)
    local, remote = Entries(shared), Entries(shared | messages(range(MANY // 50), MANY + 1))
    outcome = pull(local, remote)
    assert isinstance(outcome.end, Finished)
    assert len(outcome.received) == MANY // 50
    assert outcome.end.statistics.round_trips == len(outcome.flights) <= 5


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
    assert statistics.bytes_out == sum(map(len, sent))
    assert statistics.bytes_in == sum(outcome.flights)
    assert statistics.requests == sum(len(frames(data)) for data in sent)
    assert statistics.values == len(outcome.received) == SOME - 20


def test_the_window_is_kept() -> None:
    """Sync client, 2."""
    local, remote = Entries({}), Entries(messages(range(SOME), size=200))
    window = 2**12
    outcome = pull(local, remote, ClientConfig(window=window))
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
    assert run(Client(Entries({}), TOPIC, config=ClientConfig(window=2**16)), answer).received == remote.entries
    nodes = [isinstance(request, wire.GetChildren) for request in asked]
    first = next(index for index, request in enumerate(asked) if isinstance(request, wire.GetValues))
    assert 2 * sum(nodes[:first]) < sum(nodes)


def requested(client: Client, server: Serve) -> list[list[wire.Request]]:
    """Run a client to its end; return its requests, by flights."""
    flights: list[list[wire.Request]] = []

    def answer(data: bytes) -> bytes:
        flights.append([wire.decode_request(frame) for frame in frames(data)])
        return server(data)

    assert isinstance(run(client, answer).end, Finished)
    return flights


def fill(config: ClientConfig | None = None, size: int = 200) -> list[list[wire.Request]]:
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

    run(Client(Entries({}), TOPIC, config=ClientConfig(keys=sync_client.MOST_KEYS)), answer, cut=cut)
    assert sum(counts) == SOME
    assert len(counts) <= 8
    few = fill(ClientConfig(keys=4))
    sizes = [len(request.keys) for flight in few for request in flight if isinstance(request, wire.GetValues)]
    assert len(sizes) <= 12


def test_the_window_is_used() -> None:
    """Sync client, 2: and not exceeded, where values are as long as was expected."""
    (value,) = messages([1], size=200).values()
    window = 2**14
    flights = fill(ClientConfig(window=window, keys=sync_client.MOST_KEYS, value_size=len(value)))
    expected = [
        sum(len(request.keys) * len(value) for request in flight if isinstance(request, wire.GetValues))
        for flight in flights
    ]
    assert window / 2 < max(expected) <= window * 1.1
    assert len(flights) <= 3 * sum(expected) / window


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
    outcome = pull(Entries({}), Entries(messages(range(50), size=200)), ClientConfig(keys=4, window=2**13))
    assert sum(outcome.batches) == 50
    assert max(outcome.batches) <= 16


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 5."""
    monkeypatch.setattr(sync_client, "_BATCH_MESSAGES", 16)
    outcome = pull(Entries({}), Entries(messages(range(50))), ClientConfig(keys=4, window=4096))
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


def test_skipped_keys_are_left_out() -> None:
    """Sync client, 1."""
    remote = Entries(messages(range(50)))
    skipped = frozenset(messages([7, 31]))
    outcome = pull(Entries({}), remote, ClientConfig(skip=skipped))
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
    config = ClientConfig(keys=10, window=8192)
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
    client = Client(local, TOPIC, config=ClientConfig(keys=4))
    requests = client.start()
    while not any(isinstance(wire.decode_request(frame), wire.GetValues) for frame in frames(requests)):
        requests = b"".join(event.data for event in client.receive(server(requests)) if isinstance(event, Send))
    list(client.receive(server(requests)[:2500]))
    received, aborted = client.end()
    assert isinstance(received, Received)
    assert received.keys == sorted(remote.entries)[: len(received.keys)]
    assert len(received.keys) in range(4, 13, 4)
    assert aborted == Aborted(0)
    assert list(client.end()) == []


def test_values_that_do_not_fit_into_an_answer_are_asked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 7. Sync server, 3."""
    monkeypatch.setattr(wire, "MAX_FRAME", 2500)
    local, remote = Entries({}), Entries(messages(range(3), size=2000))
    config: ClientConfig | None = None
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


# The server alone


def ask(server: Server, *requests: wire.Request, now: float = 0.0) -> list[wire.Answer]:
    data = b"".join(map(wire.encode_request, requests))
    return [wire.decode_answer(frame) for frame in frames(serve(server, now)(data))]


def test_answers_in_the_order_of_the_requests() -> None:
    """Sync server, 1."""
    log = Entries(messages(range(50)))
    key = min(log.entries)
    root = log.tree.root
    answers = ask(
        Server(log, now=0.0),
        wire.GetValues([key]),
        wire.GetRoot(),
        wire.GetChildren(root.level, None),
        wire.GetValues([]),
    )
    children = log.tree.span(root.level, None, log.leaves)
    assert answers == [wire.Values([log.entries[key]]), wire.Root(root), wire.Children(children), wire.Values([])]


@pytest.mark.parametrize(("level", "key"), [(0, bytes(20)), (1, b"\xff" * 20), (7, None), (64, bytes(20))])
def test_a_node_that_is_not_there(level: int, key: bytes | None) -> None:
    """Sync server, 2."""
    server = Server(Entries(messages(range(50))), now=0.0)
    assert ask(server, wire.GetNode(level, key)) == [wire.Found(None)]
    assert not server.closed


def test_the_root_is_a_node() -> None:
    """Sync server, 2."""
    root = Entries(messages(range(50))).tree.root
    assert ask(Server(Entries(messages(range(50))), now=0.0), wire.GetNode(root.level, None)) == [wire.Found(root)]


def test_a_leaf_is_a_node() -> None:
    """Sync server, 2."""
    log = Entries(messages(range(5)))
    key = min(log.entries)
    assert ask(Server(log, now=0.0), wire.GetNode(0, key)) == [
        wire.Found(Node(0, key, core.leaf_hash(key, log.entries[key])))
    ]


@pytest.mark.parametrize(
    "request_",
    [
        wire.GetChildren(1, b"\x01" * 20),
        wire.GetChildren(60, None),
        wire.GetValues([bytes(20)]),
        wire.GetValues([bytes(20)] * 5000),
    ],
    ids=["child", "level", "value", "many"],
)
def test_what_has_no_answer_aborts(request_: wire.Request) -> None:
    """Sync server, 2."""
    server = Server(Entries(messages(range(5))), now=0.0, config=ServerConfig(cooldown=7))
    assert ask(server, wire.GetRoot(), request_, wire.GetRoot())[1:] == [wire.Abort(7)]
    assert server.closed
    assert ask(server, wire.GetRoot()) == []


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (wire.encode_request(wire.GetChildren(0, bytes(20))), "GetChildren of a node of level 0"),
        (b"\x01\xff", "no protobuf request"),
        (b"\x00", "request: holds nothing"),
        (b"\xff\xff\xff\x7f", "at most 4194304"),
    ],
)
def test_a_client_that_breaks_the_rules(data: bytes, named: str) -> None:
    """Sync server, 5."""
    server = Server(Entries(messages(range(5))), now=0.0)
    with pytest.raises(ProtocolError, match=named):
        server.receive(data, 0.0)
    assert server.closed


def test_the_time_limit() -> None:
    """Sync server, 4."""
    server = Server(Entries({}), now=100.0, config=ServerConfig(time_limit=10.0))
    assert server.deadline == 110.0
    assert ask(server, wire.GetRoot(), now=109.9) == [wire.Root(core.Tree().root)]
    assert ask(server, now=110.0) == [wire.Abort(0)]
    assert server.closed


def test_a_client_that_asks_for_nothing() -> None:
    """Sync server, 4."""
    server = Server(Entries({}), now=100.0, config=ServerConfig(time_limit=100.0, idle=10.0))
    assert server.deadline == 110.0
    assert ask(server, wire.GetRoot(), now=109.0) == [wire.Root(core.Tree().root)]
    # A piece of a request is none.
    assert server.receive(wire.encode_request(wire.GetRoot())[:1], 118.0) == b""
    assert server.deadline == 119.0
    assert ask(server, now=119.0) == [wire.Abort(0)]


@pytest.mark.parametrize("config", [ServerConfig(requests=3), ServerConfig(bytes=70)], ids=["requests", "bytes"])
def test_the_budgets(config: ServerConfig) -> None:
    """Sync server, 4."""
    server = Server(Entries(messages(range(5))), now=0.0, config=config)
    answers = ask(server, *[wire.GetRoot()] * 10)
    assert [type(answer) for answer in answers] == [wire.Root] * 3 + [wire.Abort]


def test_values_are_counted_as_they_are_sent() -> None:
    """Sync server, 1: each time."""
    log = Entries(messages(range(5)))
    server = Server(log, now=0.0)
    keys = sorted(log.entries)
    ask(server, wire.GetValues(keys), wire.GetValues(keys[:2]), wire.GetRoot())
    assert server.values == 7


def test_more_keys_than_are_allowed_abort() -> None:
    """Sync server, 2: although each is there."""
    log = Entries(messages(range(5)))
    for count in (4, 5):
        answer = ask(Server(log, now=0.0, config=ServerConfig(keys=4)), wire.GetValues(sorted(log.entries)[:count]))
        assert isinstance(answer[0], wire.Values if count == 4 else wire.Abort)


def test_an_answer_has_to_fit_into_a_frame_with_all_that_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync server, 3: but for one value, and for the children of one node."""
    log = Entries(messages(range(40), size=100))
    keys = sorted(log.entries)[:2]
    monkeypatch.setattr(wire, "MAX_FRAME", sum(len(log.entries[key]) for key in keys))
    assert ask(Server(log, now=0.0), wire.GetValues(keys)) == [wire.Abort(0)]
    monkeypatch.setattr(wire, "MAX_FRAME", 100)
    (values,) = ask(Server(log, now=0.0), wire.GetValues(keys[:1]))
    assert values == wire.Values([log.entries[keys[0]]])
    (children,) = ask(Server(log, now=0.0), wire.GetChildren(1, None))
    assert isinstance(children, wire.Children)


def test_one_call_answers_no_more_than_its_output() -> None:
    """Sync server, 1 and 6."""
    log = Entries(messages(range(50)))
    (children,) = ask(Server(log, now=0.0), wire.GetChildren(1, None))
    size = len(wire.encode_answer(children))
    server = Server(log, now=0.0, config=ServerConfig(output=3 * size - 1))
    parts = [server.receive(wire.encode_request(wire.GetChildren(1, None)) * 8, 0.0)]
    while parts[-1]:
        parts.append(server.receive(b"", 0.0))
    assert [len(part) for part in parts] == [3 * size, 3 * size, 2 * size, 0]


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
    "root too high": (
        changed(wire.Root, lambda _, answer: wire.Root(renode(answer.node, level=65))),
        "level is 65",
    ),
    "level that does not fall": (
        changed(
            wire.Children,
            lambda _, answer: wire.Children(Nodes(renode(node, level=node.level + 1) for node in answer.nodes)),
        ),
        "level|children",
    ),
    "key out of range": (
        changed(
            wire.Children,
            lambda _, answer: with_last(answer, key=bytes(20)),
        ),
        "children",
    ),
    "keys out of order": (
        changed(wire.Children, lambda _, answer: wire.Children(Nodes([*answer.nodes][:1] + [*answer.nodes][:0:-1]))),
        "children",
    ),
    "a child less": (
        changed(wire.Children, lambda _, answer: wire.Children(Nodes([*answer.nodes][:-1]))),
        "children",
    ),
    "no children": (
        changed(wire.Children, lambda _, answer: wire.Children(Nodes([]))),
        "children",
    ),
    "another hash": (
        changed(
            wire.Children,
            lambda _, answer: with_last(answer, hash=b"\xff" * 16),
        ),
        "children",
    ),
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
        changed(
            wire.Found,
            lambda request, answer: wire.Found(Node(request.level, request.key, b"\x01" * 16)),
        ),
        "another hash than the server told of before|not below the server's root",
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
    root = Node(below.level + 1, None, reference.node.parent_hash([below]))

    def change(request: wire.Request, answer: wire.Answer) -> wire.Answer:
        if isinstance(request, wire.GetRoot):
            return wire.Root(root)
        return wire.Children(Nodes([below])) if request == wire.GetChildren(root.level, None) else answer

    def answer(data: bytes) -> bytes:
        (request,) = frames(data)
        return wire.encode_answer(change(wire.decode_request(request), wire.Abort(0)))

    with pytest.raises(ProtocolError, match="the root has one child"):
        run(Client(Entries({}), TOPIC), answer)


def test_an_endless_tree() -> None:
    """Sync client, 5."""
    tree = Endless()

    def respond(data: bytes) -> bytes:
        return b"".join(wire.encode_answer(tree.answer(wire.decode_request(frame))) for frame in frames(data))

    client = Client(Entries({}), TOPIC, config=ClientConfig(window=2**16))
    with pytest.raises(ProtocolError, match=r"the value for message .* is no message"):
        run(client, respond)
    assert client.statistics.requests < 5000


def test_another_node_in_the_roots_place() -> None:
    """Sync client, 4: told of by a server that has the same log."""
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
    assert received.keys == sorted(remote.entries)
    with pytest.raises(ProtocolError, match="to no request"):
        next(events)


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

    outcome = run(Client(Entries({}), TOPIC, config=ClientConfig(parts=True)), answer)
    assert isinstance(outcome.end, Finished)
    assert outcome.received == entries
