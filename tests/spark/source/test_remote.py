"""Logs on a file system that is not mounted: an S3 server, to which Arrow's own client speaks."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.errors import CorruptLog, NotALog, OptionError, StorageError, TopicMismatch
from gossiplog.spark.source import remote
from gossiplog.spark.source.data_source import GossipLogSource
from gossiplog.spark.source.locations import identity, is_missing, locations
from gossiplog.spark.source.opening import check_logs, opened
from gossiplog.spark.source.options import BATCH_OPTIONS, SCHEMA, pruned, read_options
from gossiplog.spark.source.reader import LogReader
from tests.spark.conftest import TOPIC
from tests.spark.s3_server import BUCKET, ENVIRONMENT, Bucket, serving
from tests.storage.damage import damage

MakeLog = Callable[..., Path]


@pytest.fixture(scope="module")
def server() -> Iterator[Bucket]:
    with serving() as bucket:
        yield bucket


@pytest.fixture
def bucket(server: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    """An empty bucket, and a scratch folder for what is copied."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "scratch"))
    server.objects.clear()
    server.requests.clear()
    server.denied.clear()
    server.before = lambda method, key: None
    return server


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert not list((tmp_path / "scratch").glob("*"))


def put(bucket: Bucket, make_log: MakeLog, name: str, messages: int = 10, **options: Any) -> str:
    bucket.objects[name] = make_log(name.replace("/", "-"), messages, **options).read_bytes()
    return bucket.url(name)


def rows(*paths: str, columns: tuple[str, ...] = (), **options: str) -> list[dict[str, Any]]:
    given = read_options({"paths": str(list(paths)).replace("'", '"'), **options}, BATCH_OPTIONS)
    reader = LogReader(given, pruned(columns) if columns else SCHEMA)
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    return [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]


@pytest.mark.slow
def test_a_log_is_read_as_from_its_file(bucket: Bucket, make_log: MakeLog, tmp_path: Path) -> None:
    url = put(bucket, make_log, "a.db", 600)
    expected = [{**row, "log": url} for row in rows(str(tmp_path / "a.db"))]
    bucket.requests.clear()
    assert rows(url, partitions="8") == expected
    assert len(expected) == 600
    size = len(bucket.objects["a.db"])
    assert rows(url, columns=("log_path", "log_size"), maxClock="1") == [{"log_path": url, "log_size": size}]
    # Planning asks for no content, and one task reads all: twice a copy.
    with opened(url) as (_, topic):
        assert topic == TOPIC
        bucket.requests.clear()
    read_options({"path": url}, BATCH_OPTIONS)
    LogReader(read_options({"path": url, "partitions": "8"}, BATCH_OPTIONS), SCHEMA).partitions()
    assert {method for method, _ in bucket.requests} == {"HEAD"}


def test_folders_patterns_and_options(bucket: Bucket, make_log: MakeLog) -> None:
    names = ["hubs/a.db", "hubs/b c.db", "hubs/north/d.db", "hubs/north/deep/e.db", "hubs/notes.txt", "top.db"]
    for name in [*names, "hubs/_tmp/f.db", "hubs/.g.db", "hubs/a.db-shm", "elsewhere/h.db"]:
        bucket.objects[name] = b"."

    def found(path: str, **options: Any) -> list[str]:
        urls = locations([bucket.url(path)], **options)
        assert urls == sorted(urls)
        start, end = bucket.url("\0").split("\0")
        assert all(url.startswith(start) and url.endswith(end) for url in urls)
        return [url.removeprefix(start).removesuffix(end) for url in urls]

    assert found("hubs/a.db") == ["hubs/a.db"]
    assert found("hubs") == found("hubs/") == ["hubs/a.db", "hubs/b%20c.db", "hubs/notes.txt"]
    assert found("hubs", name_filter="*.db") == ["hubs/a.db", "hubs/b%20c.db"]
    assert found("hubs", name_filter="b c.db") == found("hubs/b%20c.db") == ["hubs/b%20c.db"]
    everything = ["hubs/a.db", "hubs/b%20c.db", "hubs/north/d.db", "hubs/north/deep/e.db"]
    assert found("hubs", recursive=True, name_filter="*.db") == everything
    assert found("hubs/**/*.db") == everything
    assert found("hubs/*.db") == ["hubs/a.db", "hubs/b%20c.db"]
    assert found("*/*.db") == ["elsewhere/h.db", "hubs/a.db", "hubs/b%20c.db"]
    assert found("hubs/[ab]*.db") == ["hubs/a.db", "hubs/b%20c.db"]
    assert found("{top,hubs/north/d}.db") == ["hubs/north/d.db", "top.db"]
    assert found("hubs/nor*", recursive=True) == ["hubs/north/d.db", "hubs/north/deep/e.db"]
    assert found("") == ["top.db"]
    for path, complaint in {
        "hubs/*.log": "no file fits the pattern s3://logs/hubs/",
        "{top,none}.db": r"no file fits the pattern /none\.db, an alternative of s3://|there is no log",
        "none.db": "there is no log s3://logs/none.db",
        "hubs/north/deep/deeper": "there is no log",
        "hubs/nor*": "no file fits the pattern",
    }.items():
        with pytest.raises(NotALog, match=complaint):
            found(path)


