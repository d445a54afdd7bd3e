"""What the peers of a hub, or of a client, may use: one value for the server, the hub and the network below them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from gossiplog.checks import check_number, check_whole

SMALLEST_PEER_BYTES = 8 * 2**20
"""What an honest peer may need: a message of 4 MiB that is not whole yet, windows of yamux, and their growth."""
_MOST_STREAMS = 2**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of connections, streams and memory.

    Bytes count as long as they are kept for a peer: what it sent and was not read, what is not a whole message yet, and
    answers that it does not take. A peer that exceeds its own limit is blamed and dropped. When all peers together
    exceed theirs, the one for which most is kept is disconnected without blame, and may come again. What a hub keeps
    for requests over HTTP counts with the peers' bytes; it may be a fourth of the total.

    Attributes:
        connections: peers at a time.
        connections_per_address: those of them from one address, or from one network of 64 bits of IPv6. None for 32,
            and for any number from loopback addresses, where a proxy may have others behind it.
        streams: that either side may have open on a connection.
        peer_bytes: kept for one peer, on all its streams. A quarter of it is what yamux's windows may grow by.
        total_bytes: kept for all peers together, and for requests over HTTP.
        negotiation_seconds: in which a new stream must agree on a protocol.
        closing_seconds: in which a peer must take what was written, and end its own side, once this side closes a
            connection or a stream.

    Raises:
        TypeError: a limit that is no number, or a fraction of a connection, a stream or a byte.
        ValueError: a limit that nothing could work with.

    Examples:
        >>> gossiplog.Hub(log, limits=gossiplog.Limits(connections=100, peer_bytes=2**24))
        <Hub ...>
    """

    connections: int = 1024
    connections_per_address: int | None = None
    streams: int = 32
    peer_bytes: int = 32 * 2**20
    total_bytes: int = 256 * 2**20
    negotiation_seconds: float = 10.0
    closing_seconds: float = 5.0

    @property
    def request_bytes(self) -> int:
        """Bytes of the total that requests over HTTP may keep."""
        return self.total_bytes // 4

    def __post_init__(self) -> None:
        check_whole(self)
        for name in (field.name for field in fields(self)):
            if (value := getattr(self, name)) is not None or name != "connections_per_address":
                check_number(name, value)
        if self.connections < 1:
            raise ValueError(f"a limit of {self.connections} connections: expected 1 or more")
        if self.connections_per_address is not None and self.connections_per_address < 1:
            raise ValueError(f"a limit of {self.connections_per_address} connections an address: expected 1 or more")
        if not 1 <= self.streams <= _MOST_STREAMS:
            raise ValueError(f"a limit of {self.streams} streams: expected 1 to {_MOST_STREAMS}")
        if self.peer_bytes < SMALLEST_PEER_BYTES:
            raise ValueError(f"a limit of {self.peer_bytes} bytes a peer: expected {SMALLEST_PEER_BYTES} or more")
        if self.total_bytes < self.peer_bytes:
            raise ValueError(f"a limit of {self.total_bytes} bytes in all: expected those of one peer or more")
        for name in ("negotiation_seconds", "closing_seconds"):
            seconds = getattr(self, name)
            if not 0 < seconds < math.inf:
                raise ValueError(f"{name} of {seconds}: expected a number above 0")
