"""The machines of the sync protocol against whatever a stranger sends, in any order: Hypothesis' stateful testing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gossiplog.core import Node, Nodes
from gossiplog.errors import ProtocolError
from gossiplog.protocol import wire
from gossiplog.protocol.sync import (
    Aborted,
    Client,
    Event,
    Finished,
    Received,
    Send,
    Server,
    SyncClientConfig,
    SyncServerConfig,
)
from gossiplog.protocol.sync import client as sync_client
from tests.protocol.endless import Endless
from tests.protocol.pipe import TOPIC, Entries, frames, messages, serve

WINDOW = 20_000


@cache
def entries(start: int, stop: int) -> dict[bytes, bytes]:
    """Messages of two clocks, some of them large."""
    found = messages(range(start, stop)) | messages(range(start, stop, 2), clock=2)
    return found | messages(range(start, stop, 5), clock=3, size=3000)


@cache
def endless() -> Endless:
    return Endless()


Answer = Callable[[wire.Request], wire.Answer]


def change(answer: wire.Answer, number: int) -> wire.Answer:
    """An answer that a liar makes of an honest one."""
    match answer:
        case wire.Root(node) | wire.Found(Node() as node):
            return type(answer)(changed(node, number))
        case wire.Children(nodes):
            listed = list(nodes)
            at = number % max(len(listed), 1)
            match number % 5:
                case 0:
                    listed.reverse()
                case 1:
                    del listed[at:]
                case 2:
                    listed += listed[:1]
                case _ if listed:
                    listed[at] = changed(listed[at], number // 5)
            return wire.Children(Nodes(listed))
        case wire.Values(values):
            at = number % max(len(values), 1)
            match number % 4:
                case 0:
                    return wire.Values(values[:at])
                case 1:
                    return wire.Values(values[::-1])
                case 2:
                    return wire.Values([*values, b"more"])
                case _:
                    # A bad signature, and so another message.
                    return wire.Values([*values[:at], values[at][:-1] + b"?", *values[at + 1 :]])
        case _:
            return wire.Children(Nodes([]))


def changed(node: Node, number: int) -> Node:
    match number % 4:
        case 0:
            return Node(min(node.level + 1, wire.MAX_LEVEL), node.key, node.hash)
        case 1:
            return Node(max(node.level - 1, 0), node.key, node.hash)
        case 2:
            return Node(node.level, bytes(19) + b"\1" if node.key is None else None, node.hash)
        case _:
            return Node(node.level, node.key, node.hash[::-1])


class Asking(RuleBasedStateMachine):
    """A client, a server's honest answers, and a stranger in between."""

    def __init__(self) -> None:
        super().__init__()
        self.local = Entries({})
        self.remote = Entries(entries(0, 60))
        self.answers: dict[str, Answer] = {
            "honest": self.honest(self.remote),
            "another log": self.honest(Entries(entries(30, 40))),
            "endless": endless_answer,
        }
        self.config = SyncClientConfig(window=WINDOW)
        self.begin()

    @initialize(
        held=st.integers(0, 60), keys=st.sampled_from([1, 7, 512]), skips=st.booleans(), answers=st.integers(0, 30)
    )
    def choose(self, held: int, keys: int, skips: bool, answers: int) -> None:
        self.local = Entries(entries(0, held))
        skip = frozenset(sorted(self.remote.entries)[::3]) if skips else frozenset()
        self.config = SyncClientConfig(window=WINDOW, keys=keys, skip=skip)
        self.begin()
        # Only later answers are lies.
        for _ in range(answers):
            if self.requests:
                self.answer("honest", 1)

    def honest(self, log: Entries) -> Answer:
        def answer(request: wire.Request) -> wire.Answer:
            (found,) = frames(serve(Server(log, now=0.0))(wire.encode_request(request)))
            return wire.decode_answer(found)

        return answer

    def begin(self) -> None:
        self.requests: deque[wire.Request] = deque()
        self.client = Client(self.local, TOPIC, config=self.config)
        self.last = b""
        self.ended: type[Event | ProtocolError] | None = None
        self.brought: dict[bytes, bytes] = {}
        self.ask(self.client.start())
        self.first_flight = self.client._expected

    def ask(self, data: bytes) -> None:
        self.requests += map(wire.decode_request, frames(data))

    # What comes

    @precondition(lambda self: self.requests)
    @rule(which=st.sampled_from(["honest"] * 5 + ["another log", "endless"]), count=st.integers(1, 8))
    def answer(self, which: str, count: int) -> None:
        for _ in range(min(count, len(self.requests))):
            try:
                found = self.answers[which](self.requests.popleft())
            except KeyError:
                found = wire.Found(None)
            self.feed(wire.encode_answer(found))

    @precondition(lambda self: self.requests)
    @rule(number=st.integers(0, 1000))
    def lie(self, number: int) -> None:
        honest = self.answers["honest"](self.requests.popleft())
        self.feed(wire.encode_answer(change(honest, number)))

    @precondition(lambda self: len(self.requests) > 1)
    @rule()
    def answer_in_another_order(self) -> None:
        self.requests.rotate(1)
        self.answer("honest", 2)

    @rule(data=st.binary(max_size=6))
    def babble(self, data: bytes) -> None:
        self.feed(data)

    @precondition(lambda self: self.requests)
    @rule(data=st.sampled_from([wire.Abort(0), wire.Abort(2**31), wire.Values([]), wire.Found(None)]))
    def answer_something(self, data: wire.Answer) -> None:
        self.requests.popleft()
        self.feed(wire.encode_answer(data))

    @precondition(lambda self: self.requests)
    @rule(at=st.integers(1, 200))
    def answer_in_pieces(self, at: int) -> None:
        data = wire.encode_answer(self.answers["honest"](self.requests.popleft()))
        for start in range(0, len(data), at + len(data) // 20):
            self.feed(data[start : start + at + len(data) // 20])

    @rule()
    def end(self) -> None:
        self.take(list(self.client.end()))
        assert self.ended is not None

    @precondition(lambda self: self.ended is not None)
    @rule(keeps=st.booleans())
    def begin_again(self, keeps: bool) -> None:
        """A new client over what the local log holds now, of which only what was verified."""
        if keeps:
            self.local.insert(self.brought)
        self.config = self.client.next_config
        self.begin()

    def feed(self, data: bytes) -> None:
        found: list[Event] = []
        try:
            found.extend(self.client.receive(data))
        except ProtocolError:
            self.take(found)
            self.ended = self.ended or ProtocolError
        else:
            self.take(found)
        self.check()

    def take(self, found: list[Event]) -> None:
        for event in found:
            # Nothing comes after the end.
            assert self.ended is None
            match event:
                case Send(data):
                    self.ask(data)
                case Received(keys, values):
                    assert keys == sorted(set(keys))
                    assert keys[0] > self.last
                    assert len(keys) == len(values)
                    assert self.config.skip.isdisjoint(keys)
                    assert self.local.entries.keys().isdisjoint(keys)
                    self.last = keys[-1]
                    batch, _ = event.verify()
                    bad = {index for index, _ in batch.invalid}
                    good = [index for index in range(len(batch)) if index not in bad]
                    self.brought |= {keys[index]: values[index] for index in good}
                case Aborted() | Finished():
                    self.ended = type(event)

    # What must always hold

    @invariant()
    def check(self) -> None:
        client = self.client
        assert client._expected == sum(asked.size for asked in client._asked)
        # One request may be for more than the window.
        largest = max(client._value_size, sync_client.PART * sync_client._NODE_SIZE if client._config.parts else 0)
        assert client._expected <= max(self.first_flight, client._config.window, largest)
        assert client._missing >= 0
        assert len(client._batch_keys) == len(client._batch_values) <= 4096 + 512
        assert client.held <= wire.MAX_ANSWER
        assert self.ended is not None or len(self.requests) <= len(client._asked)
        assert not client._out

    def teardown(self) -> None:
        """After all that, an honest server's answers bring everything."""
        self.local.insert(self.brought)
        self.config = SyncClientConfig()
        self.begin()
        while self.ended is None:
            self.answer("honest", 8)
        assert self.ended is Finished
        assert self.local.entries.keys() | self.brought.keys() >= self.remote.entries.keys()


def endless_answer(request: wire.Request) -> wire.Answer:
    return endless().answer(request)


class Serving(RuleBasedStateMachine):
    """A server, and a client that sends what it likes when it likes."""

    CONFIG = SyncServerConfig(time_limit=100, idle=20, requests=40, bytes=200_000, keys=10, output=4000, cooldown=7)

    def __init__(self) -> None:
        super().__init__()
        self.log = Entries(entries(0, 60))
        self.keys = sorted(self.log.entries)
        self.now = 0.0
        self.begin()

    @precondition(lambda self: self.server.closed)
    @rule()
    def begin(self) -> None:
        self.server = Server(self.log, now=self.now, config=self.CONFIG)
        self.asked: list[wire.Request] | None = []
        self.answered = 0

    @rule(level=st.sampled_from([0, 1, 1, 2, 3, 64]), number=st.integers(0, 200), children=st.booleans())
    def ask_for_a_node(self, level: int, number: int, children: bool) -> None:
        tree = self.log.tree
        levels = [tree.last(min(max(level, 1), tree.root.level)).key, None, b"\2" * 20, *self.keys]
        request = (wire.GetChildren if children else wire.GetNode)(level, levels[number % len(levels)])
        self.send([request])

    @rule(count=st.integers(1, 3))
    def ask_for_the_root(self, count: int) -> None:
        self.send([wire.GetRoot()] * count)

    @rule(numbers=st.lists(st.integers(0, 300), max_size=40))
    def ask_for_values(self, numbers: list[int]) -> None:
        keys = [*self.keys, b"\2" * 20]
        self.send([wire.GetValues([keys[number % len(keys)] for number in numbers])])

    @rule(data=st.binary(min_size=1, max_size=8))
    def babble(self, data: bytes) -> None:
        # Whatever comes after is part of it.
        self.asked = None
        self.feed(data)

    @rule(seconds=st.sampled_from([0.0, 1.0, 19.0, 21.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.feed(b"")

    def send(self, requests: list[wire.Request]) -> None:
        if self.asked is not None:
            self.asked += requests
        self.feed(b"".join(map(wire.encode_request, requests)))

    def feed(self, data: bytes) -> None:
        due = self.now >= self.server.deadline
        was_closed = self.server.closed
        while True:
            try:
                found = self.server.receive(data, self.now)
            except ProtocolError:
                assert self.server.closed
                assert self.asked is None or any(self.is_wrong(request) for request in self.asked[self.answered :])
                return
            data = b""
            assert not (was_closed and found)
            assert len(found) <= self.CONFIG.output + wire.MAX_ANSWER
            for frame in frames(found):
                self.look(wire.decode_answer(frame))
            if not found:
                break
        assert not due or was_closed or self.server.closed

    def look(self, answer: wire.Answer) -> None:
        if isinstance(answer, wire.Abort):
            assert answer.cooldown == 7
            assert self.server.closed
            return
        if self.asked is not None:
            kinds: dict[Any, Any] = {
                wire.GetRoot: wire.Root,
                wire.GetNode: wire.Found,
                wire.GetChildren: wire.Children,
                wire.GetValues: wire.Values,
            }
            request = self.asked[self.answered]
            assert isinstance(answer, kinds[type(request)])
            if isinstance(answer, wire.Values):
                assert len(request.keys) <= self.CONFIG.keys
                assert answer.values == [self.log.entries[key] for key in request.keys]
        self.answered += 1

    @staticmethod
    def is_wrong(request: wire.Request) -> bool:
        return isinstance(request, wire.GetChildren) and request.level == 0

    @invariant()
    def check(self) -> None:
        assert self.answered <= self.CONFIG.requests or self.asked is None
        assert self.server.held <= wire.MAX_FRAME


@pytest.mark.parametrize(
    ("examples", "steps"), [(10, 20), pytest.param(120, 40, marks=pytest.mark.integration)], ids=["few", "many"]
)
@pytest.mark.parametrize("machine", [Asking, Serving])
def test_whatever_comes(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps))
