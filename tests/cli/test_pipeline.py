"""`gossiplog pipeline`: what its jobs have in common, and reading."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from gossiplog.cli.pipeline_session import SessionOptions
from tests.cli.support import Program


def test_properties() -> None:
    options = SessionOptions(None, ["spark.a=1", "spark.b=x=y"], None)
    assert options.properties() == {"spark.a": "1", "spark.b": "x=y"}
    assert SessionOptions(None, None, None).properties() == {}


@pytest.mark.parametrize("text", ["spark.a", "=1", ""])
def test_properties_that_are_none(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected NAME=VALUE"):
        SessionOptions(None, [text], None).properties()


def test_nothing_of_spark_is_imported_before_a_job_is_called() -> None:
    program = "import sys, gossiplog.cli.main; print({'pyspark', 'pyarrow', 'py4j', 'pandas'} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


@pytest.mark.integration
def test_without_the_extra(log: Path) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from gossiplog.cli.main import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-c", program, "pipeline", "read", log], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr.endswith("install it with: pip install 'gossiplog[spark]'\n")
    assert run.stderr.count("\n") == 1


def test_a_wrong_property_is_a_wrong_call(program: Program, log: Path) -> None:
    result = program("pipeline", "read", log, "--conf", "spark.a")
    assert result.code == 2
    assert "expected NAME=VALUE" in result.err
