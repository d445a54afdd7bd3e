"""The log: append, insert, read, follow and sync, over a storage."""

from gossiplog.log.applying import Apply, Setup
from gossiplog.log.following import Subscription
from gossiplog.log.log import Log
from gossiplog.log.opening import open
from gossiplog.log.results import (
    Arrivals,
    Fork,
    Info,
    InsertResult,
    PullResult,
    RebaseResult,
    RecoverResult,
    RepairResult,
    VerifyResult,
    Written,
)
from gossiplog.log.view import LogView

__all__ = [
    "Apply",
    "Arrivals",
    "Fork",
    "Info",
    "InsertResult",
    "Log",
    "LogView",
    "PullResult",
    "RebaseResult",
    "RecoverResult",
    "RepairResult",
    "Setup",
    "Subscription",
    "VerifyResult",
    "Written",
    "open",
]
