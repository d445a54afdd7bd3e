"""`kill -9` of a driver, or of a task, in each job of Spark: run again, it has the same result, and nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.kill_jobs import JOBS, PORT, SECRET

ROOT = Path(__file__).parent.parent.parent


def test_kills_of_drivers_and_tasks(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the Java process of all tests: a driver with one of its own takes 10 s of processor time to start."""
    gateway: Any = vars(type(spark.sparkContext))["_gateway"]
    known = gateway.gateway_parameters
    environment = os.environ | {PORT: str(known.port), SECRET: known.auth_token, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.integration.kill_jobs", str(tmp_path), "--few"]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result.keys() == JOBS.keys()
    assert [found["kills"] for found in result.values()] == [2] * len(JOBS)
    with capsys.disabled():
        sys.stdout.write(f"\nkills: {result}\n")
