"""A peer of a mesh: keeps a log in step with others' over libp2p, by push, sync and gossip together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import SystemRandom
from types import MappingProxyType
from typing import Any, Literal

import anyio
import anyio.abc
import anyio.lowlevel

from gossiplog import core
from gossiplog._core import GossipValidator, MeshEvent, check_address, check_peer_id
from gossiplog.core import SignedMessage
from gossiplog.errors import ConnectionLost, NetworkError, ProtocolError
from gossiplog.log import Log
from gossiplog.log.asynchronous.log import AsyncLog
from gossiplog.log.log import replica_of
from gossiplog.log.rebasing import rebase_command
from gossiplog.net import events
from gossiplog.net.arguments import check_callbacks, check_log, check_settings, check_texts
from gossiplog.net.event_stream import EventSource, EventStream
from gossiplog.net.events import PeerInfo
from gossiplog.net.host_service import LISTEN, HostService, Identity, identity_seed
from gossiplog.net.rate_limited_log import keep_latest
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.refusals import SETTLED_SECONDS
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import NetworkCounters
from gossiplog.net.routing.kinds import RouterName, kind_named
from gossiplog.net.routing.router_host import LinkChange, RouterHost
from gossiplog.net.service import background
from gossiplog.net.transport.host import Arrival, Host, News, open_host
from gossiplog.net.transport.limits import Limits
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.sync import SyncServerConfig
from gossiplog.protocol.wire import SHOWN_TOPIC, Protocols
from gossiplog.pubsub.gossipsub.config import GossipConfig
from gossiplog.reprs import counted, listed

_MESH_EVENTS: dict[str, Callable[[str], events.Event]] = {
    "graft": events.Grafted,
    "prune": events.Pruned,
    "subscribe": events.Subscribed,
    "unsubscribe": events.Unsubscribed,
}
# In errors about addresses.
_ADDRESS = "/ip4/127.0.0.1/tcp/9000/ws"
# Between looks at what a peer says of itself, in seconds; topics that an error names.
_JOINING_LOOK = 0.1
_MOST_TOPICS = 5
# After this long without any peer the log says why `bootstrap` leads to none.
_BOOTSTRAP_SECONDS = 10.0
# What the host says of an address at which its own id answers.
_OWN_ID = "leads to this host itself"
# For storing what was passed on before the end.
_STORING_SECONDS = 2.0
# How long a peer that broke a rule is not let in.
_SHUN_SECONDS = 600.0


class Peer(EventSource, HostService):
    """A log that is kept in step with those of other peers, for the time of its context, which is entered once.

        async with gossiplog.Peer(log, listen=["/ip4/127.0.0.1/tcp/0/ws"], bootstrap=[address]) as peer:
            print(peer.addresses)

    Peers find each other: one that is known, `bootstrap`, is enough. What any of them appends reaches all. Its context
    raises LogClosed or CorruptLog when the log is closed or found damaged meanwhile, and what `on_event` or
    `on_message` raise.

    Args:
        log: to keep in step, a Log or an AsyncLog; it may be used as before meanwhile.
        listen: multiaddrs to listen on: TCP (`/ip4/0.0.0.0/tcp/9000`) or WebSocket (`/ip4/0.0.0.0/tcp/9000/ws`), the
            only transport of canvas-js. By default other machines cannot connect; none for a peer that only dials.
        bootstrap: multiaddrs of peers that know others; dialled again while there are few connections.
        identity: by which others know the peer: 32 bytes, the seed of an Ed25519 key; or the file that holds it, which
            only its owner can read, and which is made if it is not there; None for one that is new each time.
        announce: multiaddrs under which others reach this peer, beside those that it listens on.
        mdns: whether to look for peers in the local network.
        gossip: the parameters of gossipsub; None for those of its specification. Peers may have different ones.
        allow_peers: ids of the only peers that may connect, and are connected to, beside those that `bootstrap` names;
            none for any peer. Without it, everybody who reaches an address and knows the topic reads and writes.
        limits: of connections, streams and memory; None for the usual ones.
        broadcast: limits and delays of the exchange with peers, a BroadcastConfig; None for the usual ones.
        sync_server: limits of the sync streams that are served, a SyncServerConfig; likewise.
        forward: pass gossip on once it is "verified", or only once it is "stored". None for "stored" if the log has
            `payload` or `apply`, which may refuse messages, or where `router` is another than "libp2p"; otherwise
            "verified".
        router: what spreads messages among peers: "libp2p" is gossipsub 1.1 of rust-libp2p, and can pass messages on
            once they are verified; "gossipsub", "floodsub" and "episub" are the routers of this package, which are
            simulated, too. Peers with "episub" exchange messages with others by syncs alone; all others are in one
            mesh.
        on_event: is called with what happens, in order, on the event loop; it must not block.
        on_message: is called with each message that the log gets, once, in the order of arrival; likewise.

    Attributes:
        log: that is kept in step.

    Raises:
        KeyFileError: the file of the identity cannot be read or made, is damaged, or open to others than its owner.
        ValueError: an address or an id that a host cannot use, an identity of another length than 32 bytes, or a log
            that was opened read-only; a `forward` or `router` that is none, or what cannot go together: "verified" with
            another router than "libp2p", or `gossip` with one that has no such parameters.
        TypeError: a log, limits or settings that are none, such as a path; a single address where several may be given;
            or a coroutine or generator function, whose body would not run, as a callback.

    Examples:
        >>> async def main():
        ...     other = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     other.append("from another peer")
        ...     async with gossiplog.Peer(other) as one, gossiplog.Peer(log, bootstrap=one.addresses) as two:
        ...         await two.synced()
        ...         print(len(log), [peer.kind for peer in two.peers])
        >>> anyio.run(main)
        1 ['mesh']
    """

    _WHO = "the peer"
    _ENTERED_AGAIN = "a peer runs once: make another"

    def __init__(
        self,
        log: Log[Any] | AsyncLog[Any],
        *,
        listen: Sequence[str] = LISTEN,
        bootstrap: Sequence[str] = (),
        identity: Identity = None,
        announce: Sequence[str] = (),
        mdns: bool = False,
        gossip: GossipConfig | None = None,
        allow_peers: Sequence[str] = (),
        limits: Limits | None = None,
        broadcast: BroadcastConfig | None = None,
        sync_server: SyncServerConfig | None = None,
        forward: Literal["verified", "stored"] | None = None,
        router: RouterName = "libp2p",
        on_event: Callable[[events.Event], None] | None = None,
        on_message: Callable[[SignedMessage], None] | None = None,
    ) -> None:
        super().__init__()
        log = check_log(log, writes=True)
        check_callbacks(on_event=on_event, on_message=on_message)
        check_settings(broadcast=(broadcast, BroadcastConfig), sync_server=(sync_server, SyncServerConfig))
        check_settings(gossip=(gossip, GossipConfig), limits=(limits, Limits))
        if forward not in (None, "verified", "stored"):
            raise ValueError(f"forward is {forward!r}; it must be 'verified', 'stored' or None")
        kind = kind_named(router, log.topic, gossip)
        if forward == "verified" and kind is not None:
            raise ValueError(
                f"forward is 'verified', and the router {router!r}: only 'libp2p' passes messages on before they are"
                " stored"
            )
        listen = check_texts("listen", listen, _ADDRESS, check_address)
        bootstrap = check_texts("bootstrap", bootstrap, _ADDRESS, check_address)
        announce = check_texts("announce", announce, _ADDRESS, check_address)
        allow_peers = check_texts("allow_peers", allow_peers, "12D3KooW…", check_peer_id)
        self.log: Log[Any] = log
        self._open_host = partial(
            open_host,
            identity=identity_seed(identity),
            topic=log.topic,
            protocols=(*Protocols(log.topic).all, *(kind.protocols if kind is not None else ())),
            listen=listen,
            bootstrap=bootstrap,
            announce=announce,
            mdns=mdns,
            gossips=kind is None,
            gossip=gossip or GossipConfig(),
            idle_streams=kind.idle_streams if kind is not None else 1,
            allow_peers=allow_peers,
            limits=limits,
            notify=self._handle_news,
        )
        self._make_driver = partial(
            Driver,
            log,
            rebase_command=self._rebase_command,
            topics_of=self._topics_of,
            broadcast=broadcast,
            sync_server=sync_server,
            on_event=on_event,
            on_message=on_message,
        )
        self._router_kind = kind
        if forward is None:
            forward = "stored" if replica_of(log).may_refuse or kind is not None else "verified"
        self._is_forwarded_early = forward == "verified"
        self._bootstrap = bootstrap
        self._announce = announce
        self._listeners = len(listen)
        self._connections = (limits or Limits()).connections
        self._running: _Running | None = None
        self._counters = NetworkCounters()

    async def _start(self, stack: AsyncExitStack) -> None:
        stack.callback(self._streams.end)
        # The host cannot call the reference implementation's: with GOSSIPLOG_CORE=python all gossip is stored first.
        is_possible = core.GossipValidator is GossipValidator
        validator = GossipValidator(self.log.topic) if self._is_forwarded_early and is_possible else None
        host = self._open_host(validator=validator)
        router = None
        if self._router_kind is not None:
            router = RouterHost(self._router_kind, self.log.topic, host, SystemRandom(), self._note_link)
        driver = self._make_driver(router=router or host, gossip_streams=router, validator=validator)
        self._running = running = _Running(host, driver, router)
        stack.callback(self._end)
        await self._enter_host(stack, host)
        await stack.enter_async_context(running.driver)
        if validator is not None:
            stack.push_async_callback(_store_rest, running, validator)
        tasks = await stack.enter_async_context(background())
        if router is not None:
            tasks.start_soon(router.run)
        tasks.start_soon(self._accept, running, tasks)
        tasks.start_soon(_take_gossip, running)
        if validator is not None:
            host.store_at_once = running.driver.store_accepted_at_once
            tasks.start_soon(_store_accepted, running)
            tasks.start_soon(_look_up_missing, running)
        stack.callback(running.driver.begin_shutdown)
        await self._until_listening()
        self._note_own_id(host)
        tasks.start_soon(self._report_bootstrap, host)

    def __repr__(self) -> str:
        running = self._running
        if running is None:
            return f"<Peer of {self.log!r}, not running>"
        return f"<Peer {running.host.peer_id} of {self.log!r}, running, peers: {len(self.peers)}>"

    def _end(self) -> None:
        running, self._counters = self._there, self.counters
        self._running = None
        # Tasks beside the context wait for a peer.
        running.driver.peers_changed.set()

    @property
    def peers(self) -> tuple[PeerInfo, ...]:
        """Those that are connected now, the oldest connections first; none while the peer is not running."""
        running = self._running
        if running is None:
            return ()
        infos = PeerInfo.of_mesh(running.host.peers, {each.name for each in running.driver.peers})
        return tuple(running.with_links(info) for info in infos)

    @property
    def obstacle(self) -> str:
        """Why `/readyz` answers 503; "" if it does not."""
        return self._running.driver.unready if self._running is not None else "the peer is not running"

    @property
    def counters(self) -> NetworkCounters:
        """What was counted since the peer started; after its end, until then."""
        found = self._running.counters if self._running is not None else self._counters
        return replace(found, connection_limits=MappingProxyType({"mesh": self._connections}))

    @property
    def _register_stream(self) -> Callable[[EventStream], object]:
        return self._there.driver.telemetry.register

    async def joined(self) -> None:
        """Wait until messages are exchanged with a peer.

        Raises:
            ConnectionLost: with the cause "topic": all peers that are connected refuse the log's topic, and say which
                others they serve.
            RuntimeError: the peer is not running, or ends meanwhile.
        """
        while not (driver := self._there.driver).peers:
            peers = self._there.host.peers
            if peers and all(peer.protocols for peer in peers) and driver.counters.other_topics:
                others = {topic for peer in peers for topic in Protocols.topics(peer.protocols)}
                raise ConnectionLost("topic", _other_topics(self._way_in, sorted(others), driver.protocols.topic))
            with anyio.move_on_after(_JOINING_LOOK):
                await driver.peers_changed.wait()

    @property
    def _way_in(self) -> str:
        """How this peer came to the others, for errors."""
        return self._dialled or listed(self._bootstrap, 1) or "every peer that is connected"

    async def synced(self) -> None:
        """Wait until this log and those of all peers that are connected hold the same messages.

        `on_event` has then been called with how they came. Where no peer is connected, wait for one. While others
        write, the logs may be equal for no more than a moment between two of their messages. It waits on while this
        log's own application refuses messages that a peer has (see MessagesRefused), or they cannot be stored (see
        `obstacle`).

        Raises:
            RefusedByPeer: a peer's application refuses messages of this log, and says so (wire format, "Refusals"). The
                logs of all peers that do not say so are in step.
            RuntimeError: the peer is not running, or ends meanwhile.
        """
        began = anyio.current_time()

        async def is_in_step() -> bool:
            return await self._in_step(began)

        await self._there.driver.synced(is_in_step)

    async def _in_step(self, began: float) -> bool:
        """Return whether the log holds what those of all peers do.

        Raises:
            RefusedByPeer: all peers that differ have said what they refuse, and nothing has come of it since.
        """
        while not (driver := self._there.driver).peers:
            await driver.peers_changed.wait()
        refusing: PeerSession | None = None
        for peer in driver.peers:
            try:
                if await driver.root_of(peer) == await driver.root():
                    continue
            except (NetworkError, ProtocolError):
                # It is busy, or leaves, or is dropped.
                return False
            if not peer.refusals.reported:
                return False
            refusing = refusing or peer
        if refusing is None:
            return True
        last = max(began, *(peer.refusals.reported_at for peer in driver.peers))
        error = driver.refusals.error_for(refusing, refusing.name)
        if error is not None and driver.is_idle and anyio.current_time() - last >= SETTLED_SECONDS:
            raise error
        return False

    def _topics_of(self, peer_id: str) -> Sequence[str] | None:
        """Return the topics of which a peer exchanges messages; None before it has said what its streams speak."""
        protocols = next((peer.protocols for peer in self._there.host.peers if peer.peer_id == peer_id), ())
        return Protocols.topics(protocols) if protocols else None

    def _rebase_command(self, peer: PeerSession) -> str:
        return rebase_command(replica_of(self.log).argument, self._address_of(peer), list(peer.refusals.reported))

    def _address_of(self, peer: PeerSession) -> str:
        """Return a multiaddr that leads to a peer, as far as one is known."""
        for each in self._there.host.peers:
            if each.peer_id == peer.name and each.dialer:
                end = f"/p2p/{peer.name}"
                return each.address if each.address.endswith(end) else each.address + end
        return "ADDRESS"

    @property
    def _there(self) -> _Running:
        if self._running is None:
            raise RuntimeError("the peer is not running: enter `async with peer`")
        return self._running

    def _note_link(self, peer_id: str, change: LinkChange) -> None:
        self._there.driver.telemetry.emit(_MESH_EVENTS[change](peer_id))

    def _handle_news(self, news: News) -> None:
        telemetry = self._there.driver.telemetry
        if isinstance(news, MeshEvent):
            telemetry.emit(_MESH_EVENTS[news.kind](news.peer_id))
            return
        for peer_id in news.denied:
            telemetry.count_refused("peer")
            reason = "it is blocked" if peer_id in self._blocked else "it is not one of the peers that may connect"
            # One peer that comes again and again must not use up the lines for all others.
            telemetry.incident(peer_id, "connections_refused", 1, f"not let in: {reason}", repeats=False)
        if news.refused > len(news.denied):
            reason = "there were as many connections from their addresses as there may be"
            count = news.refused - len(news.denied)
            telemetry.count_refused("address", count)
            telemetry.incident("strangers", "connections_refused", count, f"not let in: {reason}")
        for reason in news.failed:
            telemetry.emit(events.Failed("listening", NetworkError(reason)))
        self._note_listening(news.failed)

    def _note_own_id(self, host: Host) -> None:
        """Log the addresses of `bootstrap` that have this peer's id and are not its own: it does not dial them."""
        end = f"/p2p/{host.peer_id}"
        own = {address.removesuffix(end) for address in (*host.addresses, *self._announce)}
        for address in self._bootstrap:
            if address.endswith(end) and address.removesuffix(end) not in own:
                self._note_bootstrap(address, _same_id(host.peer_id))

    async def _report_bootstrap(self, host: Host) -> None:
        """Log why `bootstrap` has led to no peer, once: the host dials them again and again, and says nothing."""
        await anyio.sleep(_BOOTSTRAP_SECONDS)
        answered: list[str] = []
        driver = self._there.driver
        for address in self._bootstrap:
            if driver.peers:
                return
            if address.endswith(f"/p2p/{host.peer_id}"):
                continue
            try:
                await host.dial(address)
                answered.append(address)
            except NetworkError as error:
                is_own = _OWN_ID in str(error)
                self._note_bootstrap(address, _same_id(host.peer_id) if is_own else f"no peer yet: {error}")
        if answered and not driver.peers:
            topic = repr(driver.protocols.topic[:SHOWN_TOPIC])
            text = f"it answers, and no peer of this log's topic, {topic}, came within {_BOOTSTRAP_SECONDS:g} s"
            if others := {topic for peer in host.peers for topic in Protocols.topics(peer.protocols)}:
                named = listed([repr(topic[:SHOWN_TOPIC]) for topic in sorted(others)], _MOST_TOPICS)
                text = f"{text}: those that are connected serve {named}"
            self._note_bootstrap(listed(answered, 1), text)

    def _note_bootstrap(self, address: str, text: str) -> None:
        self._there.driver.telemetry.incident(address, "bootstrap", 1, text)

    async def _accept(self, running: _Running, tasks: anyio.abc.TaskGroup) -> None:
        async for arrival in running.host:
            tasks.start_soon(_exchange, running, arrival)


