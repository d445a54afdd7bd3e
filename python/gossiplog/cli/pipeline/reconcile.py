"""`gossiplog pipeline reconcile`: what replicas lack of each other, of one log or of many."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossiplog.cli.output import Json, Output, note
from gossiplog.cli.pipeline.fleet import show_fleet
from gossiplog.cli.pipeline.session import (
    Logs,
    NameFilter,
    Recursive,
    SessionOptions,
    show_rows,
    spark_session,
)
from gossiplog.errors import REPAIR_ADVICE, CorruptLog, NotALog, StorageError
from gossiplog.reprs import counted, shell_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from gossiplog.spark import FleetReconcileResult, ReconcileResult
    from gossiplog.spark.source.problems import Problem


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
    Each log is taken for what it says of itself: `gossiplog pipeline verify` checks that.

    Ends with 1 where a missing message cannot be read whole from any replica, or a replica of several logs not at all.
    """
    from gossiplog import spark
    from gossiplog.spark.folders import check_building
    from gossiplog.spark.jobs.reconcile import broken_by_replica, check_replicas
    from gossiplog.spark.jobs.reconcile_fleet import is_fleet
    from gossiplog.spark.source.problems import fleet_locations

    result = Output(json)
    found, problems = fleet_locations(logs, recursive=recursive, name_filter=name_filter)
    if output is not None:
        check_building(output, "the repair sets")
    if problems or is_fleet(found):
        _reconcile_fleet(found, problems, output, result, options)
        return
    names = check_replicas(found)
    fleet: tuple[FleetReconcileResult, dict[str, str]] | None = None
    with spark_session(options, "reconcile") as running:
        try:
            compared = spark.reconcile(running, *names)
        except StorageError:
            # A replica that can be opened, and not be read: a row beside the others.
            fleet = _compare_fleet(running, found, problems, output)
        else:
            repairs = (None,) * len(compared.replicas) if output is None else spark.write_repairs(compared, output)
            lossy = broken_by_replica(compared.missing) if any(each.unreadable for each in compared.lacks) else {}
            compared.missing.unpersist()
    if fleet is not None:
        _show_fleet(result, *fleet)
        return
    rows = _replica_rows(compared, repairs)
    show_rows(result, rows if result.json else [_short_row(row) for row in rows])
    _say_unverified(result)
    _check_whole({compared.replicas[number].log: messages for number, messages in lossy.items()})


def _say_unverified(result: Output) -> None:
    if not result.json:
        note("Each log is taken for what it says of itself; gossiplog pipeline verify checks that.")


def _check_whole(damaged: Mapping[str, int]) -> None:
    """Check that each message is whole in one of the replicas that have it.

    Args:
        damaged: how many each log has of those that are not.

    Raises:
        CorruptLog: there is one.
    """
    if damaged:
        several = "messages that are whole in none of the logs that have them"
        one = "message that is whole in none of the logs that have it"
        problems = [f"{log} has {counted(number, one, several)}" for log, number in sorted(damaged.items())]
        first = shell_path(min(damaged))
        raise CorruptLog(problems, advice=f"; {REPAIR_ADVICE.replace('{}', first)}")


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
        "unreadable": lacks["unreadable"],
        "repair": row["repair"],
    }


def _reconcile_fleet(
    found: list[str], problems: dict[str, Problem], output: str | None, result: Output, options: SessionOptions
) -> None:
    """Compare the replicas of many logs, and end with 1 where one was left out or a message is whole nowhere.

    Args:
        found: the locations.
        problems: of paths that name no file.
        output: a new folder for repair sets.
        result: where the rows go.
        options: of the session.
    """
    if len(found) < 2 and problems:
        raise NotALog(next(iter(problems.values())).text)
    with spark_session(options, "reconcile") as running:
        fleet = _compare_fleet(running, found, problems, output)
    _show_fleet(result, *fleet)


def _compare_fleet(
    running: SparkSession, found: list[str], problems: Mapping[str, Problem], output: str | None
) -> tuple[FleetReconcileResult, dict[str, str]]:
    from gossiplog import spark

    compared = spark.reconcile_fleet(running, *found, *problems)
    repairs = {} if output is None else spark.write_fleet_repairs(compared, output)
    compared.missing.unpersist()
    return compared, repairs


def _show_fleet(result: Output, compared: FleetReconcileResult, repairs: dict[str, str]) -> None:
    from gossiplog.spark.jobs.reconcile_fleet import fleet_rows

    show_fleet(result, fleet_rows(compared, repairs), asdict(compared.summary), _short_fleet_row)
    _say_unverified(result)
    _check_whole({row.log: row.damaged for row in compared.logs if row.damaged})
    if compared.summary.problems:
        raise typer.Exit(1)


def _short_fleet_row(row: dict[str, Any]) -> dict[str, Any]:
    lacks = row["lacks"]
    return {
        "log": row["log"],
        "topic": row["topic"],
        "root": None if row["root"] is None else row["root"]["hash"][:12],
        "messages": row["messages"],
        "replicas": row["replicas"],
        "lacks": lacks["messages"],
        "damaged": row["damaged"],
        "repair": row["repair"],
    }
