"""A refusals stream: the side that refuses messages names them, with reasons, to the peer that has them.

This protocol is this package's own; canvas-js has none like it. The rules, from the wire format, "Refusals":

1. The side that refuses messages opens the stream once it has some to name, and writes. The other side reads, and
   writes nothing.
2. A message is named once on a connection, with the reason, in the order of the refusals, and only to a peer that sent
   or advertised it.
3. What is written is bounded: MOST_NAMED messages are named on a connection, MOST_IN_FRAME in a frame, and further ones
   are counted. A reason has MOST_REASON bytes of UTF-8; a longer one is cut between two characters and ends with "…".
4. A frame follows the one before after INTERVAL seconds at least.
5. Violations raise ProtocolError, after what was read before them: a frame above MAX_FRAME bytes, bytes that are no
   such message, a message that names nothing and counts no more than the one before, a count that falls, a key that
   does not begin with a clock, a key that was named before on the stream, more keys than MOST_NAMED, a longer reason.
6. Reasons are a stranger's text, for terminals and logs: what does not print is handed out escaped.

A driver takes what has come, and then nothing for INTERVAL seconds, so that a writer that does not obey rule 4 waits. A
reason is what the peer says, no more: who reads it acts on it for that peer alone.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from gossiplog.core import decode_clock
from gossiplog.errors import DecodeError, ProtocolError
from gossiplog.protocol import wire
from gossiplog.reprs import escaped, frozen

MOST_NAMED = 256
"""Messages that are named on a connection."""
MOST_IN_FRAME = 32
"""Messages that are named in a frame."""
MOST_REASON = 256
"""Bytes of a reason, in UTF-8."""
MAX_FRAME = 2**14
"""Bytes in a frame."""
INTERVAL = 1.0
"""Seconds from a frame to the next."""

_CUT = "…"


@frozen
class Refused:
    """The peer refuses messages.

    Attributes:
        refused: (key, reason) of those that are named for the first time.
        more: how many it refuses beside all that it has named.
    """

    refused: tuple[tuple[bytes, str], ...]
    more: int


class RefusalWriter:
    """The writing side of a refusals stream.

    Attributes:
        named: the reasons by key, of the messages that are named on the connection.
    """

    def __init__(self) -> None:
        self.named: dict[bytes, str] = {}
        # Those that are counted only, as far as they are remembered; one that is refused again may count again.
        self._unnamed: dict[bytes, None] = {}
        self._more = 0
        self._said = 0
        self._waiting: deque[tuple[bytes, str]] = deque()
        self._next = -math.inf

    def refuse(self, key: bytes, reason: str) -> None:
        """Note that a message of the peer's is refused."""
        if key in self.named or key in self._unnamed:
            return
        if len(self.named) < MOST_NAMED:
            self.named[key] = _cut(reason)
            self._waiting.append((key, self.named[key]))
            return
        self._more = min(self._more + 1, 2**32 - 1)
        self._unnamed[key] = None
        if len(self._unnamed) > MOST_NAMED:
            del self._unnamed[next(iter(self._unnamed))]

    @property
    def due(self) -> float:
        """When the next frame may be written; infinity while there is nothing to say."""
        return self._next if self._waiting or self._more > self._said else math.inf

    def next(self, now: float) -> bytes:
        """Return the next frame; b"" where none is due yet."""
        if now < self.due:
            return b""
        refused = [self._waiting.popleft() for _ in range(min(MOST_IN_FRAME, len(self._waiting)))]
        self._said = self._more
        self._next = now + INTERVAL
        return wire.encode_refusals(wire.Refusals(refused, self._more))


class RefusalReader:
    """The reading side of a refusals stream."""

    def __init__(self) -> None:
        self._frames = wire.FrameReader(MAX_FRAME)
        self._named: set[bytes] = set()
        self._more = 0

    @property
    def held(self) -> int:
        """Bytes in memory that came from the peer and are not a whole frame yet."""
        return self._frames.held

    def receive(self, data: bytes) -> Iterator[Refused]:
        """Take the next bytes of the stream; they are processed as the events are taken, so take all.

        Raises:
            ProtocolError: the peer broke a rule (see the module, and `wire`).
        """
        self._frames.feed(data)
        while (frame := self._frames.next()) is not None:
            message = wire.decode_refusals(frame)
            for key, reason in message.refused:
                self._check(key, reason)
            if message.more < self._more:
                raise ProtocolError(f"{message.more} further refused messages after {self._more}")
            if not message.refused and message.more == self._more:
                raise ProtocolError("a message that names no refused message, and counts none")
            self._more = message.more
            yield Refused(tuple((key, escaped(reason)) for key, reason in message.refused), message.more)

    def _check(self, key: bytes, reason: str) -> None:
        try:
            decode_clock(key)
        except DecodeError as error:
            raise ProtocolError(f"the key of a refused message, {key.hex()}, has no clock: {error}") from error
        if key in self._named:
            raise ProtocolError(f"the refused message {key.hex()} is named twice")
        if len(self._named) >= MOST_NAMED:
            raise ProtocolError(f"more than {MOST_NAMED} refused messages are named")
        if (size := len(reason.encode())) > MOST_REASON:
            raise ProtocolError(f"a reason of {size} bytes; at most {MOST_REASON} are accepted")
        self._named.add(key)


def _cut(reason: str) -> str:
    encoded = reason.encode("utf-8", "replace")
    if len(encoded) <= MOST_REASON:
        return encoded.decode()
    return encoded[: MOST_REASON - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT
