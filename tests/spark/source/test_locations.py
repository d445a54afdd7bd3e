"""Paths, patterns and URLs of logs."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from gossiplog.errors import CorruptLog, NotALog, OptionError, StorageError
from gossiplog.spark.source.locations import alternatives, anchored, identity, is_missing, locations, opened
from tests.storage.damage import damage


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.db", "a.db", "c[1].db"):
        (tmp_path / name).touch()
    (tmp_path / "d.db").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_patterns_take_files_in_the_order_of_their_names(folder: Path) -> None:
    assert locations(["*.db"]) == ["a.db", "b.db", "c[1].db"]
    assert locations(["**/a.db"]) == ["a.db"]


def test_a_file_is_no_pattern(folder: Path) -> None:
    assert locations(["c[1].db"]) == ["c[1].db"]


def test_alternatives_in_a_pattern(folder: Path) -> None:
    assert locations(["{b,a}.db"]) == ["a.db", "b.db"]
    assert locations([str(folder / "{a,c[[]1]}.db")]) == [str(folder / "a.db"), str(folder / "c[1].db")]
    (folder / "{a,b}.db").touch()
    assert locations(["{a,b}.db"]) == ["{a,b}.db"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", ["a"]),
        ("{a,b}{1,2}", ["a1", "a2", "b1", "b2"]),
        ("x{ab,c{de,fg}}y", ["xaby", "xcdey", "xcfgy"]),
        ("{a}{,b}", ["a", "ab"]),
        ("a}{b", ["a}{b"]),
        ("{a{b,c}", ["{ab", "{ac"]),
    ],
)
def test_alternatives(pattern: str, expected: list[str]) -> None:
    assert alternatives(pattern) == expected


def test_alternatives_are_bounded() -> None:
    assert len(alternatives("{0,1}" * 13)) == 2**13
    with pytest.raises(OptionError, match="has more than 10,000 alternatives"):
        alternatives("{0,1}" * 30)


def test_a_folder_stands_for_its_files(folder: Path) -> None:
    for name in ("a.db-wal", "a.db-shm", "_SUCCESS", ".hidden"):
        (folder / name).touch()
    (folder / "d.db" / "inside.db").touch()
    assert locations(["."]) == ["./a.db", "./b.db", "./c[1].db"]
    assert locations(["d.db"]) == ["d.db/inside.db"]
    assert locations(["d.db", "d.db/inside.db"]) == ["d.db/inside.db"]


@pytest.fixture
def nested(folder: Path) -> Path:
    for name in ("d.db/inside.db", "d.db/deep/er.db", "d.db/_tmp/no.db", "d.db/.git/no.db", "d.db/inside.db-wal"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    # It leads back.
    os.symlink(".", folder / "d.db" / "loop")
    return folder


def test_recursion_looks_into_folders_but_not_into_hidden_ones_nor_through_links(nested: Path) -> None:
    inside = ["d.db/deep/er.db", "d.db/inside.db"]
    assert locations(["d.db"]) == ["d.db/inside.db"]
    assert locations(["d.db"], recursive=True) == inside
    assert locations(["*.db"]) == ["a.db", "b.db", "c[1].db"]
    assert locations(["*.db"], recursive=True) == ["a.db", "b.db", "c[1].db", *inside]
    assert locations(["file:d.db?mode=ro"], recursive=True) == [f"file:{name}?mode=ro" for name in inside]
    (nested / "e").mkdir()
    with pytest.raises(NotALog, match=r"the folder e has no file$"):
        locations(["e"], recursive=True)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("[ab].db", ["a.db", "b.db"]),
        ("[^ab]*.db", ["c[1].db"]),
        ("[!ab]*.db", ["c[1].db"]),
        ("{a,c*}.db", ["a.db", "c[1].db"]),
        ("?.db", ["a.db", "b.db"]),
        ("A.db", None),
        ("./a.db", None),
    ],
)
def test_a_filter_of_names_is_for_folders_patterns_uris_and_files(
    folder: Path, pattern: str, expected: list[str] | None
) -> None:
    for paths in ([str(folder)], [str(folder / "*")], [f"file:{folder}/*?mode=ro"]):
        if expected is None:
            with pytest.raises(NotALog, match=r"has a name that fits pathGlobFilter, which is "):
                locations(paths, name_filter=pattern)
            continue
        found = [unquote(each.partition("?")[0]) for each in locations(paths, name_filter=pattern)]
        assert [os.path.basename(each) for each in found] == expected
    assert locations(["postgresql://host/logs"], name_filter=pattern) == ["postgresql://host/logs"]
    with pytest.raises(NotALog, match=r"no file of a\.db has a name that fits"):
        locations(["a.db"], name_filter="b*")


def test_a_folder_that_cannot_be_read_is_an_error(nested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def failing(path: str) -> object:
        if path == "d.db/deep":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)
        with pytest.raises(StorageError, match=r"the folder d\.db/deep cannot be read: Input/output error"):
            locations(["d.db"], recursive=True)


def test_what_is_missing(folder: Path) -> None:
    assert [is_missing(each) for each in ("a.db", "none.db", "file:none.db?mode=ro", f"file://{folder}/a.db")] == [
        False,
        True,
        True,
        False,
    ]
    assert not is_missing("postgresql://host/logs")


def test_uris_may_be_patterns_and_folders(folder: Path) -> None:
    assert locations(["file:*.db?immutable=1"]) == [
        "file:a.db?immutable=1",
        "file:b.db?immutable=1",
        "file:c%5B1%5D.db?immutable=1",
    ]
    assert locations([f"file://{folder}/{{a,b}}.db?mode=ro"]) == [f"file://{folder}/{name}.db?mode=ro" for name in "ab"]
    (folder / "d.db" / "%.db").touch()
    assert locations(["file:d.db?immutable=1"]) == ["file:d.db/%25.db?immutable=1"]
    # What is escaped is no pattern.
    assert locations(["file:c%5B1%5D.*"]) == ["file:c%5B1%5D.db"]
    for found in locations(["file:d.db?immutable=1", "file:c*.db"]):
        assert Path(unquote(found.removeprefix("file:").partition("?")[0])).is_file()


def test_each_log_once(folder: Path) -> None:
    os.symlink("a.db", "link.db")
    assert locations(["b.db", "./b.db", str(folder / "*.db"), "link.db"]) == [
        "b.db",
        str(folder / "a.db"),
        str(folder / "c[1].db"),
    ]


def test_urls_are_left_to_the_storage(folder: Path) -> None:
    url = "postgresql://host/logs?options=%2A"
    assert locations([url, "file:a.db", "postgres://host/logs?options=*"]) == [url, "file:a.db"]
    assert identity("postgres://host/logs") == "postgresql://host/logs"
    assert locations(["mysql://host/*"]) == ["mysql://host/*"]


@pytest.mark.parametrize("location", ["postgresql://me:s3cret@host/logs", "postgresql://host/logs?password=s3cret"])
def test_urls_with_passwords_are_refused_since_spark_shows_them(location: str) -> None:
    for function in (lambda: locations([location]), lambda: identity(location), lambda: opened(location).__enter__()):
        with pytest.raises(OptionError, match=r"has a password, which Spark would show .* PGPASSWORD") as caught:
            function()
        assert "s3cret" not in str(caught.value)


def test_what_is_nearly_a_url_is_no_path() -> None:
    with pytest.raises(StorageError, match="no two slashes"):
        locations(["postgresql:/me:s3cret@host/logs"])


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("none.db", "there is no log none.db"),
        ("*.log", r"no file fits the pattern \*.log$"),
        ("{a,none}.db", r"no file fits the pattern none\.db, an alternative of \{a,none\}\.db"),
        ("file:{a,none}.db?mode=ro", r"no file fits the pattern none\.db, an alternative of file:"),
        ("d.db", "the folder d.db has no file"),
        ("file:d.db", "the folder d.db has no file"),
        ("file:*.log?immutable=1", "no file fits the pattern file:"),
        ("*.db?immutable=1", "options of SQLite need a URI, as file:"),
    ],
)
def test_what_is_not_there(folder: Path, path: str, complaint: str) -> None:
    with pytest.raises(NotALog, match=complaint):
        locations([path])


def test_opened_tells_the_topic(make_log: Callable[..., Path]) -> None:
    with opened(str(make_log(topic="t"))) as (storage, topic), storage.reader() as reader:
        assert (topic, reader.position().count) == ("t", 10)


def test_damage_is_told_with_the_location(make_log: Callable[..., Path]) -> None:
    path = make_log()
    damage(path, "gossiplog_meta")
    with pytest.raises(CorruptLog, match=str(path)), opened(str(path)):
        pass


def test_an_unknown_kind_of_database() -> None:
    with pytest.raises(StorageError, match="no storage for mysql://"), opened("mysql://host/logs"):
        pass


@pytest.mark.parametrize(
    "path", ["/data/a.db", "{/a,/b}/*.db", "file:/a.db?immutable=1", "s3://logs/a.db", "postgresql://me@here/logs"]
)
def test_what_does_not_depend_on_the_working_folder_is_anchored_already(path: str) -> None:
    assert anchored(path) == path


def test_a_path_is_anchored_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert anchored("logs/{a,b}*.db") == f"{tmp_path}/logs/{{a,b}}*.db"


@pytest.mark.parametrize(
    "path", ["a.db", "*.db", "{a,b}.db", "[b].db", "file:a.db", "file:*.db?immutable=1", "a[1].db"]
)
def test_an_anchored_path_names_the_same_logs_elsewhere(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here := tmp_path / "h[1]* %41é").mkdir()
    for name in ("a.db", "b.db", "a[1].db"):
        (here / name).touch()
    monkeypatch.chdir(here)
    named, whole = [*map(identity, locations([path]))], anchored(path)
    monkeypatch.chdir(tmp_path)
    assert [*map(identity, locations([whole]))] == [
        name.replace("file:", f"file:{quote(str(here))}/") if name.startswith("file:") else name for name in named
    ]
