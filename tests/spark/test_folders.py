"""Which file system a path is on; folders in which one process works at a time, and those that are to be made."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from gossiplog import Signer
from gossiplog.errors import OptionError, SparkError, StorageError
from gossiplog.spark import (
    Counter,
    Layout,
    Recipe,
    ReconcileResult,
    ingest,
    materialize,
    read,
    read_events,
    read_state,
    write,
    write_repairs,
    write_sweep,
)
from gossiplog.spark.folders import (
    building,
    check_building,
    check_new,
    check_staging,
    filling,
    is_local,
    local_path,
    locked,
    read_path,
    read_pattern,
    remove_locked,
    write_back,
    write_parquet,
    write_path,
)
from gossiplog.spark.jobs.components import components
from gossiplog.spark.jobs.ingest import check_new_log
from gossiplog.spark.jobs.sweep import SCHEMA
from tests.spark.conftest import TOPIC
from tests.spark.shared import elsewhere

# Hadoop's patterns and URIs' escapes are all in it, but no colon, which Hadoop refuses where a path has the former.
NASTY = "a b%20#?&=+{x,y}[z]*é\\\\"


@pytest.mark.parametrize(
    ("path", "local", "written"),
    [
        ("/a/b", "/a/b", "file:///a/b"),
        ("file:/a/b", "/a/b", "file:///a/b"),
        ("file:///a/b", "/a/b", "file:///a/b"),
        ("file://localhost/a/b", "/a/b", "file:///a/b"),
        ("file:///a%20b", "/a%20b", "file:///a%20b"),
        ("b", "b", "file:///here/b"),
        ("file:b", "b", "file:///here/b"),
        ("notes:2026", "notes:2026", "file:///here/notes:2026"),
        ("../b/", "../b/", "file:///b"),
        ("hdfs:/b", None, "hdfs:/b"),
        ("s3a://bucket/b c", None, "s3a://bucket/b c"),
    ],
)
def test_which_file_system(path: str, local: str | None, written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: "/here")
    assert is_local(path) == (local is not None)
    assert write_path(path) == written
    assert read_path(path) == written
    if local is not None:
        assert local_path(path, "the state") == local
        return
    with pytest.raises(OptionError, match=r"is on another file system, .*name a path of this machine for the state"):
        local_path(path, "the state")
    # Spark says later whether it can be made.
    check_building(path, "the report")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_every_name_is_of_this_machine_below_a_folder(name: str) -> None:
    path = f"/folder/{name}"
    assert is_local(path)
    assert write_path(path) == write_path(f"file:{path}") == f"file://{os.path.abspath(path)}"
    escaped = read_path(path)
    # Without the escapes it is the path, and each special sign has one.
    signs = iter(escaped)
    plain = [(next(signs), True) if sign == "\\" else (sign, False) for sign in signs]
    assert "".join(sign for sign, _ in plain) == write_path(path)
    assert all(is_escaped == (sign in "\\*?[]{}") for sign, is_escaped in plain)


def test_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here := tmp_path / "h[1]").mkdir()
    (here / "a[1].csv").touch()
    monkeypatch.chdir(here)
    escaped = f"file://{tmp_path}/h\\[1\\]"
    assert read_pattern("*.csv") == read_pattern("file:*.csv") == f"{escaped}/*.csv"
    assert read_pattern("a[1].csv") == f"{escaped}/a\\[1\\].csv"
    assert read_pattern("a[2].csv") == f"{escaped}/a[2].csv"
    assert read_pattern("/x/*.csv") == "file:///x/*.csv"
    assert read_pattern("hdfs:/x/*.csv") == "hdfs:/x/*.csv"


def frame_writing(write: Callable[[Path], None]) -> DataFrame:
    """What Spark's executors do, instead of Spark, with the folder that they are to write."""

    def parquet(uri: str) -> None:
        write(Path(uri.removeprefix("file://")))

    writer = SimpleNamespace(mode=lambda _: SimpleNamespace(parquet=parquet), parquet=parquet)
    return cast(DataFrame, SimpleNamespace(write=writer, sparkSession=None))


