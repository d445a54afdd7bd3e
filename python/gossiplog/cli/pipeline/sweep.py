"""`gossiplog pipeline sweep`: many simulations of routers."""

from __future__ import annotations

from typing import Annotated

import typer

from gossiplog.cli.options import Gossip, gossip_config
from gossiplog.cli.output import Json, Output
from gossiplog.cli.pipeline.session import SessionOptions, show_rows, spark_session
from gossiplog.cli.simulate import seed_range
from gossiplog.errors import ScenarioError

_SWEEP_COLUMNS = ("router", "nodes", "degree", "loss", "runs", "delivered", "duplicates", "p50", "p95", "bytes")


def sweep(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The new folder for the runs, as Parquet, and for plots.")
    ],
    router: Annotated[
        list[str] | None,
        typer.Option(
            help="The router: simsub, floodsub, gossipsub or episub, or several as gossipsub:80,floodsub:20. The"
            " default is simsub and gossipsub."
        ),
    ] = None,
    nodes: Annotated[list[int] | None, typer.Option(help="Number of nodes. The default is 100.")] = None,
    degree: Annotated[
        list[int] | None,
        typer.Option(
            help="The parameter D of simsub and gossipsub, from which D_low and D_high follow, so that --gossip cannot"
            " set them. The default is 6."
        ),
    ] = None,
    gossip: Gossip = None,
    loss: Annotated[
        list[float] | None, typer.Option(help="Probability that a packet is lost. The default is 0.")
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="FIRST:END", help="Run all seeds from FIRST up to, but not including, END.")
    ] = "0:5",
    messages: Annotated[int, typer.Option(help="Messages to publish in each run, one after the other.")] = 10,
    message_delay: Annotated[float, typer.Option(help="Seconds between two messages.")] = 1.0,
    connections: Annotated[int, typer.Option(help="Random other nodes that each node connects to.")] = 10,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Simulate routers with all combinations of sizes, degrees, losses and seeds; show and plot the medians."""
    from gossiplog.sim.routers.plan import Plan
    from gossiplog.sim.routers.sweep import Grid

    result = Output(json)
    sizes = nodes or [100]
    try:
        # Of the sizes, the grid takes one after the other.
        plan = Plan(max(sizes), messages, message_delay, fanout=1, connections=connections)
        grid = Grid(
            routers=router or ("simsub", "gossipsub"),
            nodes=sizes,
            degrees=degree or (6,),
            losses=loss or (0.0,),
            seeds=seed_range(seeds),
            plan=plan,
            gossip=gossip_config(gossip),
        )
    except (ScenarioError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    from gossiplog import spark
    from gossiplog.spark.folders import check_building

    check_building(folder, "the sweep")
    with spark_session(options, "sweep") as running:
        rows = spark.write_sweep(spark.sweep(running, grid), folder)
    if not result.json:
        rows = [{name: _rounded(row[name]) for name in _SWEEP_COLUMNS} for row in rows]
    show_rows(result, rows)


def _rounded(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) else value
