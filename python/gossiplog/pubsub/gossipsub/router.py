"""gossipsub 1.0: messages travel in full through a sparse random mesh a topic, and gossip about them reaches beyond it.

The rules, from the specification (https://github.com/libp2p/specs/blob/master/pubsub/gossipsub/gossipsub-v1.0.md, r2),
from the guide to it (https://docs.libp2p.io/concepts/pubsub/overview/: "guide"), and where both are silent from
go-libp2p-pubsub ("go"); what is from none of them is marked as ours.

1. *Hello.* A peer that connects is sent our topics; every peer is notified when we join one or leave one.
2. *Join.* The fan-out peers of the topic, and others drawn up to D, are its mesh, and are sent GRAFT. *Leave.* The mesh
   is sent PRUNE. Both in the packet that announces it (guide).
3. *GRAFT* adds its sender to the mesh of a topic that we are in, and is answered with PRUNE otherwise. *PRUNE* removes
   it. GRAFT says that the sender is in the topic (rust-libp2p), whose announcement may have been lost.
4. *Crossed GRAFT and PRUNE* (ours). A GRAFT from a peer to which we sent PRUNE last may have been sent before that
   arrived, so that it ends up without us where we have it. It is therefore answered with GRAFT, which changes nothing
   if it was not. Likewise a peer that unsubscribes from a topic without PRUNE, and was in our mesh, is sent PRUNE: our
   GRAFT may be on its way. So at rest two peers are in each other's mesh, or neither is, as long as packets between
   them keep their order.
5. *Messages.* A new one of a topic that we are in is delivered, goes to the floodsub peers of the topic and to its
   mesh, and is kept for those who ask. New is what has an id that was not seen, is not our own, made out as it has to
   be, and passes the application's judgement; what fails that is not judged again (go). One of several topics (guide)
   is delivered once, and goes to each peer once: to those of all its topics that we are in, since others' topics are
   for those to spread who are in them. It is gossiped about in each of its topics.
6. *Publish.* To the floodsub peers, and to the mesh; for a topic that we are not in, to the fan-out, which is drawn up
   to D (guide) and knows nothing of it. What is published to several topics is one message, for the peers of all.
7. *IHAVE* is answered with IWANT for what was not seen, if we are in the topic (go); *IWANT* with the messages that are
   kept, a few times to each peer (go).
8. *Heartbeat.* Meshes below D_low are filled, and those above D_high emptied, to D; fan-outs are filled to D, or
   dropped when nothing was published for a time; IHAVE goes to peers of each topic that are in neither. They are drawn
   among those: so do the specification's text, the guide and go; its pseudo-code draws among all peers, and then leaves
   out the members.
9. *Floodsub peers* get every message of their topics, and no control messages.
10. *Validation* (gossipsub-v1.1.md, "Extended Validators"), where the application asks for it. A new message of others
   is delivered at once, and neither forwarded, kept nor gossiped about until the application answers: accept, ignore
   or reject. Peers that send copies meanwhile do not get it back, and a rejection names all of them (rust-libp2p).
   It is kept and gossiped about for as many heartbeats after it came as any other, so one that is not answered by then
   is forgotten (rust-libp2p). One for which there is no room is not delivered; neither is new again.

The router remembers what `Config` limits, of connected peers only, and of the topics that they are in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from random import Random
from typing import Any

from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.pubsub.authorship import Authorship, author_and_number, check_ids, compose_valid, fits, name_is_id
from gossiplog.pubsub.events import (
    Deliver,
    GossipAnswered,
    Join,
    Leave,
    PeerConnected,
    PeerDisconnected,
    PeerId,
    Publish,
    Received,
    Rejected,
    SetTimer,
    TimerExpired,
)
from gossiplog.pubsub.gossipsub.config import Config
from gossiplog.pubsub.gossipsub.events import Heartbeat, Unsent
from gossiplog.pubsub.gossipsub.message_cache import MessageCache, message_size
from gossiplog.pubsub.gossipsub.outbox import Outbox
from gossiplog.pubsub.gossipsub.peering import Fanout, Peer, Peering, PeeringState
from gossiplog.pubsub.rpc import FLOODSUB, GOSSIPSUB, Control, IHave, Message, MessageId, Rpc, Seen, Subscription
from gossiplog.pubsub.unanswered import UnansweredMessages

_HEARTBEAT = Heartbeat()


class GossipSub:
    """A router. A driver connects it to others, and does what it asks for.

    A router that extends it overrides `receive_extension` and `beat_extension`, and sends its own messages, and control
    messages of this one, with `send`.

    Args:
        peer: this one, as others know it.
        random: what peers are drawn with.
        authorship: of own messages and of others'.
        config: parameters and limits.
        id_of: the id of a message; all peers of a network use the same function. By default the author and its number.
        is_valid: the application's judgement of a message.
        name_of: a peer's name as an author of messages; by default it is known by that name.
        validation: whether others' messages wait for the application's `GossipAnswered` (rule 10), after `is_valid`.

    Raises:
        ValueError: messages have no author, and `id_of` is the default, which would give all of them one id.
    """

    __slots__ = (
        "_announced",
        "_asked",
        "_authors",
        "_authorship",
        "_beats",
        "_cache",
        "_config",
        "_delivered",
        "_hello",
        "_id_of",
        "_is_valid",
        "_name_of",
        "_outbox",
        "_own",
        "_random",
        "_seen",
        "_state",
        "_unanswered",
        "_validation",
    )

    def __init__(
        self,
        peer: PeerId,
        random: Random,
        authorship: Authorship,
        config: Config | None = None,
        *,
        id_of: Callable[[Message], MessageId] = author_and_number,
        is_valid: Callable[[Message], bool] = lambda message: True,
        name_of: Callable[[PeerId], bytes] = name_is_id,
        validation: bool = False,
    ) -> None:
        check_ids(authorship, id_of)
        config = config or Config()
        self._own = peer
        self._random = random
        self._authorship = authorship
        self._config = config
        self._id_of = id_of
        self._is_valid = is_valid
        self._name_of = name_of
        self._state = PeeringState(random, config.max_topics, config.max_topic)
        self._authors: dict[bytes, PeerId] = {}
        self._seen = Seen(config.seen_ttl, config.max_seen)
        self._cache = MessageCache(config.mcache_len, config.mcache_gossip, config.max_cached, config.max_repeats)
        self._outbox = Outbox(self._confirm, self._state.mesh.__contains__, self._state.concerns, config.max_topics)
        self._validation = validation
        self._unanswered = UnansweredMessages[tuple[Message, Rpc]](config.max_unanswered, config.max_unanswered_bytes)
        # Heartbeats so far.
        self._beats = 0
        self._delivered: list[Deliver] = []
        # What a peer that connects is sent; None where our topics have changed since.
        self._hello: Rpc | None = None
        # Ids since the last heartbeat: that each peer announced, and that it was asked for, by topic.
        self._announced: dict[PeerId, int] = {}
        self._asked: dict[tuple[PeerId, str], int] = {}

    # What others may see

    @property
    def peers(self) -> Mapping[PeerId, str]:
        """The connected peers, and the protocols that they speak."""
        return {peer: state.protocol for peer, state in self._state.peers.items()}

    @property
    def topics(self) -> Sequence[str]:
        """The topics that we are in."""
        return tuple(self._state.mesh)

    def mesh(self, topic: str) -> Sequence[PeerId]:
        """Return the mesh of a topic; empty for one that we are not in."""
        return tuple(self._state.mesh.get(topic, ()))

    def fanout(self, topic: str) -> Sequence[PeerId]:
        """Return the fan-out peers of a topic that we are not in."""
        fanout = self._state.fanout.get(topic)
        return () if fanout is None else tuple(fanout.peers)

    def topics_of(self, peer: PeerId) -> Sequence[str]:
        """Return the topics that a peer is in, as far as it has announced."""
        state = self._state.peers.get(peer)
        return () if state is None else tuple(state.topics)

    def peering(self, peer: PeerId, topic: str) -> Peering | None:
        """Return how we stand with a peer in a topic; None if it is not in it."""
        return self._state.peering(peer, topic)

    def peerings(self) -> Iterator[tuple[PeerId, str, Peering]]:
        """Return how we stand with each peer in each topic that it is in."""
        return self._state.peerings()

    # Events

    def start(self, now: float) -> Sequence[Any]:
        """Begin. The first heartbeat comes within an interval, at random: those of all peers are not to coincide."""
        return (SetTimer(_HEARTBEAT, now + self._random.uniform(0, self._config.heartbeat_interval)),)

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Return what follows from an event.

        Raises:
            ValueError: the application publishes what is too long, or to too many topics, or what it calls invalid
                itself.
        """
        if type(event) is Received:
            return self._orders() if self._receive(event.peer, event.packet, now) else ()
        match event:
            case TimerExpired(Heartbeat()):
                self._beat(now)
                return (*self._outbox.flush(), SetTimer(_HEARTBEAT, now + self._config.heartbeat_interval))
            case PeerConnected(peer, protocol):
                self._connect(peer, protocol)
            case PeerDisconnected(peer):
                self._disconnect(peer)
            case Join(topic):
                self._join(topic)
            case Leave(topic):
                self._leave(topic)
            case Publish(topics, data):
                self._publish(topics, data, now)
            case GossipAnswered(id, answer):
                if rejected := self._answer(id, answer):
                    return (Rejected(rejected),)
            case Unsent(peer, packet) if peer in self._state.peers:
                # Until a GRAFT is sent, the last that the peer gets is the PRUNE before it.
                for topic in packet.control.graft if packet.control is not None else ():
                    self._mark(peer, topic)
                self._outbox.keep(peer, packet)
        return self._orders()

    def _orders(self) -> Sequence[Any]:
        sends = self._outbox.flush()
        if not self._delivered:
            return sends
        delivered, self._delivered = self._delivered, []
        return (*delivered, *sends)

    # Extensions

    def send(self, peers: Sequence[PeerId], packet: Rpc) -> None:
        """Send something to each of the connected peers, together with what else goes to them on this event."""
        self._outbox.add(peers, packet)

    def receive_extension(self, peer: PeerId, extension: Sequence[Any], now: float) -> None:
        """Handle what a connected gossipsub peer sent and this router does not know."""

    def beat_extension(self, now: float) -> None:
        """Extend the heartbeat.

        It has maintained meshes and fan-outs, and gossiped; the message cache is not shifted yet.
        """

    # Peers and topics

    def _connect(self, peer: PeerId, protocol: str) -> None:
        if protocol not in (GOSSIPSUB, FLOODSUB) or peer == self._own or peer in self._state.peers:
            return
        self._state.peers[peer] = Peer(protocol)
        self._authors[self._name_of(peer)] = peer
        if self._state.mesh:
            if self._hello is None:
                self._hello = Rpc(subscriptions=tuple(Subscription(topic, True) for topic in self._state.mesh))
            self._outbox.add((peer,), self._hello)

    def _disconnect(self, peer: PeerId) -> None:
        if peer in self._state.peers:
            self._state.disconnect(peer)
            self._authors.pop(self._name_of(peer), None)
            self._outbox.forget(peer)

    def _announce(self, topic: str, subscribe: bool) -> None:
        self._hello = None
        if self._state.peers:
            self._outbox.add(tuple(self._state.peers), Rpc(subscriptions=(Subscription(topic, subscribe),)))

    def _join(self, topic: str) -> None:
        state = self._state
        if topic in state.mesh:
            return
        fanout = state.fanout.pop(topic, None)
        mesh = state.mesh[topic] = {} if fanout is None else fanout.peers
        mesh.update(dict.fromkeys(state.draw(topic, self._config.d - len(mesh), mesh)))
        self._announce(topic, True)
        for peer in mesh:
            self._graft(peer, topic)

    def _leave(self, topic: str) -> None:
        mesh = self._state.mesh.pop(topic, None)
        if mesh is not None:
            self._announce(topic, False)
            for peer in mesh:
                self._prune(peer, topic)

    def _graft(self, peer: PeerId, topic: str) -> None:
        """Tell a peer that it is in the mesh."""
        self._state.peers[peer].pruned.discard(topic)
        self._outbox.link(peer, topic, True)

    def _prune(self, peer: PeerId, topic: str) -> None:
        """Tell a peer that it is not in the mesh."""
        self._mark(peer, topic)
        self._outbox.link(peer, topic, False)

    def _mark(self, peer: PeerId, topic: str) -> None:
        pruned = self._state.peers[peer].pruned
        # No honest peer is in more topics.
        if self._state.concerns(peer, topic) and len(pruned) < self._config.max_topics:
            pruned.add(topic)

    def _confirm(self, peer: PeerId, topic: str, linked: bool) -> bool:
        """Return whether a GRAFT or PRUNE that could not be sent is still true."""
        if (peer in self._state.mesh.get(topic, ())) != linked:
            return False
        if linked:
            self._state.peers[peer].pruned.discard(topic)
        else:
            self._mark(peer, topic)
        return True

    # Packets

    def _receive(self, peer: PeerId, packet: Rpc, now: float) -> bool:
        """Take a packet; return whether anything can follow from it: from copies, which most are, nothing does."""
        state = self._state
        if peer not in state.peers:
            return False
        control = packet.control
        for change in packet.subscriptions:
            if change.subscribe:
                state.subscribe(peer, change.topic)
            elif state.unsubscribe(peer, change.topic) and (control is None or change.topic not in control.prune):
                self._prune(peer, change.topic)
        new = False
        id_of, is_seen, joined = self._id_of, self._seen.has, state.mesh.keys()
        for message in packet.messages:
            if not joined.isdisjoint(message.topics) and len(message.data) <= self._config.max_data:
                id = id_of(message)
                if not is_seen(id) and fits(message, self._config):
                    new = True
                    self._take(peer, message, id, packet if packet.is_message else Rpc((message,)), now)
                elif self._validation:
                    self._unanswered.add_source(id, peer)
        if control is not None and state.peers[peer].gossips:
            self._control(peer, control, now)
        if packet.extension and state.peers[peer].gossips:
            self.receive_extension(peer, packet.extension, now)
        return new or control is not None or bool(packet.subscriptions or packet.extension)

    def _take(self, peer: PeerId, message: Message, id: MessageId, packet: Rpc, now: float) -> None:
        """Accept a message that is new, and go on in the packet given."""
        author = message.author
        if author is not None and author == self._authorship.author:
            return
        if not self._authorship.admits(message):
            return
        self._seen.add(id, now)
        if not self._is_valid(message):
            return
        if not self._validation:
            self._accept(message, id, packet, (peer,))
        elif not self._unanswered.put(id, (message, packet), message_size(message), peer, self._beats):
            return
        self._delivered.append(Deliver(self._joined(message), id, message.data, peer))

    def _joined(self, message: Message) -> tuple[str, ...]:
        """Return the topics of a message that we are in."""
        return tuple(dict.fromkeys(topic for topic in message.topics if topic in self._state.mesh))

    def _answer(self, id: MessageId, answer: GossipAnswer) -> tuple[PeerId, ...]:
        """Do with a message that waits what the application says; return the peers whose message it rejects."""
        waiting = self._unanswered.take(id)
        if waiting is None:
            return ()
        if answer is GossipAnswer.ACCEPT:
            message, packet = waiting.item
            self._accept(message, id, packet, tuple(waiting.sources), self._beats - waiting.since)
        return waiting.rejected_peers(answer)

    def _accept(self, message: Message, id: MessageId, packet: Rpc, sources: tuple[PeerId, ...], age: int = 0) -> None:
        """Keep a message of others that came `age` heartbeats ago; send it to those who neither sent nor wrote it."""
        self._cache.put(id, message, age)
        mesh = self._state.mesh
        author = message.author
        origin = sources[0] if author is None else self._authors.get(author, sources[0])
        self._forward({topic: mesh[topic] for topic in self._joined(message)}, packet, (*sources, origin))

    def _forward(
        self, meshes: Mapping[str, dict[PeerId, None]], packet: Rpc, excluded: Collection[PeerId] = ()
    ) -> None:
        """Send a message to the floodsub peers of topics, and to the peers given for each topic: to everybody once."""
        known = self._state.members
        groups = [known[topic].floodsub for topic in meshes if topic in known and known[topic].floodsub]
        groups += meshes.values()
        # Nearly always there is one topic, and nobody in it speaks floodsub.
        everybody = groups[0] if len(groups) == 1 else dict.fromkeys(chain.from_iterable(groups))
        targets = [peer for peer in everybody if peer not in excluded]
        if targets:
            self._outbox.add(targets, packet)

    def _publish(self, topics: tuple[str, ...], data: bytes, now: float) -> None:
        state = self._state
        message = compose_valid(self._authorship, topics, data, self._config, self._is_valid)
        id = self._id_of(message)
        # Where ids are made from the content, it may have been said already.
        if self._seen.has(id):
            return
        self._seen.add(id, now)
        self._cache.put(id, message)
        if joined := self._joined(message):
            self._delivered.append(Deliver(joined, id, data, None))
        meshes: dict[str, dict[PeerId, None]] = {}
        for topic in message.topics:
            mesh = state.mesh.get(topic)
            meshes[topic] = self._fan_out(topic, now) if mesh is None else mesh
        self._forward(meshes, Rpc((message,)))

    def _fan_out(self, topic: str, now: float) -> dict[PeerId, None]:
        """Return the peers that get a message which we publish to a topic that we are not in."""
        fanout = self._state.fanout.setdefault(topic, Fanout(now))
        fanout.published = now
        self._fill(topic, fanout)
        return fanout.peers

    def _fill(self, topic: str, fanout: Fanout) -> None:
        missing = self._config.d - len(fanout.peers)
        fanout.peers.update(dict.fromkeys(self._state.draw(topic, missing, fanout.peers)))

    def _control(self, peer: PeerId, control: Control, now: float) -> None:
        if control.ihave:
            self._take_ihave(peer, control.ihave, now)
        if control.iwant:
            found = (self._cache.give(id, peer) for id in dict.fromkeys(control.iwant))
            if messages := tuple(message for message in found if message is not None):
                self._outbox.add((peer,), Rpc(messages))
        for topic in control.graft:
            self._take_graft(peer, topic)
        for topic in control.prune:
            if topic in self._state.mesh:
                self._state.mesh[topic].pop(peer, None)

    def _take_ihave(self, peer: PeerId, announced: Sequence[IHave], now: float) -> None:
        wanted: dict[MessageId, None] = {}
        for ihave in announced:
            if ihave.topic not in self._state.mesh:
                continue
            earlier = self._announced.get(peer, 0)
            ids = ihave.ids[: self._config.max_ids - earlier]
            self._announced[peer] = earlier + len(ids)
            unknown = self._seen.unseen(ids)
            if unknown:
                wanted.update(dict.fromkeys(unknown))
                key = peer, ihave.topic
                self._asked[key] = self._asked.get(key, 0) + len(unknown)
        if wanted:
            self._outbox.add((peer,), Rpc(control=Control(iwant=tuple(wanted))))

    def _take_graft(self, peer: PeerId, topic: str) -> None:
        mesh = self._state.mesh.get(topic)
        if mesh is None or not self._state.subscribe(peer, topic):
            self._prune(peer, topic)
        elif peer not in mesh:
            mesh[peer] = None
            if topic in self._state.peers[peer].pruned:
                self._graft(peer, topic)

    # Heartbeat

    def _beat(self, now: float) -> None:
        for topic in self._state.mesh:
            self._maintain_mesh(topic)
        for topic, fanout in list(self._state.fanout.items()):
            if now - fanout.published > self._config.fanout_ttl:
                del self._state.fanout[topic]
            else:
                self._fill(topic, fanout)
        for topic, mesh in self._state.mesh.items():
            self._gossip(topic, mesh)
        for topic, fanout in self._state.fanout.items():
            self._gossip(topic, fanout.peers)
        self.beat_extension(now)
        self._cache.shift()
        self._seen.expire(now)
        self._announced.clear()
        self._asked.clear()
        self._beats += 1
        self._unanswered.expire(self._beats - self._config.mcache_len)
        self._outbox.retry()

    def _maintain_mesh(self, topic: str) -> None:
        config, state = self._config, self._state
        mesh = state.mesh[topic]
        if config.graft_after is not None:
            for (peer, asked_in), count in self._asked.items():
                if (
                    asked_in == topic
                    and count >= config.graft_after
                    and state.peering(peer, topic) is Peering.METADATA_ONLY
                ):
                    self._add_to_mesh(peer, topic, mesh)
        if len(mesh) < config.d_low:
            for peer in state.draw(topic, config.d - len(mesh), mesh):
                self._add_to_mesh(peer, topic, mesh)
        if len(mesh) > config.d_high:
            for peer in state.draw_from_mesh(topic, len(mesh) - config.d):
                del mesh[peer]
                self._prune(peer, topic)

    def _add_to_mesh(self, peer: PeerId, topic: str, mesh: dict[PeerId, None]) -> None:
        mesh[peer] = None
        self._graft(peer, topic)

    def _gossip(self, topic: str, members: Mapping[PeerId, None]) -> None:
        ids = self._cache.gossip_ids(topic)
        if ids:
            peers = self._state.draw(topic, self._config.lazy, members)
            if peers:
                self._outbox.add(peers, Rpc(control=Control(ihave=(IHave(topic, tuple(ids[: self._config.max_ids])),))))
