"""`kill -9` of a driver, or of a task, in jobs of Spark: run again, they have the same result, and nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.kill_jobs import PORT, SECRET
from tests.integration.spark_jobs import JOBS

ROOT = Path(__file__).parent.parent.parent


def test_kills_of_drivers_and_tasks(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the Java process of all tests: a driver with one of its own takes 10 s of processor time to start."""
    gateway: Any = vars(type(spark.sparkContext))["_gateway"]
    known = gateway.gateway_parameters
    environment = os.environ | {PORT: str(known.port), SECRET: known.auth_token, "PYSPARK_PYTHON": sys.executable}
    # Appends and streams take a Java of their own; what their drivers do, kill_staging.py kills. Two are the same work
    # as over fleets.
    jobs = [name for name, job in JOBS.items() if not job.in_java and name not in ("verify", "root")]
    command = [sys.executable, "-m", "tests.integration.kill_jobs", str(tmp_path), "--places", "0", *jobs]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert {name: found["kills"] for name, found in result.items()} == {
        name: 1 + number % 2 for number, name in enumerate(jobs)
    }
    with capsys.disabled():
        sys.stdout.write(f"\nkills: {result}\n")
