"""Spark's daemon of Python workers with what their tasks need, once, before it forks them.

It is `pyspark.daemon` otherwise: `python -m pyspark_gossiplog.daemon pyspark.worker`. A worker would import all of it
after the fork: most of a second of processor time, for each worker of each kind. Spark imports nothing before it forks,
lest there are threads. Those that Arrow's allocator and NumPy have are made for a fork, and the core has none before
its first call.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from pyspark_gossiplog.paths import compiled_first


def main(module: str) -> None:
    """Load what tasks need, and run Spark's daemon until Spark ends it.

    Args:
        module: that a worker runs.
    """
    sys.path[:] = compiled_first(sys.path)
    for name in ("pyarrow.compute", "gossiplog.spark", module):
        import_module(name)
    # A worker collects garbage after each task, and would look at every object of these modules.
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main(sys.argv[1])
