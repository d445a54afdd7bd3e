"""What waits to be pushed to a peer, and what is known of peers; `test_peer.py` has those of a mesh."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

import gossiplog
from gossiplog import Hub, Log, PeerInfo
from gossiplog.net.replicator import sessions as sessions_module
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.transport.network import Network
from gossiplog.net.transport.stream import CHUNK
from tests.net.support import connect_pair, serving

pytestmark = pytest.mark.anyio


async def test_small_pieces_go_together_and_who_lags_is_known(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "_MOST_WAITING", 1000)
    client, server = connect_pair(network, ["/push"])
    stream = await client.open_stream("/push")
    _, accepted = await server.accept()
    peer = PeerSession(1, "the server", client, may_write=True)
    caught_up = anyio.Event()
    assert [peer.queue(bytes(400)) for _ in range(4)] == [False, False, True, False]
    peer.queue(bytes(2 * CHUNK))
    size = peer.size
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.write, stream, caught_up.set)
        received = 0
        while received < size:
            received += len(await accepted.receive())
        await caught_up.wait()
        tasks.cancel_scope.cancel()
    assert (peer.size, peer.behind, len(peer.waiting)) == (0, False, 0)
    assert peer.queue(bytes(1001))


async def test_the_first_reason_counts(network: Network) -> None:
    client, _ = connect_pair(network, ["/push"])
    peer = PeerSession(1, "the server", client, may_write=True)
    peer.blame("it lied")
    peer.blame("it lied again")
    assert peer.blamed_for == "it lied"
    assert (await client.wait_closed()).cause == "local"


async def test_a_hub_and_its_client_list_each_other(opened: Callable[..., Log]) -> None:
    hub = Hub(opened())
    assert hub.peers == ()
    async with serving(hub) as url, gossiplog.connect(opened(), url) as client:
        assert client.peers == ()
        await client.synced()
        assert client.peers == (PeerInfo(url, "hub", replicates=True, dialer=True),)
        (listed,) = hub.peers
        assert listed == PeerInfo(listed.name, "client", replicates=True, dialer=False)
        assert listed.name.startswith("127.0.0.1:")
    assert (hub.peers, client.peers) == ((), ())


async def test_the_pause_after_fruitless_syncs_doubles_until_it_gets_a_message(network: Network) -> None:
    client, _ = connect_pair(network, ["/sync"])
    peer = PeerSession(1, "the client", client, may_write=True)
    pauses = []
    for number in range(2000):
        pauses.append(peer.next_pause)
        peer.note_fruitless(float(number))
        assert peer.served_from == number + pauses[-1]
    assert pauses[:20] == [0.0] * 8 + [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert set(pauses[20:]) == {600}
    peer.note_served(0)
    assert peer.next_pause == 600
    peer.note_served(1)
    assert peer.next_pause == 0
