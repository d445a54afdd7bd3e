"""What floodsub and gossipsub have in common: packets, as values, and the cache of message ids.

Source: the libp2p pubsub interface (https://github.com/libp2p/specs/blob/master/pubsub/README.md) and gossipsub 1.0
(gossipsub-v1.0.md beside it). `wire` has the bytes of packets; a simulation needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import filterfalse
from typing import Any, TypeAlias, cast

MessageId: TypeAlias = Hashable
"""Of a message: bytes, where packets go over a network."""

FLOODSUB = "/floodsub/1.0.0"
GOSSIPSUB = "/meshsub/1.0.0"

_SHOWN = 16  # bytes: the 6 that begin all peer ids of Ed25519, and enough to distinguish them


class _Terse:
    """Values whose text, which stands in traces, leaves out what is empty, and the most of long bytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        named = ((field.name, getattr(self, field.name)) for field in fields(cast(Any, self)))
        return f"{type(self).__name__}({', '.join(f'{name}={_text(value)}' for name, value in named if value)})"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value[:_SHOWN].hex() + "…" * (len(value) > _SHOWN)
    return repr(value)


@dataclass(frozen=True, slots=True, repr=False)
class Message(_Terse):
    """A message, as its author published it.

    Attributes:
        topics: that it was published to, as its author wrote them; one at least, seldom more.
        data: for the application.
        author: the peer id of who published it; None where authors are not named.
        seqno: 8 bytes, the author's sequence number, big-endian; None likewise.
        signature: the author's, 64 bytes; None where messages are not signed.
        key: the author's public key as libp2p writes it; None where the peer id contains it.
    """

    topics: tuple[str, ...]
    data: bytes
    author: bytes | None = None
    seqno: bytes | None = None
    signature: bytes | None = None
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """The sender is in a topic from now on, or no longer."""

    topic: str
    subscribe: bool


@dataclass(frozen=True, slots=True)
class IHave:
    """The sender can be asked for messages of a topic."""

    topic: str
    ids: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Control(_Terse):
    """What gossipsub peers send each other.

    Attributes:
        ihave: what the sender has seen.
        iwant: ids of messages that the sender asks for.
        graft: topics in whose mesh the sender has the receiver now.
        prune: topics in whose mesh it has the receiver no longer.
    """

    ihave: tuple[IHave, ...] = ()
    iwant: tuple[MessageId, ...] = ()
    graft: tuple[str, ...] = ()
    prune: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Rpc(_Terse):
    """A packet.

    Attributes:
        messages: to be processed before `control`.
        subscriptions: changes of the sender's, in their order; to be processed before all else.
        control: None where there is nothing to send.
        extension: what a router that extends gossipsub adds, for its like to understand.
    """

    messages: tuple[Message, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    control: Control | None = None
    extension: tuple[Any, ...] = ()

    @property
    def is_message(self) -> bool:
        """Whether it is one message, and nothing else."""
        return len(self.messages) == 1 and self.control is None and not self.subscriptions and not self.extension


def merge(packets: Sequence[Rpc]) -> Rpc:
    """One packet in the place of several, with what they say in their order.

    Args:
        packets: one at least.
    """
    if len(packets) == 1:
        return packets[0]
    controls = [packet.control for packet in packets if packet.control is not None]
    return Rpc(
        _joined(packet.messages for packet in packets),
        _joined(packet.subscriptions for packet in packets),
        _merge_controls(controls) if controls else None,
        _joined(packet.extension for packet in packets),
    )


def _merge_controls(controls: Sequence[Control]) -> Control:
    return Control(
        _joined(control.ihave for control in controls),
        _joined(control.iwant for control in controls),
        _joined(control.graft for control in controls),
        _joined(control.prune for control in controls),
    )


def _joined(parts: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(item for part in parts for item in part)


class Seen:
    """Ids, each for a time after it was first seen: copies do not prolong it [go: FirstSeenCacheStrategy].

    The time passes with `expire`: a router asks about ids far more often than any is forgotten.

    Args:
        ttl: seconds.
        limit: ids; the oldest go first. Only who is flooded reaches it.

    Attributes:
        has: whether an id is seen. It is the dictionary's own method, since this is asked for each copy of a message.
    """

    __slots__ = ("_limit", "_times", "_ttl", "has")

    def __init__(self, ttl: float, limit: int) -> None:
        self._ttl = ttl
        self._limit = limit
        # In the order in which they were first seen.
        self._times: dict[MessageId, float] = {}
        self.has: Callable[[MessageId], bool] = self._times.__contains__

    def __len__(self) -> int:
        return len(self._times)

    def unseen(self, ids: Iterable[MessageId]) -> list[MessageId]:
        """Return those ids that are not seen."""
        return list(filterfalse(self.has, ids))

    def add(self, id: MessageId, now: float) -> None:
        """Note an id that was not seen before."""
        times = self._times
        times[id] = now
        if len(times) > self._limit:
            del times[next(iter(times))]

    def expire(self, now: float) -> None:
        """Forget what was seen too long ago."""
        times = self._times
        while times and now - times[oldest := next(iter(times))] >= self._ttl:
            del times[oldest]