@dataclass(slots=True, eq=False)
class _Running:
    """What there is of a peer while it runs.

    Attributes:
        host: that has the connections.
        driver: that replicates the log.
        router: that this process runs; None where the host has its own.
        shunned: peers that broke a rule, and until when they are not let in again.
        exchange_locks: by peer id, the lock that the peer's running exchange holds.
    """

    host: Host
    driver: Driver
    router: RouterHost | None = None
    shunned: dict[str, float] = field(default_factory=dict)
    exchange_locks: dict[str, anyio.Lock] = field(default_factory=dict)

    @property
    def counters(self) -> NetworkCounters:
        peers = self.host.peers
        held, counts, mesh = self.host.held(), self.host.counts(), sum(peer.in_mesh for peer in peers)
        if self.router is not None:
            held, counts, mesh = held + self.router.held, {**counts, **self.router.counts}, len(self.router.links.mesh)
        return replace(
            self.driver.counters._with_network(counts, held),
            mesh=mesh,
            open_connections=MappingProxyType({"mesh": len(peers)}),
        )

    def with_links(self, info: PeerInfo) -> PeerInfo:
        """Return what is known of a peer, with how the router stands with it, where this process runs one."""
        if self.router is None:
            return info
        links = self.router.links
        return replace(
            info,
            subscribed=info.name in links.subscribed,
            in_mesh=info.name in links.mesh,
            score=self.router.score(info.name),
        )

    def shun(self, peer_id: str) -> None:
        """Refuse a peer that broke a rule, for _SHUN_SECONDS."""
        keep_latest(self.shunned, peer_id, anyio.current_time() + _SHUN_SECONDS)

    def shuns(self, peer_id: str) -> bool:
        """Return whether a peer is not let in."""
        return self.shunned.get(peer_id, float("-inf")) > anyio.current_time()


