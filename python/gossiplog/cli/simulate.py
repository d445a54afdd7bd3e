"""`gossiplog simulate`: routers on a network under virtual time, and what they send."""

from __future__ import annotations

import json as json_text
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from gossiplog.cli.options import Gossip, gossip_config
from gossiplog.cli.output import Json, Output, headed_table, progress, spinner
from gossiplog.errors import ScenarioError
from gossiplog.files import open_file
from gossiplog.reprs import counted

if TYPE_CHECKING:
    from rich.table import Table

    from gossiplog.sim.routers.named import Named, Row
    from gossiplog.sim.routers.plan import Attack
    from gossiplog.sim.routers.simulation import Simulation
    from gossiplog.sim.routers.summary import KindSummary, Outcome

    Observer: TypeAlias = Callable[[Simulation, str], object]

_STAR_WIDTH = 60


def simulate(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The named run to make, which options may change. --list shows the names."),
    ] = None,
    router: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:PART,NAME:PART]",
            help="The router of the nodes: simsub, floodsub, gossipsub or episub; or several with their parts of the"
            " nodes, as gossipsub:80,floodsub:20.",
        ),
    ] = None,
    gossip: Gossip = None,
    nodes: Annotated[int | None, typer.Option(help="Number of nodes, without the hostile ones of an attack.")] = None,
    messages: Annotated[int | None, typer.Option(help="Messages to publish, one after the other.")] = None,
    message_delay: Annotated[float | None, typer.Option(help="Seconds between two messages.")] = None,
    fanout: Annotated[int | None, typer.Option(help="Random nodes that are given each message from outside.")] = None,
    connections: Annotated[int | None, typer.Option(help="Random other nodes that each node connects to.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all that is random. The same seed gives the same run.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:END", help="Run all seeds from FIRST up to, but not including, END, and compare the runs."
        ),
    ] = None,
    connect_delay: Annotated[float | None, typer.Option(help="Seconds before the first message.")] = None,
    wait: Annotated[float | None, typer.Option(help="Seconds after the last message.")] = None,
    single_source: Annotated[
        bool | None, typer.Option("--single-source", help="Have the same nodes publish all messages.")
    ] = None,
    payload: Annotated[int | None, typer.Option(help="Bytes in each message.")] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The model of latencies: uniform, geographic, LOW:HIGH in seconds, or a JSON file with a matrix.",
        ),
    ] = None,
    jitter: Annotated[float | None, typer.Option(help="Fraction of each latency that may be added to it.")] = None,
    loss: Annotated[float | None, typer.Option(help="Probability that a packet is lost.")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Bytes a second that a node can send.")] = None,
    lag: Annotated[float | None, typer.Option(help="Seconds that one machine takes for each packet of all.")] = None,
    late_timers: Annotated[
        bool | None,
        typer.Option("--late-timers", help="With --lag: the timers of the nodes wait for that machine, too."),
    ] = None,
    churn: Annotated[float | None, typer.Option(help="Failures of each node in a second.")] = None,
    attack: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Add nodes that pass nothing on: sybil, cold-boot, eclipse or spam."),
    ] = None,
    hostile: Annotated[
        int | None,
        typer.Option(help="With --attack: hostile nodes for each honest one. The default is that of the run, or 10."),
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print each event as it happens.")] = False,
    transcript: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all events to this file at the end.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Record the run in this file, which `gossiplog dashboard` plays."),
    ] = None,
    deliveries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a row for each delivery to this file, as Parquet.")
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write plots of latencies, degrees and a tree to this folder, as SVG."),
    ] = None,
    scenarios: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the named runs from this TOML file.")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=0, help="With --seeds: runs that are made at a time; 0 makes one on each core.")
    ] = 0,
    show_runs: Annotated[bool, typer.Option("--list", help="List the named runs.")] = False,
    json: Json = False,
) -> None:
    """Simulate routers that spread messages: who sends what, how long it takes, what it costs.

    Without RUN, 100 nodes are simulated. The defaults of options without one are those of the run.
    """
    # Here, because every command would wait for it.
    from gossiplog.sim.routers import named

    runs = named.read(scenarios or named.BUILT_IN)
    output = Output(json)
    if show_runs:
        _show_runs(runs, output)
        return
    fields = {
        "nodes": nodes,
        "messages": messages,
        "message_delay": message_delay,
        "fanout": fanout,
        "payload": payload,
        "connections": connections,
        "connect_delay": connect_delay,
        "wait": wait,
        "single_source": single_source,
        "seed": seed,
    }
    conditions = {"jitter": jitter, "loss": loss, "bandwidth": bandwidth, "lag": lag, "late_timers": late_timers}
    try:
        base = _chosen(run, runs)
        under = _attack(base.plan.attack, attack, hostile)
        chosen = _changed(base, router, gossip, _given(fields), _given(conditions), latency, churn, under)
    except ScenarioError as error:
        raise typer.BadParameter(str(error)) from error
    if seeds is None:
        _run_one(chosen, output, trace, transcript, record, deliveries, plots)
    else:
        beside = {"--seed": seed, "--trace": trace, "--transcript": transcript, "--deliveries": deliveries}
        for option, value in (beside | {"--record": record, "--plots": plots}).items():
            if value:
                raise typer.BadParameter(f"--seeds runs many; {option} is for one run")
        _run_many(chosen, seed_range(seeds), processes or os.cpu_count() or 1, output)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _chosen(run: str | None, runs: dict[str, Named]) -> Named:
    from gossiplog.sim.routers.named import Named

    if run is None:
        return Named("")
    if run not in runs:
        raise ScenarioError(f"there is no run {run!r}: expected {', '.join(runs)}")
    return runs[run]


