"""`gossiplog pipeline ingest` and `materialize`: a log of an application's events, and a table of a log's state."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossiplog.cli.options import load_object
from gossiplog.cli.output import Json, Output, Stopwatch
from gossiplog.cli.pipeline.session import OutputFolder, SessionOptions, check_output, show_rows, spark_session
from gossiplog.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from gossiplog.spark.jobs.folds import Fold


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
    """Make a signed log of an application's events, in an order that their columns say.

    The `seconds` that it prints are those of the job, without the start and the end of Spark.
    """
    from gossiplog import spark
    from gossiplog.spark.jobs.events import check_event_files, event_format
    from gossiplog.spark.jobs.ingest import check_new_log
    from gossiplog.spark.jobs.sign import KeyStore

    result = Output(json)
    check_event_files(events)
    if sequence is None and parents is None:
        raise typer.BadParameter("nothing says in which order the events are: give --sequence or --parents")
    if parents is not None and id is None:
        raise typer.BadParameter("--parents names events by their ids: give --id, the column that has them")
    layout = spark.Layout(author, sequence, id, parents, tuple(payload) if payload else None)
    event_format(events, format, schema)
    check_new_log(log, topic)
    KeyStore(keys).load(merger)
    with spark_session(options, "ingest") as running, Stopwatch() as watch:
        rows = spark.read_events(running, events, format, schema)
        done = spark.ingest(rows, log, topic, layout, keys, merger=merger)
    show_rows(result, [{"log": log} | asdict(done) | {"seconds": round(watch.seconds, 3)}])


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
        str | None,
        typer.Option(
            metavar="SQL",
            help="The value that a message sets, such as payload.text; of no use to a fold of your own.",
        ),
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
    check_output(output, state)
    with spark_session(options, "materialize") as running, Stopwatch() as watch:
        if schema is not None:
            # Spark reads it, in Java.
            recipe = replace(recipe, shape=_schema(schema))
        done = spark.materialize(running, log, state, recipe)
        if output is not None:
            write_parquet(spark.read_state(running, state, recipe.fold), output)
    show_rows(result, [asdict(done) | {"seconds": round(watch.seconds, 3)}])


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

    from gossiplog.spark.failures import first_line

    try:
        return StructType.fromDDL(text)
    except ParseException as error:
        raise OptionError(f"--schema {text}: {first_line(error)}") from error


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
