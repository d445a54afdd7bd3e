"""`gossiplog network`: a network of real peers on this machine, to see how it connects and converges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossiplog.cli.output import Json, Output

# The layer that these come from takes half a second to load, which no other command should wait for.
_TOPOLOGIES = ("mesh", "hub")


def network(
    peers: Annotated[int, typer.Option(min=2, max=1000, help="Number of peers.")] = 8,
    topology: Annotated[
        str,
        typer.Option(
            metavar="|".join(_TOPOLOGIES), help="Connect the peers in a libp2p mesh, or to a hub as its clients."
        ),
    ] = _TOPOLOGIES[0],
    offline_messages: Annotated[
        int, typer.Option(min=0, help="Messages that each peer has appended before it joins.")
    ] = 0,
    messages: Annotated[
        int, typer.Option(min=0, help="Messages to append at random peers, once the network has converged.")
    ] = 0,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages to append in a second; 0 appends as fast as possible.")
    ] = 10.0,
    message_bytes: Annotated[int, typer.Option(min=0, help="Bytes of text in each message.")] = 100,
    join_seconds: Annotated[float, typer.Option(min=0, help="Seconds over which the peers join.")] = 0.0,
    until_converged: Annotated[
        bool, typer.Option("--until-converged", help="End when all logs are equal, and not after --seconds.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0, help="Seconds after which to end, or to give up with --until-converged.")
    ] = 120.0,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep the logs as files in this folder. The default is to keep them in memory."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the random choices of this command. What peers choose does not depend on it.")
    ] = 0,
    json: Json = False,
) -> None:
    """Run a network of peers on this machine, each with a log and sockets of its own, and say how it went."""
    if topology not in _TOPOLOGIES:
        raise typer.BadParameter(f"--topology is {topology!r}: expected one of {', '.join(_TOPOLOGIES)}")
    from gossiplog.cli.network.run import Task, run_network
    from gossiplog.net.local_network import NetworkPlan

    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    plan = NetworkPlan(
        peers=peers,
        topology="mesh" if topology == "mesh" else "hub",
        offline_messages=offline_messages,
        message_bytes=message_bytes,
        join_seconds=join_seconds,
        folder=folder,
        seed=seed,
    )
    run_network(plan, Task(messages, rate, until_converged, seconds), Output(json))
