"""The data source `gossiplog`, as Spark knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from gossiplog.errors import OptionError
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.options import ReadOptions, read_options
from gossiplog.spark.reading import LogReader
from gossiplog.spark.schema import check_schema

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
        """What `format` takes."""
        return "gossiplog"

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        return self._read_options().columns

    def reader(self, schema: StructType) -> LogReader:
        """Reads the columns of a schema, which Spark may have from the user."""
        options = self._read_options()
        check_schema(schema)
        if "columns" in self.options and schema.fieldNames() != options.columns.fieldNames():
            raise OptionError("the option columns and the schema name different columns: give one of them")
        return LogReader(options, schema)

    def _read_options(self) -> ReadOptions:
        return read_options(dict(self.options))


def read(spark: SparkSession, *paths: str, **options: str | int) -> DataFrame:
    """Logs as a DataFrame.

    Args:
        spark: the session.
        paths: of logs; each may be a pattern.
        options: as `ReadOptions` has them, in camel case, as `minClock=10`.

    Raises:
        OptionError: an option that there is not, or a value that it cannot have.
    """
    with worker_errors():
        return spark.read.format(GossipLogSource.name()).options(**options).load(list(paths))
