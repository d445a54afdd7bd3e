"""What happens in a network, as a dashboard shows it and a recording keeps it; one JSON object for each event.

Reporters are real peers, simulated ones, or a test. Nothing here knows what a peer is made of. Times
are seconds since the network began, by the reporter's clock. Peers are named by any short text, the same in all events.

What a reporter leaves out the picture lacks, and nothing else: every event may come twice, and an event about a peer
that was not added adds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from gossiplog.errors import DecodeError
from gossiplog.reprs import escaped, frozen, without_bidi

MOST_NAME = 200
"""Characters of a peer's name, of its label, or of a message's id."""
MOST_TEXT = 1000
"""Characters of a reason or a note; what is longer is cut."""
MOST_HEADS = 16
"""Heads that an event names."""
MOST_GROUPED = 10_000
"""Groups of a partition, and peers in one."""
MOST_RATE = 10_000.0
"""Messages that a network appends by itself in a second, or peers that stop."""

Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=MOST_NAME)]
Text: TypeAlias = Annotated[str, StringConstraints(max_length=MOST_TEXT)]
Optional: TypeAlias = Annotated[str, StringConstraints(max_length=MOST_NAME)]
Hex: TypeAlias = Annotated[str, StringConstraints(max_length=128, pattern="^(?:[0-9a-f]{2})*$")]
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
# JavaScript's numbers are whole up to here.
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**53 - 1)]
Group: TypeAlias = Annotated[tuple[Name, ...], Field(max_length=MOST_GROUPED)]

PeerKind: TypeAlias = Literal["peer", "hub", "client", "bootstrap", "browser"]
"""What a peer is: a `bootstrap` holds no log; a `browser` is canvas-js in a page."""
Link: TypeAlias = Literal["none", "mesh", "lazy", "fanout"]
"""How a peer uses a connection: full messages go over `mesh` (gossipsub's mesh, episub's eager links), announcements
alone over `lazy`, and over `fanout` the messages of a topic that the peer is not in. `none`: it is only connected."""
Way: TypeAlias = Literal["gossip", "push", "sync"]
"""By which a message came."""


class _Strict:
    """Says how pydantic reads the events."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")


def _cut(event: object, name: str) -> None:
    """Make a text that others may have written one that can be written and read again: short, without surrogates.

    It is not shown turned around either.
    """
    text = without_bidi(getattr(event, name))
    if len(text) > MOST_TEXT:
        text = text[: MOST_TEXT - 1] + "…"
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    object.__setattr__(event, name, text)


@frozen
class PeerAdded(_Strict):
    """There is a new peer, which runs.

    Attributes:
        at: seconds since the network began; so in all events.
        peer: its name.
        label: what is shown of it, such as its number.
        kind: what it is.
        agent: what it runs, such as the name of its router; "" where that goes without saying.
    """

    at: Seconds
    peer: Name
    label: Name
    kind: PeerKind = "peer"
    agent: Optional = ""
    event: Literal["peer_added"] = "peer_added"


@frozen
class PeerRemoved(_Strict):
    """A peer is gone for good, with its connections."""

    at: Seconds
    peer: Name
    event: Literal["peer_removed"] = "peer_removed"


@frozen
class PeerStarted(_Strict):
    """A peer that had stopped runs again."""

    at: Seconds
    peer: Name
    event: Literal["peer_started"] = "peer_started"


@frozen
class PeerStopped(_Strict):
    """A peer has stopped; its connections have ended, its log stays."""

    at: Seconds
    peer: Name
    event: Literal["peer_stopped"] = "peer_stopped"


@frozen
class Connected(_Strict):
    """Two peers are connected; either may report it, or both."""

    at: Seconds
    peer: Name
    other: Name
    event: Literal["connected"] = "connected"


@frozen
class Disconnected(_Strict):
    """Two peers are no longer connected; either may report it, or both. Neither has a link to the other any more."""

    at: Seconds
    peer: Name
    other: Name
    event: Literal["disconnected"] = "disconnected"


@frozen
class LinkChanged(_Strict):
    """A peer uses its way to another differently: GRAFT and PRUNE, as `peer` sees them.

    Attributes:
        at: seconds.
        peer: whose mesh, or fan-out, it is.
        other: that belongs to it, or no longer does.
        link: from now on.
    """

    at: Seconds
    peer: Name
    other: Name
    link: Link
    event: Literal["link_changed"] = "link_changed"


@frozen
class Published(_Strict):
    """A peer has appended a message of its own.

    Attributes:
        at: seconds.
        peer: its author.
        message: its id.
        text: of its payload, for the log of events; "" where it is not known.
    """

    at: Seconds
    peer: Name
    message: Name
    text: Text = ""
    event: Literal["published"] = "published"

    def __post_init__(self) -> None:
        _cut(self, "text")


@frozen
class Committed(_Strict):
    """A peer's log has changed, or is reported for the first time.

    Attributes:
        at: seconds.
        peer: whose log it is.
        messages: how many it has.
        root: hash of the tree over them, in hexadecimal; equal roots are equal logs.
        heads: ids of its heads, the first MOST_HEADS of them.
        clock: of the next message.
        inserted: how many are new since the event before.
    """

    at: Seconds
    peer: Name
    messages: Count
    root: Hex
    heads: Annotated[tuple[Name, ...], Field(max_length=MOST_HEADS)] = ()
    clock: Count = 0
    inserted: Count = 0
    event: Literal["committed"] = "committed"

    def __post_init__(self) -> None:
        if len(self.heads) > MOST_HEADS:
            object.__setattr__(self, "heads", tuple(self.heads[:MOST_HEADS]))


