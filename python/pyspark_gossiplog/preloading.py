"""What Spark's daemons of Python processes load before they fork these.

A process would import all of it after the fork: most of a second of processor time, for each worker of each kind, and
for each that plans a read. Spark imports nothing before it forks, lest there are threads. Those that Arrow's allocator
and NumPy have are made for a fork, and the core has none before its first call.
"""

from __future__ import annotations

import gc
from importlib import import_module


def preload(module: str) -> None:
    """Import what a daemon's processes need.

    Args:
        module: that they run.
    """
    for name in ("pyarrow.compute", "gossiplog.spark", module):
        import_module(name)
    # A worker collects garbage after each task, and would look at every object of these modules.
    gc.collect()
    gc.freeze()
