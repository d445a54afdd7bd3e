"""Peers of a mesh, of either implementation: what one appends reaches the others live, and offline branches merge."""

from __future__ import annotations

from typing import Any

import pytest

from gossiplog import Signer, core
from gossiplog.net import events
from gossiplog.protocol import gossip
from tests.integration.conftest import Start
from tests.integration.replica import MeshPeer

pytestmark = pytest.mark.integration

# (who listens, who dials). Those of canvas-js alone show that the tests themselves hold.
pairs = pytest.mark.parametrize(
    ("listener", "dialer"),
    [("javascript", "javascript"), ("javascript", "trio"), ("asyncio", "javascript"), ("trio", "asyncio")],
)


def id_of(address: str) -> str:
    return address.rpartition("/p2p/")[2]


def join_both(listener: MeshPeer, dialer: MeshPeer) -> None:
    """Returns once gossip goes both ways."""
    (address,) = listener.join()
    (own,) = dialer.join([address])
    listener.wait_for_graft(id_of(own))
    dialer.wait_for_graft(id_of(address))


@pairs
def test_appends_travel_by_gossip_both_ways(start: Start, listener: str, dialer: str) -> None:
    one, other = start(listener), start(dialer)
    join_both(one, other)
    # The first ones may come by a sync: when gossip begins, heads are being told.
    other.wait_for_message(one.append("first"))
    one.wait_for_message(other.append("second"))
    assert other.wait_for_message(one.append({"text": "from who listens"})) == "pubsub"
    assert one.wait_for_message(other.append({"text": "from who dialled"})) == "pubsub"
    assert other.wait_for_message(one.append({"text": "x" * 100_000})) == "pubsub"
    assert one.wait_for_message(other.append({"text": "y" * 100_000})) == "pubsub"
    assert one.wait(count=6) == other.wait(count=6)
    assert one.ids() == other.ids()


@pairs
def test_branches_that_grew_offline_merge(start: Start, listener: str, dialer: str) -> None:
    one, other = start(listener), start(dialer)
    one.append_numbers(0, 30)
    other.append_numbers(100, 50)
    join_both(one, other)
    assert one.wait(count=80) == other.wait(count=80)
    assert one.ids() == other.ids()
    merged = one.append("behind both branches")
    other.wait_for_message(merged)
    assert one.wait(count=81) == other.wait(count=81)
    assert one.state().heads == (merged,)


def test_three_peers_of_canvas_js_and_three_of_ours_end_with_one_root(start: Start) -> None:
    peers: list[Any] = [start(kind) for kind in ("trio", "javascript", "asyncio", "javascript", "trio", "javascript")]
    for number, peer in enumerate(peers):
        peer.append_numbers(1000 * number, 5)
    (first,) = peers[0].join()
    # Originals find no others by themselves on loopback, so each gets two to begin with: a line with a chord.
    (second,) = peers[1].join([first])
    addresses = [first, second]
    for peer in peers[2:]:
        addresses += peer.join(addresses[-2:])
    count = 5 * len(peers)
    states = [peer.wait(count=count) for peer in peers]
    assert [state == states[0] for state in states] == [True] * len(peers)
    # While all are connected, each in turn writes behind what the one before it wrote.
    for peer in peers:
        message = peer.append("live")
        for other in peers:
            if other is not peer:
                other.wait_for_message(message)
    states = [peer.wait(count=count + len(peers)) for peer in peers]
    assert [state == states[0] for state in states] == [True] * len(peers)
    assert states[0].heads == (message,)


def test_canvas_js_finds_our_protocols_by_identify(start: Start, topic: str) -> None:
    ours, javascript = start("asyncio"), start("javascript")
    (address,) = ours.join()
    javascript.join([address])
    said = javascript.wait_for_event("identify", lambda fields: fields["peer"] == id_of(address)).fields
    assert {
        f"/canvas/v1/{topic}/push",
        f"/canvas/v1/{topic}/sync",
        f"/canvas/kad/1.0.0/{topic}",
        "/canvas/id/1.0.0",
        "/canvas/ping/1.0.0",
        "/meshsub/1.0.0",
    } <= set(said["protocols"])
    assert ours.wait_for_event(events.Connected)


def only_texts(payload: Any) -> None:
    if isinstance(payload, int):
        raise TypeError(f"{payload} is no text")


