"""The options that all jobs have, and those of their own."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, cast

import pytest
import typer
from py4j import protocol as proto
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JError, Py4JNetworkError

import gossiplog.spark
from gossiplog.cli.pipeline import session as module
from gossiplog.cli.pipeline.session import SessionOptions, interruptible, job, spark_session
from gossiplog.errors import NotALog, OptionError, SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_job_has_its_own_options_and_those_of_a_session() -> None:
    called: list[tuple[str, int, SessionOptions]] = []

    def count(
        log: Annotated[str, typer.Argument()],
        most: Annotated[int, typer.Option()] = 3,
        *,
        options: SessionOptions,
    ) -> None:
        """Count something."""
        called.append((log, most, options))

    app = typer.Typer()
    app.command()(job(count))
    command = typer.main.get_command(app)
    assert command.help == "Count something."
    command.main(["a.db"], standalone_mode=False)
    command.main(
        ["--master", "local[2]", "b.db", "--conf", "a=1", "--conf", "b=2=3", "--driver-memory", "1g", "--most", "4"],
        standalone_mode=False,
    )
    assert [(log, most) for log, most, _ in called] == [("a.db", 3), ("b.db", 4)]
    assert [options for *_, options in called] == [
        SessionOptions(),
        SessionOptions("local[2]", ["a=1", "b=2=3"], "1g"),
    ]
    assert called[1][2].properties() == {"a": "1", "b": "2=3"}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_a_property_without_a_name_or_a_value(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected NAME=VALUE"):
        SessionOptions(conf=[text]).properties()


@pytest.mark.parametrize("text", ["450m", "460800k", "4g", "4G", "1T"])
def test_a_size_that_java_takes(text: str) -> None:
    SessionOptions(driver_memory=text, conf=[f"spark.driver.memory={text}"]).check()


@pytest.mark.parametrize(
    "text", ["4gb", "512mb", "1p", "4096", "536870912b", "4 g", " 4g", "4.5g", "-4g", "0g", "449m", "", "٤g"]
)
def test_a_size_that_java_or_spark_refuses(text: str) -> None:
    for options, place in [
        (SessionOptions(driver_memory=text), f"--driver-memory {text}: "),
        (SessionOptions(conf=[f"spark.driver.memory={text}"]), f"--conf spark.driver.memory={text}: "),
    ]:
        with pytest.raises(typer.BadParameter) as caught:
            options.check()
        assert str(caught.value).startswith(f"{place}expected a size such as 512m or 4g, a number with k, m, g or t")


@pytest.mark.parametrize(
    "master", ["local[]", "local[0]", "local[two]", "local-cluster", "local-cluster[2,1]", "Local"]
)
def test_a_master_that_spark_refuses(master: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected local"):
        SessionOptions(master).check()


class Context:
    """As that of Spark, as far as an interrupt uses it."""

    def __init__(self) -> None:
        self.called: list[tuple[str, ...]] = []
        self.threads: set[threading.Thread] = set()

    def setLogLevel(self, level: str) -> None:
        self.called.append(("setLogLevel", level))
        self.threads.add(threading.current_thread())

    def cancelAllJobs(self) -> None:
        self.called.append(("cancelAllJobs",))


def interrupted() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        # As py4j does, with a stack.
        logging.getLogger().exception("KeyboardInterrupt while sending command.")
        raise


def interrupt_job(context: Context, times: int = 1) -> None:
    with interruptible() as interruption:
        interruption.watch(cast("SparkSession", SimpleNamespace(sparkContext=context)))
        for _ in range(times - 1):
            with suppress(KeyboardInterrupt):
                interrupted()
        interrupted()


def test_an_interrupt_cancels_the_jobs_from_another_thread(caplog: pytest.LogCaptureFixture) -> None:
    context = Context()
    former = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupt_job(context)
    assert context.called == [("setLogLevel", "OFF"), ("cancelAllJobs",)]
    assert threading.main_thread() not in context.threads
    assert signal.getsignal(signal.SIGINT) is former
    assert caplog.records == []
    logging.getLogger().error("as before")
    assert len(caplog.records) == 1


def test_an_interrupt_while_spark_starts(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        interrupted()
    assert caplog.records == []


def test_a_second_interrupt_cancels_nothing_again() -> None:
    context = Context()
    with pytest.raises(KeyboardInterrupt):
        interrupt_job(context, 2)
    assert len(context.called) == 2


def test_the_handler_that_pyspark_sets_as_a_session_starts_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks Java on the connection on which the main thread waits for the job."""
    context, stopped, former = Context(), list[bool](), signal.getsignal(signal.SIGINT)

    def start(*_: object, **options: object) -> SparkSession:
        signal.signal(signal.SIGINT, lambda number, frame: pytest.fail("PySpark's handler was called"))
        session = SimpleNamespace(sparkContext=context, stop=lambda: stopped.append(True))
        return cast("SparkSession", session)

    monkeypatch.setattr(gossiplog.spark, "session", start)
    monkeypatch.setattr(sys.modules["gossiplog.spark.session"], "running", lambda: None)
    with pytest.raises(KeyboardInterrupt), spark_session(SessionOptions(), "test"):
        interrupted()
    assert context.called == [("setLogLevel", "OFF"), ("cancelAllJobs",)]
    assert stopped == [True]
    assert signal.getsignal(signal.SIGINT) is former


