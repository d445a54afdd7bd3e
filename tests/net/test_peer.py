"""Peers of one process, over sockets of the loopback interface."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import cast

import anyio
import pytest

import gossiplog
from gossiplog import Hub, Log, Peer, Signer, _core, core
from gossiplog.errors import ConnectionLost, KeyFileError, NetworkError, RefusedByPeer
from gossiplog.net import events
from gossiplog.net import peer as peer_module
from gossiplog.net.bootstrap import Bootstrap
from gossiplog.net.client import connect
from gossiplog.net.peer import driver_of
from gossiplog.net.replicator import push as pushing
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.service import background
from gossiplog.net.transport import connection as connection_module
from gossiplog.net.transport.host import Arrival, Host, Publication, open_host
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.network import Connection, Network
from gossiplog.protocol import gossip
from gossiplog.protocol.wire import Protocols
from tests.net.meshes import QUICK_PEER, key_of, line, member, running, shunned, signers, stranger
from tests.net.support import FOREIGN, LISTEN, TOPIC, Defective, Heard, serving, until_equal

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_gossip")]

Open = Callable[..., Log]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 5])
async def test_what_any_peer_appends_arrives_at_all(opened: Open, count: int) -> None:
    logs = [opened(signer=signer) for signer in signers(count)]
    async with running(*logs) as (_, heard):
        for number in range(5):
            for log in logs:
                log.append(number)
        for listener in heard:
            await listener.wait_for_messages(5 * count)
        await until_equal(*logs)
        assert {len(log) for log in logs} == {5 * count}


async def test_a_task_that_waits_for_a_peer_ends_with_its_context(opened: Open) -> None:
    async def waiting(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        with pytest.raises(RuntimeError, match="the peer is not running"):
            await peer.synced()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, Peer(opened(), listen=()) as peer:
            await tasks.start(waiting)
            await anyio.sleep(0.1)


@pytest.mark.slow
async def test_what_was_appended_offline_is_merged(opened: Open) -> None:
    logs = [opened(signer=signer) for signer in signers(3)]
    for number, log in enumerate(logs):
        log.append_many([number, item] for item in range(50))
    async with running(*logs) as (peers, heard):
        await until_equal(*logs)
        assert len(logs[0]) == 150
        await peers[0].synced()
        assert all(listener.of(events.SyncEnded) for listener in heard)


async def test_an_orphan_is_ignored_and_its_source_asked(opened: Open, signer: Signer) -> None:
    key, value = signer.sign(TOPIC, 2, [core.encode_id(b"\1" + bytes(19))], "orphan")
    with anyio.fail_after(60):
        async with Peer(opened(), listen=[LISTEN], broadcast=QUICK_PEER) as peer, member(peer) as (host, arrival):
            assert host.publish(gossip.encode(key, value))
            protocol, _ = await arrival.connection.accept()
            assert protocol == Protocols(TOPIC).sync
            while not peer.counters.network["gossip_ignored"]:
                await anyio.sleep(0.01)
            assert (peer.counters.orphans, peer.counters.dropped) == (1, 0)


@pytest.mark.parametrize("kind", ["nonsense", "forged"])
async def test_an_invalid_message_is_rejected(opened: Open, signer: Signer, kind: str) -> None:
    log = opened()
    data = b"nonsense"
    if kind == "forged":
        value = signer.sign(TOPIC, 1, [], "true")[1].replace(b"true", b"lies")
        data = gossip.encode(key_of(value), value)
    with anyio.fail_after(60):
        async with Peer(log, listen=[LISTEN], broadcast=QUICK_PEER) as peer, member(peer) as (host, _):
            assert host.publish(data)
            while not peer.counters.network["gossip_rejected"]:
                await anyio.sleep(0.01)
            assert peer.counters.invalid == 1
            while peer.peers[0].score >= 0:
                await anyio.sleep(0.01)
            assert len(log) == 0


async def test_a_function_that_raises_harms_nothing_else(
    opened: Open, signer: Signer, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(payload: object) -> None:
        if payload == "bad":
            raise ZeroDivisionError("a defect of theirs")

    ours, theirs, others = opened(signer=signer), opened(payload=refuse), opened()
    messages = [signer.sign(TOPIC, 1, [], payload) for payload in ("bad", "good")]
    async with running(ours, theirs, others) as (peers, _):
        ours.insert_many([value for _, value in messages])
        await until_equal(ours, others)
        while not len(theirs):
            await driver_of(peers[1]).committed()
        assert [message.payload for message in theirs.messages()] == ["good"]
        while not peers[1].counters.refused:
            await anyio.sleep(0.01)
        assert peers[1].counters.dropped == 0
    assert "a defect of theirs" in caplog.text


@pytest.mark.slow
async def test_messages_that_a_peer_refuses_end_the_waiting_once_the_others_have_them(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "SETTLED_SECONDS", 0.1)

    def refuse(payload: object) -> None:
        if payload == "bad":
            raise ValueError("not here")

    ours, theirs, others = opened(signer=signer), opened(payload=refuse), opened()
    bad = ours.append("bad")
    with anyio.fail_after(60):
        async with running(ours, theirs, others) as (peers, _):
            await until_equal(ours, others)
            with pytest.raises(RefusedByPeer, match=f"{peers[1].peer_id} refuses a message of this log") as error:
                await peers[0].synced()
            assert error.value.refused == ((bad.id, "its payload is refused: not here"),)


async def test_who_breaks_a_rule_is_dropped_and_shunned(opened: Open) -> None:
    heard = Heard()
    with anyio.fail_after(60):
        async with Peer(opened(), listen=[LISTEN], on_event=heard) as peer, stranger(peer) as (host, arrival):
            push = await arrival.connection.open_stream(Protocols(TOPIC).push)
            await push.send(b"\xff" * 10)
            (gone,) = await heard.wait(events.Disconnected)
            assert (gone.peer, gone.blamed) == (host.peer_id, True)
            await arrival.connection.aclose()
            await shunned(host, peer)
            assert len(heard.of(events.Connected)) == 1


async def test_not_all_identities_of_one_address_join(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(connections_per_address=2)
    with anyio.fail_after(60):
        async with AsyncExitStack() as stack:
            peer = await stack.enter_async_context(Peer(opened(), listen=[LISTEN], limits=limits))
            for number in range(2):
                host = open_host(identity=bytes([number] * 32), topic=TOPIC, protocols=[])
                await stack.enter_async_context(host)
                await host.dial(peer.addresses[0])
            with pytest.raises(ConnectionLost):
                async with open_host(identity=bytes([7] * 32), topic=TOPIC, protocols=[]) as third:
                    await third.dial(peer.addresses[0])
            while "strangers" not in caplog.text:
                await anyio.sleep(0.01)
            assert len(peer.peers) == 2
            assert peer.counters.network["connections_refused"] == 1
            assert peer.counters.refused_connections == {"address": 1}
    assert "there were as many connections from their addresses as there may be" in caplog.text


async def test_only_allowed_peers_are_connected(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    friend, stranger = (open_host(identity=bytes([number] * 32), topic=TOPIC, protocols=[]) for number in (1, 2))
    with anyio.fail_after(60):
        async with (
            Peer(opened(), listen=[LISTEN], allow_peers=[friend.peer_id]) as peer,
            friend,
            stranger,
            Peer(opened(), listen=[LISTEN], allow_peers=[friend.peer_id]) as another,
        ):
            await friend.dial(peer.addresses[0])
            # It may stand for a moment, as the stranger sees it.
            with suppress(ConnectionLost):
                await stranger.dial(peer.addresses[0])
            while stranger.peer_id not in caplog.text:
                await anyio.sleep(0.01)
            with pytest.raises(ConnectionLost, match=f"the peer {another.peer_id} is not one of those that this side"):
                await peer.dial(another.addresses[0])
            assert [found.name for found in peer.peers] == [friend.peer_id]
            assert peer.counters.network["connections_refused"] == 1
            found = peer.counters
            assert (found.refused_connections, found.open_connections) == ({"peer": 1}, {"mesh": 1})
            assert found.connection_limits == {"mesh": 1024}
    assert f"{stranger.peer_id}: not let in: it is not one of the peers that may connect" in caplog.text


async def test_a_blocked_peer_is_disconnected_and_stays_out(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = opened(), opened()
    with anyio.fail_after(60):
        async with (
            Peer(ours, listen=[LISTEN]) as here,
            Peer(theirs, listen=[LISTEN], bootstrap=here.addresses) as there,
        ):
            await here.joined()
            await there.joined()
            here.block(there.peer_id)
            assert here.blocked == (there.peer_id,)
            while here.peers or there.peers:
                await anyio.sleep(0.01)
            with pytest.raises(NetworkError, match=f"this side blocks the peer {there.peer_id}"):
                await here.dial(there.addresses[0])
            # It may stand for a moment, as the other side sees it.
            with suppress(NetworkError):
                await there.dial(here.addresses[0])
            while f"{there.peer_id}: not let in: it is blocked" not in caplog.text:
                await anyio.sleep(0.01)
            assert not here.peers
            assert here.unblock(there.peer_id)
            assert not here.unblock(there.peer_id)
            assert here.blocked == ()
            await here.dial(there.addresses[0])
            await here.joined()


async def test_a_peer_may_be_blocked_before_the_start(opened: Open) -> None:
    async with Peer(opened(), listen=[LISTEN]) as there:
        here = Peer(opened(), listen=[LISTEN])
        here.block(there.peer_id)
        async with here:
            with pytest.raises(NetworkError, match="this side blocks the peer"):
                await here.dial(there.addresses[0])
            with pytest.raises(NetworkError, match="is this host itself"):
                here.block(here.peer_id)
            assert here.blocked == (there.peer_id,)


def test_what_cannot_be_blocked(opened: Open) -> None:
    peer = Peer(opened())
    for call in (peer.block, peer.unblock):
        with pytest.raises(ValueError, match="is no peer id"):
            call("alice")


async def test_a_server_with_a_copy_of_the_identity_is_named(
    opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "_BOOTSTRAP_SECONDS", 0)
    identity = bytes(range(32))
    with anyio.fail_after(60):
        async with Peer(opened(), listen=[LISTEN], identity=identity) as first:
            (address,) = first.addresses
            bare = address.partition("/p2p/")[0]
            for bootstrap in (address, bare):
                async with Peer(opened(), listen=[LISTEN], bootstrap=[bootstrap], identity=identity):
                    while not caplog.messages:
                        await anyio.sleep(0.01)
                (line,) = caplog.messages
                assert line.startswith(f"{bootstrap}: the server there has this one's id, {first.peer_id}: if it is")
                caplog.clear()
    # One list of addresses for all servers names each of them.
    async with Peer(opened(), listen=[LISTEN], bootstrap=[address], announce=[bare], identity=identity):
        await anyio.wait_all_tasks_blocked()
    assert caplog.messages == []


async def test_a_bootstrap_peer_that_does_not_answer_is_a_line_of_the_log(
    opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "_BOOTSTRAP_SECONDS", 0)
    with anyio.fail_after(60):
        async with Peer(opened(), listen=[LISTEN], bootstrap=["/ip4/127.0.0.1/tcp/1/ws"]):
            while not caplog.messages:
                await anyio.sleep(0.01)
    (line,) = caplog.messages
    assert line.startswith("/ip4/127.0.0.1/tcp/1/ws: no peer yet: the peer cannot be reached: ")


async def test_a_bootstrap_peer_that_knows_nobody_of_the_topic_is_a_line_of_the_log(
    opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "_BOOTSTRAP_SECONDS", 0)
    with anyio.fail_after(60):
        async with Bootstrap("org.example.other", listen=[LISTEN]) as node:
            (node_address,) = node.addresses
            async with Peer(opened(), listen=[], bootstrap=node.addresses):
                while not caplog.messages:
                    await anyio.sleep(0.01)
    (line,) = caplog.messages
    assert line == f"{node_address}: it answers, and no peer of this log's topic, {TOPIC!r}, came within 0 s"


async def test_a_peer_that_is_not_allowed_learns_of_it_and_is_one_line(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """It heard nothing, and used up the other side's lines of that kind in seconds."""
    other = "12D3KooWQYV9dGMFoRzNStwpXztXaBUjtPqi6aU76ZgUriHhKust"
    with anyio.fail_after(60):
        async with (
            Peer(opened(), listen=[LISTEN], allow_peers=[other]) as here,
            Peer(opened(), listen=[]) as there,
        ):
            for refusals in range(1, 4):
                await there.dial(here.addresses[0])
                while here.counters.refused_connections.get("peer", 0) < refusals or there.peers:
                    await anyio.sleep(0.01)
            while len(caplog.messages) < 2:
                await anyio.sleep(0.01)
            names = here.peer_id, there.peer_id
    assert sorted(caplog.messages) == sorted(
        [
            f"{names[0]}: it closed the connection at once: it may not let this peer in (`allow_peers`, --allow-peer),"
            " have blocked it, or have no room",
            f"{names[1]}: not let in: it is not one of the peers that may connect",
        ]
    )


