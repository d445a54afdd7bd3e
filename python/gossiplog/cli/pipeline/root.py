"""`gossiplog pipeline root`: the roots of logs' trees, built in parallel."""

from __future__ import annotations

from gossiplog.cli.output import Json, Output
from gossiplog.cli.pipeline.session import Logs, SessionOptions, show_rows, spark_session


def root(logs: Logs, json: Json = False, *, options: SessionOptions) -> None:
    """Build each log's tree from its messages, in parallel, and show the root."""
    from gossiplog import spark
    from gossiplog.spark.source.locations import check_logs

    result = Output(json)
    found_logs = check_logs(logs)
    with spark_session(options, "root") as running:
        rows = []
        for log in found_logs:
            found = spark.root(spark.read(running, log, columns="key,value"), ascending=True)
            rows.append(
                {"log": log, "messages": found.entries, "level": found.node.level, "root": found.node.hash.hex()}
            )
    show_rows(result, rows)
