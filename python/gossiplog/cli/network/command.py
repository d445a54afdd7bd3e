"""`gossiplog network`: a network of real peers on this machine, to see how it connects and converges."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from gossiplog.cli.help import Command
from gossiplog.cli.options import RouterName, read_address
from gossiplog.cli.output import Json, Output

# The layer that these come from takes half a second to load, which no other command should wait for.
_TOPOLOGIES = ("mesh", "hub", "mixed", "line", "ring")
_MOST_RATE = 10_000
_SECONDS = 120.0
_DASHBOARD = "--dashboard"
_LOOPBACK = "127.0.0.1:0"


class NetworkCommand(Command):
    """The command, whose option --dashboard needs no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        given: list[str] = []
        for number, argument in enumerate(args):
            given.append(argument)
            if argument == _DASHBOARD and (number + 1 == len(args) or args[number + 1].startswith("-")):
                given.append(_LOOPBACK)
        return super().parse_args(ctx, given)


def network(
    peers: Annotated[int, typer.Option(min=2, max=1000, help="Number of peers, each with a log.")] = 8,
    topology: Annotated[
        str,
        typer.Option(
            metavar="|".join(_TOPOLOGIES),
            help="How peers are connected: mesh, where all know a bootstrap that holds no log, and find each other;"
            " hub, one with the others as its clients; mixed, hubs that are a mesh, each with clients; line and ring,"
            " each peer to its neighbours alone.",
        ),
    ] = _TOPOLOGIES[0],
    router: Annotated[
        RouterName,
        typer.Option(
            help="What spreads messages among peers: gossipsub of rust-libp2p, or a router of this package. A hub's"
            " clients have none, and episub needs peers that may choose whom to be connected to: mesh or mixed."
        ),
    ] = "libp2p",
    offline_messages: Annotated[
        int, typer.Option(min=0, help="Messages that each peer has appended before it joins.")
    ] = 0,
    messages: Annotated[
        int, typer.Option(min=0, help="Messages to append at random peers, once the network has converged.")
    ] = 0,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages to append in a second; 0 appends as fast as possible.")
    ] = 10.0,
    auto_append: Annotated[
        float, typer.Option(min=0, max=_MOST_RATE, help="Messages to append at random peers in a second, all the time.")
    ] = 0.0,
    browsers: Annotated[
        int,
        typer.Option(
            min=0,
            max=100,
            help="Pages of headless Chromium in which canvas-js joins the hubs, beside --peers. An error names what is"
            " missing for it, and the command that installs it.",
        ),
    ] = 0,
    message_bytes: Annotated[int, typer.Option(min=0, help="Bytes of text in each message.")] = 100,
    join_seconds: Annotated[float, typer.Option(min=0, help="Seconds over which the peers join.")] = 0.0,
    churn: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MOST_RATE,
            help="Peers to stop in a second, on average; each starts again after 1 to 5 seconds. Hubs go on.",
        ),
    ] = 0.0,
    partition: Annotated[
        float,
        typer.Option(
            min=0,
            help="Once all peers have joined, part the network into two halves for so many seconds, then heal it.",
        ),
    ] = 0.0,
    processes: Annotated[
        int,
        typer.Option(
            min=0,
            max=1000,
            help="Processes to spread the peers over. The default is one; for many peers, one for each core.",
        ),
    ] = 0,
    until_converged: Annotated[
        bool, typer.Option("--until-converged", help="End when all logs are equal, and not after --seconds.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Seconds after which to end, or to give up with --until-converged. The default is"
            f" {_SECONDS:.0f}, and not to end with --dashboard.",
        ),
    ] = None,
    dashboard: Annotated[
        str | None,
        typer.Option(
            _DASHBOARD,
            metavar="[HOST:PORT]",
            help="Serve a page that shows the network and controls it, at this address; by default at a free port of"
            " this machine alone. Run until Ctrl-C. Everybody who reaches another address commands the network: there"
            " is no token.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Record what happens, for `gossiplog dashboard FILE` to play. An earlier recording there is replaced.",
        ),
    ] = None,
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
    if messages and (auto_append or churn or partition):
        raise typer.BadParameter(
            "--messages are measured on a network that is left alone: leave out --auto-append, --churn and --partition"
        )
    if until_converged and (auto_append or churn):
        raise typer.BadParameter(
            "--until-converged waits for a network without --auto-append and --churn, with which it may never converge"
        )
    from gossiplog.cli.network.run import Task, View, run_network
    from gossiplog.testnet.plan import NetworkPlan, topology_named

    try:
        plan = NetworkPlan(
            peers=peers,
            topology=topology_named(topology),
            offline_messages=offline_messages,
            message_bytes=message_bytes,
            join_seconds=join_seconds,
            folder=folder,
            seed=seed,
            processes=processes,
            browsers=browsers,
            router=router,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    task = Task(
        messages=messages,
        rate=rate,
        until_converged=until_converged,
        seconds=seconds if seconds is not None else _SECONDS if dashboard is None else math.inf,
        auto_append=auto_append,
        churn=churn,
        partition=partition,
    )
    address = None if dashboard is None else read_address(_DASHBOARD, dashboard, _LOOPBACK)
    run_network(plan, task, View(address=address, record=record), Output(json))
