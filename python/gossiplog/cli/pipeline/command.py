"""`gossiplog pipeline`: jobs on Apache Spark, for logs that need more time or memory than one machine has."""

from __future__ import annotations

import typer

from gossiplog.cli.help import Command, Group
from gossiplog.cli.pipeline.analyze import analyze
from gossiplog.cli.pipeline.read import read
from gossiplog.cli.pipeline.reconcile import reconcile
from gossiplog.cli.pipeline.session import job
from gossiplog.cli.pipeline.state import ingest, materialize
from gossiplog.cli.pipeline.sweep import sweep
from gossiplog.cli.pipeline.verify import root, verify

app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,
    help="Run jobs on Apache Spark, for logs and fleets of logs that outgrow one machine.",
)

for function in (read, root, verify, reconcile, analyze, materialize, ingest, sweep):
    app.command(function.__name__, cls=Command)(job(function))
