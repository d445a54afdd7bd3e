"""The addresses that clients come from, and their limits.

They limit how many connections each address may have and open, and for how long one that broke a rule is not let in.
Identities cost nothing, addresses do.

A web page can have its visitor's browser break a rule, at the visitor's address. So for what a page does, that page at
that address is paused, and not what else is there (docs/security.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias

import anyio

from gossiplog.net.rate_limited_log import keep_latest
from gossiplog.reprs import counted

if TYPE_CHECKING:
    from starlette.types import Scope

UNIX = "a Unix socket"
UNKNOWN = "an unknown address"
"""One source for all clients whose address cannot be read, and no privileged one."""
USUAL_CONNECTIONS = 32
"""From one address, where nothing else is said; from a loopback address any number."""
RENEWAL_SECONDS = 10.0
"""In which an address may open as many connections again as it may open at once. What ends at once costs a hub most."""
FIRST_PAUSE = 10.0
"""Seconds for which an address is not let in after it broke a rule. Each further time they are twice as many."""
LONGEST_PAUSE = 600.0
# After this long without breaking a rule, the next pause is the first one again.
_FORGIVING_SECONDS = 3600.0
# Sums of the clock's floats differ by less.
_SLACK = 1e-6
# Addresses whose reading need not be repeated: each connection asks some times.
_MOST_CACHED = 1024
# What one customer of a provider has.
_IPV6_PREFIX = 64

Network: TypeAlias = IPv4Network | IPv6Network


def host_of(scope: Scope) -> str | None:
    """Return the address of a client; None for one without, as on a Unix socket."""
    client = scope.get("client")
    return None if client is None else str(client[0])


@lru_cache(_MOST_CACHED)
def source_of(host: str | None) -> str:
    """Return what connections are counted by.

    Args:
        host: that an ASGI server, or a proxy, says a client is at; None for a client without one.

    Returns:
        An IPv4 address, or the /64 network of an IPv6 address. UNIX for a client without a host: it came by a Unix
        socket, and the permissions of that file say who may. UNKNOWN for all else, such as a proxy's "unknown".
    """
    if host is None:
        return UNIX
    try:
        address = ip_address(host)
    except ValueError:
        return UNKNOWN
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return str(ip_network((int(address), _IPV6_PREFIX), strict=False))
    return str(address)


def limit_of(source: str, limit: int | None) -> int | None:
    """Return how many connections an address may have; None for any number.

    Args:
        source: as `source_of` gives it.
        limit: of every address; None for the usual one, and none for loopback addresses. A Unix socket has none.
    """
    if source == UNIX:
        return None
    return limit if limit is not None else None if is_local(source) else USUAL_CONNECTIONS


@lru_cache(_MOST_CACHED)
def is_local(source: str) -> bool:
    """Return whether connections come from this machine: from programs on it, or a proxy with others behind it.

    So they are never paused, and what one does is not held against the others.
    """
    if source in (UNIX, UNKNOWN):
        return source == UNIX
    return ip_network(source).is_loopback


def culprit_of(host: str | None, page: str) -> str:
    """Return who is not let in after what a client did: its address, or a page at that address; "" if it is local."""
    source = source_of(host)
    return "" if is_local(source) else f"{source} {page}".rstrip()


def read_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Read addresses and networks, such as 10.0.0.0/8.

    Raises:
        ValueError: a text that is neither.
    """
    return tuple(ip_network(text) for text in texts)


def is_within(host: str, networks: Sequence[Network]) -> bool:
    """Return whether an address is in one of the networks."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client is not let in.

    Attributes:
        kind: "address", "banned" or "rate", as in `gossiplog.net.replicator.telemetry.REFUSALS`.
        reason: for people.
        seconds: after which it is worth trying again.
    """

    kind: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Pause:
    since: float
    seconds: float


