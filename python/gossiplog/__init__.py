"""GossipLog: a signed, append-only log that replicates between machines that do not trust each other.

The names of this package by what they are for. `help(gossiplog.Log)` shows one of them; the page of all is long, since
Python lists what each inherits.

- a log: open, rebase, repair, recover, Log, LogView, Subscription, SignedMessage, Signer, default_key_path, CID, Node
- a log in coroutines: open_async, AsyncLog, AsyncLogOpening, AsyncLogView, AsyncSubscription
- what its methods return: Arrivals, AuthorTotals, InsertResult, LogInfo, PullResult, RebaseResult, RecoverResult,
  RepairResult, VerifyResult, Fork
- tables in step with a log: Apply, Setup, ApplyTransaction, Rows
- data types over a log, in `gossiplog.types`: Counter, List, Map, Register, Set, and Objects, of several on one log
- where a log is stored: Storage, SQLiteStorage, MemoryStorage
- between machines: connect, Client, Hub, Peer, PeerInfo, serve
- who may use a hub, and how much: Access, Token, TLS, Limits
- for annotations: Address, Identity, Latency, Location, NetworkCounters, Progress, RebasedMessage, RebaseOutcome,
  RouterName, Synchronous, SyncStatistics, Tokens
- settings of the protocols: BroadcastConfig, GossipConfig, SyncServerConfig
- what `on_event` is called with, Event: Committed, Connected, Defect, Disconnected, Failed, Grafted, MessagesRefused,
  Pruned, RefusalsReported, Rejected, Served, Subscribed, SyncEnded, SyncProgressed, SyncStarted, Unsubscribed
- the same as a stream: EventStream, EventsDropped
- errors, of which GossipLogError is the base, in `gossiplog.errors`:
    - of values and messages: DecodeError, EncodeError, InvalidMessage, InvalidPayload, MissingParents, RefusedMessage,
      UnknownMessage
    - of a log and its storage: StorageError (ApplicationMismatch, CorruptLog, CorruptSource, CursorOutdated, LogClosed,
      LogReplaced, LogWentBack, NewerSchema, NotALog, OlderSchema, TopicMismatch), RebaseError, TreeError, and the
      warnings BlockingCallWarning, LossWarning and TopicWarning
    - of networks: NetworkError (ConnectionLost, RefusedByPeer, StreamRefused, StreamReset), ProtocolError
    - of keys: KeyFileError

`gossiplog.lowlevel` has what programs need that build on the parts of this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gossiplog.extras import CORE, explain_core, explain_extra

try:
    from gossiplog.core import CID, Node
    from gossiplog.errors import (
        ApplicationMismatch,
        BlockingCallWarning,
        ConnectionLost,
        CorruptLog,
        CorruptSource,
        CursorOutdated,
        DecodeError,
        EncodeError,
        GossipLogError,
        InvalidMessage,
        InvalidPayload,
        KeyFileError,
        LogClosed,
        LogReplaced,
        LogWentBack,
        LossWarning,
        MissingParents,
        NetworkError,
        NewerSchema,
        NotALog,
        OlderSchema,
        ProtocolError,
        RebaseError,
        RefusedByPeer,
        RefusedMessage,
        StorageError,
        StreamRefused,
        StreamReset,
        TopicMismatch,
        TopicWarning,
        TreeError,
        UnknownMessage,
    )
    from gossiplog.log import (
        Apply,
        Arrivals,
        AuthorTotals,
        Fork,
        InsertResult,
        Log,
        LogInfo,
        LogView,
        PullResult,
        RebaseResult,
        RecoverResult,
        RepairResult,
        Setup,
        Subscription,
        VerifyResult,
        open,
    )
    from gossiplog.message import SignedMessage
    from gossiplog.signer import Signer, default_key_path
    from gossiplog.storage import ApplyTransaction, MemoryStorage, Rows, SQLiteStorage, Storage
    from gossiplog.storage.base import Progress, Synchronous
    from gossiplog.storage.location import Location
except ImportError as error:
    # The command line, which lies behind this module, says in one line that the core is missing; a library that
    # imports a name from here, or uses one, gets the exception.
    _failure: ImportError | None = error
else:
    _failure = None

if TYPE_CHECKING:
    from gossiplog.log.asynchronous.iteration import AsyncSubscription
    from gossiplog.log.asynchronous.log import AsyncLog
    from gossiplog.log.asynchronous.opening import AsyncLogOpening, open_async
    from gossiplog.log.asynchronous.view import AsyncLogView
    from gossiplog.log.rebasing import RebasedMessage, RebaseOutcome
    from gossiplog.log.recovery import recover
    from gossiplog.net.client import Client, connect
    from gossiplog.net.event_stream import EventStream
    from gossiplog.net.events import (
        Committed,
        Connected,
        Defect,
        Disconnected,
        Event,
        EventsDropped,
        Failed,
        Grafted,
        MessagesRefused,
        PeerInfo,
        Pruned,
        RefusalsReported,
        Rejected,
        Served,
        Subscribed,
        SyncEnded,
        SyncProgressed,
        SyncStarted,
        Unsubscribed,
    )
    from gossiplog.net.host_service import Identity
    from gossiplog.net.http.access import Access, Token, Tokens
    from gossiplog.net.http.listener import Address
    from gossiplog.net.http.server import serve
    from gossiplog.net.http.tls import TLS
    from gossiplog.net.hub import Hub
    from gossiplog.net.maintenance import rebase, repair
    from gossiplog.net.peer import Peer
    from gossiplog.net.replicator.telemetry import Latency, NetworkCounters
    from gossiplog.net.routing.kinds import RouterName
    from gossiplog.net.transport.limits import Limits
    from gossiplog.protocol.broadcast.config import BroadcastConfig
    from gossiplog.protocol.sync.events import SyncStatistics
    from gossiplog.protocol.sync.server import SyncServerConfig
    from gossiplog.pubsub.gossipsub.config import GossipConfig

    __version__: str
else:
    # What needs a network, or is rarely needed, is loaded when it is first used: scripts that only read a log start in
    # half the time.
    _MODULES = {
        "gossiplog.log.asynchronous.iteration": ("AsyncSubscription",),
        "gossiplog.log.asynchronous.log": ("AsyncLog",),
        "gossiplog.log.asynchronous.view": ("AsyncLogView",),
        "gossiplog.log.asynchronous.opening": ("AsyncLogOpening", "open_async"),
        "gossiplog.log.rebasing": ("RebaseOutcome", "RebasedMessage"),
        "gossiplog.log.recovery": ("recover",),
        "gossiplog.net.host_service": ("Identity",),
        "gossiplog.net.http.access": ("Access", "Token", "Tokens"),
        "gossiplog.net.http.listener": ("Address",),
        "gossiplog.net.replicator.telemetry": ("NetworkCounters", "Latency"),
        "gossiplog.net.routing.kinds": ("RouterName",),
        "gossiplog.net.client": ("Client", "connect"),
        "gossiplog.net.events": (
            *("Committed", "Connected", "Defect", "Disconnected", "Event", "EventsDropped", "Failed", "Grafted"),
            *("MessagesRefused", "PeerInfo", "Pruned", "RefusalsReported", "Rejected", "Served", "Subscribed"),
            *("SyncEnded", "SyncProgressed", "SyncStarted", "Unsubscribed"),
        ),
        "gossiplog.net.event_stream": ("EventStream",),
        "gossiplog.net.hub": ("Hub",),
        "gossiplog.net.transport.limits": ("Limits",),
        "gossiplog.net.peer": ("Peer",),
        "gossiplog.net.maintenance": ("rebase", "repair"),
        "gossiplog.net.http.server": ("serve",),
        "gossiplog.net.http.tls": ("TLS",),
        "gossiplog.protocol.broadcast.config": ("BroadcastConfig",),
        "gossiplog.protocol.sync.events": ("SyncStatistics",),
        "gossiplog.protocol.sync.server": ("SyncServerConfig",),
        "gossiplog.pubsub.gossipsub.config": ("GossipConfig",),
    }
    _LAZY = {name: module for module, names in _MODULES.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib import metadata

            found = metadata.version(__name__)
        else:
            if name in __all__ and _failure is not None:
                raise ImportError(str(_failure)) from _failure
            if name not in _LAZY:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            try:
                found = getattr(importlib.import_module(_LAZY[name]), name)
            except ImportError as error:
                if error.name == CORE:
                    raise explain_core(error) from error
                raise explain_extra(error, f"gossiplog.{name}", "hub") from error
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*__all__, *(name for name in globals() if name.startswith("__")), "__version__"})


__all__ = [
    "CID",
    "TLS",
    "Access",
    "Address",
    "ApplicationMismatch",
    "Apply",
    "ApplyTransaction",
    "Arrivals",
    "AsyncLog",
    "AsyncLogOpening",
    "AsyncLogView",
    "AsyncSubscription",
    "AuthorTotals",
    "BlockingCallWarning",
    "BroadcastConfig",
    "Client",
    "Committed",
    "Connected",
    "ConnectionLost",
    "CorruptLog",
    "CorruptSource",
    "CursorOutdated",
    "DecodeError",
    "Defect",
    "Disconnected",
    "EncodeError",
    "Event",
    "EventStream",
    "EventsDropped",
    "Failed",
    "Fork",
    "GossipConfig",
    "GossipLogError",
    "Grafted",
    "Hub",
    "Identity",
    "InsertResult",
    "InvalidMessage",
    "InvalidPayload",
    "KeyFileError",
    "Latency",
    "Limits",
    "Location",
    "Log",
    "LogClosed",
    "LogInfo",
    "LogReplaced",
    "LogView",
    "LogWentBack",
    "LossWarning",
    "MemoryStorage",
    "MessagesRefused",
    "MissingParents",
    "NetworkCounters",
    "NetworkError",
    "NewerSchema",
    "Node",
    "NotALog",
    "OlderSchema",
    "Peer",
    "PeerInfo",
    "Progress",
    "ProtocolError",
    "Pruned",
    "PullResult",
    "RebaseError",
    "RebaseOutcome",
    "RebaseResult",
    "RebasedMessage",
    "RecoverResult",
    "RefusalsReported",
    "RefusedByPeer",
    "RefusedMessage",
    "Rejected",
    "RepairResult",
    "RouterName",
    "Rows",
    "SQLiteStorage",
    "Served",
    "Setup",
    "SignedMessage",
    "Signer",
    "Storage",
    "StorageError",
    "StreamRefused",
    "StreamReset",
    "Subscribed",
    "Subscription",
    "SyncEnded",
    "SyncProgressed",
    "SyncServerConfig",
    "SyncStarted",
    "SyncStatistics",
    "Synchronous",
    "Token",
    "Tokens",
    "TopicMismatch",
    "TopicWarning",
    "TreeError",
    "UnknownMessage",
    "Unsubscribed",
    "VerifyResult",
    "connect",
    "default_key_path",
    "open",
    "open_async",
    "rebase",
    "recover",
    "repair",
    "serve",
]
