"""`gossiplog pipeline materialize`: a table of state from a log's messages."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossiplog.cli.output import Json, Output, Stopwatch
from gossiplog.cli.pipeline.session import (
    OutputFolder,
    SessionOptions,
    show_rows,
    spark_session,
    write_parquet,
)
from gossiplog.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from gossiplog.spark.jobs.folds import Fold


def materialize(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The file of the log.")],
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
    from gossiplog.spark.jobs.materialize import check_state

    recipe = spark.Recipe(_fold(fold), key, value, removed, _load_object("--type", type_) if type_ else None)
    # Raises for a type that no columns can hold.
    recipe.describe()
    check_state(log, state)
    options.check_output(output)
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

    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"{option} {text}: expected MODULE:NAME")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise typer.BadParameter(f"{option} {text}: {error}") from error
    if not hasattr(module, name):
        raise typer.BadParameter(f"{option} {text}: the module {module_name} has no {name}")
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return getattr(module, name)
