"""Where logs are kept: one small interface and its back ends."""

from gossiplog.storage.base import ApplyTransaction, Rows, Storage
from gossiplog.storage.memory import MemoryStorage
from gossiplog.storage.sqlite.storage import SQLiteStorage

__all__ = ["ApplyTransaction", "MemoryStorage", "Rows", "SQLiteStorage", "Storage"]
