"""The asking side of a sync stream: brings in what the server's log has and the local one lacks.

The rules, from the wire format, "Sync" and "Prolly tree":

1. *What is asked.* The tree is walked from the root down. A node whose equal (level, key, hash) is in the local tree is
skipped with everything below it; of any other the children are asked for, and of a node of level 1 the values of those
leaves that the local log lacks. Values are asked for, and handed out, in the order of their keys, which is causal.

2. *When.* The walk begins with one path, down to the first node of level 1 that differs; the values that it lacks are
asked for at once. Guesses do not wait for it. From then on every request that can be made is sent at once, those with
the smallest keys first, while the answers that are under way are expected to fit into a window of bytes: a sync costs
bandwidth, not round trips. In a first stream 256 requests are under way, or as many as were answered if that is more,
so that a server that ends the stream has few to discard. Later GetValues wait until a request is full, the walk has
ended, or it has passed twice as many nodes as before the last one.

3. *Guesses.* Logs mostly differ at their end. So the first flight asks, besides for the root, for the nodes that may be
the last of their levels (`hints`), and the second for the children of those that the server has with another hash.
Such an answer is a hint, and nothing is taken from it until the walk from the root has come to the same node: then the
children that were fetched early are used, after the same checks as all others. An honest server's differing node is
always reached, since nodes of equal hashes have equal nodes below them; so a hint that the walk contradicts, or has
not confirmed at its end, is a violation. A lie costs the client at most one request for each hint.

4. *What is proven.* The root is what the server says it is. Every other node was listed among children that lie in
their parent's range, in order, one level below it, and that hash to the parent's hash (`core.check_children`). A value
is a message with the key that was asked for, or one with that key whose signature does not hold: a server that follows
the rules never has one, but its batch is handed out with the message marked as invalid, and the driver names it.

5. *What is bounded.* Frames (`wire.MAX_ANSWER`), the root's level (`wire.MAX_LEVEL`), answers under way (the window,
and their number), and what is known but not yet asked for: above a first limit one request is under way at a time;
above a second one the answers that are not next in order are dropped, and asked for again later. A tree without end
does not pass: every node has leaves, and leaves that the local log lacks need values.

6. *Violations* raise ProtocolError from `receive`, after the events of what had come before: bytes that are no answer,
an answer of another kind than the request's, or to no request; a root with a key or with one child; children that are
not their parent's; another hash for a leaf that the local log has; too few or too many values; a value that is not its
key's; hints that turn out wrong. Abort and the end of the stream are none.

7. *When the stream is cut off.* What had come is handed out. A new client over the same log, with `next_config`, goes
on where this one was, for equal subtrees are skipped, and so are nodes that this one found to lack nothing. Children
that have come are not asked for again: they are taken up to the last one used, as long as there is room. At least 8
requests are under way, and about half as many as the earlier stream answered, or this one so far, so that few are lost
at the next end. A stream that answers twice its number lets the next one try half as many again. Of values it asks
first for as many as came in one answer, and then for twice as many each time; where none came, for fewer than those
that were asked for. Values that were to come next at the end of two streams in a row may be too long for an answer: of
these it asks for a quarter as many at a time, whatever came before them, and for none beside them. Nothing is guessed.

8. *Parts.* Anybody can make messages of which one node has so many leaves that no answer holds them. After an Abort
children are asked for part by part (`GetChildren.after`), and handled as they come. That a part is right shows when the
last one is there; until then a server can make the client ask for keys that it does not have, which breaks a rule, too.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gossiplog.core import ChildrenCheck, Node, Nodes, Tree, check_children, encode_id
from gossiplog.errors import ProtocolError, TreeError
from gossiplog.protocol import wire
from gossiplog.protocol.sync.events import (
    MOST_KEYS,
    Aborted,
    Event,
    Finished,
    Local,
    Received,
    Send,
    SyncClientConfig,
    SyncStatistics,
)
from gossiplog.protocol.sync.hints import hints
from gossiplog.protocol.sync.server import PART
from gossiplog.reprs import counted

_BATCH_MESSAGES = 4096
_BATCH_BYTES = 4 * 2**20
_NODE_SIZE = 45
_CHILDREN_SIZE = 32 * _NODE_SIZE
_LEAST_VALUE_SIZE = 64
_USUAL_LEAVES = 32  # of a node of level 1: the tree's fanout
_HELD_PAUSE = 2**18  # keys and nodes known but not asked for: about 25 MB
_HELD_DROP = 2**20
_FIRST_ASKED = 256  # requests under way in a first stream, or as many as are answered
_MOST_CHILDREN = 2**9  # requests for children under way: values come before what led to them is forgotten
_LEAST_ASKED = 8  # requests under way after a stream that was cut off: about a path through the tree
# Remembered from one attempt to the next: nodes that lack nothing, about 10 MB, and children, about 3 MB.
_MOST_COMPLETE = 2**16
_MOST_KNOWN = 2**15
_MOST_SKIPPED = 2**10  # keys that are skipped and that the server is found to have


class _Span:
    """A node of the server's tree that differs from the local one, and what is below it."""

    __slots__ = (
        *("after", "check", "children", "complete", "depth", "early", "end", "lacks", "last", "missing", "node"),
        "proven",
    )

    def __init__(self, node: Node, end: bytes | None, depth: int, *, proven: bool) -> None:
        self.node = node
        self.end = end  # where the node's range ends; means nothing before the node is proven
        self.depth = depth  # of the answer that announced the node
        self.proven = proven
        self.early: Nodes | None = None  # children that came before the node was proven
        self.children: deque[_Span] | None = None  # level 2 and up, once answered: those not yet passed by the walk
        self.missing: list[bytes] | None = None  # level 1, once answered: keys of leaves that the local log lacks
        self.lacks = False  # whether the walk has found a leaf below it that the local log lacks
        self.complete: list[Node] = []  # below it, as the walk has found: nodes of which the local log has every leaf
        # Where the children come in parts: what checks them, None before the first part and after the last; the key
        # that the next part follows; the last child so far (level 2 and up), whose end only the next part shows.
        self.check: ChildrenCheck | None = None
        self.after = b""
        self.last: Node | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    request: wire.Request
    depth: int
    size: int  # of the answer, estimated
    span: _Span | None = None