async def _exchange(running: _Running, arrival: Arrival) -> None:
    """Exchange messages with a peer until the connection ends."""
    connection, name = arrival.connection, arrival.peer_id
    lock = running.exchange_locks.setdefault(name, anyio.Lock())
    try:
        # The peer's last exchange may still shun it: wait for its verdict.
        async with lock:
            if running.shuns(name):
                running.driver.telemetry.refused(name, "banned", "it broke a rule before")
            elif await running.driver.exchange(connection, name, dialer=arrival.dialer, gossips=True):
                running.shun(name)
    except NetworkError:
        # The driver has reported how the connection ended.
        pass
    finally:
        # Releasing hands a lock to who waits for it, so that nobody uses one that is not locked.
        if not lock.locked() and running.exchange_locks.get(name) is lock:
            del running.exchange_locks[name]
        await connection.leave()


def _other_topics(address: str, topics: Sequence[str], own: str) -> str:
    own = repr(own[:SHOWN_TOPIC])
    if not topics:
        return f"{address} does not exchange messages of this log's topic, {own}"
    named = listed([repr(topic[:SHOWN_TOPIC]) for topic in topics], _MOST_TOPICS)
    return f"{address} serves the topic {named}; this log's is {own}"


def _same_id(peer_id: str) -> str:
    return (
        f"the server there has this one's id, {peer_id}: if it is this server, leave the address out of `bootstrap`;"
        " if it is another, it uses a copy of this one's identity: give it one of its own, or neither gets what the"
        " other has"
    )


