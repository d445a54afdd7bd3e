"""Spark's daemon of Python workers, which imports what they need once, before it forks them.

A worker of Spark's own daemon imports it all after the fork: most of a second, again and again, since a worker that was
idle for a minute is ended. Spark avoids threads in the daemon that way; those of Arrow and NumPy outlive a fork.
"""

from __future__ import annotations

import pyarrow.compute  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import gossiplog.spark  # noqa: F401

if __name__ == "__main__":
    manager()
