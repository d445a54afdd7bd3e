"""`gossiplog pipeline`: jobs on Apache Spark, for logs that need more time or memory than one machine has."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from gossiplog.cli.help import Command, Group
from gossiplog.cli.options import Gossip, gossip_config, load_object
from gossiplog.cli.output import Json, Output, Stopwatch, fields_table
from gossiplog.cli.pipeline.fleet import analyze_fleet, reconcile_fleet
from gossiplog.cli.pipeline.session import (
    IgnoreMissing,
    Logs,
    NameFilter,
    OutputFolder,
    Recursive,
    SessionOptions,
    check_output,
    job,
    show_rows,
    spark_session,
)
from gossiplog.cli.pipeline.verify import root, verify
from gossiplog.cli.simulate import seed_range
from gossiplog.errors import CorruptLog, OptionError, ScenarioError
from gossiplog.reprs import counted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from gossiplog.spark import ReconcileResult
    from gossiplog.spark.jobs.folds import Fold


Encodings: TypeAlias = Annotated[
    Literal["all", "first"],
    typer.Option(
        help="The encodings of each message to read: all, or first, which is the one that arrived first in its log."
    ),
]


def read(
    logs: Logs,
    output: OutputFolder = None,
    encodings: Encodings = "all",
    recursive: Recursive = False,
    name_filter: NameFilter = None,
    ignore_missing: IgnoreMissing = False,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Read logs: how many messages, authors and bytes each has; with --output, all columns as Parquet."""
    from gossiplog import spark
    from gossiplog.spark.folders import write_parquet
    from gossiplog.spark.source.locations import check_logs

    result = Output(json)
    found = check_logs(logs, recursive=recursive, name_filter=name_filter)
    check_output(output)
    with spark_session(options, "read") as running:
        columns = "log,clock,author,size" if output is None else "*"
        ignored = str(ignore_missing).lower()
        messages = spark.read(running, *found, encodings=encodings, columns=columns, ignoreMissingFiles=ignored)
        rows = spark.summarize(messages if output is None else write_parquet(messages, output))
    show_rows(result, [dataclasses.asdict(row) for row in rows])


def reconcile(
    logs: Logs,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="A new folder, for a repair set for each log: `gossiplog import` takes it."
        ),
    ] = None,
    recursive: Recursive = False,
    name_filter: NameFilter = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Compare replicas of a log: the root of each, what it lacks of all others together, of when and of whom.

    Replicas of several logs are compared log by log, by their topics. The worst come first, and a summary last.

    Ends with 1 where a missing message cannot be read whole from any replica, or a replica of several logs not at all.
    """
    from gossiplog import spark
    from gossiplog.spark.folders import check_building
    from gossiplog.spark.jobs.reconcile import check_replicas
    from gossiplog.spark.jobs.reconcile_fleet import is_fleet
    from gossiplog.spark.source.problems import fleet_locations

    result = Output(json)
    found, problems = fleet_locations(logs, recursive=recursive, name_filter=name_filter)
    if output is not None:
        check_building(output, "the repair sets")
    if problems or is_fleet(found):
        reconcile_fleet(found, problems, output, result, options)
        return
    names = check_replicas(found)
    with spark_session(options, "reconcile") as running:
        compared = spark.reconcile(running, *names)
        repairs = (None,) * len(compared.replicas) if output is None else spark.write_repairs(compared, output)
        compared.missing.unpersist()
    rows = _replica_rows(compared, repairs)
    show_rows(result, rows if result.json else [_short_row(row) for row in rows])
    unreadable = max(lack.unreadable for lack in compared.lacks)
    if unreadable:
        one = "missing message is whole in none of the logs that have it"
        several = "missing messages are whole in none of the logs that have them"
        raise CorruptLog([counted(unreadable, one, several)])


def _replica_rows(compared: ReconcileResult, repairs: tuple[str | None, ...]) -> list[dict[str, Any]]:
    return [
        {
            "log": replica.log,
            "root": {"level": replica.level, "hash": replica.root},
            "messages": replica.messages,
            "shared": compared.shared,
            "lacks": asdict(lack),
            "repair": repair,
        }
        for replica, lack, repair in zip(compared.replicas, compared.lacks, repairs, strict=True)
    ]


def _short_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return what fits into a row of a table."""
    lacks = row["lacks"]
    span = None if lacks["first_clock"] is None else f"{lacks['first_clock']:,}–{lacks['last_clock']:,}"
    return {
        "log": row["log"],
        "root": row["root"]["hash"][:12],
        "messages": row["messages"],
        "shared": row["shared"],
        "lacks": lacks["messages"],
        "of clocks": span,
        "by authors": lacks["authors"],
        "damaged": lacks["unreadable"],
        "repair": row["repair"],
    }


