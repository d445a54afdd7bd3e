"""Spark on a cluster: a job on executors to which Spark carries the Python environment, and what `spark-submit` sets
(docs/pipeline.md).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import gossiplog
from gossiplog import Signer
from tests.spark import java

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    """The environment of a program that starts Spark."""
    return os.environ | {"JDK_JAVA_OPTIONS": java.OPTIONS, "SPARK_SUBMIT_OPTS": java.archived()}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment that is found by its relative path alone. Its packages are those of this one: they need not be
    installed for the test."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (packages / "these.pth").write_text(f"{ROOT / 'python'}\n{sysconfig.get_path('purelib')}\n")
    return folder


@pytest.fixture
def _executors_leave_nothing() -> Iterator[None]:
    """Spark's executors work in its own folder, and stay there."""
    work = Path(pyspark.__file__).parent / "work"
    before = set(work.glob("*"))
    yield
    for folder in set(work.glob("*")) - before:
        shutil.rmtree(folder)


@pytest.mark.usefixtures("_executors_leave_nothing")
def test_the_environment_is_shipped(
    environment: Path, variables: dict[str, str], tmp_path: Path, signer: Signer
) -> None:
    with gossiplog.open(tmp_path / "chat.db", topic="org.example.chat", signer=signer) as log:
        log.append_many(range(1000))
        root = log.root
    archive = tmp_path / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(environment, ".")
    command = ["environment/bin/python", "-m", "gossiplog", "pipeline", "verify", "chat.db", "--json"]
    cluster = ["--master", "local-cluster[2,1,1024]", "--conf", "spark.pyspark.python=./environment/bin/python"]
    shipped = ["--conf", f"spark.archives={archive}#environment"]
    executors = ["--conf", f"spark.executor.extraJavaOptions={java.archived()}"]
    command += [*cluster, *shipped, *executors]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (report,) = map(json.loads, done.stdout.splitlines())
    assert (report["messages"], report["defects"], report["root"]) == (1000, 0, root.hash.hex())


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