@pytest.mark.slow
def test_more_files_than_a_page_of_a_listing(bucket: Bucket) -> None:
    for number in range(2500):
        bucket.objects[f"many/{number:05}.db"] = b"."
    assert len(locations([bucket.url("many")])) == 2500


def test_names_of_one_log(bucket: Bucket, make_log: MakeLog) -> None:
    url = put(bucket, make_log, "a.db")
    assert locations([url, bucket.url("a.db", "s3a"), bucket.url("*.db"), bucket.url("%61.db")]) == [url]
    assert identity(bucket.url("a.db", "s3a")) == url
    assert check_logs([url, bucket.url("a.db")]) == {url: None}
    assert (is_missing(url), is_missing(bucket.url("none.db"))) == (False, True)


def test_what_is_not_all_in_the_file(bucket: Bucket, make_log: MakeLog) -> None:
    url = put(bucket, make_log, "a.db")
    bucket.objects["a.db-wal"] = bytes(33)
    for function in (lambda: check_logs([url]), lambda: rows(url), lambda: opened(url).__enter__()):
        with pytest.raises(StorageError, match=r"with -wal after its name \(33 bytes\).*`gossiplog backup LOG COPY`"):
            function()
    # One without a transaction, as after a checkpoint.
    bucket.objects["a.db-wal"] = bytes(32)
    assert len(rows(url)) == 10
    bucket.objects["a.db-journal"] = b"."
    with pytest.raises(StorageError, match="with -journal after its name"):
        rows(url)


def test_a_write_ahead_log_as_sqlite_leaves_it(bucket: Bucket, make_log: MakeLog, tmp_path: Path) -> None:
    """The file of a log that is open lacks what was appended; a backup has it."""
    path = make_log("a.db")
    with gossiplog.open(path) as log:
        log.append("later", signer=gossiplog.Signer.generate())
        for file in (path, Path(f"{path}-wal")):
            bucket.objects[file.name] = file.read_bytes()
        with pytest.raises(StorageError, match="not all of the log is in this file"):
            rows(bucket.url("a.db"))
        log.backup(tmp_path / "b.db")
    bucket.objects["b.db"] = (tmp_path / "b.db").read_bytes()
    assert len(rows(bucket.url("b.db"))) == 11


@pytest.mark.parametrize("change", ["content", "longer", "shorter", "removed", "wal"])
@pytest.mark.parametrize("at", ["GET", "HEAD"])
def test_what_changes_while_it_is_copied(bucket: Bucket, make_log: MakeLog, change: str, at: str) -> None:
    url = put(bucket, make_log, "a.db", 300)
    (content,) = bucket.objects.values()
    changed = {
        "content": {"a.db": content[:-1] + b"!"},
        "longer": {"a.db": content + bytes(4096)},
        "shorter": {"a.db": content[:-4096]},
        "removed": {},
        "wal": {"a.db": content, "a.db-wal": bytes(100)},
    }[change]
    gets = 0

    def before(method: str, key: str) -> None:
        nonlocal gets
        gets += method == "GET"
        # In the middle of the content, or right after it.
        if key == "a.db" and gets and method == at:
            bucket.objects.clear()
            bucket.objects.update(changed)

    bucket.before = before
    with pytest.raises(
        StorageError, match=r"it changed while it was copied|there is no log|-wal after|cannot read s3:"
    ):
        rows(url)
    assert gets


def test_what_nobody_may_read(bucket: Bucket, make_log: MakeLog) -> None:
    url = put(bucket, make_log, "a.db")
    bucket.denied.add("a.db")
    with pytest.raises(StorageError, match=r"cannot read s3://logs/a\.db.*ACCESS_DENIED"):
        rows(url)


