"""Python's collection of cyclic garbage, in a process that serves for long.

Each connection is some 250 objects that last as long as it does, and little that ends with it is a cycle. With Python's
own thresholds, 64 peers in one process that meet had their objects looked through 18 times, a fifth of the time that it
took; nothing else runs meanwhile. Only programs of this package, and its tests, call this: an application has its own
objects.
"""

from __future__ import annotations

import gc

THRESHOLDS = 10_000, 20, 10
"""New objects before the youngest are looked through, and collections of one generation before one of the next."""


def collect_rarely() -> None:
    """Exempt the objects that there are from collections, and have few collections from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