@pytest.mark.parametrize("listens", [True, False])
def test_refusals_harm_no_exchange_with_canvas_js(start: Start, listens: bool) -> None:
    """Our peer opens a stream whose protocol canvas-js does not know, and goes on without."""
    checked, plain = start("asyncio", payload=only_texts), start("javascript")
    join_both(*((checked, plain) if listens else (plain, checked)))
    plain.wait_for_message(checked.append("first"))
    bad = plain.append(5)
    checked.wait_for_event(events.MessagesRefused, lambda event: [id for id, _ in event.refused] == [bad])
    for number in range(5):
        plain.wait_for_message(checked.append(f"after {number}"))
    assert not any(isinstance(event, events.Disconnected) for event in checked.events)


@pytest.mark.parametrize("dials", [True, False], ids=["dials", "is dialled"])
def test_a_floodsub_peer_gets_what_is_appended_and_publishes_what_is_delivered(
    start: Start, topic: str, dials: bool
) -> None:
    flood, near, far = start("floodsub"), start("asyncio"), start("trio")
    (there,) = flood.addresses()
    (address,) = near.join([] if dials else [there])
    # The floodsub peer does not know this one: the peer between them passes on what goes either way.
    (other,) = far.join([address])
    near.wait_for_graft(id_of(other))
    far.wait_for_graft(id_of(address))
    if dials:
        flood.dial(address)
    flood.wait_for_subscription(id_of(address))
    near.wait_for_event(events.Subscribed, lambda event: event.peer == id_of(there))
    # Nobody has the author's log, so no sync could bring the message.
    key, value = Signer(bytes([99]) * 32).sign(topic, 1, [], {"text": "by floodsub"})
    assert flood.publish(gossip.encode(key, value)) >= 1
    assert near.wait_for_message(core.encode_id(key)) == "pubsub"
    far.wait_for_message(core.encode_id(key))
    for peer in (near, far):
        id = peer.append({"text": "to floodsub"})
        flood.wait_for_data(gossip.encode(core.decode_id(id), peer.log.get(id).value))
    assert id_of(address) in flood.peers()


def test_gossipsub_of_ours_is_in_one_mesh_with_canvas_js_and_rust_libp2p(start: Start) -> None:
    ours, javascript, rust = start("asyncio", router="gossipsub"), start("javascript"), start("trio")
    (address,) = ours.join()
    for other in (javascript, rust):
        (own,) = other.join([address])
        ours.wait_for_graft(id_of(own))
        other.wait_for_graft(id_of(address))
    # The first ones may come by a sync. None of the others has dialled the other: ours passes on what they write.
    peers = (ours, javascript, rust)
    for turn in range(2):
        for peer in peers:
            id = peer.append({"turn": turn})
            came = [other.wait_for_message(id) for other in peers if other is not peer]
            if turn:
                assert came == ["pubsub", "pubsub"]
    assert len({tuple(peer.ids()) for peer in peers}) == 1


@pytest.mark.parametrize("router", ["gossipsub", "floodsub"])
def test_own_routers_speak_with_floodsub_of_js_libp2p(start: Start, topic: str, router: str) -> None:
    flood, ours, far = start("floodsub"), start("asyncio", router=router), start("trio")
    (there,) = flood.addresses()
    (address,) = ours.join([there])
    (other,) = far.join([address])
    for peer, name in ((ours, other), (ours, there), (far, address)):
        peer.wait_for_event(events.Subscribed, lambda event, name=name: event.peer == id_of(name))
    flood.wait_for_subscription(id_of(address))
    # Nobody has the author's log, so no sync could bring the message to ours.
    key, value = Signer(bytes([99]) * 32).sign(topic, 1, [], {"text": "by floodsub"})
    assert flood.publish(gossip.encode(key, value)) >= 1
    assert ours.wait_for_message(core.encode_id(key)) == "pubsub"
    far.wait_for_message(core.encode_id(key))
    for peer in (ours, far):
        id = peer.append({"text": "to floodsub"})
        flood.wait_for_data(gossip.encode(core.decode_id(id), peer.log.get(id).value))
    # What is invalid goes nowhere.
    assert flood.publish(gossip.encode(key, value)[:-1] + b"?") >= 1
    far.wait_for_message(ours.append({"text": "after"}))
    assert len(far.ids()) == len(ours.ids()) == 4
