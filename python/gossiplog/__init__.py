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
#     net
#     this module
#     bench
#     cli
"""GossipLog: a signed, append-only log that replicates between machines that do not trust each other."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    from gossiplog.core import CID, Node
    from gossiplog.errors import (
        ConnectionLost,
        CorruptLog,
        CorruptSource,
        DecodeError,
        EncodeError,
        GossipLogError,
        InvalidMessage,
        KeyFileError,
        LogClosed,
        MissingParents,
        NetworkError,
        NewerSchema,
        NotALog,
        OlderSchema,
        ProtocolError,
        Refused,
        StorageError,
        StreamRefused,
        StreamReset,
        TopicMismatch,
        TopicWarning,
        TreeError,
        UnknownMessage,
    )
    from gossiplog.log import Arrivals, Info, Inserted, Log, Pulled, Verified, open, recover
    from gossiplog.message import SignedMessage
    from gossiplog.signer import Signer, default_key_path
    from gossiplog.storage import MemoryStorage, SQLiteStorage, Storage
except ImportError as error:
    # The command line, which lies behind this module, says in one line that the core is missing; a library that
    # imports a name from here, or uses one, gets the exception.
    _failure: ImportError | None = error
else:
    _failure = None

if TYPE_CHECKING:
    from gossiplog.net.client import connect
    from gossiplog.net.hub import Hub
    from gossiplog.net.peer import Peer
else:
    # What needs a network is loaded when it is first used: scripts that only read a log start in half the time.
    _MODULES = {"Hub": "gossiplog.net.hub", "Peer": "gossiplog.net.peer", "connect": "gossiplog.net.client"}

    def __getattr__(name: str) -> Any:
        if name in __all__ and _failure is not None:
            raise ImportError(str(_failure)) from _failure
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
        return globals()[name]


__all__ = [
    "CID",
    "Arrivals",
    "ConnectionLost",
    "CorruptLog",
    "CorruptSource",
    "DecodeError",
    "EncodeError",
    "GossipLogError",
    "Hub",
    "Info",
    "Inserted",
    "InvalidMessage",
    "KeyFileError",
    "Log",
    "LogClosed",
    "MemoryStorage",
    "MissingParents",
    "NetworkError",
    "NewerSchema",
    "Node",
    "NotALog",
    "OlderSchema",
    "Peer",
    "ProtocolError",
    "Pulled",
    "Refused",
    "SQLiteStorage",
    "SignedMessage",
    "Signer",
    "Storage",
    "StorageError",
    "StreamRefused",
    "StreamReset",
    "TopicMismatch",
    "TopicWarning",
    "TreeError",
    "UnknownMessage",
    "Verified",
    "connect",
    "default_key_path",
    "open",
    "recover",
]
