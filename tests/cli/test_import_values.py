"""`gossiplog import`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import gossiplog
from gossiplog import SignedMessage, Signer
from tests.cli.support import Program


@pytest.fixture
def messages(home: Path) -> list[SignedMessage]:
    """Messages that are in no log that is there."""
    with gossiplog.open(":memory:", "notes") as log:
        return log.append_many(range(10), signer=Signer(bytes(32)))


def write(path: Path, values: list[Any], kind: pa.DataType | None = None, column: str = "value") -> Path:
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(pa.table({column: pa.array(values, kind or pa.binary())}), path)
    return path


def test_a_file(program: Program, log: Path, messages: list[SignedMessage], home: Path) -> None:
    values = [message.value for message in messages]
    source = write(home / "values.parquet", values[::-1])
    record = program("import", log, source).record
    assert (record["values"], record["inserted"], record["duplicates"], record["refused"]) == (10, 10, 0, [])
    with gossiplog.open(log) as ours:
        assert [message.value for message in ours] == values
        assert record["root"] == {"level": ours.root.level, "hash": ours.root.hash.hex()}
    again = program("import", log, source)
    assert (again.code, again.record["inserted"], again.record["duplicates"]) == (0, 0, 10)


def test_folders_and_files_together(program: Program, home: Path, messages: list[SignedMessage]) -> None:
    values = [message.value for message in messages]
    write(home / "set" / "part-1.parquet", values[4:7], pa.large_binary())
    write(home / "set" / "part-0.parquet", values[:4])
    (home / "set" / "_SUCCESS").touch()
    more = write(home / "more", values[7:])
    record = program("import", home / "new.db", home / "set", more, "--topic", "notes").record
    assert (record["values"], record["inserted"], record["messages"]) == (10, 10, 10)


def test_refusals_are_named(program: Program, log: Path, messages: list[SignedMessage], home: Path) -> None:
    values: list[bytes | None] = [message.value for message in messages]
    forged = values[3]
    assert forged is not None
    write(home / "set" / "a.parquet", values[:3])
    bad = write(home / "set" / "b.parquet", [None, forged[:-1] + b"\7", *values[4:]])
    result = program("import", log, home / "set")
    assert result.code == 1
    assert result.err == f"gossiplog: 8 of 11 values were refused; the others are in {log}\n"
    refused = result.record["refused"]
    assert [(refusal["file"], refusal["row"]) for refusal in refused] == [(str(bad), row) for row in range(8)]
    assert [refusal["id"] for refusal in refused[2:]] == [message.id for message in messages[4:]]
    assert "parents" in refused[2]["error"]
    with gossiplog.open(log) as ours:
        assert len(ours) == result.record["inserted"] == 3


def test_another_topic(program: Program, home: Path, messages: list[SignedMessage]) -> None:
    source = write(home / "values.parquet", [messages[0].value])
    result = program("import", home / "other.db", source, "--topic", "other")
    assert (result.code, len(result.record["refused"])) == (1, 1)


def test_what_is_no_set(program: Program, log: Path, home: Path) -> None:
    (home / "text").write_text("no Parquet")
    (home / "empty").mkdir()
    write(home / "sets" / "column.parquet", [b""], column="bytes")
    write(home / "sets" / "type.parquet", ["text"], pa.string())
    for path, reason in {
        "none": "there is no file or folder none",
        "text": "text is neither JSON Lines nor Parquet: ",
        "empty": "empty has no files named *.parquet",
        ".": "has no files named *.parquet: name one of the sets in it, as sets",
        "sets/column.parquet": "has no binary column 'value': its columns are bytes",
        "sets/type.parquet": "has no binary column 'value': its columns are value",
    }.items():
        result = program("import", log, path)
        assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
        assert reason in result.err


def test_a_damaged_file(program: Program, log: Path, messages: list[SignedMessage], home: Path) -> None:
    path = write(home / "values.parquet", [message.value for message in messages])
    data = bytearray(path.read_bytes())
    data[4:60] = bytes(56)
    path.write_bytes(data)
    result = program("import", log, path)
    assert (result.code, result.out) == (1, "")
    assert "values.parquet is damaged: " in result.err


def test_a_terminal_gets_sentences(
    program: Program, log: Path, messages: list[SignedMessage], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    source = write(home / "values.parquet", [messages[0].value, b"\x80"])
    result = program("import", log, source)
    assert f"{source}, row 1: " in result.out
    assert "1 of 2 messages were new, 0 were there, 1 were refused; the log holds 1 messages." in result.out


@pytest.mark.integration
def test_without_pyarrow(log: Path, home: Path) -> None:
    (home / "values.parquet").touch()
    program = "import sys; sys.modules['pyarrow'] = None; from gossiplog.cli.main import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-c", program, "import", log, "values.parquet"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.endswith(
        "gossiplog import needs it for Parquet; install it with: pip install 'gossiplog[arrow]'\n"
    )


def test_places_of_many_refusals_are_found_quickly(program: Program, log: Path, home: Path) -> None:
    source = home / "lines.jsonl"
    source.write_text("{}\n\n" * 20_000)
    start = time.process_time()
    record = program("import", log, source).record
    assert [each["line"] for each in record["refused"]] == list(range(1, 40_000, 2))
    # In time that grew with the square of the refusals it took far longer.
    assert time.process_time() - start < 4
