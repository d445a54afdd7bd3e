"""The package as a whole: what it says where the extra is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_the_extra(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import gossiplog.spark"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "ImportError" in run.stderr
    assert "pip install 'gossiplog[spark]'" in run.stderr
