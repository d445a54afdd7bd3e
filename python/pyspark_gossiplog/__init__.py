"""Makes `spark.read.format("gossiplog")` work: Spark looks into top-level modules whose names begin with `pyspark_`.

Nothing of Spark is imported before that: `daemon` decides first where from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossiplog.spark.source.data_source import GossipLogSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gossiplog.spark.source.data_source import GossipLogSource

    return GossipLogSource
