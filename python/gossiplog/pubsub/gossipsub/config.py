"""The parameters and limits of a gossipsub router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gossiplog.checks import check_order, check_positive
from gossiplog.protocol.gossip import MAX_DATA


@dataclass(frozen=True, slots=True)
class GossipConfig:
    """The parameters of the specification (gossipsub-v1.0.md, "Parameters"), with its defaults.

    The mesh of a `Peer` takes them as they are. Each of its heartbeats announces messages to a quarter of the topic's
    other peers, if those are more than `d_lazy` (gossipsub-v1.1.md, "Adaptive Gossip Dissemination").

    Attributes:
        d: peers that a topic's mesh is to have.
        d_low: below so many, a heartbeat adds some, up to `d`.
        d_high: above so many, a heartbeat removes some, down to `d`.
        d_lazy: peers of each topic that a heartbeat gossips to; None for `d`.
        heartbeat_interval: seconds.
        fanout_ttl: seconds for which the peers of a topic that we are not in are kept after a publication to it. The
            specification has a minute, the guide to it two.
        mcache_len: heartbeats for which a message can be asked for.
        mcache_gossip: heartbeats at which a message is gossiped about.
        seen_ttl: seconds for which a message's id is remembered, and then until the next heartbeat; at least twice
            those for which it can be asked for. A peer that gets it last offers it for as long again, and where others
            have forgotten it by then, it travels for ever.

    Raises:
        ValueError: parameters that contradict each other, or with which the router would stand still or spin.

    Examples:
        >>> gossiplog.Peer(log, gossip=gossiplog.GossipConfig(d=8, d_high=16))
        <Peer ...>
    """

    d: int = 6
    d_low: int = 4
    d_high: int = 12
    d_lazy: int | None = None
    heartbeat_interval: float = 1.0
    fanout_ttl: float = 60.0
    mcache_len: int = 5
    mcache_gossip: int = 3
    seen_ttl: float = 120.0

    def __post_init__(self) -> None:
        check_order(self, 0, "d_low", "d", "d_high")
        check_order(self, 0, "mcache_gossip", "mcache_len")
        if self.d_lazy is not None:
            check_order(self, 0, "d_lazy")
        check_positive(self, "d", "d_low", "d_high", "d_lazy", "mcache_gossip")
        if self.seen_ttl < 2 * self.mcache_len * self.heartbeat_interval:
            raise ValueError(
                f"seen_ttl is {self.seen_ttl}, mcache_len {self.mcache_len}, heartbeat_interval"
                f" {self.heartbeat_interval}; expected seen_ttl >= 2 * mcache_len * heartbeat_interval, or messages may"
                " travel for ever"
            )

    @property
    def lazy(self) -> int:
        """Peers that a heartbeat gossips to."""
        return self.d if self.d_lazy is None else self.d_lazy


def read_gossip(given: Sequence[str], base: GossipConfig | None = None) -> GossipConfig:
    """Read parameters as users write them: in `--gossip` of all commands, and in files of simulations.

    Args:
        given: "name=value" each; of those with one name, the last counts.
        base: has the parameters that are not given; None for the defaults.

    Raises:
        ValueError: there is no such parameter, a value is no number, or they contradict each other.
    """
    kinds = {field.name: float if field.type == "float" else int for field in fields(GossipConfig)}
    values: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in kinds:
            raise ValueError(f"{text!r} names no parameter; expected one of {', '.join(kinds)}, as d=8")
        try:
            values[name] = kinds[name](value)
        except ValueError:
            kind = "number" if kinds[name] is float else "whole number"
            raise ValueError(f"{name} is {value!r}; expected a {kind}") from None
    return replace(base or GossipConfig(), **values)


@dataclass(frozen=True, slots=True)
class Config(GossipConfig):
    """The parameters and limits of a router.

    The specification has none of the limits: those marked [go] are go-libp2p-pubsub's, the others choices of this
    project.

    Attributes:
        graft_after: messages that had to be asked of one peer between two heartbeats, because the mesh had not brought
            them; who had so many joins the mesh. The guide to gossipsub allows that; None turns it off.
        max_data: bytes of a message's data; a longer one is passed over, and cannot be published.
        max_recipients: topics of a message; one with more is passed over, and cannot be published. The routers of
            rust-libp2p and js-libp2p write one, and read the last of several: where there are such, it is to be 1.
        max_seen: ids that are remembered; more than anybody publishes in `seen_ttl`.
        max_cached: bytes of data and characters of topics, of the messages that can be asked for.
        max_topics: of a peer's; what it subscribes to beyond that is passed over.
        max_topic: characters of a topic; a longer one of a peer's is passed over, and so is a message to one.
        max_ids: announced to a peer in each topic at a heartbeat, and accepted from it in all topics between two
            [go: MaxIHaveLength]. Announcements beyond that, of several busy topics, are passed over.
        max_repeats: times that one peer gets a message by asking for it [go: GossipRetransmission].
        max_unanswered: messages that wait for the application's answer; others are not delivered meanwhile.
        max_unanswered_bytes: bytes of data and characters of topics of these.

    Raises:
        ValueError: parameters that contradict each other, or with which the router would stand still or spin.
    """

    graft_after: int | None = None
    max_data: int = MAX_DATA
    max_recipients: int = 16
    max_seen: int = 2**20
    max_cached: int = 2**26
    max_topics: int = 1000
    max_topic: int = 1024
    max_ids: int = 5000
    max_repeats: int = 3
    max_unanswered: int = 4096
    max_unanswered_bytes: int = 2**26

    @classmethod
    def of(cls, parameters: GossipConfig) -> Config:
        """Return a configuration with these parameters, and the limits' defaults."""
        return cls(**{field.name: getattr(parameters, field.name) for field in fields(GossipConfig)})