def test_a_scratch_folder_that_is_too_small(bucket: Bucket, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    url = put(bucket, make_log, "a.db")
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(StorageError, match=r"which has 1,000 left: name a larger one as spark\.local\.dir"):
        rows(url)


def test_a_disk_that_is_full_amid_a_copy(bucket: Bucket, make_log: MakeLog) -> None:
    url = put(bucket, make_log, "a.db")
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, former[1]))
    try:
        with pytest.raises(
            StorageError, match=r"cannot copy s3://logs/a\.db\S* to the scratch folder .*: File too large"
        ):
            rows(url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_copy_whose_process_was_killed_is_removed_by_the_next(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_copy", lambda location, target: Path(target).write_bytes(b"a log"))
    scratch = tmp_path / "scratch"
    child = os.fork()
    if child == 0:
        try:
            with remote.copied("s3://logs/a.db"):
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (left,) = scratch.iterdir()
    assert (left / "log.db").exists()
    (others := scratch / "gossiplog-copy-of-mine").mkdir()
    with remote.copied("s3://logs/a.db"):
        (ours,) = set(scratch.iterdir()) - {others}
        assert ours != left
        with remote.copied("s3://logs/b.db"):
            # One that is in use stays, and what no process of ours made.
            assert {ours, others} < set(scratch.iterdir())
    others.rmdir()


def test_errors_name_the_log_and_no_copy(bucket: Bucket, make_log: MakeLog, tmp_path: Path) -> None:
    url = put(bucket, make_log, "a.db")
    damaged = make_log("damaged.db")
    damage(damaged, "gossiplog_meta")
    bucket.objects |= {"damaged.db": damaged.read_bytes(), "text.db": b"no database" * 1000, "empty.db": b""}
    for name, kind in {"damaged.db": CorruptLog, "text.db": NotALog, "empty.db": NotALog}.items():
        with pytest.raises(kind) as caught:
            rows(bucket.url(name))
        assert f"s3://logs/{name}" in str(caught.value)
        assert str(tmp_path / "scratch") not in str(caught.value)
    with pytest.raises(TopicMismatch) as mismatch:
        rows(url, topic="other")
    assert url in str(mismatch.value)
    assert str(tmp_path / "scratch") not in str(mismatch.value)


def test_damage_in_a_block_names_the_log(bucket: Bucket, make_log: MakeLog) -> None:
    path = make_log("a.db", 600)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE gossiplog_messages SET value = x'00'")
    bucket.objects["a.db"] = path.read_bytes()
    with pytest.raises(CorruptLog, match=r"s3://logs/a\.db"):
        rows(bucket.url("a.db"), mode="failfast")


def test_a_log_that_is_removed_after_it_was_listed(bucket: Bucket, make_log: MakeLog) -> None:
    urls = [put(bucket, make_log, name) for name in ("a.db", "b.db")]
    given = read_options({"path": bucket.url("*.db"), "ignoremissingfiles": "true"}, BATCH_OPTIONS)
    reader = LogReader(given, pruned(["log"]))
    partitions = reader.partitions()
    del bucket.objects["a.db"]
    found = [row["log"] for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    assert found == [urls[1]] * 10


@pytest.mark.parametrize(
    "location",
    [
        "s3://key:s3cret@bucket/a.db",
        "s3a://key:s3cret@bucket/*.db",
        "abfs://container@account.dfs.core.windows.net/a.db?account_key=s3cret",
        "gs://bucket/a.db?access_token=s3cret",
    ],
)
def test_secrets_are_refused_since_spark_shows_them(location: str) -> None:
    for function in (lambda: locations([location]), lambda: identity(location), lambda: opened(location).__enter__()):
        with pytest.raises(OptionError, match="has a key or a password, which Spark would show") as caught:
            function()
        assert "s3cret" not in str(caught.value)


def test_what_is_remote() -> None:
    remotes = ["s3://b/a", "S3A://b/a", "gs://b/*", "hdfs:///a", "abfss://c@a/x", "fsspec+memory:///a", "viewfs://n/a"]
    assert all(map(remote.is_remote, remotes))
    others = ["a.db", "file:///a.db", "postgresql://h/d", "ws://hub", "mysql://h/d", "s3:/a", "/s3://b/a"]
    assert not any(map(remote.is_remote, others))


def test_a_file_system_whose_package_is_missing() -> None:
    with pytest.raises(StorageError, match=r"cannot read fsspec\+none:///a\.db: "):
        locations(["fsspec+none:///a.db"])


def test_a_stream_is_refused(bucket: Bucket) -> None:
    source = GossipLogSource({"path": bucket.url("a.db")})
    with pytest.raises(OptionError, match=r"a stream cannot follow s3://logs/a\.db.*Read it in a batch"):
        source.streamReader(SCHEMA)


def test_through_spark(spark: SparkSession, bucket: Bucket, make_log: MakeLog) -> None:
    """The workers have the environment with which Java was started: `ENVIRONMENT` among it."""
    for name in ("hubs/a.db", "hubs/b.db"):
        put(bucket, make_log, name, 30)
    frame = spark.read.format("gossiplog").option("columns", "log,key").load(bucket.url("hubs/*.db"))
    assert {row["log"]: row["count"] for row in frame.groupBy("log").count().collect()} == {
        bucket.url("hubs/a.db"): 30,
        bucket.url("hubs/b.db"): 30,
    }
    assert BUCKET in frame.first().log