async def _store_rest(running: _Running, validator: GossipValidator) -> None:
    """Store what was passed on before the end; report what is left after a while."""
    validator.close()
    left = 0
    with anyio.move_on_after(_STORING_SECONDS, shield=True), suppress(NetworkError):
        while (taken := running.host.take_accepted()) is not None:
            left = len(taken[0])
            await running.driver.store_accepted(*taken)
            left = 0
    while (taken := running.host.take_accepted()) is not None:
        left += len(taken[0])
    if left:
        reason = (
            f"{counted(left, 'message was', 'messages were')} passed on, and not stored within {_STORING_SECONDS:g} s"
            " of the end: a sync with peers brings what is missing"
        )
        running.driver.telemetry.emit(events.Failed("storing gossip at the end", TimeoutError(reason)))


async def _store_accepted(running: _Running) -> None:
    while True:
        accepted = await running.host.accepted()
        # Also at the end: it was passed on.
        with anyio.CancelScope(shield=True):
            await running.driver.store_accepted(*accepted)


async def _look_up_missing(running: _Running) -> None:
    while True:
        await running.driver.report_held(await running.host.missing())
        # Where there is always more of it, neither of these waits.
        await anyio.lowlevel.checkpoint()


async def _take_gossip(running: _Running) -> None:
    source = running.host if running.router is None else running.router
    while True:
        await running.driver.take_gossip(await source.gossip())
        # Where there is always more of it, neither of these waits.
        await anyio.lowlevel.checkpoint()


def driver_of(peer: Peer) -> Driver:
    """Return what replicates a peer's log. Applications have no need for it, so that it is no method.

    Args:
        peer: that is running.

    Raises:
        RuntimeError: it is not running.

    Examples:
        >>> from gossiplog.lowlevel import driver_of
        >>> async def main():
        ...     async with gossiplog.Peer(log) as peer:
        ...         print(driver_of(peer).peers)
        >>> anyio.run(main)
        ()
    """
    return peer._there.driver
