"""Java takes classes of Spark from the archive that its options name."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from tests.spark import java


@pytest.mark.integration
def test_classes_come_from_the_archive() -> None:
    program = ["org.apache.spark.deploy.SparkSubmit", "--version"]
    command = ["java", *shlex.split(java.archived()), "-Xlog:class+load", *program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "] org.apache.spark.deploy.SparkSubmit source: shared objects file (top)\n" in done.stdout
