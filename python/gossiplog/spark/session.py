"""A Spark session: a quiet, local one by default, or one on any cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import resources

from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from gossiplog.errors import SparkError
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.launching import launch

JAVA = 17
"""The least release of Java that Spark 4.3 runs on."""
_INSTALL = "on Debian or Ubuntu, as root: apt-get install openjdk-17-jre-headless"
_LOOPBACK = "127.0.0.1"
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
# After a shuffle Spark has 200 partitions: made for clusters, and on a few cores most of what a small job does.
_LOCAL = {
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.sql.shuffle.partitions": str(max(8, 2 * (os.cpu_count() or 1))),
}


def session(
    master: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    driver_memory: str | None = None,
    name: str = "gossiplog",
) -> SparkSession:
    """The session of this process, which is made where there is none, with the data source `gossiplog`.

    A process that `spark-submit` started has its master and memory from there.

    Args:
        master: a URL as Spark's own (https://spark.apache.org/docs/4.3.0/submitting-applications.html#master-urls);
            None is every core of this machine.
        conf: Spark's properties; they go before those that a local session sets to be quiet and to stay on loopback.
        driver_memory: as "4g".
        name: of the application.

    Raises:
        SparkError: Java is missing or too old, or Spark does not start.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = master or ("" if submitted else "local[*]")
    local = chosen.startswith("local")
    settings = {**_QUIET, **(_LOCAL if local else {})}
    if chosen:
        settings["spark.master"] = chosen
    if driver_memory is not None:
        settings["spark.driver.memory"] = driver_memory
    settings |= conf or {}
    # Executors would take any Python that is called python3. The variable goes before the property, which only
    # spark-submit turns into it.
    os.environ.setdefault("PYSPARK_PYTHON", settings.get("spark.pyspark.python", sys.executable))
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        os.environ.setdefault("SPARK_CONF_DIR", str(resources.files("gossiplog.spark") / "conf"))
    if not submitted and running() is None:
        check_java()
        with worker_errors():
            launch(SparkConf().setAppName(name).setAll(list(settings.items())))
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with worker_errors():
        return builder.getOrCreate()


def running() -> SparkSession | None:
    """The session that this process has, if any."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def check_java() -> None:
    """Looks for the Java that Spark would run on.

    Raises:
        SparkError: there is none, or one that is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        where = f"in JAVA_HOME, which is {home}" if home else "on the PATH"
        raise SparkError(f"Spark needs Java {JAVA} or newer, and there is none {where}; {_INSTALL}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    release = re.search(r'version "(\d+)', said)
    if release is None or int(release[1]) < JAVA:
        found = release[1] if release else "one that does not tell its version"
        raise SparkError(f"Spark needs Java {JAVA} or newer, and {java} is {found}; {_INSTALL}")
