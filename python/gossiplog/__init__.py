# Imports go only towards the top of this list (tests/test_imports.py):
#
#     errors
#     _core (Rust), reference (its twin in Python)
#     core
#     message
#     signer
#     protocol
#     storage
#     log
#     this module
#     cli
"""GossipLog: a signed, append-only log that replicates between machines that do not trust each other."""

from gossiplog.core import CID, Node
from gossiplog.errors import (
    CorruptLog,
    DecodeError,
    EncodeError,
    GossipLogError,
    InvalidMessage,
    KeyFileError,
    LogClosed,
    MissingParents,
    NewerSchema,
    NotALog,
    ProtocolError,
    Refused,
    StorageError,
    TopicMismatch,
    TopicWarning,
    TreeError,
    UnknownMessage,
)
from gossiplog.log import Arrivals, Info, Inserted, Log, Pulled, Verified, open
from gossiplog.message import SignedMessage
from gossiplog.signer import Signer, default_key_path
from gossiplog.storage import MemoryStorage, SQLiteStorage, Storage

__all__ = [
    "CID",
    "Arrivals",
    "CorruptLog",
    "DecodeError",
    "EncodeError",
    "GossipLogError",
    "Info",
    "Inserted",
    "InvalidMessage",
    "KeyFileError",
    "Log",
    "LogClosed",
    "MemoryStorage",
    "MissingParents",
    "NewerSchema",
    "Node",
    "NotALog",
    "ProtocolError",
    "Pulled",
    "Refused",
    "SQLiteStorage",
    "SignedMessage",
    "Signer",
    "Storage",
    "StorageError",
    "TopicMismatch",
    "TopicWarning",
    "TreeError",
    "UnknownMessage",
    "Verified",
    "default_key_path",
    "open",
]
