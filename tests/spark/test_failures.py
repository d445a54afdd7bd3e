"""What Spark's exceptions say, as this package's errors."""

from __future__ import annotations

import inspect

import pytest
from pyspark.errors import PySparkException

from gossiplog import errors
from gossiplog.errors import CorruptLog, CursorOutdated, DecodeError, GossipLogError, NotALog, SparkError, TopicMismatch
from gossiplog.spark.failures import expression_error, first_line, unwrapped, worker_errors

TRACEBACK = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source: Traceback (most recent call last):
  File "reading.py", line 13, in read
    raise {error}
{error}
 SQLSTATE: 38000"""


def is_of_a_log(kind: object) -> bool:
    """Return whether a class is an error, but for damage, that a job's task may raise, and that is made of its text."""
    # Of networks and simulations; of a rebase, and of a message that a call names.
    elsewhere = (errors.NetworkError, errors.ProtocolError, errors.ScenarioError, errors.RebaseError)
    if not isinstance(kind, type) or not issubclass(kind, GossipLogError):
        return False
    if issubclass(kind, (CorruptLog, errors.UnknownMessage, *elsewhere)):
        return False
    if not inspect.isfunction(kind.__init__):
        return kind is not GossipLogError
    _, first, *others = inspect.signature(kind.__init__).parameters.values()
    return first.annotation == "str" and all(each.default is not each.empty for each in others)


def traceback(error: str) -> PySparkException:
    return PySparkException(TRACEBACK.format(error=error))


def test_ours_keep_their_class_and_message() -> None:
    with pytest.raises(NotALog) as caught, worker_errors():
        raise traceback("gossiplog.errors.NotALog: there is no log a.db")
    assert str(caught.value) == "there is no log a.db"
    assert isinstance(caught.value.__cause__, PySparkException)


def test_what_an_expression_raises_is_ours() -> None:
    error = unwrapped(
        PySparkException(
            "[USER_RAISED_EXCEPTION] gossiplog.errors.DecodeError: a.jsonl has a record: {  SQLSTATE: P0001\n\tat org"
        )
    )
    assert isinstance(error, DecodeError)
    assert str(error) == "a.jsonl has a record: {"


def test_damage_keeps_its_problems() -> None:
    error = unwrapped(traceback(f"gossiplog.errors.CorruptLog: {CorruptLog(['a.db: the value of x'])}"))
    assert isinstance(error, CorruptLog)
    assert error.problems == ("a.db: the value of x",)


@pytest.mark.parametrize("kind", [*filter(is_of_a_log, vars(errors).values())])
def test_every_error_of_a_log_keeps_its_class_if_its_text_says_all(kind: type[GossipLogError]) -> None:
    assert type(unwrapped(traceback(f"gossiplog.errors.{kind.__name__}: the reason"))) is kind


def test_an_outdated_cursor_keeps_its_generations() -> None:
    text = "a.db was rebased while it was read (generation 3, the read is of 2): run the job again"
    error = unwrapped(traceback(f"gossiplog.errors.CursorOutdated: {text}"))
    assert isinstance(error, CursorOutdated)
    assert (str(error), error.found, error.expected) == (text, 2, 3)


def test_the_last_of_a_chain_counts() -> None:
    chain = "gossiplog.errors.NotALog: first\n\nDuring handling\n\ngossiplog.errors.TopicMismatch: last"
    error = unwrapped(traceback(chain))
    assert isinstance(error, TopicMismatch)
    assert str(error) == "last"


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_every_class_is_an_error_of_ours(kind: type) -> None:
    error = unwrapped(traceback(f"gossiplog.errors.{kind.__name__}: the reason"))
    assert isinstance(error, GossipLogError)
    assert "the reason" in str(error)


def test_others_are_named() -> None:
    error = unwrapped(traceback("ZeroDivisionError: division by zero"))
    assert type(error) is SparkError
    assert str(error) == "a job failed in a worker of Spark: ZeroDivisionError: division by zero"


def test_sparks_own_are_one_line() -> None:
    error = unwrapped(PySparkException("[PATH_ALREADY_EXISTS] Path x already exists.\nmore\nlines"))
    assert str(error) == "Spark failed: [PATH_ALREADY_EXISTS] Path x already exists."


def test_what_is_not_sparks_is_left_alone() -> None:
    with pytest.raises(ZeroDivisionError), worker_errors():
        raise ZeroDivisionError


def test_an_executor_without_the_python_that_was_named() -> None:
    text = (
        "An error occurred while calling o63.collectToPython.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most"
        " recent failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): java.io.IOException: Cannot"
        ' run program "./nope/bin/python": error=2, No such file or directory\n'
        "\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n"
        "Caused by: java.io.IOException: error=2, No such file or directory\n"
    )
    reason = 'Cannot run program "./nope/bin/python": error=2, No such file or directory'
    assert str(unwrapped(PySparkException(text))) == f"Spark failed: IOException: {reason}"


@pytest.mark.parametrize(
    "text",
    [
        "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. SQLSTATE: 22012\n== SQL ==\n1/0",
        '[CAST_INVALID_INPUT] The value \'a\' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018',
        "[ARITHMETIC_OVERFLOW] long overflow. SQLSTATE: 22003",
    ],
)
def test_an_expression_is_named_where_a_value_does_not_fit_it(text: str) -> None:
    with pytest.raises(SparkError) as caught, worker_errors():
        raise PySparkException(text)
    said = str(expression_error("the expression for hot keys, 1/0,", caught.value))
    assert said.startswith(f"the expression for hot keys, 1/0, failed for a message: Spark failed: {text[:20]}")
    assert said.endswith("; to have null where a payload does not fit, use try_cast and try_divide")
    assert "\n" not in said


@pytest.mark.parametrize(
    "text",
    [
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed: ExecutorLostFailure (executor 1 exited)",
        "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory, got 0. SQLSTATE: 53200",
        "No space left on device",
    ],
)
def test_no_expression_is_blamed_for_what_it_has_not_done(text: str) -> None:
    with pytest.raises(SparkError) as caught, worker_errors():
        raise PySparkException(text)
    assert expression_error("the expression for hot keys, 1/0,", caught.value) is caught.value


def test_the_first_line_of_an_error_that_says_nothing() -> None:
    assert first_line(ValueError("\n one \n two")) == "one"
    assert first_line(ValueError(" \n")) == "ValueError"
