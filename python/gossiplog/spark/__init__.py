"""Logs in Apache Spark: the data source `gossiplog`, and jobs over logs. docs/pipeline.md shows them at work.

    session                                     the session of this process, or a local one
    read, write                                 logs as DataFrames, and messages back into logs; what each option does:
                                                gossiplog.spark.source.options
    parse_payload, worker_errors                payloads as columns; errors of workers as this package's
    summarize, verify, verify_log, root         what logs hold, and whether they are sound
    verify_fleet, fleet_roots                   the last two of many logs, in one job
    reconcile, write_repairs                    what replicas lack of each other
    reconcile_fleet, write_fleet_repairs        the same for replicas of many logs, topic by topic
    analyze, write_report                       a history in figures and plots; `log_metadata` and `analysed_state`
                                                say of which state of the log
    analyze_fleet, write_fleet_analysis         many logs in figures, the most conspicuous first
    read_events, Layout, ingest                 a log of an application's events
    Recipe, materialize, read_state             a table of state, by a fold: LastWriter, Counter, ElementSet or
                                                FunctionFold; `fold_messages` folds a DataFrame
    sweep, medians, write_sweep                 many simulations of routers

The other classes are what these return.
"""

from typing import TYPE_CHECKING, Any

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(f"{error}: gossiplog.spark needs it; install it with: pip install 'gossiplog[spark]'") from error

from gossiplog.spark.failures import worker_errors
from gossiplog.spark.jobs.analyze import COLUMNS, AnalyzeResult, analyze
from gossiplog.spark.jobs.analyze_fleet import analyze_fleet, write_fleet_analysis
from gossiplog.spark.jobs.events import Layout, read_events
from gossiplog.spark.jobs.fleet_figures import FleetAnalyzeResult
from gossiplog.spark.jobs.folds import Counter, ElementSet, Fold, FunctionFold, LastWriter
from gossiplog.spark.jobs.ingest import IngestResult, ingest
from gossiplog.spark.jobs.log_metadata import LogMetadata, log_metadata
from gossiplog.spark.jobs.materialize import MaterializeResult, Recipe, fold_messages, materialize, read_state
from gossiplog.spark.jobs.reconcile import MissingMessages, ReconcileResult, reconcile, write_repairs
from gossiplog.spark.jobs.reconcile_fleet import FleetReconcileResult, reconcile_fleet, write_fleet_repairs
from gossiplog.spark.jobs.report import analysed_state, write_report
from gossiplog.spark.jobs.root import LogRoot, RootResult, fleet_roots, root
from gossiplog.spark.jobs.summary import LogSummary, summarize
from gossiplog.spark.jobs.verify import (
    FleetVerifyResult,
    LogVerifyResult,
    VerifyResult,
    verify,
    verify_fleet,
    verify_log,
)
from gossiplog.spark.payload import parse_payload
from gossiplog.spark.session import session
from gossiplog.spark.source.data_source import read
from gossiplog.spark.source.options import SCHEMA
from gossiplog.spark.source.problems import Problem
from gossiplog.spark.source.writer import WriteResult, write

if TYPE_CHECKING:
    from gossiplog.spark.jobs.sweep import medians, sweep, write_sweep

__all__ = [
    "COLUMNS",
    "SCHEMA",
    "AnalyzeResult",
    "Counter",
    "ElementSet",
    "FleetAnalyzeResult",
    "FleetReconcileResult",
    "FleetVerifyResult",
    "Fold",
    "FunctionFold",
    "IngestResult",
    "LastWriter",
    "Layout",
    "LogMetadata",
    "LogRoot",
    "LogSummary",
    "LogVerifyResult",
    "MaterializeResult",
    "MissingMessages",
    "Problem",
    "Recipe",
    "ReconcileResult",
    "RootResult",
    "VerifyResult",
    "WriteResult",
    "analysed_state",
    "analyze",
    "analyze_fleet",
    "fleet_roots",
    "fold_messages",
    "ingest",
    "log_metadata",
    "materialize",
    "medians",
    "parse_payload",
    "read",
    "read_events",
    "read_state",
    "reconcile",
    "reconcile_fleet",
    "root",
    "session",
    "summarize",
    "sweep",
    "verify",
    "verify_fleet",
    "verify_log",
    "worker_errors",
    "write",
    "write_fleet_analysis",
    "write_fleet_repairs",
    "write_repairs",
    "write_report",
    "write_sweep",
]


def __getattr__(name: str) -> Any:
    # Every worker imports this package, and only those of sweeps need the simulator.
    if name in ("medians", "sweep", "write_sweep"):
        from gossiplog.spark.jobs import sweep as sweeping

        return getattr(sweeping, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
