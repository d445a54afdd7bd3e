"""Spark's daemon of Python workers with what their tasks need, loaded before it forks them.

It is `pyspark.daemon` otherwise: `python -m pyspark_gossiplog.daemon pyspark.worker`.
"""

from __future__ import annotations

import sys
from importlib import import_module

from pyspark_gossiplog.paths import compiled_first
from pyspark_gossiplog.preloading import preload


def main(module: str) -> None:
    """Load what tasks need, and run Spark's daemon until Spark ends it.

    Args:
        module: that a worker runs.
    """
    sys.path[:] = compiled_first(sys.path)
    preload(module)
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main(sys.argv[1])
