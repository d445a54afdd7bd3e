"""`gossiplog.net.host_service`: a host for the time of a context, whom it keeps out, and its identity."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
import pytest

from gossiplog.errors import KeyFileError, NetworkError
from gossiplog.net import host_service
from gossiplog.net.host_service import HostService, identity_seed
from gossiplog.net.transport.host import News, open_host
from gossiplog.pubsub.authorship import peer_id_of
from gossiplog.reference.multiformats import base58_encode
from gossiplog.signer import Signer
from tests.net.support import LISTEN, TOPIC

pytestmark = pytest.mark.anyio

SEED = bytes(range(32))


def id_of(seed: bytes) -> str:
    return base58_encode(peer_id_of(Signer(seed).public_key))


class Node(HostService):
    """A service of a host alone.

    Args:
        listeners: addresses that it waits for, and listens on.
        failed: what it hears of listeners as it starts.
        seed: of its identity.
    """

    _WHO = "the node"
    _ENTERED_AGAIN = "a node runs once"

    def __init__(self, listeners: int = 1, failed: tuple[str, ...] = (), seed: bytes = SEED) -> None:
        super().__init__()
        self._listeners = listeners
        self._failed = failed
        self._seed = seed

    async def _start(self, stack: AsyncExitStack) -> None:
        listen = [] if self._failed else [LISTEN] * self._listeners
        host = open_host(
            identity=self._seed, topic=TOPIC, protocols=[], listen=listen, gossips=False, notify=self._handle_news
        )
        await self._enter_host(stack, host)
        self._note_listening(self._failed)
        await self._until_listening()

    def _handle_news(self, news: News) -> None:
        self._note_listening(getattr(news, "failed", ()))

    async def accepted(self) -> str:
        """Return the id of the next peer that is connected."""
        arrival = await self._running_host.accept()
        return arrival.peer_id


async def test_its_host_is_there_while_it_runs() -> None:
    node = Node(2)
    with pytest.raises(RuntimeError, match="the node is not running: enter `async with node`"):
        _ = node.peer_id
    async with node:
        assert node.peer_id == id_of(SEED)
        assert len(node.addresses) == 2
        assert all(address.endswith(f"/p2p/{node.peer_id}") for address in node.addresses)
    for use in (lambda: node.addresses, lambda: node.peer_id):
        with pytest.raises(RuntimeError, match="the node is not running"):
            use()


async def test_listeners_that_fail_end_the_start() -> None:
    with pytest.raises(NetworkError, match="no address; no port"):
        async with Node(failed=("no address", "no port")):
            pass


async def test_addresses_that_do_not_come_end_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_service, "_LISTENING_SECONDS", 0.05)
    monkeypatch.setattr(host_service.Host, "addresses", property(lambda self: []))
    with pytest.raises(NetworkError, match=r"the node does not listen on all of its addresses within 0\.05 s"):
        async with Node():
            pass


async def test_who_is_blocked_before_it_runs_is_kept_out() -> None:
    node, stranger, friend = Node(), Node(seed=bytes([1]) * 32), Node(seed=bytes([2]) * 32)
    node.block(id_of(bytes([1]) * 32))
    with anyio.fail_after(60):
        async with node, stranger, friend:
            assert node.blocked == (stranger.peer_id,)
            # The connection may stand for a moment on the side that dials.
            with suppress(NetworkError):
                await stranger.dial(node.addresses[0])
            await friend.dial(node.addresses[0])
            assert await node.accepted() == friend.peer_id
            assert node.unblock(stranger.peer_id)
            assert not node.unblock(stranger.peer_id)
            assert node.blocked == ()
            await stranger.dial(node.addresses[0])
            assert await node.accepted() == stranger.peer_id


async def test_what_cannot_be_blocked_is_not_noted() -> None:
    node = Node()
    for call in (node.block, node.unblock):
        with pytest.raises(ValueError, match="nobody"):
            call("nobody")
    async with node:
        with pytest.raises(NetworkError):
            node.block(node.peer_id)
    assert node.blocked == ()


def test_an_identity_is_given_kept_or_made(tmp_path: Path) -> None:
    assert identity_seed(SEED) == SEED
    assert identity_seed(None) != identity_seed(None)
    path = tmp_path / "identity"
    made = identity_seed(path)
    assert len(made) == 32
    assert identity_seed(str(path)) == made == Signer.load(path).private_key
    with pytest.raises(ValueError, match="32"):
        identity_seed(bytes(31))
    path.write_bytes(b"no key")
    with pytest.raises(KeyFileError):
        identity_seed(path)
