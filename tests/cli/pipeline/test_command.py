"""`gossiplog pipeline`: what its jobs have in common, and reading."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

import gossiplog
from gossiplog import Signer
from gossiplog.cli.pipeline.session import SessionOptions, check_output
from gossiplog.errors import OptionError
from tests.cli.support import Program


def test_properties() -> None:
    options = SessionOptions(None, ["spark.a=1", "spark.b=x=y"], None)
    assert options.properties() == {"spark.a": "1", "spark.b": "x=y"}
    assert SessionOptions(None, None, None).properties() == {}


@pytest.mark.parametrize("text", ["spark.a", "=1", ""])
def test_properties_that_are_none(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected NAME=VALUE"):
        SessionOptions(None, [text], None).properties()


@pytest.mark.slow
def test_nothing_of_spark_is_imported_before_a_job_is_called() -> None:
    program = "import sys, gossiplog.cli.main; print({'pyspark', 'pyarrow', 'py4j', 'pandas'} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


@pytest.mark.integration
def test_without_the_extra(log: Path) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from gossiplog.cli.main import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-c", program, "pipeline", "read", log], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr.endswith("install it with: pip install 'gossiplog[spark]'\n")
    assert run.stderr.count("\n") == 1


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting Spark takes many seconds: a command that comes to it fails the test."""

    def fail() -> None:
        raise AssertionError("the command came to the start of Spark")

    # The package has a function of the module's name.
    monkeypatch.setattr(import_module("gossiplog.spark.session"), "running", fail)


INGEST = "pipeline ingest {0}/events.jsonl --log {0}/new.db --topic t --keys {0} --author a --sequence n --merger ann"


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("pipeline read {0}/none.db", "there is no log {0}/none.db"),
        ("pipeline read {0}/{{log,none}}.db", "no file fits the pattern {0}/none.db, an alternative of"),
        ("pipeline read {0}/events.jsonl", "{0}/events.jsonl is not a log"),
        ("pipeline read {0}/log.db --output {0}", "{0} is there already: name a new folder for the Parquet files"),
        ("pipeline read {0}/log.db --output {0}/log.db/x", "cannot be made, because {0}/log.db is no folder"),
        ("pipeline root {0}/none.db", "there is no log {0}/none.db"),
        ("pipeline verify {0}/none.db", "there is no log {0}/none.db"),
        ("pipeline verify {0}/log.db --topic other", "is a log of the topic 'org.example.test', not 'other'"),
        ("pipeline verify {0}/log.db --output {0}", "{0} is there already"),
        ("pipeline verify {0}/log.db --output {0}/new --summary {0}/./new", "new is named twice"),
        ("pipeline materialize {0}/log.db {0}/new --key author --output {0}/new", "new is named twice"),
        ("pipeline reconcile {0}/log.db", "there is nothing to compare {0}/log.db with"),
        ("pipeline reconcile {0}/log.db {0}/none.db", "there is no log {0}/none.db"),
        ("pipeline reconcile {0}/log.db {0}/other.db", "no replicas of one log"),
        ("pipeline reconcile {0}/log.db {0}/log2.db --output {0}", "name a new folder for the repair sets"),
        ("pipeline analyze {0}/none.db", "there is no log {0}/none.db"),
        ("pipeline analyze {0}/log.db --output {0}", "name a new folder for the report"),
        ("pipeline materialize {0}/none.db {0}/state --key author", "there is no log {0}/none.db"),
        ("pipeline materialize {0}/log.db {0}/state --key author --output {0}", "{0} is there already"),
        ("pipeline materialize {0}/log.db {0}/state --key author --removed true", "only a set has elements"),
        ("pipeline materialize {0}/log.db {0}/broken --key author", "is no checkpoint of this version"),
        (INGEST.replace("events.jsonl", "none.jsonl"), "there is no file of events {0}/none.jsonl"),
        (INGEST.replace("events.jsonl", "none*.jsonl"), "there is no file of events {0}/none*.jsonl"),
        (INGEST.replace("events.jsonl", "log.db"), "the names of the files do not show their format"),
        (f"{INGEST} --format xml", "there is no format 'xml' of events"),
        (INGEST.replace("new.db", "log.db"), "{0}/log.db is there already"),
        (INGEST.replace("--sequence n", "").replace("events.jsonl", "none.jsonl"), "no file of events {0}/none.jsonl"),
        (INGEST.replace("ann", "bob"), "cannot read the key file {0}/bob.key"),
        ("pipeline sweep {0}", "{0} is there already: name a new folder for the sweep"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(
    program: Program, tmp_path: Path, command: str, complaint: str
) -> None:
    for name, topic in (("log.db", "org.example.test"), ("log2.db", "org.example.test"), ("other.db", "another")):
        gossiplog.open(tmp_path / name, topic).close()
    (tmp_path / "events.jsonl").write_text('{"a": "ann", "n": 1}\n')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "checkpoint.json").write_text("{}")
    Signer(bytes(32)).save(tmp_path / "ann.key")
    result = program(*command.format(tmp_path).split())
    assert result.code == 1
    assert complaint.format(tmp_path) in result.err


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("--conf spark.a", "--conf spark.a: expected NAME=VALUE"),
        ("--master spark:/host", "--master spark:/host: expected local[NUMBER]"),
        ("--driver-memory much", "--driver-memory much: expected a size such as 512m or 4g"),
    ],
)
def test_a_wrong_option_of_the_session_is_a_wrong_call(
    program: Program, log: Path, option: str, complaint: str
) -> None:
    result = program("pipeline", "read", log, *option.split())
    assert result.code == 2
    assert complaint in result.err


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (INGEST.replace("--sequence n", ""), "give --sequence or --parents (gossiplog pipeline ingest --help"),
        (f"{INGEST} --parents p", "give --id, the column that has them"),
    ],
)
def test_an_ingest_that_says_no_order_is_a_wrong_call(
    program: Program, tmp_path: Path, command: str, complaint: str
) -> None:
    (tmp_path / "events.jsonl").write_text('{"a": "ann", "n": 1}\n')
    result = program(*command.format(tmp_path).split())
    assert result.code == 2
    assert complaint in result.err


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local[4,2]", "yarn", "spark://a:1,b:2", "k8s://https://host:443"]
)
def test_masters(master: str) -> None:
    SessionOptions(master, None, "512m").check()


def test_a_folder_is_of_this_machine_whatever_spark_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    for folder in (str(tmp_path), f"file:{tmp_path}"):
        with pytest.raises(OptionError, match="is there already: name a new folder for the Parquet files"):
            check_output(folder)


def test_uris_are_no_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    # It would be the parent of a path.
    (tmp_path / "hdfs:").touch()
    check_output("hdfs:/folder")
