"""Imports in Spark's daemons of Python workers what these need, once, before they fork them.

Python imports this module as it starts, where its folder is in PYTHONPATH.

There is a daemon for the workers of tasks, and one for each of the things that workers do to plan a query of a source
in Python. A worker of theirs imports it all after the fork: most of a second, again and again, since a worker that was
idle for a minute is ended. Spark avoids threads in a daemon that way; those of Arrow and NumPy outlive a fork.
"""

from __future__ import annotations

import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    import gc
    from importlib import import_module

    import pyarrow.compute  # noqa: F401

    import gossiplog.spark  # noqa: F401

    import_module(sys.orig_argv[3])
    # A worker collects garbage after each task, and would look at every object of these modules.
    gc.collect()
    gc.freeze()
