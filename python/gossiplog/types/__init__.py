"""Data types over a log: replicated values that are kept in tables, alike on all replicas that have the same messages.

docs/types.md says when to use which.

- objects: the tables, the payloads and the functions `setup` and `apply` that all have; several objects on one log
- registers: Register and Map, of which the last write counts
- counters: Counter, which adds up
- sets: Set, in which an add wins over a concurrent removal
- lists: List, whose elements stay where they were put between others
"""

from gossiplog.types.counters import Counter
from gossiplog.types.lists import List
from gossiplog.types.objects import Database, Object, Objects
from gossiplog.types.registers import Map, Register
from gossiplog.types.sets import Set

__all__ = ["Counter", "Database", "List", "Map", "Object", "Objects", "Register", "Set"]
