"""The options that all jobs have, and those of their own."""

from __future__ import annotations

import logging
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, cast

import pytest
import typer

from gossiplog.cli.pipeline.session import SessionOptions, interruptible, job

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


def test_an_interrupt_cancels_the_jobs_from_another_thread(caplog: pytest.LogCaptureFixture) -> None:
    context = Context()
    former = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible(cast("SparkSession", SimpleNamespace(sparkContext=context))):
        interrupted()
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


def test_a_job_on_another_thread_leaves_signals_alone() -> None:
    former = signal.getsignal(signal.SIGINT)
    found: list[object] = []

    def run() -> None:
        with interruptible(cast("SparkSession", SimpleNamespace(sparkContext=Context()))):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [former]
