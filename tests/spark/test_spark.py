"""The package as a whole: what it imports, and what it says where the extra is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_the_extra(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import gossiplog.spark"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "ImportError" in run.stderr
    assert "pip install 'gossiplog[spark]'" in run.stderr


@pytest.mark.integration
def test_workers_do_not_import_the_simulator() -> None:
    program = (
        "import sys, gossiplog.spark.source.data_source;"
        "print([name for name in sys.modules if name == 'gossiplog.sim'])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_there_is_everything_that_it_names() -> None:
    from gossiplog import spark

    assert [name for name in spark.__all__ if not hasattr(spark, name)] == []
    assert not hasattr(spark, "nothing")


def test_help_begins_with_all_functions() -> None:
    from gossiplog import spark

    text = spark.__doc__ or ""
    assert [name for name in spark.__all__ if name.islower() and name not in text] == []
