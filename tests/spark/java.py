"""How Java is started by tests."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path

import pyspark

OPTIONS = " ".join(
    [
        # It compiles once and quickly, and collects garbage on one thread.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        # With one compiler it has 48 MB for compiled code. The tests fill these: it sweeps them, and compiles anew.
        "-XX:ReservedCodeCacheSize=240m",
        # It would collect garbage each time that it loaded so many classes: 21 MB of them to begin with.
        "-XX:MetaspaceSize=192m",
        "-Xshare:auto",
        # The classes are those of Spark's release: nothing is found by verifying them.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
        # Its figures for tools that nobody runs.
        "-XX:-UsePerfData",
    ]
)
"""For a process that lives for a few minutes."""

CONF = resources.files("gossiplog.spark") / "conf"
"""The folder of the settings that a session of ours has."""
_JARS = Path(pyspark.__file__).parent / "jars"
_MOST_USED = ("spark-catalyst_", "spark-core_", "spark-sql_", "spark-sql-api_", "spark-common-utils_", "scala-library-")
# What it runs loads most of the classes that any job needs. Java writes them as it ends.
_PROGRAM = """
import os, sys
from pyspark import SparkContext
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
running = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
frame = running.range(1000).selectExpr("id % 7 as rest", "id")
assert frame.groupBy("rest").count().collect()
assert frame.mapInArrow(lambda batches: batches, "rest long, id long").count() == 1000
running.stop()
java = SparkContext._gateway.proc
java.stdin.close()
java.wait()
"""


@cache
def archived() -> str:
    """Return OPTIONS with an archive of Spark's classes: a process takes 9 s of processor time in place of 13.

    The first call of all makes the archive in the virtual environment, which takes 35 s, and others wait for it. Java
    takes nothing from a folder: where Spark has the folder of its settings first, this class path has it last. Java
    goes on without an archive that is not of its release or of these files.
    """
    java = Path(shutil.which("java") or "java").resolve()
    made_of = "\n".join([str(java), str(java.is_file() and java.stat().st_mtime_ns), str(_JARS), OPTIONS, _PROGRAM])
    name = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    archive, classes = Path(sys.prefix) / f".spark-{pyspark.__version__}-{name}.jsa", class_path()
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive, classes)
    return f"{OPTIONS} {shlex.join(['-cp', f'{classes}:{CONF}', f'-XX:SharedArchiveFile={archive}'])}"


def class_path() -> str:
    """Return the path of Spark's classes, the files of most classes first.

    Java looks for a class in one file after the other, of 280 in any order, and Spark reads the class of each function
    that it hands to tasks.
    """
    return os.pathsep.join([str(path) for name in _MOST_USED for path in _JARS.glob(f"{name}*.jar")] + [f"{_JARS}/*"])


def _make(archive: Path, classes: str) -> None:
    """Write the archive.

    Args:
        archive: its path.
        classes: the class path.
    """
    partial = archive.with_suffix(f".{os.getpid()}")
    # Java would list all classes that it leaves out.
    written = ["-cp", classes, f"-XX:ArchiveClassesAtExit={partial}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    inherited = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=inherited | {"SPARK_SUBMIT_OPTS": f"{OPTIONS} {shlex.join(written)}", "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert partial.exists(), done.stderr
    partial.rename(archive)
