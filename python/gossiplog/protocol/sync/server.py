"""The serving side of a sync stream.

The rules, from the wire format, "Sync", and the limits that are our own:

1. A server reads one snapshot for the whole stream, and answers requests in their order.
2. GetNode of a node that is not there is answered without a node. GetChildren of a node, or GetValues of a key, that is
   not there has no answer in the protocol: Abort.
3. An answer of more than MAX_FRAME bytes could not be read by canvas-js: Abort, and the client comes back asking for
   less. Two answers are not made smaller by asking for less: the children of one node, and one value. They may reach
   MAX_ANSWER. A client of ours comes back asking for the children in parts (`GetChildren.after`), of PART each. One
   that comes back asking for the same is to be refused for a while: who serves it counts streams that were `fruitless`.
4. A stream has a budget of time, requests and bytes. When one is used up, or no request comes for some time: Abort,
   with the cooldown. Bytes that come after an Abort are passed over: they were on their way. canvas-js aborts after
   seconds, because it holds a transaction meanwhile; a snapshot of ours holds nothing that others wait for, a browser
   takes some 100 messages a second, and every Abort costs its client some of the walk again.
5. What is no request (see `wire`), or asks for the children of a leaf, is a violation: ProtocolError, and the stream is
   closed.
6. Answers are made as they are taken: `receive` stops after about `output` bytes and keeps the requests that are left,
   so that a client cannot make the server hold more than that by asking for much at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from gossiplog.checks import check_order, check_positive
from gossiplog.core import Node, Nodes, Tree
from gossiplog.errors import ProtocolError
from gossiplog.protocol import wire


class Served(Protocol):
    """One state of a log, as a server reads it."""

    @property
    def tree(self) -> Tree:
        """The tree of this state."""

    def leaves(self, start: bytes, end: bytes | None, limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
        """Return the leaves (key, hash) with start <= key < end, ascending; an end of None is the end of the tree.

        Of these the first `limit`, and no more than so many are read.
        """

    def values(self, keys: Sequence[bytes], limit: int) -> list[bytes] | None:
        """Return the stored values, in the order of the keys; None when they have more than `limit` bytes together.

        Not much more than that is read.

        Raises:
            KeyError: a key that is not in this state.
        """


@dataclass(frozen=True, slots=True)
class SyncServerConfig:
    """The limits of one stream.

    Attributes:
        time_limit: seconds until the stream is aborted, whatever is under way. (canvas-js: 2, at its head 10.)
        idle: seconds without a request after which it is aborted.
        cooldown: milliseconds for the client to wait after an Abort.
        requests: how many are answered.
        bytes: how many are sent, about.
        keys: the most in one GetValues.
        output: bytes after which one call of `receive` stops answering.

    Raises:
        TypeError: a limit that is no number.
        ValueError: a limit that nothing could work with.

    Examples:
        >>> gossiplog.Peer(log, sync_server=gossiplog.SyncServerConfig(time_limit=60.0))
        <Peer ...>
    """

    time_limit: float = 600.0
    idle: float = 60.0
    cooldown: int = 0
    requests: int = 2**18
    bytes: int = 2**30
    keys: int = 4096
    output: int = wire.MAX_FRAME

    def __post_init__(self) -> None:
        check_positive(self, "cooldown", "requests")
        for name in ("cooldown", "requests"):
            check_order(self, 0, name)


PART = 2**15
"""Children in an answer to GetChildren that asks for a part: 1.4 MiB."""

# More have no room in MAX_ANSWER: a leaf's node takes 42 bytes.
_MOST_CHILDREN = wire.MAX_ANSWER // 42


class _Unanswerable(Exception):
    """The protocol has no answer to this request but Abort."""


class Server:
    """Answers one client from one snapshot.

    Args:
        served: what is served; it must not change while the server is in use.
        now: the time, in seconds, on any clock that never goes back.
        config: the limits.
        pause: seconds for which the client is refused if the stream ends as `fruitless`.

    Attributes:
        closed: nothing more will be answered; the stream may be closed once the bytes returned so far are written.
        fruitless: whether it was closed by a request without an answer, before any answer held a value.
        values: how many the answers have held; one that is asked for again counts again.
    """

    def __init__(
        self, served: Served, *, now: float, config: SyncServerConfig | None = None, pause: float = 0.0
    ) -> None:
        self._served = served
        self._config = config or SyncServerConfig()
        self._frames = wire.FrameReader(wire.MAX_FRAME)
        self._requests = 0
        self._bytes = 0
        self._started = self._asked = now
        self._pause = pause
        self.closed = self.fruitless = False
        self.values = 0

    @property
    def held(self) -> int:
        """Bytes in memory that came from the peer and are not a whole frame yet."""
        return self._frames.held

    @property
    def deadline(self) -> float:
        """When `receive` aborts the stream, unless a request comes before: call `receive(b"", now)` then."""
        return min(self._started + self._config.time_limit, self._asked + self._config.idle)

    def receive(self, data: bytes, now: float) -> bytes:
        """Take bytes from the client and return bytes for it.

        Call it again with b"" until it returns b"", and only then read more from the client.

        Args:
            data: the next bytes of the stream.
            now: the time, on the clock of the constructor.

        Raises:
            ProtocolError: the client broke a rule; the server is closed.
        """
        if self.closed:
            return b""
        self._frames.feed(data)
        if now >= self.deadline:
            return self._abort()
        try:
            answers = b"".join(self._answers())
        except ProtocolError:
            self.closed = True
            raise
        if answers:
            self._asked = now
        return answers

    def _answers(self) -> Iterator[bytes]:
        stop = self._bytes + self._config.output
        while self._bytes < stop and not self.closed and (frame := self._frames.next()) is not None:
            answer = self._answer(wire.decode_request(frame))
            self._bytes += len(answer)
            yield answer

    def _answer(self, request: wire.Request) -> bytes:
        self._requests += 1
        if self._requests > self._config.requests or self._bytes > self._config.bytes:
            return self._abort()
        try:
            match request:
                case wire.GetChildren(level, key, after):
                    if after is not None:
                        return self._encode(wire.Children(self._part(level, key, after)), wire.MAX_FRAME)
                    children = self._children(level, key)
                    if len(children) > _MOST_CHILDREN:
                        raise _Unanswerable
                    return self._encode(wire.Children(children), wire.MAX_ANSWER)
                case wire.GetValues(keys):
                    limit = wire.MAX_ANSWER if len(keys) == 1 else wire.MAX_FRAME
                    answer = self._encode(wire.Values(self._values(keys, limit)), limit)
                    self.values += len(keys)
                    return answer
                case wire.GetNode(level, key):
                    return wire.encode_answer(wire.Found(self._node(level, key)))
                case wire.GetRoot():
                    return wire.encode_answer(wire.Root(self._served.tree.root))
        except _Unanswerable:
            self.fruitless = not self.values
            return self._abort()

    def _encode(self, answer: wire.Answer, limit: int) -> bytes:
        frame = wire.encode_answer(answer)
        if len(frame) > limit:
            raise _Unanswerable
        return frame

    def _abort(self) -> bytes:
        self.closed = True
        pause = math.ceil(1000 * self._pause) if self.fruitless else 0
        return wire.encode_answer(wire.Abort(max(self._config.cooldown, pause)))

    def _node(self, level: int, key: bytes | None) -> Node | None:
        tree = self._served.tree
        return tree.node(level, key, self._few_leaves) if level <= tree.root.level else None

    def _children(self, level: int, key: bytes | None) -> Nodes:
        if level == 0:
            raise ProtocolError("GetChildren of a node of level 0, which is a leaf")
        tree = self._served.tree
        if level > tree.root.level:
            raise _Unanswerable
        try:
            return tree.span(level, key, self._few_leaves)
        except KeyError:
            raise _Unanswerable from None

    def _few_leaves(self, start: bytes, end: bytes | None) -> Sequence[tuple[bytes, bytes]]:
        leaves = self._served.leaves(start, end, _MOST_CHILDREN + 1)
        if len(leaves) > _MOST_CHILDREN:
            raise _Unanswerable
        return leaves

    def _part(self, level: int, key: bytes | None, after: bytes) -> Nodes:
        """Return the children of a node that follow a key, as many as a part has."""
        tree = self._served.tree
        if level != 1 or tree.root.level == 0:
            # They are in memory, those above the leaves.
            children = self._children(level, key)
            if not after and len(children) <= PART:
                return children
            following = (child for child in children if not after or (child.key or b"") > after)
            return Nodes(islice(following, PART))
        if tree.node(level, key) is None:
            raise _Unanswerable
        start = after + b"\0" if after else key or b""
        leaves = [Node(0, *leaf) for leaf in self._served.leaves(start, tree.next_key(level, key), PART)]
        if not after and len(leaves) < PART:
            # All of them, which the tree holds against the node's hash.
            return self._children(level, key)
        return Nodes([Tree().root, *leaves] if key is None and not after else leaves)

    def _values(self, keys: Sequence[bytes], limit: int) -> list[bytes]:
        if len(keys) > self._config.keys:
            raise _Unanswerable
        try:
            values = self._served.values(keys, limit)
        except KeyError:
            raise _Unanswerable from None
        if values is None:
            raise _Unanswerable
        return values
