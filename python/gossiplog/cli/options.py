"""Options that several commands take: routers, gossipsub's parameters, and the application's functions and types."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

if TYPE_CHECKING:
    from gossiplog.pubsub.gossipsub import GossipConfig

RouterName: TypeAlias = Literal["libp2p", "gossipsub", "floodsub", "episub"]
"""Those of `gossiplog.net.routing.kinds`, which loads all routers."""

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


def read_address(option: str, value: str, example: str) -> tuple[str, int]:
    """Return the host and the port of an address to listen on; without a host, the loopback's.

    Args:
        option: that gives it, in errors.
        value: as HOST:PORT.
        example: of one.

    Raises:
        typer.BadParameter: it is none.
    """
    host, separator, port = value.rpartition(":")
    # Of thousands of digits Python makes no number.
    if not separator or not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise typer.BadParameter(
            f"{option}: {value!r} is no address: expected HOST:PORT, the port up to 65535, as {example}"
        )
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def load_object(option: str, text: str) -> tuple[ModuleType, Any]:
    """Return a module, and what it has under a name.

    Args:
        option: that gives it, in errors.
        text: as MODULE:NAME; modules are looked for in the working folder, too.

    Raises:
        typer.BadParameter: no such module, one that raises when it is imported, or nothing of that name in it.
    """
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"{option} {text}: expected MODULE:NAME")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    # A module that is not there, and whatever the code of one raises.
    except Exception as error:
        reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise typer.BadParameter(f"{option} {text}: {reason}") from error
    if not hasattr(module, name):
        raise typer.BadParameter(f"{option} {text}: the module {module_name} has no {name}")
    return module, getattr(module, name)