async def test_a_peer_that_bootstrap_names_is_allowed(opened: Open) -> None:
    async with Peer(opened(), listen=[LISTEN]) as known:
        other = "12D3KooWQYV9dGMFoRzNStwpXztXaBUjtPqi6aU76ZgUriHhKust"
        async with Peer(opened(), listen=[], bootstrap=known.addresses, allow_peers=[other]) as peer:
            with anyio.fail_after(60):
                while not peer.peers:
                    await anyio.sleep(0.01)


async def test_a_peer_of_another_topic_does_not_join(
    opened: Open, signer: Signer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "OPENING_SECONDS", 0.01)
    ours, theirs = opened(signer=signer), opened(topic="org.example.other")
    ours.append("secret")
    with anyio.fail_after(60):
        async with Peer(ours, listen=[LISTEN]) as here, Peer(theirs, listen=[LISTEN]) as there:
            await there.dial(here.addresses[0])
            assert [peer.name for peer in there.peers] == [here.peer_id]
            while not (here.counters.other_topics and there.counters.other_topics):
                await anyio.sleep(0.01)
            assert (driver_of(here).peers, driver_of(there).peers) == ((), ())
    lines = [line for line in caplog.messages if "exchanges no messages of this log's topic" in line]
    topics = sorted(line.partition("topic, ")[2].partition(":")[0] for line in lines)
    assert topics == ["'org.example.other'", f"'{TOPIC}'"]


