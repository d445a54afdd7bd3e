"""Sweeps of simulations: each run is a task of Spark's, and a row of the result."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any, get_args, get_type_hints

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructField, StructType

from gossiplog.charts import Chart, Series, standalone, svg
from gossiplog.sim.routers.sweep import Grid, Record, Run
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.folders import filling, read_back

AXES = ("router", "nodes", "degree", "loss")
"""The columns that a sweep varies, beside the seed."""
_TYPES: dict[type, DataType] = {str: StringType(), float: DoubleType(), int: LongType()}


def _type(hint: Any) -> DataType:
    """Of a record's field, which is annotated with a type, or with a type and None."""
    (kind,) = {*(get_args(hint) or (hint,))} - {NoneType}
    return _TYPES[kind]


SCHEMA = StructType([StructField(name, _type(hint)) for name, hint in get_type_hints(Record).items()])
"""A row for each run: the fields of `gossiplog.sim.routers.sweep.Record`."""


def sweep(session: SparkSession, grid: Grid) -> DataFrame:
    """Simulate every run of a grid, when the frame is asked for its rows: write it, or cache it, to run them once.

    Args:
        session: of Spark.
        grid: of the runs.

    Returns:
        `SCHEMA`, in no order.
    """
    runs = grid.runs()
    numbers = session.range(0, len(runs), 1, numPartitions=len(runs))
    return numbers.mapInArrow(partial(_simulate, runs), SCHEMA)


def _simulate(runs: Sequence[Run], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [runs[number].record() for number in batch.column("id").to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(SCHEMA))


def medians(frame: DataFrame) -> DataFrame:
    """Return the median of each column over the seeds, for each combination of `AXES`, in their order.

    Args:
        frame: of `sweep`.
    """
    measured = [name for name in SCHEMA.names if name not in (*AXES, "seed")]
    found = frame.groupBy(*AXES).agg(F.count("seed").alias("runs"), *(F.median(name).alias(name) for name in measured))
    return found.orderBy(*AXES)


@dataclass(frozen=True, slots=True)
class _Measure:
    """What is drawn.

    Attributes:
        column: of the medians.
        title: of the plot.
        label: of its vertical axis.
        factor: from the column's unit to the label's.
    """

    column: str
    title: str
    label: str
    factor: float = 1.0


_MEASURES = (
    _Measure("p50", "Median latency", "milliseconds", 1000),
    _Measure("p95", "95th percentile of latency", "milliseconds", 1000),
    _Measure("duplicates", "Duplicates", "redundant copies for each delivery"),
    _Measure("delivered", "Delivery", "% of all deliveries", 100),
)


def write_sweep(frame: DataFrame, folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Write the runs of a sweep as Parquet (`runs`), and plots of their medians over each axis that varies, as SVG.

    Args:
        frame: of `sweep`; its runs take place now, once.
        folder: to be made; it is there when all in it is complete.

    Returns:
        The rows of `medians`.

    Raises:
        OptionError: something is there already.
        StorageError: so is `folder` with ".partial" after it, and no process that was killed has left it.
        OSError: the folder cannot be written.
    """
    session = frame.sparkSession
    with filling(os.fspath(folder), "the sweep", session) as new:
        new.write_parquet(frame, "runs")
        with worker_errors():
            runs = read_back(frame, f"{new.path}/runs")
            rows = [row.asDict() for row in medians(runs).collect()]
        for name, chart in charts(rows).items():
            new.write_text(f"{name}.svg", standalone(svg(chart)))
    return rows


def charts(rows: Sequence[dict[str, Any]]) -> dict[str, Chart]:
    """Return a plot of each measure over each axis that has several values, by name.

    It has a line for each router, of the means over the other axes. A router that lacks a value, because nothing was
    delivered, has no line.

    Args:
        rows: of `medians`.
    """
    found: dict[str, Chart] = {}
    for axis in AXES[1:]:
        values = sorted({row[axis] for row in rows if row[axis] is not None})
        if len(values) < 2:
            continue
        named = sorted({row["router"] for row in rows if row[axis] is not None})
        labels = [f"{value:g}" for value in values]
        for measure in _MEASURES:
            lines = ((router, _means(rows, measure, axis, values, router)) for router in named)
            series = tuple(Series(router, means) for router, means in lines if means)
            if series:
                chart = Chart(f"{measure.title} by {axis}", axis, measure.label, series, labels=labels)
                found[f"{measure.column}-by-{axis}"] = chart
    return found


def _means(
    rows: Sequence[dict[str, Any]], measure: _Measure, axis: str, values: Sequence[Any], router: str
) -> list[float]:
    """Return the mean for each value; none at all where one has none."""
    own = [row for row in rows if row["router"] == router and row[measure.column] is not None]
    found = [[row[measure.column] for row in own if row[axis] == value] for value in values]
    return [measure.factor * sum(column) / len(column) for column in found] if all(found) else []