@frozen
class Delivered(_Strict):
    """A message that a peer lacked has come from another.

    Attributes:
        at: seconds.
        peer: that has it now.
        message: its id.
        source: the peer that sent it.
        by: the way it came.
        latency: seconds since it was published; None where that is not known.
    """

    at: Seconds
    peer: Name
    message: Name
    source: Name
    by: Way = "gossip"
    latency: Seconds | None = None
    event: Literal["delivered"] = "delivered"


@frozen
class Duplicated(_Strict):
    """A message has come in full to a peer that had it: a redundant copy.

    Attributes:
        at: seconds.
        peer: that had it.
        message: its id.
        source: the peer that sent it.
    """

    at: Seconds
    peer: Name
    message: Name
    source: Name
    event: Literal["duplicated"] = "duplicated"


@frozen
class SyncStarted(_Strict):
    """A peer has begun to take from another what it lacks.

    Attributes:
        at: seconds.
        peer: that takes.
        source: that is asked.
    """

    at: Seconds
    peer: Name
    source: Name
    event: Literal["sync_started"] = "sync_started"


@frozen
class SyncEnded(_Strict):
    """A sync has ended.

    Attributes:
        at: seconds.
        peer: that took.
        source: that was asked.
        inserted: messages that it brought.
        error: why it is not complete; "" where it is.
    """

    at: Seconds
    peer: Name
    source: Name
    inserted: Count = 0
    error: Text = ""
    event: Literal["sync_ended"] = "sync_ended"

    def __post_init__(self) -> None:
        _cut(self, "error")


@frozen
class Refused(_Strict):
    """A peer refuses a message, or rejects another peer.

    Attributes:
        at: seconds.
        peer: that refuses.
        reason: why.
        message: the message's id; "" where it is a peer that is rejected.
        source: the peer that it came from, or that is rejected; "" where it is not known.
    """

    at: Seconds
    peer: Name
    reason: Text
    message: Optional = ""
    source: Optional = ""
    event: Literal["refused"] = "refused"

    def __post_init__(self) -> None:
        _cut(self, "reason")


@frozen
class TrafficCounted(_Strict):
    """What a peer has sent and received so far.

    Attributes:
        at: seconds.
        peer: which.
        bytes_sent: since it last started.
        bytes_received: likewise.
    """

    at: Seconds
    peer: Name
    bytes_sent: Count
    bytes_received: Count
    event: Literal["traffic_counted"] = "traffic_counted"


@frozen
class Partitioned(_Strict):
    """The network is cut into groups; a peer in none is alone in its own."""

    at: Seconds
    groups: Annotated[tuple[Group, ...], Field(max_length=MOST_GROUPED)]
    event: Literal["partitioned"] = "partitioned"


@frozen
class Healed(_Strict):
    """The network is whole again."""

    at: Seconds
    event: Literal["healed"] = "healed"


@frozen
class RateChanged(_Strict):
    """Messages are appended by themselves at another rate.

    Attributes:
        at: seconds.
        rate: messages a second in the whole network; 0 for none.
    """

    at: Seconds
    rate: Annotated[float, Field(ge=0, le=MOST_RATE, allow_inf_nan=False)]
    event: Literal["rate_changed"] = "rate_changed"


@frozen
class Noted(_Strict):
    """Something else is worth a line in the log of events.

    Attributes:
        at: seconds.
        text: the line.
        peer: whom it concerns; "" for the network.
    """

    at: Seconds
    text: Text
    peer: Optional = ""
    event: Literal["noted"] = "noted"

    def __post_init__(self) -> None:
        _cut(self, "text")


Event: TypeAlias = (
    PeerAdded
    | PeerRemoved
    | PeerStarted
    | PeerStopped
    | Connected
    | Disconnected
    | LinkChanged
    | Published
    | Committed
    | Delivered
    | Duplicated
    | SyncStarted
    | SyncEnded
    | Refused
    | TrafficCounted
    | Partitioned
    | Healed
    | RateChanged
    | Noted
)
KINDS: tuple[type[Any], ...] = get_args(Event)
"""The class of each event."""

_ONE: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])
_MANY: TypeAdapter[Sequence[Event]] = TypeAdapter(Sequence[Annotated[Event, Field(discriminator="event")]])


def to_json(event: Event) -> bytes:
    """Return an event as a JSON object, on one line."""
    return _ONE.dump_json(event)


def all_to_json(events: Sequence[Event]) -> bytes:
    """Return events as a JSON list, on one line."""
    return _MANY.dump_json(events)


def as_objects(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return events as values for JSON."""
    objects: list[dict[str, Any]] = _MANY.dump_python(list(events), mode="json")
    return objects


def from_json(text: bytes | str) -> Event:
    """Return the event that a JSON object stands for; what came from outside may be anything.

    Raises:
        DecodeError: it is no such object; the words say what is wrong with it, and show no more than a little of it.
    """
    try:
        return _ONE.validate_json(text)
    except ValidationError as error:
        raise DecodeError(f"no event of a dashboard: {_reason(error)}") from error


def _reason(error: ValidationError) -> str:
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    # Names of fields and tags are the input's.
    place = ".".join(str(part) for part in first["loc"])
    text = f"{place}: {first['msg']}" if place else first["msg"]
    text = text if len(text) <= MOST_NAME else text[: MOST_NAME - 1] + "…"
    return escaped(f"{text} (and {len(others)} more)" if others else text)