def test_a_later_interrupt_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left to be done may wait for a server that does not answer."""

    def ended(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0)
    monkeypatch.setattr(os, "_exit", ended)
    with pytest.raises(SystemExit) as found:
        interrupt_job(Context(), 2)
    assert found.value.code == 130


def test_an_interrupt_that_gets_lost_in_a_callback() -> None:
    """The interpreter reports what a callback of its own raises, and goes on."""
    with pytest.raises(KeyboardInterrupt), interruptible(), suppress(KeyboardInterrupt):
        interrupted()


def test_what_fails_after_an_interrupt_is_the_interrupt(caplog: pytest.LogCaptureFixture) -> None:
    """A signal to all processes ends Java as well: the job, or the end of the session, then fails in another way."""

    def interrupted_in_vain() -> None:
        with suppress(KeyboardInterrupt):
            interrupted()
        logging.getLogger().error("the stack of an answer that did not come")
        raise SparkError("Answer from Java side is empty")

    with pytest.raises(KeyboardInterrupt), interruptible():
        interrupted_in_vain()
    assert caplog.records == []


def test_java_that_has_ended_is_asked_in_vain() -> None:
    class Ended(Context):
        def setLogLevel(self, level: str) -> None:
            raise Py4JError("Answer from Java side is empty")

    failed: list[object] = []
    former, threading.excepthook = threading.excepthook, failed.append
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt_job(Ended())
    finally:
        threading.excepthook = former
    assert failed == []


def test_py4j_logs_no_stack_after_the_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It tells Java, which a signal may have ended, of each object that is released, also as the command ends."""

    class Ended:
        def send_command(self, command: str) -> str:
            raise Py4JNetworkError("Answer from Java side is empty", when=proto.ERROR_ON_RECEIVE)

        def close(self, reset: bool) -> None:
            pass

    session = SimpleNamespace(sparkContext=Context())
    monkeypatch.setattr(sys.modules["gossiplog.spark.session"], "running", lambda: session)
    with spark_session(SessionOptions(), "test"):
        pass
    client = GatewayClient()
    monkeypatch.setattr(client, "_get_connection", Ended)
    assert client.send_command("m\nd\no1\ne\n") == proto.ERROR
    assert caplog.records == []
    logging.getLogger().error("as before")
    assert len(caplog.records) == 1


def test_without_a_signal_errors_are_what_they_are() -> None:
    with pytest.raises(SparkError, match="failed"), interruptible():
        raise SparkError("failed")


def test_a_job_on_another_thread_leaves_signals_alone() -> None:
    former = signal.getsignal(signal.SIGINT)
    found: list[object] = []

    def run() -> None:
        with interruptible():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [former]


@pytest.mark.parametrize("kind", [NotALog, OptionError])
def test_options_of_the_data_source_are_called_as_flags(kind: type[Exception]) -> None:
    @job
    def failing(*, options: SessionOptions) -> None:
        raise kind("without recursiveFileLookup, pathGlobFilter and ignoreMissingFiles")

    with pytest.raises(kind, match=r"^without --recursive-file-lookup, --path-glob-filter and --ignore-missing-files$"):
        failing(master=None, conf=None, driver_memory=None)