def _changed(
    run: Named,
    router: str | None,
    gossip: list[str] | None,
    fields: dict[str, Any],
    conditions: dict[str, Any],
    latency: str | None,
    churn: float | None,
    attack: Attack | None,
) -> Named:
    from gossiplog.sim.routers.plan import Churn

    if latency is not None:
        conditions["latency"] = _latency(latency)
    if churn is not None:
        conditions["churn"] = Churn(churn)
    plan = replace(run.plan, **fields, conditions=replace(run.plan.conditions, **conditions), attack=attack)
    changed = replace(run, router=router or run.router, plan=plan, gossip=gossip_config(gossip, run.gossip))
    # Called for the errors that it raises.
    changed.routers()
    same = replace(changed, plan=replace(plan, seed=run.plan.seed)) == run
    return changed if same else replace(changed, published={})


def _attack(own: Attack | None, name: str | None, hostile: int | None) -> Attack | None:
    from gossiplog.sim.routers.plan import attack_named, with_hostile

    chosen = own if name is None or (own is not None and own.name == name) else attack_named(name)
    return chosen if hostile is None else with_hostile(chosen, hostile)


def _latency(text: str) -> Any:
    from gossiplog.sim.routers.named import latency

    if pair := re.fullmatch(r"([\d.e+-]+):([\d.e+-]+)", text):
        try:
            low, high = map(float, pair.groups())
        except ValueError:
            raise ScenarioError(f"--latency {text}: expected LOW:HIGH in seconds, as 0.01:0.15") from None
        return latency({"low": low, "high": high})
    if text in ("uniform", "geographic"):
        return latency(text)
    try:
        with open_file(text) as file:
            return latency(json_text.load(file))
    except FileNotFoundError:
        raise ScenarioError(f"--latency {text}: expected uniform, geographic, LOW:HIGH or a file") from None
    except OSError as error:
        raise ScenarioError(f"--latency {text}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"--latency {text}: {error}") from error


def seed_range(text: str) -> range:
    """Return the seeds that an option names.

    Raises:
        typer.BadParameter: it is not FIRST:END.
    """
    first, _, end = text.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise typer.BadParameter(f"--seeds {text}: expected two numbers, as in 0:20")
    return range(int(first), int(end))


def _run_one(
    run: Named,
    output: Output,
    trace: bool,
    transcript: Path | None,
    record: Path | None,
    deliveries: Path | None,
    plots: Path | None,
) -> None:
    from gossiplog.sim.routers.plots import write_plots
    from gossiplog.sim.routers.simulation import simulate as run_plan
    from gossiplog.sim.routers.tally import write_parquet

    def show_line(line: str) -> None:
        if output.json:
            output.record({"trace": line})
        else:
            typer.echo(line)

    with spinner(f"Simulating {counted(run.plan.population, 'node')}"), ExitStack() as stack:
        observe = None if record is None else _recorder(run, record, stack)
        simulation = run_plan(run.routers(), run.plan, show_line if trace else None, transcript, observe)
        summary = simulation.summary()
    if deliveries is not None:
        try:
            write_parquet(simulation.tally.deliveries, deliveries)
        except ImportError as error:
            raise ScenarioError(str(error)) from error
    if plots is not None:
        write_plots(simulation, plots)
    if output.json:
        output.record(({"run": run.name} if run.name else {}) | summary.record())
    else:
        attack = [] if summary.attack is None else [_attack_table(summary.attack)]
        kinds = [_kinds_table(summary.kinds)] if summary.kinds else []
        output.show(*summary.lines(), *kinds, *attack, *summary.histogram_lines(_STAR_WIDTH))


def _recorder(run: Named, path: Path, stack: ExitStack) -> Observer:
    from gossiplog.cli.simulated_events import SimulatedEvents
    from gossiplog.dashboard.recording import Recorder

    title = f"{run.name or 'simulated'}: {counted(run.plan.population, 'node')}, {run.router}"
    events = SimulatedEvents(stack.enter_context(Recorder(path, title)).write)
    stack.callback(events.flush)
    return events.observe


def _kinds_table(kinds: dict[str, KindSummary]) -> Table:
    table = headed_table("router", numbers=("nodes", "deliver", "p50", "p95"))
    for name, found in kinds.items():
        times = ["" if seconds is None else f"{seconds:.2f} s" for seconds in (found.p50, found.p95)]
        table.add_row(name, f"{found.nodes:,}", f"{found.deliver:,}", *times)
    return table


def _attack_table(outcome: Outcome) -> Table:
    table = headed_table("attack", numbers=("hostile nodes", "delivered", "p50", "p95"))
    share = "" if outcome.delivered is None else f"{outcome.delivered:.1%}"
    times = ["" if seconds is None else f"{seconds:.2f} s" for seconds in (outcome.p50, outcome.p95)]
    table.add_row(outcome.name, f"{outcome.hostile:,}", share, *times)
    return table


def _run_many(run: Named, seeds: range, processes: int, output: Output) -> None:
    from gossiplog.sim.routers.named import compare, record, run_seeds

    found = []
    with progress(f"Simulating {counted(run.plan.population, 'node')}", len(seeds)) as advance:
        for counts in run_seeds(run, seeds, processes):
            found.append(counts)
            advance(1)
    rows = compare(found, run.published)
    if output.json:
        for row in rows:
            output.record(record(row))
    else:
        output.show(_table(rows))


def _table(rows: list[Row]) -> Table:
    table = headed_table("row", numbers=("published", "median", "least", "most", "off by"))
    for row in rows:
        table.add_row(
            row.name,
            "" if row.published is None else f"{row.published:,}",
            *(f"{figure:,g}" if figure % 1 else f"{figure:,.0f}" for figure in (row.median, row.least, row.most)),
            "" if row.deviation is None else f"{row.deviation:+.1%}",
        )
    return table


def _show_runs(runs: dict[str, Named], output: Output) -> None:
    if output.json:
        for run in runs.values():
            output.record({"run": run.name, "about": run.about, "router": run.router})
        return
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for run in runs.values():
        table.add_row(run.name, run.about)
    output.show(table)
