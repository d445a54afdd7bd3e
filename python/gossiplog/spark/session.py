"""A Spark session: a quiet, local one by default, or one on any cluster."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, resources
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession, is_remote

from gossiplog.errors import OptionError, SparkError
from gossiplog.spark import java_process
from gossiplog.spark.failures import worker_errors

JAVA = 17
"""The least release of Java that Spark 4.3 runs on."""
_INSTALL = "on Debian or Ubuntu, as root: apt-get install openjdk-17-jre-headless"
_LOOPBACK = "127.0.0.1"
_ALL_CORES = "local[*]"
_NAME = "gossiplog"
# The name that spark-submit gives what PySpark starts.
_NAMELESS = "pyspark-shell"
_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
_PYTHON_PATH = "PYTHONPATH"
_SERVER = "SPARK_REMOTE"
# How the URL of a server of Spark Connect begins.
_REMOTE = "sc://"
_SERVER_SECONDS = 15.0
# After a shuffle Spark has 200 partitions: made for clusters, and on a few cores most of what a small job does.
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.sql.shuffle.partitions": str(max(8, 2 * (os.cpu_count() or 1))),
}
_DAEMON = "spark.python.daemon.module"
_OUR_DAEMON = "pyspark_gossiplog.daemon"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Most of the processor time of a start of Spark, and of jobs below a minute, is of Java's second compiler. It compiles
# what has run ten times as often as it otherwise would, so that loops over rows are compiled still.
_PATIENT = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
    " -XX:Tier4BackEdgeThreshold=400000 -XX:MetaspaceSize=192m"
)
# Java has little to do: the second compiler has nothing to compile that would pay, and one thread collects garbage.
_BRIEF = {
    _JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=192m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def session(
    master: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    driver_memory: str | None = None,
    name: str | None = None,
) -> SparkSession:
    """Return the session of this process, with the data source `gossiplog`; start one where there is none.

    A session that is there already, as in a notebook, is returned with its settings; only `conf` is applied, as far as
    Spark lets it change. Under `spark-submit` the settings are those of `spark-submit` and `spark-defaults.conf`. Only
    a local session that this call starts gets settings of ours: no user interface, loopback addresses, few partitions
    after a shuffle. What `spark-defaults.conf` (in `SPARK_CONF_DIR` or `SPARK_HOME/conf`) and `PYSPARK_SUBMIT_ARGS` set
    goes before these. Where there is neither, Spark also logs errors alone and draws no progress bar.

    With the URL of a server of Spark Connect, here or in the variable `SPARK_REMOTE`, the session is one of that
    server, and this process needs no Java.

    Args:
        master: a URL as Spark's own (https://spark.apache.org/docs/4.3.0/submitting-applications.html#master-urls), or
            one that begins with `sc://`; None is what Spark's settings say, else every core of this machine.
        conf: Spark's properties; they go before all other settings.
        driver_memory: as "4g".
        name: of the application; None is what Spark's settings say, else "gossiplog".

    Raises:
        OptionError: memory for the driver of a server, which runs already.
        SparkError: Java is missing or too old, or Spark does not start; a package is missing that Spark Connect needs,
            or its server does not answer.
    """
    if is_remote() and (found := running()) is not None:
        for key, value in (conf or {}).items():
            found.conf.set(key, value)
        return found
    if names_server(master):
        return _connected(master, conf or {}, driver_memory)
    if SparkContext._active_spark_context is not None:
        return _built(conf or {})
    asked = {"spark.master": master, "spark.driver.memory": driver_memory, "spark.app.name": name}
    settings = {key: value for key, value in asked.items() if value is not None} | dict(conf or {})
    # Executors would take any Python that is called python3. The variable goes before the property, which only
    # spark-submit turns into it.
    os.environ.setdefault("PYSPARK_PYTHON", settings.get("spark.pyspark.python", sys.executable))
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _built(settings)
    variables: dict[str, str] = {}
    if not has_settings(os.environ):
        os.environ["SPARK_CONF_DIR"] = _conf_folder()
        # Not one of those in `complete`: in PySpark's name, spark-submit sets it itself.
        settings.setdefault("spark.ui.showConsoleProgress", "false")
        if settings.get("spark.master", _ALL_CORES).startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
            # Not there either: it holds from the start of Java.
            settings.setdefault(_JAVA_OPTIONS, _PATIENT)
            if _has_our_python():
                # Of each process of Python that Spark starts: it has sitecustomize.py.
                path = [_conf_folder(), os.environ.get(_PYTHON_PATH)]
                variables[_PYTHON_PATH] = os.pathsep.join(filter(None, path))
    check_java()
    with worker_errors():
        _start_java(settings, variables)
        # Java runs: this is what Spark's files and variables say.
        completed = SparkConf().setAll(list(settings.items()))
        complete(completed)
        return SparkSession.builder.config(conf=completed).getOrCreate()


def _start_java(settings: Mapping[str, str], variables: Mapping[str, str]) -> None:
    """Start the Java process, where this process has none yet, with properties that go before those of Spark's files.

    Some hold only from the start of the process, such as `spark.driver.memory`.

    Args:
        settings: the properties.
        variables: of the process.

    Raises:
        PySparkRuntimeError: the process ended at once; what it said is on stderr.
        KeyboardInterrupt: the wait was interrupted; Java is ended.
    """
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    submitted = f"{shlex.join(options)} {os.environ.get(_SUBMIT_ARGS) or _NAMELESS}"
    with _environment({_SUBMIT_ARGS: submitted, **variables}):
        java_process.start()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process in a block, for the processes that it starts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def has_settings(environment: Mapping[str, str]) -> bool:
    """Return whether the user has settings of Spark in files or variables.

    Args:
        environment: variables of the process.
    """
    ours = _conf_folder()
    if _SUBMIT_ARGS in environment or environment.get("SPARK_CONF_DIR", ours) != ours:
        return True
    folder = os.path.join(environment.get("SPARK_HOME", os.path.dirname(pyspark.__file__)), "conf")
    # A distribution of Spark brings templates alone.
    return os.path.isdir(folder) and any(not name.endswith(".template") for name in os.listdir(folder))


def complete(conf: SparkConf) -> None:
    """Add the settings of a session of ours that are not in the configuration yet.

    Args:
        conf: with what the call, Spark's files and its variables set.
    """
    conf.setIfMissing("spark.master", _ALL_CORES)
    if conf.get("spark.app.name", _NAMELESS) == _NAMELESS:
        conf.set("spark.app.name", _NAME)
    if str(conf.get("spark.master")).startswith("local"):
        for key, value in _LOCAL.items():
            conf.setIfMissing(key, value)
        if _has_our_python():
            conf.setIfMissing(_DAEMON, _OUR_DAEMON)


def _has_our_python() -> bool:
    """Return whether workers run on this Python. Another may lack this package, and be for tasks without need of it."""
    return os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable


def brief_settings(master: str | None = None) -> dict[str, str]:
    """Return settings for a local session with one job, whose work is that of Python's tasks.

    They are none where the user has settings, or Spark runs elsewhere.

    Args:
        master: as `session` takes it.
    """
    local = master is None or master.startswith("local")
    if names_server(master) or not local or "PYSPARK_GATEWAY_PORT" in os.environ or has_settings(os.environ):
        return {}
    return dict(_BRIEF)


def _conf_folder() -> str:
    """Return the folder with our settings of Spark's log, and a module that Spark's processes of Python import."""
    return str(resources.files("gossiplog.spark") / "conf")


def _built(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with worker_errors():
        return builder.getOrCreate()


def names_server(master: str | None) -> bool:
    """Return whether a session of this master is one of a server of Spark Connect."""
    return (master or os.environ.get(_SERVER, "")).startswith(_REMOTE)


def _connected(url: str | None, settings: Mapping[str, str], driver_memory: str | None) -> SparkSession:
    """Return a session of a server of Spark Connect, by default of that in the variable."""
    if driver_memory is not None:
        raise OptionError("the memory of a server of Spark Connect is set where it is started: leave driver_memory out")
    builder = SparkSession.builder if url is None else SparkSession.builder.remote(url)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with worker_errors():
        try:
            _check_server(url or os.environ[_SERVER])
            return builder.getOrCreate()
        except ImportError as error:
            raise SparkError(
                "Spark Connect needs packages that are not installed: pip install 'gossiplog[spark-connect]' installs"
                " them"
            ) from error


def _check_server(url: str) -> None:
    """Wait for a server's answer: PySpark would try again for ten minutes, and no signal ends that.

    Raises:
        SparkError: there is none.
    """
    grpc: Any = import_module("grpc")
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(url)
    channel = builder.toChannel()
    try:
        grpc.channel_ready_future(channel).result(_SERVER_SECONDS)
    except grpc.FutureTimeoutError as error:
        # The URL may have a token.
        raise SparkError(
            f"no server of Spark Connect answers at {_REMOTE}{builder.endpoint} within {_SERVER_SECONDS:g} seconds:"
            " start one, or name another as --master or in SPARK_REMOTE"
        ) from error
    finally:
        channel.close()


def running() -> SparkSession | None:
    """Return the session that this process has, if any."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def check_java() -> None:
    """Look for the Java that Spark would run on.

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
        found = release[1] if release else "one that does not report its version"
        raise SparkError(f"Spark needs Java {JAVA} or newer, and {java} is {found}; {_INSTALL}")
