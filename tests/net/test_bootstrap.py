"""A node without a log, through which peers find each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import pytest

from gossiplog import Log, Peer, Signer
from gossiplog.errors import NetworkError
from gossiplog.net import events
from gossiplog.net.bootstrap import Bootstrap
from gossiplog.net.replicator import push as pushing
from tests.net.support import LISTEN, TOPIC, until_equal

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_gossip")]

Open = Callable[..., Log]


@pytest.mark.slow
async def test_peers_that_know_a_bootstrap_exchange_messages(opened: Open, signer: Signer) -> None:
    first, second = opened(signer=signer), opened()
    first.append("hi")
    heard: list[events.Event] = []
    with anyio.fail_after(60):
        async with Bootstrap(TOPIC, [LISTEN], on_event=heard.append) as node:
            async with (
                Peer(first, listen=[LISTEN], bootstrap=node.addresses) as one,
                Peer(second, listen=[LISTEN], bootstrap=node.addresses) as other,
            ):
                await until_equal(first, second)
                while {one.peer_id, other.peer_id} != set(node.peers):
                    await anyio.sleep(0.01)
                # It takes nobody's place in gossip's mesh.
                assert not any(peer.subscribed for peer in one.peers if peer.name == node.peer_id)
            while len(heard) < 4:
                await anyio.sleep(0.01)
        assert node.peers == ()
    assert {type(event) for event in heard[:2]} == {events.Connected}
    assert [type(event) for event in heard[2:]] == [events.Disconnected] * 2


async def test_a_bootstrap_is_not_taken_for_a_peer_of_another_topic(
    opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "OPENING_SECONDS", 0.01)
    found: list[Sequence[str] | None] = []
    topics_of = Peer._topics_of

    def spy(peer: Peer, peer_id: str) -> Sequence[str] | None:
        found.append(topics_of(peer, peer_id))
        return found[-1]

    monkeypatch.setattr(Peer, "_topics_of", spy)
    with anyio.fail_after(60):
        async with (
            Bootstrap(TOPIC, [LISTEN]) as node,
            Peer(opened(), listen=[LISTEN], bootstrap=node.addresses) as peer,
        ):
            while [] not in found:
                await anyio.sleep(0.01)
            assert peer.counters.other_topics == 0
    assert not [line for line in caplog.messages if "topic" in line]


async def test_a_blocked_peer_stays_out(opened: Open) -> None:
    with anyio.fail_after(60):
        async with Peer(opened(), listen=[LISTEN]) as peer:
            node = Bootstrap(TOPIC, [LISTEN])
            node.block(peer.peer_id)
            async with node:
                with pytest.raises(NetworkError, match="this side blocks the peer"):
                    await node.dial(peer.addresses[0])
                assert node.blocked == (peer.peer_id,)
                assert node.unblock(peer.peer_id)
                await node.dial(peer.addresses[0])
                assert node.peers == (peer.peer_id,)
                node.block(peer.peer_id)
                while node.peers or peer.peers:
                    await anyio.sleep(0.01)


async def test_a_listener_that_fails() -> None:
    async with Bootstrap(TOPIC, [LISTEN]) as node:
        address = node.addresses[0].partition("/p2p/")[0]
        with pytest.raises(NetworkError, match="cannot listen on"):
            async with Bootstrap(TOPIC, [address]):
                raise AssertionError("it listens twice")


async def test_it_runs_once() -> None:
    node = Bootstrap(TOPIC)
    for read in (lambda: node.addresses, lambda: node.peer_id):
        with pytest.raises(RuntimeError, match="the node is not running"):
            read()
    async with node:
        pass
    with pytest.raises(RuntimeError, match="a bootstrap node runs once"):
        async with node:
            pass


@pytest.mark.parametrize(
    ("wrong", "error", "reason"),
    [
        ({"listen": LISTEN}, TypeError, "expected a list of texts"),
        ({"listen": ["nowhere"]}, ValueError, "listen: "),
        ({"bootstrap": ["nowhere"]}, ValueError, "bootstrap: "),
        ({"identity": b"short"}, ValueError, "private key of 5 bytes"),
        ({"limits": 7}, TypeError, "expected a gossiplog.Limits"),
    ],
)
def test_arguments_that_cannot_be(wrong: dict[str, object], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        Bootstrap(TOPIC, **wrong)  # type: ignore[arg-type]
