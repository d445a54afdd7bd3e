"""Options of the data source: what they mean, and that each mistake is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from gossiplog import core
from gossiplog.errors import OptionError
from gossiplog.spark.source.options import (
    BATCH_OPTIONS,
    METADATA,
    READ_OPTIONS,
    SCHEMA,
    STORED,
    STREAM_OPTIONS,
    WRITE_OPTIONS,
    check_schema,
    pruned,
    read_options,
)
from tests.readme import DOCS

ID = core.encode_id(core.encode_clock(7) + bytes(19))


def test_none_but_a_path() -> None:
    options = read_options({"path": "a.db"}, READ_OPTIONS)
    assert options.paths == ("a.db",)
    assert options.bounds == (core.encode_clock(1), None)
    assert options.authors is None


def test_a_list_of_paths() -> None:
    assert read_options({"paths": '["a.db", "b/*.db"]'}, READ_OPTIONS).paths == ("a.db", "b/*.db")


def test_all_of_them() -> None:
    options = read_options(
        {
            "path": "a.db",
            "topic": "t",
            "minclock": "5",
            "maxclock": "9",
            "authors": "did:key:a, did:key:b",
            "columns": "key,value",
            "partitions": "4",
            "encodings": "First",
            "mode": "FAILFAST",
            "maxrows": "10",
            "startingoffsets": "7",
            "recursivefilelookup": "True",
            "pathglobfilter": "*.db",
            "ignoremissingfiles": "true",
        },
        READ_OPTIONS,
    )
    assert (options.topic, options.partitions, options.mode) == ("t", 4, "failfast")
    assert options.encodings == "first"
    assert options.bounds == (core.encode_clock(5), core.encode_clock(10))
    assert options.authors == ("did:key:a", "did:key:b")
    assert options.columns.fieldNames() == ["key", "value"]
    assert (options.max_rows, options.starting_offsets) == (10, 7)
    assert (options.recursive_file_lookup, options.path_glob_filter, options.ignore_missing_files) == (
        True,
        "*.db",
        True,
    )


def test_all_columns_may_be_asked_for() -> None:
    assert read_options({"path": "a.db", "columns": " * "}, READ_OPTIONS).columns == SCHEMA


def test_the_narrower_of_clocks_and_ids_bounds_a_read() -> None:
    key = core.decode_id(ID)
    both = {"path": "a.db", "minid": ID, "maxid": ID}
    assert read_options(both, READ_OPTIONS).bounds == (key, key + b"\0")
    assert read_options({**both, "minclock": "2", "maxclock": "200"}, READ_OPTIONS).bounds == (key, key + b"\0")
    assert read_options({"path": "a.db", "minid": ID, "minclock": "8"}, READ_OPTIONS).bounds == (
        core.encode_clock(8),
        None,
    )


@pytest.mark.parametrize(("title", "options"), [("read", READ_OPTIONS), ("write", WRITE_OPTIONS)])
def test_the_page_lists_all(title: str, options: dict[str, object]) -> None:
    page = (DOCS / "pipeline.md").read_text(encoding="utf-8")
    table = page.partition(f"| option of `{title}` | |\n| --- | --- |\n")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert {*named} == {re.sub("_(.)", lambda found: found[1].upper(), name) for name in options}
    assert len(named) == len(options)


def test_where_a_stream_starts() -> None:
    for text, offset in (("earliest", 0), ("Latest", None), ("12", 12)):
        options = read_options({"path": "a.db", "startingoffsets": text}, STREAM_OPTIONS)
        assert options.starting_offsets == offset


def test_ranges_are_for_reads_and_offsets_for_streams() -> None:
    with pytest.raises(OptionError, match="no option 'minclock' here: expected one of topic, authors"):
        read_options({"path": "a.db", "minclock": "1"}, STREAM_OPTIONS)
    with pytest.raises(OptionError, match="no option 'maxrows' here"):
        read_options({"path": "a.db", "maxrows": "1"}, BATCH_OPTIONS)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "the option path is missing"),
        ({"paths": "a.db"}, "the option paths is 'a.db'"),
        ({"paths": "[1]"}, "the option paths is"),
        ({"path": "a.db", "minclok": "1"}, "there is no option 'minclok' here: expected one of topic, authors"),
        ({"path": "a.db", "minclock": "one"}, "the option minClock is 'one': expected an integer from 1 to"),
        ({"path": "a.db", "maxclock": "0"}, "the option maxClock is '0'"),
        ({"path": "a.db", "maxclock": str(2**53)}, "the option maxClock is"),
        ({"path": "a.db", "minclock": "5", "maxclock": "4"}, "minClock is 5, above maxClock, which is 4"),
        ({"path": "a.db", "minid": "xyz"}, "the option minId is 'xyz', which is no id"),
        ({"path": "a.db", "minid": ID, "maxid": "0" * 32}, "the option maxId is|above maxId"),
        ({"path": "a.db", "authors": "a,,b"}, "the option authors is 'a,,b'"),
        ({"path": "a.db", "authors": "did:key:a,ann"}, "the option authors has 'ann': expected did:key URIs"),
        ({"path": "a.db", "columns": "key,valeu"}, "there is no column 'valeu'"),
        ({"path": "a.db", "columns": "key,key"}, "the option columns names 'key' twice"),
        ({"path": "a.db", "columns": ""}, "the option columns is ''"),
        ({"path": "a.db", "partitions": "0"}, "the option partitions is '0'"),
        ({"path": "a.db", "mode": "drop"}, "mode is 'drop': expected permissive, dropmalformed or failfast"),
        ({"path": "a.db", "encodings": "last"}, "the option encodings is 'last': expected all or first"),
        ({"path": "a.db", "topic": ""}, "the option topic is empty"),
        ({"path": "a.db", "recursivefilelookup": "yes"}, "recursiveFileLookup is 'yes': expected true or false"),
        ({"path": "a.db", "pathglobfilter": ""}, "the option pathGlobFilter is empty"),
        ({"path": "a.db", "maxrows": "0"}, "the option maxRows is '0'"),
        ({"path": "a.db", "startingoffsets": "last"}, "startingOffsets is 'last': .*, earliest or latest"),
    ],
)
def test_mistakes(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        read_options(options, READ_OPTIONS)


def test_pruned_in_the_order_of_the_names() -> None:
    assert pruned(["value", "key"]).simpleString() == "struct<value:binary,key:binary>"
    assert pruned(SCHEMA.fieldNames()) == SCHEMA


def test_what_is_the_same_in_a_whole_log_has_to_be_named() -> None:
    assert not {*METADATA.fieldNames()} & {*SCHEMA.fieldNames()}
    assert pruned(["log_size", "key"]).simpleString() == "struct<log_size:bigint,key:binary>"


def test_locations_are_those_of_the_options(tmp_path: Path) -> None:
    for name in ("a/b/c.db", "a/d.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    path = str(tmp_path)
    assert read_options({"path": f"{path}/a"}, READ_OPTIONS).locations() == [f"{path}/a/d.log"]
    given = {"path": path, "recursivefilelookup": "true", "pathglobfilter": "*.db"}
    assert read_options(given, READ_OPTIONS).locations() == [f"{path}/a/b/c.db"]


def test_what_is_stored_are_columns() -> None:
    assert set(SCHEMA.fieldNames()) > STORED


def test_a_schema_of_the_users() -> None:
    fields = [StructField("key", BinaryType(), nullable=False), StructField("parents", ArrayType(StringType()))]
    check_schema(StructType(fields))


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (StructField("kee", BinaryType()), "there is no column 'kee'"),
        (StructField("key", StringType()), "'key' the type string: expected binary"),
    ],
)
def test_a_schema_that_is_none_of_ours(field: StructField, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        check_schema(StructType([field]))
