"""The option `--gossip` of `gossiplog serve`, `simulate` and `pipeline sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gossiplog.pubsub.gossipsub import GossipConfig

Gossip = Annotated[
    list[str] | None,
    typer.Option(
        "--gossip",
        metavar="NAME=VALUE",
        help="Set a parameter of gossipsub: d, d_low, d_high, d_lazy, heartbeat_interval, fanout_ttl, mcache_len,"
        " mcache_gossip or seen_ttl. The defaults are the specification's.",
    ),
]


def gossip_config(given: Sequence[str] | None, base: GossipConfig | None = None) -> GossipConfig | None:
    """Read the values of the option.

    Args:
        given: the values; None returns `base`.
        base: the parameters that the option changes; None for the defaults.

    Raises:
        BadParameter: there is no such parameter, a value is no number, or they contradict each other.
    """
    if not given:
        return base
    # Loading the routers takes time, which commands without the option should not wait for.
    from gossiplog.pubsub.gossipsub.config import read_gossip

    try:
        return read_gossip(given, base)
    except ValueError as error:
        raise typer.BadParameter(f"--gossip: {error}") from error
