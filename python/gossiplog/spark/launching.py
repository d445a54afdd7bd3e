"""Starts Spark's Java process without a remark that nobody can act upon, which it would make each time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import IO

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

_STDERR = 2
# Spark asks for the module that vectorizes its arithmetic, and Java says so from code that no setting reaches.
_REMARK = b"WARNING: Using incubator modules:"


def launch(settings: Mapping[str, str], complete: Callable[[SparkConf], None]) -> None:
    """Start the Java process and Spark in it, as `SparkSession.builder` would; it then finds both.

    What the process says is passed on to stderr, but for the remark.

    Args:
        settings: Spark's properties, which go before those of its files.
        complete: adds to the configuration that results, once Java has read Spark's files.

    Raises:
        PySparkRuntimeError: the process ended at once; what it said is on stderr.
    """
    # The process outlives the sessions in it, and serves the next.
    gateway = SparkContext._gateway or _gateway(SparkConf().setAll(list(settings.items())))
    conf = SparkConf(_jvm=gateway.jvm).setAll(list(settings.items()))
    complete(conf)
    SparkContext(conf=conf, gateway=gateway)


def _gateway(conf: SparkConf) -> JavaGateway:
    ended = False
    reading, writing = os.pipe()
    thread = threading.Thread(target=_pass_on, args=(os.fdopen(reading, "rb"),), name="spark-stderr", daemon=True)
    thread.start()
    try:
        return launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        ended = True
        raise
    finally:
        os.close(writing)
        if ended:
            # Why it ended stands in what it said.
            thread.join()


def without_remark(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Return the lines that are worth passing on."""
    return (line for line in lines if not line.startswith(_REMARK))


def _pass_on(stream: IO[bytes]) -> None:
    with stream:
        for line in without_remark(stream):
            # Past Python's own buffer, whose lock a daemon's thread must not hold when the interpreter ends.
            os.write(_STDERR, line)
