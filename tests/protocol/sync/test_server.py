"""`gossiplog.protocol.sync.server`: its answers, and its limits."""

from __future__ import annotations

import pytest

from gossiplog import core
from gossiplog.core import Node
from gossiplog.errors import ProtocolError
from gossiplog.protocol import wire
from gossiplog.protocol.sync import Server, SyncServerConfig
from tests.protocol.pipe import Entries, frames, messages, serve

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
    server = Server(Entries(messages(range(5))), now=0.0, config=SyncServerConfig(cooldown=7))
    assert ask(server, wire.GetRoot(), request_, wire.GetRoot())[1:] == [wire.Abort(7)]
    assert server.closed
    assert ask(server, wire.GetRoot()) == []


def test_what_has_no_answer_before_any_value_was_fruitless() -> None:
    """Sync server, 3: the client is told for how long it is refused."""
    log = Entries(messages(range(5)))
    absent, values = wire.GetChildren(60, None), wire.GetValues(sorted(log.entries))
    for requests, is_fruitless in (([absent], True), ([values, absent], False)):
        server = Server(log, now=0.0, config=SyncServerConfig(cooldown=7), pause=2.5)
        assert not server.fruitless
        assert ask(server, *requests)[-1] == wire.Abort(2500 if is_fruitless else 7)
        assert server.fruitless is is_fruitless
    server = Server(log, now=0.0, config=SyncServerConfig(idle=1.0), pause=2.5)
    assert ask(server, now=1.0) == [wire.Abort(0)]
    assert not server.fruitless


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
    server = Server(Entries({}), now=100.0, config=SyncServerConfig(time_limit=10.0))
    assert server.deadline == 110.0
    assert ask(server, wire.GetRoot(), now=109.9) == [wire.Root(core.Tree().root)]
    assert ask(server, now=110.0) == [wire.Abort(0)]
    assert server.closed


def test_a_client_that_asks_for_nothing() -> None:
    """Sync server, 4."""
    server = Server(Entries({}), now=100.0, config=SyncServerConfig(time_limit=100.0, idle=10.0))
    assert server.deadline == 110.0
    assert ask(server, wire.GetRoot(), now=109.0) == [wire.Root(core.Tree().root)]
    # A piece of a request is none.
    assert server.receive(wire.encode_request(wire.GetRoot())[:1], 118.0) == b""
    assert server.deadline == 119.0
    assert ask(server, now=119.0) == [wire.Abort(0)]


@pytest.mark.parametrize(
    "config", [SyncServerConfig(requests=3), SyncServerConfig(bytes=70)], ids=["requests", "bytes"]
)
def test_the_budgets(config: SyncServerConfig) -> None:
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
        answer = ask(Server(log, now=0.0, config=SyncServerConfig(keys=4)), wire.GetValues(sorted(log.entries)[:count]))
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
    server = Server(log, now=0.0, config=SyncServerConfig(output=3 * size - 1))
    parts = [server.receive(wire.encode_request(wire.GetChildren(1, None)) * 8, 0.0)]
    while parts[-1]:
        parts.append(server.receive(b"", 0.0))
    assert [len(part) for part in parts] == [3 * size, 3 * size, 2 * size, 0]
