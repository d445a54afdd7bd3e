"""The data source `gossiplog`, as Spark knows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from gossiplog.errors import OptionError
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.source.locations import anchored
from gossiplog.spark.source.options import (
    BATCH_OPTIONS,
    READ_OPTIONS,
    SCHEMA,
    STREAM_OPTIONS,
    Parser,
    ReadOptions,
    check_schema,
    read_options,
    write_options,
)
from gossiplog.spark.source.reader import LogReader
from gossiplog.spark.source.remote import is_remote
from gossiplog.spark.source.stream_reader import LogStreamReader
from gossiplog.spark.source.stream_writer import LogStreamWriter
from gossiplog.spark.source.writer import LogArrowWriter
from gossiplog.spark.tasks import working_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class GossipLogSource(DataSource):
    """`spark.read.format("gossiplog").load(path)`: logs as a DataFrame, in the columns of `SCHEMA`.

    Its filters are options (`ReadOptions`), since Spark 4.3.0 keeps filters that were pushed down to a Python source
    for the other queries over the same DataFrame.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "gossiplog"

    def schema(self) -> StructType:
        """Return the columns that the options ask for. Whether they are a stream's is not known yet."""
        return read_options(dict(self.options), READ_OPTIONS).columns

    def reader(self, schema: StructType) -> LogReader:
        """Return a reader of the columns of a schema, which Spark may have from the user."""
        options = self._checked(schema, BATCH_OPTIONS)
        return LogReader(options, schema, unasked="columns" not in self.options and schema == SCHEMA)

    def streamReader(self, schema: StructType) -> LogStreamReader:
        """Return a reader that follows the columns of a schema, which Spark may have from the user."""
        options = self._checked(schema, STREAM_OPTIONS)
        for path in filter(is_remote, options.paths):
            raise OptionError(
                f"a stream cannot follow {path}: nobody appends to a log there, and each look at it would copy it. Read"
                " it in a batch"
            )
        return LogStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> LogArrowWriter:
        """Return a writer that adds the stored values of a frame with this schema."""
        if overwrite:
            raise OptionError("the mode overwrite is refused, because logs only grow: use mode('append')")
        return LogArrowWriter(write_options(dict(self.options)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:
        """Return a writer that adds the stored values of a stream with this schema."""
        if overwrite:
            raise OptionError("the output mode complete is refused, because logs only grow: use outputMode('append')")
        return LogStreamWriter(write_options(dict(self.options), stream=True), schema)

    def _checked(self, schema: StructType, kinds: Mapping[str, Parser]) -> ReadOptions:
        options = read_options(dict(self.options), kinds)
        check_schema(schema)
        if "columns" in self.options and schema.fieldNames() != options.columns.fieldNames():
            raise OptionError("the option columns and the schema name different columns: give one of them")
        return options


def read(session: SparkSession, *paths: str, **options: str | int) -> DataFrame:
    """Return logs as a DataFrame.

    The column `log` has whole paths where Spark's working folder is another: that of a server of Spark Connect, or
    where this process has changed its own since Spark was started.

    Args:
        session: of Spark.
        paths: of logs; each may be a pattern.
        options: as `ReadOptions` has them, in camel case, as `minClock=10`.

    Raises:
        OptionError: an option that there is not, or a value that it cannot have.
    """
    with worker_errors():
        is_here = working_folder(session) == os.getcwd()
        named = [*paths] if is_here else [*map(anchored, paths)]
        return session.read.format(GossipLogSource.name()).options(**options).load(named)
