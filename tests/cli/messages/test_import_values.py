"""`gossiplog import`."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tracemalloc
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import gossiplog
from gossiplog import SignedMessage, Signer, core
from gossiplog.cli.messages import import_values, parquet_values
from gossiplog.cli.messages.json_lines import message_line
from gossiplog.cli.messages.parquet_values import NoValues, Rows
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
    assert result.err.startswith(
        f"gossiplog: 8 of 11 values were refused, and {log} has the remaining ones; {bad}, row 0: "
    )
    assert result.err.count("\n") == 1
    refused = result.record["refused"]
    assert [(refusal["file"], refusal["row"]) for refusal in refused] == [(str(bad), row) for row in range(8)]
    assert [refusal["id"] for refusal in refused[2:]] == [message.id for message in messages[4:]]
    assert "not in the log: parent " in refused[2]["error"]
    with gossiplog.open(log) as ours:
        assert len(ours) == result.record["inserted"] == 3


def test_another_topic(program: Program, home: Path, messages: list[SignedMessage]) -> None:
    source = write(home / "values.parquet", [messages[0].value])
    result = program("import", home / "other.db", source, "--topic", "other")
    assert (result.code, len(result.record["refused"])) == (1, 1)


def test_what_is_no_set(program: Program, log: Path, home: Path) -> None:
    (home / "text").write_text("no Parquet")
    (home / "utf-16").write_text('{"topic":"notes"}\n', encoding="utf-16")
    (home / "gzip").write_bytes(gzip.compress(b"{}"))
    (home / "empty").mkdir()
    write(home / "sets" / "column.parquet", [b""], column="bytes")
    write(home / "sets" / "type.parquet", ["text"], pa.string())
    for path, reason in {
        "none": "there is no file or folder none",
        "text": "text is neither JSON Lines nor Parquet: it begins with b'no Parqu', expected a line",
        "utf-16": "utf-16 is in UTF-16: expected UTF-8, which iconv -f UTF-16 -t UTF-8 makes of it",
        "gzip": "gzip is compressed with gzip: import what gunzip makes of it",
        log: f"{log} is an SQLite database: gossiplog sync takes the messages of another log",
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
    assert "1 of 2 messages were new, 0 were there, 1 was refused; the log holds 1 message." in result.out


def test_an_export_with_a_byte_order_mark(program: Program, log: Path, home: Path) -> None:
    export = home / "export.jsonl"
    export.write_text(f"\ufeff{program('export', log).out}", encoding="utf-8")
    assert program("import", home / "new.db", export, "--topic", "notes").code == 0


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


class CountedArray(array):  # type: ignore[type-arg]
    """An array that counts how often its items are read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        CountedArray.reads += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))


def test_places_of_many_refusals_are_found_in_few_steps(
    program: Program, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_values, "array", CountedArray)
    monkeypatch.setattr(CountedArray, "reads", 0)
    source = home / "lines.jsonl"
    source.write_text("{}\n\n" * 1_000)
    record = program("import", log, source).record
    assert [each["line"] for each in record["refused"]] == list(range(1, 2_000, 2))
    # A linear search reads a million.
    assert 1_000 < CountedArray.reads < 20_000


def test_of_very_many_refusals_the_first_are_listed(
    program: Program, log: Path, messages: list[SignedMessage], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_values, "_MOST_FAULTS", 3)
    source = write(
        home / "values.parquet", [b"", messages[0].value, *[b""] * 5, *[each.value for each in messages[5:]]]
    )
    result = program("import", log, source)
    record = result.record
    assert (result.code, record["values"], record["inserted"], record["more_refused"]) == (1, 12, 1, 8)
    assert [each["row"] for each in record["refused"]] == [0, 2, 3]
    assert result.err.startswith(
        f"gossiplog: 11 of 12 values were refused, and {log} has the remaining ones; {source}, row 0: "
    )
    assert result.err.endswith(
        f"; those after the first 3, up to {source}, row 3, are counted only: leave out or mend what is named, and"
        " import the rest again\n"
    )


def resident(*arguments: object) -> int:
    """The most MiB that the program took."""
    command = [sys.executable, "-m", "gossiplog", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 1
    # Kibibytes on Linux, bytes on macOS.
    return int(usage.ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10))


@pytest.mark.integration
def test_refusals_take_bounded_memory(log: Path, messages: list[SignedMessage], home: Path) -> None:
    forged = message_line(core.read_message(messages[0].value, "notes"))
    forged = forged.replace(b'"payload":0', b'"payload":7')
    for count in (20_000, 100_000):
        (home / f"{count}.jsonl").write_bytes((forged + b"\n") * count)
    # A kilobyte for each would be 80 MiB.
    assert resident("import", log, home / "100000.jsonl") < resident("import", log, home / "20000.jsonl") + 20


@pytest.mark.slow
def test_lines_after_blank_ones_take_less_memory_than_the_file() -> None:
    text = b'{"value":{"/":{"bytes":""}}}\n\n' * 20_000
    lines = import_values._Lines("blank.jsonl", io.BytesIO(text))
    tracemalloc.start()
    try:
        assert sum(1 for _ in lines.read("notes", lambda count: None)) == 20_000
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < len(text)
    assert [lines.place(index)["line"] for index in (0, 1, 19_999)] == [1, 3, 39_999]