def test_executors_that_write_to_other_machines_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    # The driver's part of Spark marks the folder as complete all the same.
    here = frame_writing(lambda place: (place / "part-0.parquet").touch())
    away = frame_writing(lambda place: (place / "_SUCCESS").touch())
    with pytest.raises(StorageError, match=r"executors wrote nothing to .*: name a folder that all machines share"):
        write_parquet(away, str(folder))
    assert list(tmp_path.iterdir()) == []
    (staging := tmp_path / "staging").mkdir()
    with pytest.raises(StorageError, match=r"wrote nothing to .*: name a place that all machines share under one path"):
        write_back(away, str(staging))
    with filling(str(folder), "the report", None) as new:
        new.write_parquet(here)
        new.write_text("page", "é")
    assert sorted(os.listdir(folder)) == ["page", "part-0.parquet"]


def test_another_file_system_needs_a_session_of_this_process() -> None:
    connect = cast(SparkSession, SimpleNamespace())
    with (
        pytest.raises(
            OptionError, match=r"hdfs:/x is on another .* Connect .* name a folder of this machine for the r"
        ),
        filling("hdfs:/x", "the report", connect),
    ):
        raise AssertionError


# Through Spark, whose default file system is another one: each path is proven by where its bytes are.


@pytest.fixture
def other(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URI of another file system, which is Spark's default one, and the folder that it is in."""
    folder = tmp_path / "other"
    folder.mkdir()
    with elsewhere(spark, folder) as uri:
        yield uri, folder


def figures(spark: SparkSession) -> DataFrame:
    return spark.range(3).toDF("a")


def runs(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([tuple(0 for _ in SCHEMA)], ", ".join(f"{name} int" for name in SCHEMA.names))


def test_the_other_file_system_is_the_default_one(spark: SparkSession, other: tuple[str, Path], tmp_path: Path) -> None:
    """Without this one the next tests could not fail."""
    figures(spark).write.parquet(str(tmp_path / "plain"))
    assert not (tmp_path / "plain").exists()
    assert (other[1] / (tmp_path / "plain").relative_to("/") / "_SUCCESS").exists()


def test_plain_paths_are_of_this_machine(
    spark: SparkSession, other: tuple[str, Path], tmp_path: Path, compared: ReconcileResult
) -> None:
    place = tmp_path / NASTY
    place.mkdir()
    one = write_parquet(figures(spark), str(place / "figures"))
    assert one.count() == 3
    assert {row.a for row in read_events(spark, [f"{place}/figures"], "parquet").collect()} == {0, 1, 2}
    (tmp_path / "whole").mkdir()
    figures(spark).write.json(f"file://{tmp_path}/whole/one.jsonl")
    assert read_events(spark, [f"{{{tmp_path}/whole/one,{tmp_path}/whole/one}}.jsonl"], "jsonl").count() == 6
    (place / "events [1].jsonl").write_text('{"who": "ann", "nr": 1}\n{"who": "ann", "nr": 2}\n')
    rows = read_events(spark, [f"{place}/events [1].jsonl"], "jsonl", "who string, nr bigint")
    Signer(bytes(32)).save(place / "keys" / "ann.key")
    log = str(place / "log.db")
    layout = Layout("who", "nr", "nr", "array(if(nr = 2, 1, null))", ("nr",))
    assert ingest(rows, log, TOPIC, layout, str(place / "keys"), merger="ann").events == 2
    (place / "staging").mkdir()
    frame = read(spark, log, columns="value")
    done = write(frame, str(place / "b.db"), report=str(place / "report"), staging=str(place / "staging"), topic=TOPIC)
    assert done.inserted == 2
    recipe = Recipe(Counter(), "author")
    assert materialize(spark, log, str(place / "state"), recipe).rows == 1
    assert [row.value for row in read_state(spark, str(place / "state"), recipe.fold).collect()] == [2]
    edges = spark.createDataFrame([(1, 2), (2, 3)], "a bigint, b bigint")
    assert components(edges, str(place / "components")).count() == 2
    assert len(write_sweep(runs(spark), place / "sweep")) == 1
    write_repairs(compared, str(place / "repairs"))
    assert {path.name for path in place.iterdir() if not path.name.startswith("log.db-")} >= {
        *("figures", "log.db", "b.db", "report", "state", "components", "sweep", "repairs"),
    }
    for name in ("figures", "sweep/runs", "repairs/three.db", "components/round-0"):
        assert any(file.endswith(".parquet") for file in os.listdir(place / name))
    assert [path for path in other[1].rglob("*") if not path.is_dir()] == []


def test_uris_go_where_they_say(
    spark: SparkSession, other: tuple[str, Path], tmp_path: Path, compared: ReconcileResult
) -> None:
    uri, folder = other[0], other[1] / "away"
    assert write_parquet(figures(spark), f"{uri}/figures {{1,2}}").count() == 3
    assert read_events(spark, [f"{uri}/figures*"], "parquet").count() == 3
    assert write_repairs(compared, f"{uri}/repairs") == tuple(
        f"{uri}/repairs/{name}.db" for name in ("one", "two", "three")
    )
    assert json.loads((folder / "repairs" / "summary.json").read_text())["shared"] == 400
    assert len(write_sweep(runs(spark), f"{uri}/sweep")) == 1
    for name in ("repairs", "repairs/two.db", "sweep", "sweep/runs", "figures {1,2}"):
        assert (folder / name / "_SUCCESS").exists()
    with pytest.raises(OptionError, match="/repairs is there already: name a new folder for the repair sets"):
        write_repairs(compared, f"{uri}/repairs")
    with filling(f"{uri}/fleet", "the repair sets", spark) as new:
        new.write_parquet(figures(spark).selectExpr("a", "a AS b"), partition_by="a")
        # Of Spark's own, it would say that the folder is complete, and that somebody else fills it.
        assert not (folder / "fleet" / "_SUCCESS").exists()
        new.write_text("summary.json", "{}")
    assert (folder / "fleet" / "_SUCCESS").exists()
    with pytest.raises(SparkError, match="DIVIDE_BY_ZERO"), filling(f"{uri}/half", "the report", spark) as new:
        new.write_parquet(figures(spark).selectExpr("1 / a AS b"), "half")
    with pytest.raises(OptionError, match="/half is there already, without _SUCCESS, which a job writes last: remove"):
        write_repairs(compared, f"{uri}/half")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]


@pytest.mark.parametrize(
    "call",
    [
        lambda spark, uri: materialize(spark, "log.db", f"{uri}/state", Recipe(Counter(), "author")),
        lambda spark, uri: read_state(spark, f"{uri}/state", Counter()),
        lambda frame, uri: write(frame, "b.db", report=f"{uri}/report"),
        lambda spark, uri: check_new_log(f"{uri}/log.db", TOPIC),
    ],
)
def test_what_must_be_on_this_machine(call: Callable[[Any, str], object]) -> None:
    with pytest.raises((OptionError, StorageError), match=r"hdfs://x/.*this machine"):
        call(None, "hdfs://x")


def test_one_at_a_time(tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    with locked(folder):
        with pytest.raises(StorageError, match=f"another process works in {folder}"), locked(folder):
            raise AssertionError
        # The one that was refused has not released the other's lock.
        with pytest.raises(StorageError, match=f"another process works in {folder}"), locked(folder):
            raise AssertionError
    with locked(folder):
        assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_lock_that_is_removed_before_it_is_held(
    is_made_anew: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had it is done, and perhaps another one has begun: two would work in the folder."""
    folder = str(tmp_path / "work")
    lock = fcntl.flock
    with ExitStack() as others:

        def late(descriptor: int, operation: int) -> None:
            monkeypatch.setattr(fcntl, "flock", lock)
            shutil.rmtree(folder)
            if is_made_anew:
                others.enter_context(locked(folder))
            lock(descriptor, operation)

        monkeypatch.setattr(fcntl, "flock", late)
        with pytest.raises(StorageError, match=f"another process works in {folder}"), locked(folder):
            raise AssertionError
    with locked(folder):
        pass


def test_a_folder_is_removed_with_its_lock_alone(tmp_path: Path) -> None:
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    for folder in (mine, shared):
        with locked(str(folder)):
            if folder == shared:
                (folder / "notes").touch()
            remove_locked(str(folder))
    assert not mine.exists()
    assert sorted(path.name for path in shared.iterdir()) == [".lock", "notes"]
    remove_locked(str(mine))


def test_a_folder_that_a_killed_job_left_is_taken_again(tmp_path: Path) -> None:
    for files in ((), (".lock",), (".lock", "work")):
        folder = tmp_path / str(len(files))
        folder.mkdir(0o700)
        for name in files:
            (folder / name).touch()
        check_staging(str(folder), 0o700)
        with locked(str(folder), 0o700, staging=True):
            pass
    check_staging(str(tmp_path / "none"), 0o700)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("file", "is no folder"),
        ("link", "is no folder"),
        ("open", "is open to other users"),
        ("files", "has files, but no .lock, which a job makes first"),
        ("another", "belongs to another user"),
    ],
)
def test_a_folder_that_no_job_left_is_refused(
    tmp_path: Path, kind: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target = tmp_path / "staging", tmp_path / "target"
    target.mkdir(0o700)
    match kind:
        case "file":
            folder.touch()
        case "link":
            folder.symlink_to(target)
        case _:
            folder.mkdir(0o700)
    if kind == "open":
        folder.chmod(0o770)
    elif kind == "files":
        (folder / "notes").touch()
    elif kind == "another":
        monkeypatch.setattr("os.geteuid", lambda: folder.stat().st_uid + 1)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StorageError) as caught:
        check_staging(str(folder), 0o700)
    assert str(caught.value) == (
        f"a job works in {folder}, which is there already and {reason}: move it away, or remove it if nobody needs it"
    )
    with pytest.raises(StorageError), locked(str(folder), 0o700, staging=True):
        raise AssertionError
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_is_made_is_accepted_with_the_owner_that_its_file_system_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As some mounts do, which also give every folder the same mode.
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    with locked(str(tmp_path / "staging"), 0o700, staging=True):
        pass


def test_a_folder_is_built_under_another_name(tmp_path: Path) -> None:
    folder, partial = tmp_path / "report", tmp_path / "report.partial"
    # What a process that was killed has left.
    (partial / "tables").mkdir(parents=True)
    for name in (".lock", "page", "tables/1"):
        (partial / name).touch()
    with building(str(folder), "the report") as place:
        assert os.path.dirname(place) == str(partial)
        assert sorted(os.listdir(partial)) == sorted([".lock", os.path.basename(place)])
        assert os.listdir(place) == []
        assert not folder.exists()
        with pytest.raises(StorageError, match="another process works in "), building(str(folder), "the report"):
            raise AssertionError
        (Path(place) / "page").touch()
        # A task of the process that was killed.
        (partial / "tables").mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["report", "page"]
    with pytest.raises(OptionError, match="is there already"), building(str(folder), "the report"):
        raise AssertionError


def test_a_folder_that_cannot_be_completed_is_removed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), building(f"{tmp_path}/report/", "the report"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_partial_folder_of_others_stays(tmp_path: Path) -> None:
    (tmp_path / "report.partial").mkdir()
    (tmp_path / "report.partial" / "notes").touch()
    with pytest.raises(StorageError, match=r"has files, but no \.lock"), building(f"{tmp_path}/report", "the report"):
        raise AssertionError
    assert [path.name for path in tmp_path.rglob("*")] == ["report.partial", "notes"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Not a directory"), locked(str(tmp_path / "file" / "state")):
        raise AssertionError


def test_a_folder_that_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_new(str(tmp_path / "a" / "b"), "the report")
    monkeypatch.chdir(tmp_path)
    check_new("report", "the report")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("folder", "is there already: name a new folder for the report"),
        ("link", "is there already"),
        ("file/report", "file is no folder: name a new folder for the report"),
        ("closed/report", "closed cannot be written: name a new folder for the report"),
    ],
)
def test_a_new_folder_that_cannot_be_made(
    tmp_path: Path, path: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("folder", "closed"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    # The superuser may write everywhere.
    monkeypatch.setattr("os.access", lambda place, _: not place.endswith("closed"))
    with pytest.raises(OptionError, match=complaint):
        check_new(str(tmp_path / path), "the report")