# Hub and mesh


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["one driver", "two drivers"])
async def test_what_comes_to_a_hub_goes_to_the_mesh_and_back(opened: Open, shared: bool) -> None:
    ours, theirs, clients = (opened(signer=signer) for signer in signers(3))
    clients.append_many(range(20))
    heard = Heard()
    async with running(ours, theirs) as ((here, there), (_, told)):
        hub = Hub(ours, peer=here) if shared else Hub(ours)
        async with serving(hub) as url, connect(clients, url, on_message=heard.message) as client:
            # What a client syncs in, what it pushes, and what the mesh says.
            await until_equal(ours, theirs, clients)
            clients.append("from the client")
            await told.wait_for_messages(21)
            theirs.append("from the mesh")
            await heard.wait_for_messages(2)
            await client.synced()
            assert ours.root == theirs.root == clients.root
            if shared:
                names = {peer.name: peer.kind for peer in hub.peers}
                assert sorted(names.values()) == ["client", "mesh"]
                assert names[there.peer_id] == "mesh"
                assert hub.counters.connections == 2
                assert hub.counters.mesh == 1
        # The mesh goes on without the hub.
        ours.append("afterwards")
        await told.wait_for_messages(23)
        assert here.counters.connections == 1
        # Nothing echoes: everybody stores each message once.
        while sum(there.counters.inserted.values()) < 23:
            await anyio.sleep(0.01)
        assert sum(there.counters.inserted.values()) == len(theirs) == 23