@pytest.mark.integration
@pytest.mark.parametrize("start", [b'{"value":1,"x":', b'{"id":1,"message":', b'{"x":'])
def test_a_line_takes_a_few_times_its_length(log: Path, home: Path, start: bytes) -> None:
    (home / "short.jsonl").write_bytes(start + b"[[]]}\n")
    lists = (5 << 20) // 3
    (home / "long.jsonl").write_bytes(start + b"[" + b"[]," * lists + b"[]]}\n")
    # As Python objects these lists would be 117 MiB.
    assert resident("import", log, home / "long.jsonl") < resident("import", log, home / "short.jsonl") + 50


def hostile(path: Path, rows: int, value: bytes, padding: int = 0, **options: Any) -> Path:
    """Write a file whose dictionary has one value for all rows, and so many bytes beside it."""
    values = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value], pa.binary()))
    columns = {"value": values}
    if padding:
        columns["padding"] = pa.array([Random(0).randbytes(padding), *[b""] * (rows - 1)])
    options = {"compression": "zstd", "store_schema": False, "write_statistics": False} | options
    parquet.write_table(pa.table(columns), path, **options)
    return path


@contextmanager
def arrow_memory() -> Iterator[pa.MemoryPool]:
    """A memory pool that says how much Arrow took at most, in the block."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def test_more_rows_than_a_file_can_have_messages_are_refused(program: Program, log: Path, home: Path) -> None:
    source = hostile(home / "values.parquet", 1000, bytes(50_000))
    assert source.stat().st_size < 2000
    with arrow_memory() as pool:
        result = program("import", log, source)
    assert (result.code, result.out) == (1, "")
    assert "values.parquet has 1,000 rows in " in result.err
    assert "write each message once" in result.err
    assert pool.max_memory() < 2**20


def test_few_rows_are_read_at_a_time_where_they_may_be_large(
    program: Program, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_values, "_BATCH", 1 << 20)
    source = hostile(home / "values.parquet", 64, bytes(1 << 18), padding=2000)
    with arrow_memory() as pool:
        result = program("import", log, source)
    assert (result.code, len(result.record["refused"])) == (1, 64)
    # All rows are 16 MiB.
    assert pool.max_memory() < 6 * 2**20


@pytest.mark.parametrize(
    ("options", "value", "reason"),
    [
        ({}, bytes(2 << 20), "a page of 2,097,156 bytes, of 1,048,576 that are read"),
        ({"use_dictionary": False, "column_encoding": {"value": "DELTA_BYTE_ARRAY"}}, b"", "the encoding 7"),
    ],
    ids=["large", "delta"],
)
def test_pages_that_no_message_needs_are_refused(
    program: Program,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    value: bytes,
    reason: str,
) -> None:
    monkeypatch.setattr(parquet_values, "_MOST_PAGE", 1 << 20)
    source = hostile(home / "values.parquet", 2, value, **options)
    result = program("import", home / "new.db", source, "--topic", "notes")
    assert (result.code, result.out) == (1, "")
    assert "values.parquet, row group 0, which begins with row 0: " in result.err
    assert reason in result.err
    assert "as JSON Lines with gossiplog export" in result.err
    assert not (home / "new.db").exists()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_every_usual_form_of_parquet_is_read(
    program: Program,
    log: Path,
    home: Path,
    messages: list[SignedMessage],
    version: str,
    compression: str,
    dictionary: bool,
) -> None:
    parquet.write_table(
        pa.table({"value": [message.value for message in messages]}),
        home / "values.parquet",
        data_page_version=version,
        compression=compression,
        use_dictionary=dictionary,
        row_group_size=3,
        data_page_size=1,
    )
    assert program("import", log, home / "values.parquet").record["inserted"] == 10


def test_a_damaged_file_has_values_or_is_refused(home: Path, messages: list[SignedMessage]) -> None:
    source = write(home / "values.parquet", [message.value for message in messages])
    data = source.read_bytes()
    random = Random(0)
    refused = 0
    for _ in range(200):
        changed = bytearray(data)
        changed[random.randrange(len(data))] = random.randrange(256)
        source.write_bytes(changed)
        with source.open("rb") as stream:
            try:
                assert len(list(Rows(source, stream).read(lambda count: None))) <= len(data)
            except NoValues:
                refused += 1
    assert refused > 20


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl"])
def test_what_is_no_file_is_not_waited_for(program: Program, log: Path, home: Path, name: str) -> None:
    os.mkfifo(home / name)
    result = program("import", log, home / name)
    assert (result.code, result.err) == (
        1,
        f"gossiplog: {home / name} cannot be read: it is a named pipe; expected a file\n",
    )
    if name == "x.parquet":
        assert "x.parquet cannot be read: it is a named pipe" in program("import", log, home).err


def test_a_pipe_that_the_process_was_given_is_read(
    program: Program, log: Path, home: Path, messages: list[SignedMessage]
) -> None:
    lines = b"".join(message_line(message) + b"\n" for message in messages)
    for content, expected in ((lines, 0), (b"PAR1", 1)):
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        result = program("import", log, f"/dev/fd/{reading}")
        os.close(reading)
        assert result.code == expected
    assert "Parquet is not read from a pipe" in result.err