def analyze(
    logs: Logs,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Write report.html, analysis.json and tables in Parquet to this new folder."
        ),
    ] = None,
    hot: Annotated[
        str | None,
        typer.Option(
            metavar="EXPRESSION",
            help="What a message is about, in Spark's SQL, as \"get_json_object(payload, '$.key')\".",
        ),
    ] = None,
    recursive: Recursive = False,
    name_filter: NameFilter = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Analyse a log: authors, rates, concurrency, branches and merges, hot keys, suspects, encodings, forks.

    Of several logs, the figures of each, the most conspicuous first, and a summary last; --output then has
    analysis.json and the authors of each log in Parquet. Ends with 1 where one of several cannot be read.
    """
    from gossiplog import spark
    from gossiplog.spark.folders import check_building
    from gossiplog.spark.jobs.report import tables
    from gossiplog.spark.source.locations import check_logs
    from gossiplog.spark.source.problems import fleet_locations

    result = Output(json)
    if output is not None:
        check_building(output, "the report")
    locations, problems = fleet_locations(logs, recursive=recursive, name_filter=name_filter)
    if len(locations) + len(problems) > 1:
        if hot is not None:
            raise typer.BadParameter("--hot is for one log: its keys say nothing of other logs")
        analyze_fleet(locations, problems, output, result, options)
        return
    log = logs[0]
    found = list(check_logs([*locations, *problems]))
    with spark_session(options, "analyze") as running:
        columns = [name for name in spark.COLUMNS if hot is not None or name != "payload"]
        before = spark.log_metadata(found[0])
        messages = spark.read(running, *found, columns=",".join(columns))
        analysis = spark.analyze(messages, hot, location=found[0])
        if output is not None:
            state = spark.analysed_state(before, spark.log_metadata(found[0]))
            spark.write_report(analysis, output, log, state)
        figures = tables(analysis)
    _show_analysis(result, {"log": log, "report": output, **figures})


def _show_analysis(output: Output, figures: dict[str, Any]) -> None:
    if output.json:
        output.record(figures)
        return
    table = fields_table()
    totals = figures["totals"]
    for name, value in totals.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    for author in figures["suspects"]:
        messages = f"{counted(author['messages'], 'message')} ({author['messages_ratio']:,.1f} × the median author)"
        size = f"{counted(author['bytes'], 'byte')} ({author['bytes_ratio']:,.1f} × the median author)"
        table.add_row("suspect", f"{author['author']}: {messages}, {size}")
    for fork in figures["forks"]:
        table.add_row("fork", f"{fork['author']}: {counted(fork['messages'], 'message')}, first {fork['first'][1]}")
    if (hidden := totals["forked"] - len(figures["forks"])) > 0:
        table.add_row("fork", counted(hidden, "more author"))
    if figures["report"] is not None:
        table.add_row("report", f"{figures['report']}/report.html")
    output.show(table)


def ingest(
    events: Annotated[
        list[str],
        typer.Argument(metavar="EVENTS...", help="The events: files or folders of Parquet, CSV or JSON Lines."),
    ],
    log: Annotated[str, typer.Option(help="The file of the log to make.")],
    topic: Annotated[str, typer.Option(help="The topic of the log.")],
    keys: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help="The folder of the authors' key files, each named after its author, such as ann.key."
        ),
    ],
    author: Annotated[
        str, typer.Option(metavar="SQL", help="The column that names the author of an event, or an expression.")
    ],
    merger: Annotated[
        str, typer.Option(metavar="AUTHOR", help="The author whose key signs the messages that join heads.")
    ],
    sequence: Annotated[
        str | None, typer.Option(metavar="SQL", help="The column of an integer that orders the events of an author.")
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="SQL", help="The column of your own id of an event.")] = None,
    parents: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="An array of the ids that an event follows, as \"split(after, ' ')\"."),
    ] = None,
    payload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SQL",
            help="A column of the payload, or an expression. The default is all columns that no other option uses.",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Format of the events: parquet, csv or jsonl. The default is what the names of the files say.",
        ),
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="DDL", help="Columns of CSV (else all strings) or JSON Lines (else inferred).")
    ] = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Make a signed log of an application's events, in an order that their columns say."""
    from gossiplog import spark
    from gossiplog.spark.jobs.events import check_event_files, event_format
    from gossiplog.spark.jobs.ingest import check_new_log
    from gossiplog.spark.jobs.sign import KeyStore

    result = Output(json)
    layout = spark.Layout(author, sequence, id, parents, tuple(payload) if payload else None)
    check_event_files(events)
    event_format(events, format, schema)
    check_new_log(log, topic)
    KeyStore(keys).load(merger)
    with spark_session(options, "ingest") as running, Stopwatch() as watch:
        rows = spark.read_events(running, events, format, schema)
        done = spark.ingest(rows, log, topic, layout, keys, merger=merger)
    show_rows(result, [{"log": log} | dataclasses.asdict(done) | {"seconds": round(watch.seconds, 3)}])


