"""What `spark-submit` and `spark-defaults.conf` set (docs/pipeline.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.integration.local_cluster import java_variables

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    """The environment of a program that starts Spark."""
    return os.environ | java_variables()


PROGRAM = """
import json
from gossiplog.spark import session

conf = session().sparkContext.getConf()
names = ["app.name", "master", "ui.enabled", "ui.port", "sql.shuffle.partitions", "driver.host"]
print(json.dumps({name: conf.get(f"spark.{name}") for name in names}))
"""


@pytest.mark.parametrize("submitted", [True, False])
def test_settings_of_the_users_stay(submitted: bool, variables: dict[str, str], tmp_path: Path) -> None:
    """Those of `spark-submit` and `spark-defaults.conf`; ours are added where plain Python starts a local session."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    defaults = {"spark.master": "local[1]", "spark.ui.enabled": "true", "spark.ui.port": "0"}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in defaults.items()))
    environment = variables | {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = ["--name", "orders", "--conf", "spark.sql.shuffle.partitions=50"]
    command = [submit, *options, program] if submitted else [sys.executable, program]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: found[name.removeprefix("spark.")] for name in defaults} == defaults
    if submitted:
        assert (found["app.name"], found["sql.shuffle.partitions"]) == ("orders", "50")
    else:
        assert (found["app.name"], found["driver.host"]) == ("gossiplog", "127.0.0.1")
        assert int(found["sql.shuffle.partitions"]) >= 8
