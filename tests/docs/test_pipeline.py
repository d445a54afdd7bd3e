"""Every block of docs/pipeline.md runs, one behind the other in one folder, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gossiplog.cli.pipeline.fleet import SHOWN_LOGS
from gossiplog.cli.pipeline.verify import SHOWN_DEFECTS
from gossiplog.spark.jobs.analyze import LIMIT, RANGES
from gossiplog.spark.jobs.analyze_fleet import WHOLE_MESSAGES
from gossiplog.spark.jobs.fleet_figures import DETAILED
from gossiplog.spark.source.reader import (
    LEAST_PARTITION_BYTES,
    MANY_MESSAGES,
    OPENED_LOGS,
    PARTITION_BYTES,
    PARTITION_MESSAGES,
)
from tests.readme import DOCS, README, blocks, fits, run_program, run_program_here, run_steps, steps, words
from tests.spark.shared import elsewhere

JAVA = "WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Java's line as Spark starts, which the page mentions."""
STARTS = "spark.session()"
TIMEOUT = 600  # seconds: Spark takes its time where others work, too


@pytest.mark.timeout(3600)
def test_the_tutorial(spark: SparkSession, workplace: Path, tmp_path: Path) -> None:
    """No path of the page is a URI, so nothing goes to the file system that Spark's settings name."""
    with elsewhere(spark, tmp_path):
        follow(workplace)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


def follow(workplace: Path) -> None:
    """The last program with a session starts Spark as users do; the others run in the tests' session.

    It is the shorter one. `tests/integration/test_local_cluster.py` has the jobs of the other in a session of users'.
    """
    found = blocks(DOCS / "pipeline.md")
    assert {block.language for block in found} == {"python", "text", "console"}
    printed = ""
    *here, own = [block for block in found if block.language == "python" and STARTS in block.text]
    for block in found:
        match block.language:
            case "python" if block in here:
                printed = run_program_here(block.text, workplace)
            case "python":
                printed = run_program(block.text, workplace, TIMEOUT, JAVA if block is own else "")
            case "text":
                assert fits(block.text, printed), f"line {block.line}\n{printed}"
            case "console":
                run_steps(block, workplace, TIMEOUT)


def jobs(*pages: Path) -> list[str]:
    """The commands of pages that run a job on Spark."""
    found = [block for page in pages for block in blocks(page) if block.language == "console"]
    commands = [command for block in found for command, _ in steps(block)]
    return [command for command in commands if command.startswith("gossiplog pipeline ")]


def test_one_job_of_the_readme_and_one_of_the_other_pages_start_spark_themselves() -> None:
    """The others run in the tests' session. These are for a shell, which runs them as users do."""
    assert len(jobs(README)) == 1
    others = jobs(*DOCS.glob("*.md"))
    assert len(others) > 5
    assert len([command for command in others if words(command) is None]) == 1


@pytest.mark.parametrize(
    ("number", "phrase"),
    [
        (PARTITION_MESSAGES, "there is one for each {:,} messages"),
        (PARTITION_MESSAGES, "whose micro-batches have one for each {:,} messages"),
        (PARTITION_BYTES // 2**20, "and each {} MiB; of smaller logs"),
        (LEAST_PARTITION_BYTES // 2**20, "as long as each has {} MiB"),
        (OPENED_LOGS, "Of up to {} logs a read takes the states"),
        (MANY_MESSAGES, "From {:,} messages on, a query without either is remarked on"),
        (WHOLE_MESSAGES, "A log above {:,} messages is analysed by all executors"),
        (DETAILED, "a section with plots for the first {} of these"),
        (SHOWN_LOGS, "A terminal shows {} of them"),
        (SHOWN_DEFECTS, "shows the first {} defects"),
        (RANGES, "{} bars at most"),
        (LIMIT, "those above {} are listed as suspects"),
    ],
)
def test_numbers_of_the_page_are_those_of_the_code(number: float, phrase: str) -> None:
    """Each in the words around it, so that no other number of the page stands for it."""
    text = " ".join((DOCS / "pipeline.md").read_text(encoding="utf-8").split())
    assert text.count(phrase.format(number)) == 1, phrase.format(number)
