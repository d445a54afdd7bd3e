"""Makes `spark.read.format("gossiplog")` work: Spark looks into top-level modules whose names begin with `pyspark_`."""

from gossiplog.spark.source.data_source import GossipLogSource as DefaultSource

__all__ = ["DefaultSource"]
