"""`kill -9` at any point loses no acknowledged message and never separates the tree from the messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("kind", "wanted"), [("append", 12), ("insert_many", 6), ("pull", 6)])
def test_kills_within_open_transactions(
    kind: str, wanted: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Path(__file__).with_name("kill_writer.py")
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path), kind, str(wanted)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["statements"] > 10
    assert result["landed"] >= result["statements"] + wanted
    assert result["acknowledged"] > 0
    with capsys.disabled():
        sys.stdout.write(
            f"\n{kind}: {result['kills']} writers killed, {result['landed']} of them in an open transaction,"
            f" {result['statements']} before each of its statements;"
            f" {result['acknowledged']} acknowledged messages, none lost\n"
        )


def test_kills_before_each_step_of_a_rebase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).with_name("kill_rebase.py")
    run = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["kills"] > 50
    assert min(result["former"], result["new"]) > 0
    with capsys.disabled():
        sys.stdout.write(
            f"\nrebase: {result['kills']} killed, {result['former']} left the former log, {result['new']} the new one\n"
        )


def test_kills_of_what_drivers_of_spark_do_by_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-m", "tests.integration.kill_staging", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    for name in ("append", "ingest"):
        assert result[name]["kills"] >= 20
        assert min(result[name]["none"], result[name]["whole"]) > 0
    assert result["append"]["part"] > 0
    with capsys.disabled():
        sys.stdout.write(f"\nstaging: {result}\n")
