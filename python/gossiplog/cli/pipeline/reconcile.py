"""`gossiplog pipeline reconcile`: what replicas lack of each other, and repair sets for them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossiplog.cli.output import Json, Output
from gossiplog.cli.pipeline.session import Logs, SessionOptions, show_rows, spark_session
from gossiplog.errors import CorruptLog
from gossiplog.reprs import counted

if TYPE_CHECKING:
    from gossiplog.spark import ReconcileResult


def reconcile(
    logs: Logs,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="A new folder, for a repair set for each log: `gossiplog import` takes it."
        ),
    ] = None,
    json: Json = False,
    *,
    options: SessionOptions,
) -> None:
    """Compare replicas of one log: the root of each, what it lacks of all others together, of when and of whom.

    Ends with 1 where a missing message cannot be read whole from any replica.
    """
    from gossiplog import spark
    from gossiplog.spark.folders import check_building
    from gossiplog.spark.jobs.reconcile import check_replicas

    result = Output(json)
    check_replicas(logs)
    if output is not None:
        check_building(output, "the repair sets")
    with spark_session(options, "reconcile") as running:
        compared = spark.reconcile(running, *logs)
        repairs = (None,) * len(compared.replicas) if output is None else spark.write_repairs(compared, output)
        compared.missing.unpersist()
    rows = _rows(compared, repairs)
    show_rows(result, rows if result.json else [_short(row) for row in rows])
    unreadable = max(lack.unreadable for lack in compared.lacks)
    if unreadable:
        one = "missing message is whole in none of the logs that have it"
        several = "missing messages are whole in none of the logs that have them"
        raise CorruptLog([counted(unreadable, one, several)])


def _rows(compared: ReconcileResult, repairs: tuple[str | None, ...]) -> list[dict[str, Any]]:
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


def _short(row: dict[str, Any]) -> dict[str, Any]:
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