async def test_a_hub_has_its_peers_settings(opened: Open) -> None:
    log = opened()
    peer = Peer(log)
    with pytest.raises(ValueError, match="different logs"):
        Hub(opened(), peer=peer)
    with pytest.raises(ValueError, match="are the peer's"):
        Hub(log, peer=peer, on_event=Heard())
    with pytest.raises(RuntimeError, match="not running"):
        async with Hub(log, peer=peer):
            pass


# Identity


async def test_a_peer_keeps_its_identity_in_a_file(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "identity"
    found = []
    for identity in (path, str(path), Signer.generate().private_key, None):
        async with Peer(opened(), listen=[LISTEN], identity=identity) as peer:
            found.append(peer.peer_id)
    assert found[0] == found[1]
    assert len(set(found)) == 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["identity"]


async def test_an_identity_that_others_can_read_is_refused(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "identity"
    Signer.generate().save(path)
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        Peer(opened(), identity=path)
    with pytest.raises(ValueError, match="31 bytes"):
        Peer(opened(), identity=bytes(31))


async def test_the_identity_is_not_logged(opened: Open, signer: Signer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    identity = Signer.generate().private_key
    async with Peer(opened(), listen=[LISTEN], identity=identity) as peer:
        text = repr(peer) + str(peer.counters) + str(peer.peers)
    for secret in (identity.hex(), repr(identity)):
        assert secret not in caplog.text + text


async def test_a_peer_shows_who_it_is_and_whether_it_runs(opened: Open) -> None:
    log = opened()
    peer = Peer(log, listen=[LISTEN])
    assert repr(peer) == f"<Peer of {log!r}, not running>"
    async with peer:
        assert repr(peer) == f"<Peer {peer.peer_id} of {log!r}, running, peers: 0>"
    assert repr(peer) == f"<Peer of {log!r}, not running>"


# Starting and stopping


async def test_by_default_only_this_machine_is_listened_to(opened: Open) -> None:
    async with Peer(opened()) as peer:
        assert all(address.startswith("/ip4/127.0.0.1/tcp/") for address in peer.addresses)
        assert [address.rpartition("/p2p/")[2] for address in peer.addresses] == [peer.peer_id]


async def test_a_listener_that_fails_is_an_error(opened: Open) -> None:
    with pytest.raises(NetworkError):
        async with Peer(opened(), listen=[LISTEN, FOREIGN]):
            pass


async def test_what_cannot_be_dialled_is_an_error(opened: Open) -> None:
    async with Peer(opened(), listen=[]) as peer:
        assert peer.addresses == ()
        with pytest.raises(ConnectionLost):
            await peer.dial("/ip4/127.0.0.1/tcp/1/ws")
        with pytest.raises(NetworkError):
            await peer.dial("nonsense")


async def test_a_peer_runs_once(opened: Open) -> None:
    peer = Peer(opened())
    with pytest.raises(RuntimeError, match="not running"):
        peer.addresses  # noqa: B018
    async with peer:
        with pytest.raises(RuntimeError, match="runs once"):
            async with peer:
                pass
    with pytest.raises(RuntimeError, match="not running"):
        await peer.synced()


@pytest.mark.slow
async def test_one_that_is_cancelled_leaves_and_comes_again(opened: Open, signer: Signer) -> None:
    ours, theirs = opened(signer=signer), opened()
    heard = Heard()
    with anyio.fail_after(120):
        async with Peer(theirs, listen=[LISTEN], identity=bytes(32), on_event=heard) as there:
            for count in range(1, 4):
                with anyio.CancelScope() as scope:
                    async with Peer(ours, listen=[], bootstrap=there.addresses, identity=bytes([1] * 32)):
                        ours.append(count)
                        await until_equal(ours, theirs)
                        await heard.wait(events.Connected, count)
                        scope.cancel()
                        await anyio.sleep_forever()
                gone = (await heard.wait(events.Disconnected, count))[-1]
                assert not gone.blamed


async def test_a_peer_that_dials_again_waits_for_its_last_exchange(
    opened: Open, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits, too, where another redial that waited was cancelled; it is refused if that exchange blames the peer."""
    monkeypatch.setattr(connection_module, "_FAREWELL_SECONDS", 0.0)
    first, second, third = (network.attach([], client=True) for _ in range(3))
    exchanged: list[Connection] = []
    rule_broken = anyio.Event()

    async def exchange(connection: Connection, name: str, **options: bool) -> str:
        exchanged.append(connection)
        await rule_broken.wait()
        return "a rule"

    driver = Driver(opened())
    monkeypatch.setattr(driver, "exchange", exchange)
    # Its host is not used.
    state = peer_module._Running(cast("Host", None), driver)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            leaving = anyio.CancelScope()

            async def wait(connection: Connection) -> None:
                with leaving if connection is second else anyio.CancelScope():
                    await peer_module._exchange(state, Arrival(connection, "a peer", "/ip4/127.0.0.1", False))

            for connection in (first, second, third):
                tasks.start_soon(wait, connection)
                await anyio.wait_all_tasks_blocked()
            leaving.cancel()
            await anyio.wait_all_tasks_blocked()
            assert exchanged == [first]
            rule_broken.set()
    assert exchanged == [first]
    assert driver.counters.refused_connections == {"banned": 1}
    assert not state.exchange_locks


@pytest.mark.integration
async def test_a_peer_that_vanished_is_answered_where_it_dials_again(opened: Open, signer: Signer) -> None:
    """Its old connection stands until pings are lost on it."""
    ours = opened(signer=signer)
    ours.append(1)
    heard = Heard()
    identity = bytes([1] * 32)
    with anyio.fail_after(120):
        async with Peer(ours, listen=[LISTEN]) as here, line(here.addresses[0]) as wire:
            address = f"/ip4/127.0.0.1/tcp/{wire.port}/ws/p2p/{here.peer_id}"
            async with Peer(opened(), listen=[], bootstrap=[address], identity=identity) as there:
                await there.synced()
                wire.freeze()
            async with Peer(opened(), listen=[], bootstrap=[address], identity=identity, on_event=heard) as there:
                await heard.wait(events.Connected)
                (peer,) = driver_of(here).peers
                assert await driver_of(here).root_of(peer)


def resources() -> tuple[int, int]:
    """Open file descriptors of this process, and threads that are not Python's: anyio keeps some for later."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")) - threading.active_count()


@pytest.mark.slow
async def test_starting_and_stopping_leaves_nothing_behind(opened: Open) -> None:
    ours, theirs = opened(), opened()

    async def use() -> None:
        async with Peer(ours, listen=[LISTEN]) as here, Peer(theirs, listen=[], bootstrap=here.addresses) as there:
            await there.synced()

    with anyio.fail_after(120):
        await use()
        before = resources()
        for _ in range(10):
            await use()
        # Threads that end by themselves take their time.
        while any(now > then for now, then in zip(resources(), before, strict=True)):
            await anyio.sleep(0.05)


async def test_what_on_message_raises_ends_the_context(opened: Open, signer: Signer) -> None:
    log = opened(signer=signer)

    def fail(message: object) -> None:
        raise ZeroDivisionError("theirs")

    async def run() -> None:
        async with Peer(log, on_message=fail):
            log.append("hi")
            await anyio.sleep_forever()

    with pytest.raises(ZeroDivisionError, match="theirs"), anyio.fail_after(60):
        await run()


def test_the_name_is_loaded_when_it_is_used() -> None:
    assert gossiplog.Peer is Peer


async def test_a_defect_of_the_host_ends_the_peer(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    cores: list[Defective] = []
    monkeypatch.setattr(_core, "Host", lambda **arguments: cores.append(Defective(**arguments)) or cores[0])

    async def fail() -> None:
        async with Peer(opened(), listen=[LISTEN]):
            cores[0].panic()
            await anyio.sleep_forever()

    with anyio.fail_after(60), pytest.raises(NetworkError, match="panicked"):
        await fail()


async def test_gossip_without_end_leaves_others_their_turn(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Peer(opened()) as peer:

        async def gossip() -> list[Publication]:
            return [Publication(1, None, "somebody", b"nonsense")]

        assert peer._running is not None
        monkeypatch.setattr(peer._running.host, "gossip", gossip)
        monkeypatch.setattr(peer._running.host, "validate", lambda answers: None)
        async with background() as tasks:
            tasks.start_soon(peer_module._take_gossip, peer._running)
            with anyio.fail_after(60):
                for _ in range(100):
                    await anyio.lowlevel.checkpoint()
    assert peer.counters.invalid > 1
