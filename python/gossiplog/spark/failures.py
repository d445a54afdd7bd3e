"""What goes wrong in Spark's workers, as this package's errors: the one place that looks into Spark's exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from gossiplog import errors
from gossiplog.errors import CorruptLog, CursorOutdated, GossipLogError, SparkError
from gossiplog.spark.url_secrets import redacted

# How a traceback ends that a worker sent, which is all that comes of its exception.
_OURS = re.compile(r"^gossiplog\.errors\.(\w+): (.+)$", re.MULTILINE)
# What an expression of `raising` raised.
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] gossiplog\.errors\.(\w+): (.+?)\s+SQLSTATE")
_ANY = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Exit|Interrupt|Warning)): (.+)$", re.MULTILINE)
# What failed in Java, in the line under py4j's own: the last exception that it names, which is the task's.
_JAVA = re.compile(r"^: (?:.* )?(?:[\w$]+\.)+([\w$]+(?:Error|Exception)): (.+)$", re.MULTILINE)
# Of values that an expression cannot take (class 22 of SQL's standard): DIVIDE_BY_ZERO, CAST_INVALID_INPUT and others.
_DATA = re.compile(r"\bSQLSTATE: 22\w{3}\b")
# Of a log that was rebased, and of who reads it, as the messages of CursorOutdated that workers raise have them.
_GENERATIONS = re.compile(r"\(generation (?P<expected>\d+), [^()]* is of (?P<found>\d+)\)")
# Whose constructor takes the message alone.
_PLAIN = (
    errors.ApplicationMismatch,
    errors.ColumnError,
    errors.DecodeError,
    errors.EncodeError,
    errors.InvalidMessage,
    errors.KeyFileError,
    errors.LimitExceeded,
    errors.LogChanged,
    errors.LogClosed,
    errors.NewerSchema,
    errors.NotALog,
    errors.OlderSchema,
    errors.OptionError,
    errors.RefusedMessage,
    errors.StorageError,
    errors.TopicMismatch,
    errors.TreeError,
    errors.ValuesRefused,
)


@contextmanager
def worker_errors() -> Iterator[None]:
    """Raise from a block in which Spark runs what this package raised in a worker, as it was.

    Raises:
        GossipLogError: of the class and with the message that it had in the worker.
        SparkError: Spark gave up for another reason, which is its message, in one line.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise unwrapped(error) from error


def raising(kind: type[GossipLogError], text: Column) -> Column:
    """Return an expression that fails with an error of this package, where `worker_errors` gets it."""
    return F.raise_error(F.concat(F.lit(f"gossiplog.errors.{kind.__name__}: "), text))


def unwrapped(error: Exception) -> GossipLogError:
    """Return the error behind an exception of Spark."""
    # Java's errors name paths as they were given.
    text = redacted(str(error))
    ours = _OURS.findall(text) or _RAISED.findall(text)
    if ours:
        name, message = ours[-1]
        return _made(name, message.strip())
    others = _ANY.findall(text)
    if others:
        name, message = others[-1]
        return SparkError(f"a job failed in a worker of Spark: {name}: {message.strip()}")
    if in_java := _JAVA.search(text):
        return SparkError(f"Spark failed: {in_java[1]}: {in_java[2].strip()}")
    return SparkError(f"Spark failed: {_first_line(text) or type(error).__name__}")


def first_line(error: Exception) -> str:
    """Return the first line of what an error says; the name of its class where it says nothing."""
    return _first_line(str(error)) or type(error).__name__


def expression_error(described: str, error: SparkError) -> SparkError:
    """Return the error of a job with expressions of the user's, which names them where a value does not fit one.

    Args:
        described: the expressions, as the beginning of a sentence.
        error: from `worker_errors`; returned as it is where Spark gave up for another reason.
    """
    if not _DATA.search(str(error.__cause__)):
        return error
    return SparkError(
        f"{described} failed for a message: {first_line(error)}; to have null where a payload does not fit, use"
        " try_cast and try_divide"
    )


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _made(name: str, message: str) -> GossipLogError:
    for kind in _PLAIN:
        if kind.__name__ == name:
            return kind(message)
    if name == CursorOutdated.__name__ and (generations := _GENERATIONS.search(message)):
        return CursorOutdated(message, int(generations["found"]), int(generations["expected"]))
    if name == CorruptLog.__name__:
        problems, advice, commands = message.removeprefix("the log is damaged: ").partition("; `gossiplog repair ")
        return CorruptLog([problems], advice=advice + commands)
    return SparkError(message)
