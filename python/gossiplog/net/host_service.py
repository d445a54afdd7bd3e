"""What a peer and a bootstrap node are alike in: a host of a libp2p network, for as long as they run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import ClassVar, TypeAlias

import anyio

from gossiplog._core import check_peer_id
from gossiplog.errors import NetworkError
from gossiplog.net.service import Service
from gossiplog.net.transport.host import Host
from gossiplog.net.transport.stream import Signal
from gossiplog.signer import PRIVATE_KEY_LENGTH, Signer

LISTEN = ("/ip4/127.0.0.1/tcp/0/ws",)
"""Where a host listens by default: on this machine alone, on a port that is free, in the way that all peers speak."""

Identity: TypeAlias = "bytes | str | os.PathLike[str] | None"
"""The seed of an Ed25519 key, 32 bytes; the file that holds one, made if it is not there; None for a new one.

Examples:
    >>> gossiplog.Peer(log, identity="peer.key")
    <Peer ...>
"""

# For the system to give all listeners their addresses.
_LISTENING_SECONDS = 10.0


class HostService(Service):
    """A service around a host, which is there while it runs."""

    _WHO: ClassVar[str]
    """What errors call it."""

    def __init__(self) -> None:
        super().__init__()
        self._host: Host | None = None
        # Addresses to listen on.
        self._listeners = 0
        # Last, by the application.
        self._dialled = ""
        self._blocked: set[str] = set()
        self._failures: list[str] = []
        self._listening = Signal()

    @property
    def peer_id(self) -> str:
        """By which others know it, in base58: `12D3Koo…`.

        Raises:
            RuntimeError: it is not running.
        """
        return self._running_host.peer_id

    @property
    def addresses(self) -> tuple[str, ...]:
        """Multiaddrs by which others reach it, with the peer id at their end.

        Raises:
            RuntimeError: it is not running.
        """
        return tuple(self._running_host.addresses)

    @property
    def blocked(self) -> tuple[str, ...]:
        """The ids of the peers that are blocked, ascending."""
        return tuple(sorted(self._blocked))

    async def dial(self, address: str) -> None:
        """Connect to a peer, unless it is connected. Waits until the connection stands.

        Args:
            address: a multiaddr, with or without the peer id at its end.

        Raises:
            ConnectionLost: it cannot be reached, or is another peer than the address says.
            NetworkError: too many connections, or an address that is none.
            RuntimeError: this side is not running.
        """
        await self._running_host.dial(address)
        self._dialled = address

    def block(self, peer_id: str) -> None:
        """Disconnect from a peer, and refuse connections with it, dialled by either side, until it is unblocked.

        What it has sent before stays in the log, and what it writes may still come through others. A peer may be
        blocked before this side runs.

        Args:
            peer_id: of the peer, in base58.

        Raises:
            ValueError: an id that is none.
            NetworkError: this side's own id, or too many blocked peers.
        """
        check_peer_id(peer_id)
        if self._host is not None:
            self._host.block(peer_id)
        self._blocked.add(peer_id)

    def unblock(self, peer_id: str) -> bool:
        """Let a peer connect again; return whether it was blocked.

        It is dialled as any other: when this side lacks connections, or by `dial`.

        Args:
            peer_id: as `block` was given it.

        Raises:
            ValueError: an id that is none.
        """
        check_peer_id(peer_id)
        if self._host is not None:
            self._host.unblock(peer_id)
        was_blocked = peer_id in self._blocked
        self._blocked.discard(peer_id)
        return was_blocked

    @property
    def _running_host(self) -> Host:
        if self._host is None:
            name = self._WHO.removeprefix("the ")
            raise RuntimeError(f"{self._WHO} is not running: enter `async with {name}`")
        return self._host

    async def _enter_host(self, stack: AsyncExitStack, host: Host) -> None:
        """Have a host run until the stack is unwound, with what is blocked so far."""
        self._host = host
        stack.callback(self._leave_host)
        await stack.enter_async_context(host)
        for peer_id in self._blocked:
            host.block(peer_id)

    def _leave_host(self) -> None:
        self._host = None

    def _note_listening(self, failed: Iterable[str]) -> None:
        """Note that listeners have failed, or that there may be new addresses."""
        self._failures += failed
        self._listening.set()

    async def _until_listening(self) -> None:
        """Wait until there are as many addresses as listeners; one that listens everywhere has several.

        Raises:
            NetworkError: a listener fails, or the addresses do not come in time.
        """
        host = self._running_host
        with anyio.move_on_after(_LISTENING_SECONDS) as scope:
            while len(host.addresses) < self._listeners and not self._failures:
                await self._listening.wait()
        if scope.cancelled_caught:
            raise NetworkError(f"{self._WHO} does not listen on all of its addresses within {_LISTENING_SECONDS:g} s")
        if self._failures:
            raise NetworkError("; ".join(self._failures))


def identity_seed(identity: Identity) -> bytes:
    """Return the seed of the key of an identity, and make the file that is to hold it.

    Raises:
        KeyFileError: the file cannot be read or made, is damaged, or open to others than its owner.
        ValueError: an identity of another length than 32 bytes.
    """
    match identity:
        case None:
            return secrets.token_bytes(PRIVATE_KEY_LENGTH)
        case bytes():
            return Signer(identity).private_key
        case _:
            return Signer.load_or_create(identity).private_key