class Rates:
    """How often, or how much, each address may do something: some at once, and as much again in RENEWAL_SECONDS.

    It is GCRA (ITU-T I.371, Annex A), which keeps one number for an address. The renewal begins with the first time: so
    the first RENEWAL_SECONDS let nearly twice as many through.

    Args:
        clock: seconds, on a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # When an address that does nothing more may do all at once again. The latest last.
        self._renewals: dict[str, float] = {}

    def wait(self, source: str, burst: int) -> float:
        """Return the seconds that an address has to wait; 0.0 if it may go on.

        Args:
            source: as `source_of` gives it.
            burst: how often it may at once.
        """
        now = self._clock()
        seconds = self._renewal(source, burst, now) - now - RENEWAL_SECONDS
        return seconds if seconds > _SLACK else 0.0

    def count(self, source: str, burst: int, amount: int = 1) -> None:
        """Note that an address did it, once or so much of it, whether it had to wait or not."""
        keep_latest(self._renewals, source, self._renewal(source, burst, self._clock(), amount))

    def _renewal(self, source: str, burst: int, now: float, amount: int = 1) -> float:
        return max(self._renewals.get(source, now), now) + RENEWAL_SECONDS * amount / burst


class Addresses:
    """Counts connections by the addresses that they come from, and limits how often each opens one or guesses a token.

    Args:
        limit: of connections from one address; None for USUAL_CONNECTIONS, and for loopback addresses any number. As
            many, and USUAL_CONNECTIONS at least, may be opened at once, and as many again in RENEWAL_SECONDS. So may
            requests with a wrong token be made.
        clock: seconds, on a clock that never goes back.
    """

    def __init__(self, limit: int | None = None, clock: Callable[[], float] = anyio.current_time) -> None:
        self._limit = limit
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._opened = Rates(clock)
        # Apart from connections, which an address may open often for other reasons: many clients behind it that come
        # back at once, or a page that its visitor did not choose. A page that is not allowed cannot show a token.
        self._wrong_tokens = Rates(clock)
        # The latest last.
        self._pauses: dict[str, _Pause] = {}
        # By culprit. Apart from the others, since a program can claim to be any number of pages.
        self._page_pauses: dict[str, _Pause] = {}

    def refusal(self, host: str | None, page: str = "") -> Refusal | None:
        """Return the reason why a client at an address is not let in now, or None.

        Args:
            host: of the client.
            page: that opened the connection (`Access._page`); "" for a program that is no browser.
        """
        source = source_of(host)
        for pause, who in (
            (self._pauses.get(source), "a client there"),
            (self._page_pauses.get(culprit_of(host, page)) if page else None, "this page there"),
        ):
            # Rounded, because the sum of the clock's floats may be a trifle above whole seconds.
            if pause is not None and (left := round(pause.since + pause.seconds - self._clock(), 3)) > 0:
                return Refusal("banned", f"{source} is let in again in {left:.0f} s: {who} broke a rule", left)
        limit = limit_of(source, self._limit)
        if limit is None:
            return None
        if self._counts[source] >= limit:
            return Refusal("address", f"{source} has its {counted(limit, 'connection')}: close one first", FIRST_PAUSE)
        if seconds := self._opened.wait(source, _burst(limit)):
            burst = _burst(limit)
            reason = (
                f"{source} may open {burst} connections at once, and then {burst} in {RENEWAL_SECONDS:g} s:"
                f" wait {seconds:.1f} s"
            )
            return Refusal("rate", reason, seconds)
        return None

    def token_refusal(self, host: str | None) -> Refusal | None:
        """Return the reason why no request with a token is answered at an address now, or None.

        A right token is refused, too: otherwise the answers would show which one is right.
        """
        source = source_of(host)
        limit = limit_of(source, self._limit)
        if limit is None or not (seconds := self._wrong_tokens.wait(source, _burst(limit))):
            return None
        reason = f"too many requests of {source} had a wrong token: show one again in {seconds:.1f} s"
        return Refusal("rate", reason, seconds)

    def count_wrong_token(self, host: str | None) -> None:
        """Note that a request had a token that is not valid."""
        source = source_of(host)
        if (limit := limit_of(source, self._limit)) is not None:
            self._wrong_tokens.count(source, _burst(limit))

    @contextmanager
    def connected(self, host: str | None) -> Iterator[None]:
        """Count a connection for the time of the context, whether or not it is let in meanwhile."""
        source = source_of(host)
        if (limit := limit_of(source, self._limit)) is not None:
            self._opened.count(source, _burst(limit))
        self._counts[source] += 1
        try:
            yield
        finally:
            self._counts[source] -= 1
            if not self._counts[source]:
                del self._counts[source]

    def shun(self, host: str | None, page: str = "") -> None:
        """Pause who broke a rule, an address or a page at that address, unless the address is local."""
        culprit = culprit_of(host, page)
        if not culprit:
            return
        pauses = self._page_pauses if page else self._pauses
        now, before = self._clock(), pauses.get(culprit)
        seconds = FIRST_PAUSE
        if before is not None and now - before.since < _FORGIVING_SECONDS:
            seconds = min(2 * before.seconds, LONGEST_PAUSE)
        keep_latest(pauses, culprit, _Pause(now, seconds))


def _burst(limit: int) -> int:
    """Return how many connections an address may open at once that may have `limit` of them."""
    return max(limit, USUAL_CONNECTIONS)
