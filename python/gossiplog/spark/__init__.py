# Imports go one way: schema, failures, options, locations, folders; batches, reading, streaming; staging, writing;
# source; launching, session, progress; payload, summary; rooting, stored, verifying; gathering, reconcile, repair;
# analysis, report; expressions; folds, checkpoint, arrivals, materializing;
# keystore, components, signing, events, event_files, ingesting; sweeping.
"""Logs in Apache Spark: the data source `gossiplog`, and what the jobs over it have in common."""

from typing import TYPE_CHECKING, Any

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(f"{error}: gossiplog.spark needs it; install it with: pip install 'gossiplog[spark]'") from error

from gossiplog.spark.analysis import COLUMNS, Analysis, analyze
from gossiplog.spark.event_files import read_events
from gossiplog.spark.events import Layout
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.folds import Counter, ElementSet, Fold, FunctionFold, LastWriter
from gossiplog.spark.ingesting import Ingested, ingest
from gossiplog.spark.keystore import KeyStore
from gossiplog.spark.locations import locations
from gossiplog.spark.materializing import Materialized, Recipe, fold_messages, materialize, read_state
from gossiplog.spark.payload import parse_payload
from gossiplog.spark.progress import tasks
from gossiplog.spark.reconcile import Lack, Reconciliation, reconcile
from gossiplog.spark.repair import write_repairs
from gossiplog.spark.report import analysed_state, tables, write_report
from gossiplog.spark.rooting import Root, root
from gossiplog.spark.schema import SCHEMA
from gossiplog.spark.session import running, session
from gossiplog.spark.source import GossipLogSource, read
from gossiplog.spark.stored import Stored, stored
from gossiplog.spark.summary import LogSummary, summarize
from gossiplog.spark.verifying import Verification, reports, verify, verify_log
from gossiplog.spark.writing import Written, write

if TYPE_CHECKING:
    from gossiplog.spark.sweeping import medians, sweep, write_sweep

__all__ = [
    "COLUMNS",
    "SCHEMA",
    "Analysis",
    "Counter",
    "ElementSet",
    "Fold",
    "FunctionFold",
    "GossipLogSource",
    "Ingested",
    "KeyStore",
    "Lack",
    "LastWriter",
    "Layout",
    "LogSummary",
    "Materialized",
    "Recipe",
    "Reconciliation",
    "Root",
    "Stored",
    "Verification",
    "Written",
    "analysed_state",
    "analyze",
    "fold_messages",
    "ingest",
    "locations",
    "materialize",
    "medians",
    "parse_payload",
    "read",
    "read_events",
    "read_state",
    "reconcile",
    "reports",
    "root",
    "running",
    "session",
    "stored",
    "summarize",
    "sweep",
    "tables",
    "tasks",
    "verify",
    "verify_log",
    "worker_errors",
    "write",
    "write_repairs",
    "write_report",
    "write_sweep",
]


def __getattr__(name: str) -> Any:
    # Every worker imports this package, and only those of sweeps need the simulator.
    if name in ("medians", "sweep", "write_sweep"):
        from gossiplog.spark import sweeping

        return getattr(sweeping, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
