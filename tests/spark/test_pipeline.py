"""The jobs of `gossiplog pipeline`, in the tests' session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gossiplog.cli.main import main


def test_read(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_log("a.db", 30)
    make_log("b.db", 20)
    folder = tmp_path / "parquet"
    assert main(["pipeline", "read", str(tmp_path / "*.db"), "--output", str(folder)]) == 0
    written = capfd.readouterr()
    records = [json.loads(line) for line in written.out.splitlines()]
    assert [(record["log"], record["messages"], record["damaged"]) for record in records] == [
        (str(tmp_path / "a.db"), 30, 0),
        (str(tmp_path / "b.db"), 20, 0),
    ]
    assert spark.read.parquet(str(folder)).count() == 50


def test_read_of_folders_in_a_folder(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("north", "south"):
        (tmp_path / "hubs" / name).mkdir(parents=True)
        make_log(f"hubs/{name}/a.db", 30)
        (tmp_path / "hubs" / name / "notes.txt").touch()
    command = ["pipeline", "read", str(tmp_path / "hubs"), "--path-glob-filter", "*.db", "--ignore-missing-files"]
    assert main([*command, "--recursive-file-lookup"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(record["log"], record["messages"]) for record in records] == [
        (str(tmp_path / "hubs" / name / "a.db"), 30) for name in ("north", "south")
    ]
    assert main(command) == 1
    assert "folders in it are not looked into without --recursive-file-lookup" in capfd.readouterr().err


def test_read_the_first_encodings(
    spark: SparkSession, several: tuple[Path, list[int]], capfd: pytest.CaptureFixture[str]
) -> None:
    path, first = several
    assert main(["pipeline", "read", str(path), "--encodings", "first"]) == 0
    assert json.loads(capfd.readouterr().out)["messages"] == len(first)


def test_a_broken_log_is_a_row(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_log("a.db", 30)
    (tmp_path / "notes.db").write_text("no log")
    folder = tmp_path / "parquet"
    command = ["pipeline", "read", str(tmp_path / "*.db")]
    assert main([*command, "--ignore-corrupt-files", "--output", str(folder)]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(record["log"], record["messages"], record["damaged"]) for record in records] == [
        (str(tmp_path / "a.db"), 30, 0),
        (str(tmp_path / "notes.db"), 0, 0),
    ]
    assert records[0]["problem"] is None
    assert records[1]["problem"].startswith("no log: ")
    assert spark.read.parquet(str(folder)).where("log_problem IS NULL").count() == 30
    assert main(command) == 1
    assert "notes.db is not a log" in capfd.readouterr().err


def test_an_error_is_one_line(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.db"
    assert main(["pipeline", "read", str(path)]) == 1
    assert capfd.readouterr().err == f"gossiplog: there is no log {path}\n"


def test_ingest_and_materialize(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ann", "ben", "importer"):
        assert main(["keygen", str(tmp_path / "keys" / f"{name}.key")]) == 0
    events = tmp_path / "events.csv"
    # Ben does not see what Ann writes before he answers.
    events.write_text("who,nr,id,after,room,text\nann,1,a,,hall,hello\nann,2,b,,hall,anybody?\nben,1,c,a,hall,hi\n")
    log, keys, capfd_lines = str(tmp_path / "log.db"), str(tmp_path / "keys"), len(capfd.readouterr().out.splitlines())
    assert capfd_lines == 3
    columns = ["--author", "who", "--sequence", "nr", "--id", "id", "--parents", "split(after, ' ')"]
    made = ["--log", log, "--topic", "org.example.chat", "--keys", keys, "--merger", "importer"]
    assert main(["pipeline", "ingest", str(events), *made, *columns, "--json"]) == 0
    record = json.loads(capfd.readouterr().out)
    assert record | {"seconds": 0} == {"log": log, "events": 3, "merges": 1, "authors": 2, "heads": 2, "seconds": 0}
    assert main(["verify", log]) == 0
    (tmp_path / "rooms.py").write_text(
        "def texts(state, message):\n    return [*(state or []), message.payload['text']]\n"
    )
    (tmp_path / "shapes.py").write_text("from pydantic import BaseModel\nclass Line(BaseModel):\n    room: str\n")
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    key = ["--key", "payload.room"]
    for fold, options in {
        "count": [*key, "--schema", "room string"],
        "last": [*key, "--schema", "room string, text string", "--value", "payload.text"],
        "set": ["--key", "get_json_object(payload, '$.room')", "--value", "author"],
        "rooms:texts": [*key, "--type", "shapes:Line"],
    }.items():
        state, table = str(tmp_path / f"state {fold}"), str(tmp_path / fold)
        assert main(["pipeline", "materialize", log, state, "--fold", fold, *options, "--output", table, "--json"]) == 0
        record = json.loads(capfd.readouterr().out)
        figures = {"messages": 4, "new": 4, "rows": 2 if fold == "set" else 1, "without_key": 1}
        assert record | {"seconds": 0} == figures | {"seconds": 0}
        rows = spark.read.parquet(table).collect()
        assert {row.key for row in rows} == {"hall"}
        match fold:
            case "count":
                assert rows[0].value == 3
            case "last":
                assert rows[0].value in ("anybody?", "hi")
            case "rooms:texts":
                assert sorted(json.loads(rows[0].value)) == ["anybody?", "hello", "hi"]


def test_a_malformed_event_is_named(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["keygen", str(tmp_path / "keys" / "ann.key")]) == 0
    events = tmp_path / "events.jsonl"
    events.write_text('{"who": "ann", "nr": 1}\n{"who": "ann", "nr": \n')
    log, keys = str(tmp_path / "log.db"), str(tmp_path / "keys")
    command = ["pipeline", "ingest", str(events), "--log", log, "--topic", "t", "--keys", keys, "--merger", "ann"]
    capfd.readouterr()
    assert main([*command, "--author", "who", "--sequence", "nr", "--payload", "nr"]) == 1
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("gossiplog: ")]
    assert f'file://{events} has a record that is malformed or does not fit the schema: {{"who": "ann", "nr":' in line
    # Tasks may still run: what keeps them from writing events has none itself.
    assert {path.name for path in tmp_path.iterdir()} - {"log.db.ingest"} == {"events.jsonl", "keys"}
    assert [path for path in (tmp_path / "log.db.ingest").rglob("*") if path.is_dir() or path.stat().st_size] == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--fold", "most"], "--fold most: expected last, count, set or MODULE:FUNCTION"),
        (["--fold", "json:"], "--fold json:: expected MODULE:NAME"),
        (["--fold", "nomodule:fold"], "--fold nomodule:fold: No module named 'nomodule'"),
        (["--fold", "json:fold"], "--fold json:fold: the module json has no fold"),
        (["--schema", "a string", "--type", "a:b"], "--schema and --type say the same"),
    ],
)
def test_materialize_called_wrongly(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    assert main(["pipeline", "materialize", "log.db", str(tmp_path), "--key", "topic", *options]) == 2
    assert complaint in capfd.readouterr().err