def materialize(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The log: its file, or its postgresql:// URL.")],
    state: Annotated[
        str, typer.Argument(metavar="STATE", help="The folder of the state. A state that is there is continued.")
    ],
    key: Annotated[str, typer.Option(metavar="SQL", help="The key that a message sets, such as payload.name.")],
    fold: Annotated[
        str,
        typer.Option(
            metavar="FOLD", help="The fold: last (the last writer's value), count, set, or your own as MODULE:FUNCTION."
        ),
    ] = "last",
    value: Annotated[
        str | None, typer.Option(metavar="SQL", help="The value that a message sets, such as payload.text.")
    ] = None,
    removed: Annotated[
        str | None, typer.Option(metavar="SQL", help="With the fold set: true where a message takes the value out.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="DDL", help="The payloads' fields, as 'name string, text string'.")
    ] = None,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="MODULE:TYPE", help="The payloads' type, for pydantic.")
    ] = None,
    output: OutputFolder = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Fold a log's messages in causal order into a table of keys and values; begin where the last run ended."""
    result = Output(json)
    if schema is not None and type_ is not None:
        raise typer.BadParameter("--schema and --type say the same: give one of them")
    from gossiplog import spark
    from gossiplog.spark.folders import write_parquet
    from gossiplog.spark.jobs.materialize import check_state

    recipe = spark.Recipe(_fold(fold), key, value, removed, _load_object("--type", type_) if type_ else None)
    # Raises for a type that no columns can hold.
    recipe.describe()
    check_state(log, state)
    check_output(output)
    with spark_session(options, "materialize") as running, Stopwatch() as watch:
        if schema is not None:
            # Spark reads it, in Java.
            recipe = dataclasses.replace(recipe, shape=_schema(schema))
        done = spark.materialize(running, log, state, recipe)
        if output is not None:
            write_parquet(spark.read_state(running, state, recipe.fold), output)
    show_rows(result, [dataclasses.asdict(done) | {"seconds": round(watch.seconds, 3)}])


def _fold(name: str) -> Fold:
    from gossiplog import spark

    match name:
        case "last":
            return spark.LastWriter()
        case "count":
            return spark.Counter()
        case "set":
            return spark.ElementSet()
        case _ if ":" not in name:
            raise typer.BadParameter(f"--fold {name}: expected last, count, set or MODULE:FUNCTION")
    return spark.FunctionFold(_load_object("--fold", name))


def _schema(text: str) -> DataType:
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    try:
        return StructType.fromDDL(text)
    except ParseException as error:
        raise OptionError(f"--schema {text}: {str(error).strip().splitlines()[0]}") from error


def _load_object(option: str, text: str) -> Any:
    """Return what a module has under a name. Spark's workers get the module as it is here: they need not have its file.

    Args:
        option: that gives it, in errors.
        text: as MODULE:NAME; modules are looked for in the working folder, too.

    Raises:
        typer.BadParameter: no such module, or nothing of that name in it.
    """
    from pyspark import cloudpickle

    module, found = load_object(option, text)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return found


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


app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,
    help="Run jobs on Apache Spark, for logs and fleets of logs that outgrow one machine.",
)

for function in (read, root, verify, reconcile, analyze, materialize, ingest, sweep):
    app.command(function.__name__, cls=Command)(job(function))
