"""The log: append, insert, read, follow and sync, over a storage."""

from gossiplog.log.applying import Apply, Setup
from gossiplog.log.following import Subscription
from gossiplog.log.log import Log
from gossiplog.log.opening import open
from gossiplog.log.results import (
    Arrivals,
    AuthorTotals,
    Fork,
    InsertResult,
    LogInfo,
    PullResult,
    RebaseResult,
    RecoverResult,
    RepairResult,
    VerifyResult,
)
from gossiplog.log.view import LogView

__all__ = [
    "Apply",
    "Arrivals",
    "AuthorTotals",
    "Fork",
    "InsertResult",
    "Log",
    "LogInfo",
    "LogView",
    "PullResult",
    "RebaseResult",
    "RecoverResult",
    "RepairResult",
    "Setup",
    "Subscription",
    "VerifyResult",
    "open",
]