class Client:
    """Asks one server for what the local log lacks.

    Args:
        local: the log.
        topic: its topic, which messages are verified against.
        config: how to ask.
    """

    def __init__(self, local: Local, topic: str, *, config: SyncClientConfig | None = None) -> None:
        self._local = local
        self._tree = local.tree
        self._topic = topic
        self._config = config or SyncClientConfig()
        self._frames = wire.FrameReader(wire.MAX_ANSWER)
        self._closed = False
        self._requests = self._bytes_sent = self._bytes_received = self._round_trips = self._values = 0
        # Requests: those to write, and those whose answers are under way, with the bytes expected.
        self._out: list[bytes] = []
        self._asked: deque[_Asked] = deque()
        self._expected = 0
        self._keys = self._config.keys  # in the next GetValues, at most
        self._most_values = 0  # in an answer
        self._value_size = float(max(self._config.value_size, _LEAST_VALUE_SIZE))
        # The walk: nodes to ask about by (key, -level), guesses by (level, key), the path to the first unanswered node.
        self._root: Node | None = None
        self._unasked: list[tuple[bytes, int, _Span]] = []
        self._guesses: dict[tuple[int, bytes | None], _Span] = {}
        self._path: list[_Span] = []
        self._complete: list[Node] = []  # nodes of which the local log has every leaf, once the walk has ended
        self._complete_found = 0
        self._known = OrderedDict(self._config.known)  # the children of nodes, those used last at its end
        self._known_children = sum(map(len, self._known.values()))
        self._missing = 0  # keys in all spans
        self._skipped: list[bytes] = []
        # Requests of either kind under way.
        self._children_asked = self._values_asked = 0
        self._has_path = False  # whether the walk has gone down one path
        # Values are asked for after so many nodes of level 1 that need some; each time, after twice as many.
        self._passed = 0
        self._stride = 1
        # Values: keys to ask for, and answers to be handed out.
        self._to_request: deque[bytes] = deque()
        self._to_request_depth = 0
        self._batch_keys: list[bytes] = []
        self._batch_values: list[bytes] = []
        self._batch_bytes = 0

    @property
    def statistics(self) -> SyncStatistics:
        """What the sync has cost so far."""
        return SyncStatistics(
            self._requests,
            self._bytes_sent,
            self._bytes_received,
            self._round_trips,
            self._values,
            self._complete_found,
        )

    @property
    def next_config(self) -> SyncClientConfig:
        """For a client that goes on where this one was cut off (see the module, "When the stream is cut off")."""
        found = itertools.chain(self._complete, *(span.complete for span in self._path))
        complete = frozenset(itertools.islice(found, _MOST_COMPLETE))
        # The answer that was cut off may have been too large, whatever is asked for beside it.
        parts = self._config.parts or bool(self._asked and isinstance(self._asked[0].request, wire.GetChildren))
        unanswered = self._asked[0].request if self._asked else None
        long = frozenset(unanswered.keys if isinstance(unanswered, wire.GetValues) else ())
        return dataclasses.replace(
            self._config,
            keys=self._next_keys(),
            long=long,
            long_keys=MOST_KEYS if long.isdisjoint(self._config.long) else max(1, len(long) // 4),
            most_asked=self._next_most_asked(),
            complete=complete,
            known=dict(self._known),
            parts=parts,
        )

    def _next_keys(self) -> int:
        asked = self._asked[0].request if self._asked else None
        if not self._values and isinstance(asked, wire.GetValues):
            return max(1, len(asked.keys) // 4)
        # The first attempt asks for few values at a time; with what is known, the next one would ask for many.
        tried = self._config.keys if self._config.known else min(self._config.keys, _USUAL_LEAVES)
        return max(self._most_values, tried) if self._known else self._config.keys

    @property
    def _answered(self) -> int:
        return self._requests - len(self._asked)

    def _next_most_asked(self) -> int:
        """Return how many requests to have under way so that few are lost if the next stream ends like this one."""
        most = self._config.most_asked or 0
        # Only a longer queue shows whether it brings more before the end.
        tried = 3 * most // 2 if self._answered >= 2 * most else 0
        return max(_LEAST_ASKED, self._answered // 2, tried)

    @property
    def skipped(self) -> Sequence[bytes]:
        """The first of the keys in `SyncClientConfig.skip` that the server has."""
        return self._skipped

    @property
    def unanswered(self) -> str:
        """What the server has been asked for and must answer next, for people; "" where nothing is under way."""
        return _describe(self._asked[0].request) if self._asked else ""

    def start(self) -> bytes:
        """Return the first bytes to write to the server."""
        self._ask(wire.GetRoot(), 1, _NODE_SIZE)
        # Later, known children take the place of guesses, and children in parts are checked where their node is proven.
        if not self._config.resumes:
            for level, key in hints(self._tree):
                self._ask(wire.GetNode(level, key), 1, _NODE_SIZE)
        return self._flush_requests()

    @property
    def held(self) -> int:
        """Bytes in memory that came from the server and are not a whole frame yet."""
        return self._frames.held

    def receive(self, data: bytes) -> Iterator[Event]:
        """Take the next bytes of the stream; they are processed as the events are taken, so take all.

        Raises:
            ProtocolError: the server broke a rule (see the module).
            TreeError: the local log is damaged.
        """
        try:
            yield from self._receive(data)
        except ProtocolError:
            self._closed = True
            yield from self._hand_out()
            raise

    def end(self) -> Iterator[Event]:
        """Yield what follows when the stream has ended, or is broken.

        The events are those of an Abort without a cooldown; none after Finished.
        """
        if not self._closed:
            self._closed = True
            yield from self._hand_out()
            yield Aborted(0)

    def _receive(self, data: bytes) -> Iterator[Event]:
        self._bytes_received += len(data)
        self._frames.feed(data)
        while (frame := self._frames.next()) is not None:
            if self._closed:
                raise ProtocolError("an answer after the last one")
            answer = wire.decode_answer(frame)
            if isinstance(answer, wire.Abort):
                self._closed = True
                yield from self._hand_out()
                yield Aborted(answer.cooldown)
                return
            self._take(answer)
            if len(self._batch_keys) >= _BATCH_MESSAGES or self._batch_bytes >= _BATCH_BYTES:
                yield from self._go_on()  # the server works while the batch is taken care of
                yield from self._hand_out()
        if self._closed:
            return
        yield from self._go_on()
        if not self._asked:
            if self._guesses:
                level, key = next(iter(self._guesses))
                raise ProtocolError(f"the server advertised {_name(level, key)}, which its own tree does not hold")
            yield from self._hand_out()
            self._closed = True
            yield Finished(self.statistics)

    # Requests

    def _ask(self, request: wire.Request, depth: int, size: int, span: _Span | None = None) -> None:
        frame = wire.encode_request(request)
        self._out.append(frame)
        self._asked.append(_Asked(request, depth, size, span))
        self._expected += size
        self._requests += 1
        self._bytes_sent += len(frame)
        self._round_trips = max(self._round_trips, depth)

    def _flush_requests(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _go_on(self) -> Iterator[Event]:
        self._walk()
        while self._ask_next():
            pass
        if self._out:
            yield Send(self._flush_requests())

    def _ask_next(self) -> bool:
        limit = min(self._keys, max(1, int(self._config.window / 8 / self._value_size)))
        if self._to_request and (len(self._to_request) >= limit or self._passed >= self._stride or not self._path):
            count = self._up_to_long(min(limit, len(self._to_request)))
            size = int(count * self._value_size)
            if not self._fits(size) or (self._values_asked > 1 and self._keys < MOST_KEYS):
                return False
            keys = [self._to_request.popleft() for _ in range(count)]
            self._missing -= count
            self._ask(wire.GetValues(keys), self._to_request_depth + 1, size)
            self._values_asked += 1
            if count == limit:
                self._keys = min(2 * self._keys, MOST_KEYS)
            if not self._to_request:
                self._passed = 0
                self._stride *= 2
            return True
        held = self._missing + len(self._unasked)
        if not self._unasked or (held > _HELD_PAUSE and self._asked):
            return False
        _, _, span = self._unasked[0]
        size = PART * _NODE_SIZE if span.check is not None else _CHILDREN_SIZE
        if not self._fits(size):
            return False
        if span.proven and self._children_asked >= (_MOST_CHILDREN if self._has_path else 1):
            return False
        heapq.heappop(self._unasked)
        self._children_asked += 1
        after = span.after if self._config.parts else None
        self._ask(wire.GetChildren(span.node.level, span.node.key, after), span.depth + 1, size, span)
        return True

    def _up_to_long(self, count: int) -> int:
        """Return how many of the next keys to ask for at once, `count` at most: some long ones, or those before one."""
        long = self._config.long
        if self._config.long_keys >= MOST_KEYS:
            return count
        following = [key in long for key in itertools.islice(self._to_request, count)]
        first = following[0]
        alike = following.index(not first) if (not first) in following else len(following)
        return min(alike, self._config.long_keys) if first else alike

    def _fits(self, size: int) -> bool:
        if not self._asked:
            return True
        if self._expected + size > self._config.window:
            return False
        most, answered = self._config.most_asked, self._answered
        return len(self._asked) < (max(_FIRST_ASKED, answered) if most is None else max(most, answered // 2))

    # Answers

    def _take(self, answer: wire.Answer) -> None:
        if not self._asked:
            raise ProtocolError(f"an answer ({type(answer).__name__}) to no request")
        asked = self._asked[0]
        match asked.request, answer:
            case wire.GetChildren(), wire.Children(nodes) if asked.span is not None:
                self._take_children(asked.span, nodes, asked.depth)
            case wire.GetValues(keys), wire.Values(values):
                self._take_values(keys, values)
            case wire.GetNode(level, key), wire.Found(found):
                if found is not None:
                    self._take_hint(level, key, found, asked.depth)
            case wire.GetRoot(), wire.Root(root):
                self._take_root(root, asked.depth)
            case request, _:
                raise ProtocolError(f"an answer of the kind {type(answer).__name__} to {type(request).__name__}")
        self._asked.popleft()
        self._expected -= asked.size

    def _take_root(self, root: Node, depth: int) -> None:
        if root.key is not None:
            raise ProtocolError(f"the root has a key, {encode_id(root.key)}; expected none")
        if root.level == 0 and root != Tree().root:
            raise ProtocolError(f"a root of level 0 with the hash {root.hash.hex()}; an empty tree's is expected")
        self._root = root
        if root.level > 0 and root != self._tree.root and root not in self._config.complete:
            self._path.append(self._discover(root, None, depth))

    def _take_hint(self, level: int, key: bytes | None, found: Node, depth: int) -> None:
        if (found.level, found.key) != (level, key):
            raise ProtocolError(f"{_name(found.level, found.key)} in answer to GetNode of {_name(level, key)}")
        root = self._root
        if root is None or level > root.level or (level == root.level and found != root):
            raise ProtocolError(f"the server advertised {_name(level, key)}, which is not below the server's root")
        if level < root.level and found != self._tree.node(level, key):
            span = _Span(found, None, depth, proven=False)
            self._guesses[level, key] = span
            self._push(span)

    def _take_children(self, span: _Span, nodes: Nodes, depth: int) -> None:
        self._children_asked -= 1
        if not span.proven:
            span.early = nodes
            span.depth = depth
        elif self._missing + len(self._unasked) > _HELD_DROP and span is not self._path[-1]:
            self._push(span)
        elif self._config.parts:
            self._grow_by_part(span, nodes, depth)
        else:
            self._grow(span, nodes, max(depth, span.depth))

    def _take_values(self, keys: Sequence[bytes], values: list[bytes]) -> None:
        if len(values) != len(keys):
            wrong = f"{counted(len(values), 'value')} in answer to GetValues of {counted(len(keys), 'key')}"
            missing = f": the first without one is {encode_id(keys[len(values)])}" if len(values) < len(keys) else ""
            raise ProtocolError(wrong + missing)
        self._values_asked -= 1
        size = sum(map(len, values))
        self._batch_keys += keys
        self._batch_values += values
        self._batch_bytes += size
        self._values += len(values)
        # Half of what is expected is what came last: sizes change slowly along a log, and seldom.
        self._value_size = max((self._value_size + size / len(values)) / 2, _LEAST_VALUE_SIZE)
        self._most_values = max(self._most_values, len(values))

    # The walk

    def _push(self, span: _Span) -> None:
        # Spans with equal keys are nested, so they differ in level.
        heapq.heappush(self._unasked, (span.after or span.node.key or b"", -span.node.level, span))

    def _discover(self, node: Node, end: bytes | None, depth: int) -> _Span:
        """Return the span of a node that is proven now and differs from the local one."""
        span = self._guesses.pop((node.level, node.key), None) if self._guesses else None
        if span is None:
            span = _Span(node, end, depth, proven=True)
            known = self._known.get(node)
            if known is None:
                self._push(span)
            else:
                self._grow(span, known, depth)
            return span
        if span.node != node:
            raise ProtocolError(f"{_name(node.level, node.key)} has another hash than the server advertised before")
        span.end = end
        span.proven = True
        span.depth = max(span.depth, depth)
        if span.early is not None:
            early, span.early = span.early, None
            self._grow(span, early, span.depth)
        return span

    def _grow(self, span: _Span, nodes: Nodes, depth: int) -> None:
        """Take the answer to GetChildren of a proven node."""
        parent = span.node
        try:
            check_children(parent, span.end, nodes)
        except TreeError as error:
            raise ProtocolError(str(error)) from error
        if parent is self._root and len(nodes) == 1:
            raise ProtocolError("the root has one child, which should be the root itself")
        span.depth = depth
        self._remember(parent, nodes)
        if parent.level == 1:
            missing = self._lacking(nodes)
            span.lacks = bool(missing)
            span.missing = self._wanted(missing)
            self._missing += len(span.missing)
        else:
            span.children = deque()
            for node, end in self._tree.differing(nodes, span.end):
                if node in self._config.complete:
                    span.complete.append(node)
                else:
                    span.children.append(self._discover(node, end, depth))

    def _grow_by_part(self, span: _Span, nodes: Nodes, depth: int) -> None:
        """Take some of the children of a proven node; ask for more until they hash to its hash."""
        check = span.check or ChildrenCheck(span.node, span.end)
        try:
            check.add(nodes)
            if not len(nodes):
                check.finish()
        except TreeError as error:
            raise ProtocolError(str(error)) from error
        is_complete = check.is_complete
        if is_complete and span.node is self._root and check.count == 1:
            raise ProtocolError("the root has one child, which should be the root itself")
        if is_complete and span.check is None:
            self._remember(span.node, nodes)
        keys = nodes.keys
        span.depth = depth
        span.after = keys[-1] if keys else b""
        span.check = None if is_complete else check
        if span.node.level == 1:
            lacking = self._lacking(nodes)
            span.lacks |= bool(lacking)
            missing = self._wanted(lacking)
            self._missing += len(missing)
            span.missing = [*(span.missing or ()), *missing]
        else:
            known = [*([] if span.last is None else [span.last]), *nodes]
            span.last = None if is_complete else known.pop()
            differing = self._tree.differing(Nodes(known), span.end if span.last is None else span.last.key)
            span.complete += [node for node, _ in differing if node in self._config.complete]
            found = [self._discover(node, end, depth) for node, end in differing if node not in self._config.complete]
            span.children = deque([*(span.children or ()), *found])
        if not is_complete:
            self._push(span)

    def _wanted(self, missing: list[bytes]) -> list[bytes]:
        """Return those of the keys whose values are to be asked for."""
        skip = self._config.skip
        if not skip:
            return missing
        room = _MOST_SKIPPED - len(self._skipped)
        self._skipped += itertools.islice((key for key in missing if key in skip), room)
        return [key for key in missing if key not in skip]

    def _remember(self, parent: Node, children: Nodes) -> None:
        if parent in self._known:
            self._known.move_to_end(parent)
            return
        self._known[parent] = children
        self._known_children += len(children)
        while self._known_children > _MOST_KNOWN:
            self._known_children -= len(self._known.popitem(last=False)[1])

    def _lacking(self, leaves: Nodes) -> list[bytes]:
        """Return the keys of the leaves that the local log lacks."""
        keys = leaves.keys
        if len(self._tree):
            stored = [leaf for start, end in self._local_spans(keys) for leaf in self._local.leaves(start, end)]
            try:
                keys = leaves.lacking(stored)
            except TreeError as error:
                for start, _ in self._local_spans(keys):
                    # Before the server is blamed: this raises TreeError where the local leaves are damaged.
                    self._tree.node(0, start, self._local.leaves)
                raise ProtocolError(str(error)) from error
        return keys

    def _local_spans(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """For each local node of level 1 whose range holds some of the keys, the first of them and the range's end.

        A server with few messages has few nodes, with keys far apart: what is between their nodes is not read.
        """
        index = 0
        while index < len(keys):
            end = self._tree.next_key(1, keys[index])
            # Of a node with very many leaves, those that are compared with a part alone.
            last = keys[-1] + b"\0"
            yield keys[index], last if self._config.parts and (end is None or last < end) else end
            index = len(keys) if end is None else bisect_left(keys, end, index)

    def _walk(self) -> None:
        """Move in the order of keys over what is answered, and collect the keys whose values are wanted."""
        path = self._path
        while path:
            span = path[-1]
            if span.missing is not None:
                self._to_request.extend(span.missing)
                self._to_request_depth = max(self._to_request_depth, span.depth)
                self._has_path = True
                self._passed += bool(span.missing)
                span.missing = None
                if span.check is not None:
                    return
                self._leave()
            elif span.children:
                path.append(span.children.popleft())
            elif span.children is not None and span.check is None:
                self._leave()
            else:
                return

    def _leave(self) -> None:
        """Take the last node off the path, and note whether the local log has every leaf below it."""
        span = self._path.pop()
        self._complete_found += not span.lacks
        if not span.lacks:
            self._known_children -= len(self._known.pop(span.node, ()))
        found = span.complete if span.lacks else [span.node]
        if self._path:
            self._path[-1].lacks |= span.lacks
            self._path[-1].complete += found
        else:
            self._complete = found

    # Batches

    def _hand_out(self) -> Iterator[Event]:
        if self._batch_keys:
            keys, values = self._batch_keys, self._batch_values
            self._batch_keys, self._batch_values, self._batch_bytes = [], [], 0
            yield Received(keys, values, self._topic)


def _describe(request: wire.Request) -> str:
    match request:
        case wire.GetRoot():
            return "its root"
        case wire.GetNode(level, key):
            return _name(level, key)
        case wire.GetChildren(level, key):
            return f"the children of {_name(level, key)}"
        case wire.GetValues([key]):
            return f"message {encode_id(key)}"
        case wire.GetValues(keys):
            return f"{len(keys)} messages from {encode_id(keys[0])} to {encode_id(keys[-1])}"


def _name(level: int, key: bytes | None) -> str:
    return f"node ({level}, {'null' if key is None else encode_id(key)})"
