"""Paths, patterns and URLs of logs."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from gossiplog.errors import CorruptLog, NotALog, OptionError, StorageError
from gossiplog.spark.failures import unwrapped
from gossiplog.spark.source.locations import alternatives, anchored, identity, is_missing, locations
from gossiplog.spark.source.opening import opened
from gossiplog.spark.source.problems import fleet_locations
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
            with pytest.raises(NotALog, match=r"^none of 3 files has a name that fits pathGlobFilter, which is "):
                locations(paths, name_filter=pattern)
            continue
        found = [unquote(each.partition("?")[0]) for each in locations(paths, name_filter=pattern)]
        assert [os.path.basename(each) for each in found] == expected
    assert locations(["postgresql://host/logs"], name_filter=pattern) == ["postgresql://host/logs"]
    with pytest.raises(NotALog, match=r"^a\.db has no name that fits pathGlobFilter, which is b\*$"):
        locations(["a.db"], name_filter="b*")


def test_of_several_folders_some_may_have_no_name_that_fits(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "z.db").touch()
    paths = [str(folder), str(folder / "other")]
    fitting = [str(folder / "other" / "z.db")]
    assert locations(paths, name_filter="z*") == fitting
    assert fleet_locations([*paths, str(folder / "gone.db")], name_filter="z*")[0] == fitting
    with pytest.raises(NotALog, match=r"^none of 4 files has a name that fits pathGlobFilter, which is y\*$"):
        fleet_locations(paths, name_filter="y*")


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


def test_what_is_kept_beside_a_log_is_no_log_of_its_folder(nested: Path) -> None:
    kept = ("a.db.generation-0", "b.db.damaged", "b.db.damaged-2", "gone.db.saved", "a.db-wal.former", "a.db.copy")
    inside = ("d.db/x.partial", "d.db/x.db.ingest", "d.db/x.db.staging-0a", "d.db/x.db.repair-ab12_xyz")
    for name in (*kept, *(f"{folder}/y.db" for folder in inside)):
        (nested / name).parent.mkdir(exist_ok=True)
        (nested / name).touch()
    logs = ["a.db", "b.db", "c[1].db"]
    assert locations(["."]) == [f"./{name}" for name in logs]
    assert locations(["*"]) == locations(["{a,b,c}*"]) == logs
    assert locations(["*.db*", "a*"]) == logs
    assert locations(["*/*", "**/inside.db"]) == ["d.db/inside.db"]
    assert locations(["."], recursive=True) == [
        *(f"./{name}" for name in logs),
        "./d.db/deep/er.db",
        "./d.db/inside.db",
    ]
    assert locations(["**"]) == [*logs, "d.db/_tmp/no.db", "d.db/deep/er.db", "d.db/inside.db"]
    # Its own path names it, and a folder that a job works in.
    assert locations(["a.db.generation-0", "d.db/x.partial"]) == ["a.db.generation-0", "d.db/x.partial/y.db"]
    assert locations(["{a.db.copy,b.db}"]) == ["a.db.copy", "b.db"]
    with pytest.raises(NotALog, match=r"no log, but what is kept beside one, fits the pattern b\.db\.\*"):
        locations(["b.db.*"])
    (nested / "e").mkdir()
    (nested / "e" / "x.db.damaged").touch()
    with pytest.raises(NotALog, match="the folder e has no log, but what is kept beside one"):
        locations(["e"])


def test_what_sqlite_keeps_is_no_log_where_the_log_does_not_fit(folder: Path) -> None:
    (folder / "a.db-wal").touch()
    (folder / "xl").touch()
    assert locations(["*l"]) == ["xl"]


def test_patterns_through_folders_end_where_links_lead_back(nested: Path) -> None:
    for name in ("here", "back"):
        os.symlink("..", nested / "d.db" / name)
        os.symlink(".", nested / name)
    assert locations(["**/er.db"]) == locations(["**/**/er.db"]) == ["d.db/deep/er.db"]
    assert locations(["**/d.db/**/[ei]*.db"]) == ["d.db/deep/er.db", "d.db/inside.db"]
    assert locations([f"{nested}/**/deep/*"]) == [f"{nested}/d.db/deep/er.db"]
    assert locations(["file:**/er.db"]) == ["file:d.db/deep/er.db"]
    # A link that is named is gone through.
    assert locations(["here/d.db/**/er.db"]) == ["here/d.db/deep/er.db"]


@given(st.lists(st.sampled_from(["**", "*", "d.db", "deep", "*.db", "er*", "?"]), min_size=1, max_size=5))
def test_patterns_fit_as_those_of_glob_where_there_are_no_links(tree: Path, parts: list[str]) -> None:
    pattern = "/".join([str(tree), *parts])
    assume(glob.has_magic(pattern))
    expected = {match for match in glob.glob(pattern, recursive=True) if os.path.isfile(match)}
    try:
        found = locations([pattern])
    except NotALog:
        found = []
    assert {*found} == expected


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in (
        "a.db",
        "d.db/inside.db",
        "d.db/deep/er.db",
        "d.db/deep/deep/er.db",
        "d.db/.git/no.db",
        ".x/deep/er.db",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_a_file_with_two_names_is_one_log(folder: Path) -> None:
    os.link("b.db", "z.db")
    assert locations(["."]) == ["./a.db", "./b.db", "./c[1].db"]
    assert locations(["z.db", "b.db", f"file:{folder}/b.db?mode=ro"]) == ["z.db"]
    # Without its write-ahead log a part of it would be missing.
    (folder / "z.db-wal").write_bytes(bytes(33))
    assert locations(["."]) == ["./a.db", "./c[1].db", "./z.db"]
    assert locations(["b.db", "./b.db", "z.db", "./z.db"]) == ["z.db"]
    assert fleet_locations(["a.db", "z.db", "b.db"]) == (["a.db", "z.db"], {})


@pytest.mark.parametrize("path", [".", "*.db", "**/*.db", os.fsdecode(b"bad\xff.db"), os.fsdecode(b"file:bad\xff.db")])
def test_names_that_spark_cannot_carry_are_refused_by_name(folder: Path, path: str) -> None:
    (folder / os.fsdecode(b"bad\xff.db")).touch()
    for function in (locations, fleet_locations):
        with pytest.raises(StorageError, match=r"bad\\xff\.db is not UTF-8, which Spark needs") as caught:
            function([path])
        str(caught.value).encode()


def test_a_folder_that_spark_cannot_carry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (inside := folder / os.fsdecode(b"bad\xff")).mkdir()
    (inside / "a.db").touch()
    monkeypatch.chdir(inside)
    with pytest.raises(StorageError, match=r"bad\\xff/a\.db is not UTF-8"):
        locations(["a.db"])


@pytest.mark.parametrize("name", ["a\nb.db", "a\rb\x1b[0m.db", "a\u2028b.db"])
def test_errors_name_a_log_in_one_line(make_log: Callable[..., Path], tmp_path: Path, name: str) -> None:
    sound = make_log()
    damage(sound, "gossiplog_meta")
    os.rename(sound, path := tmp_path / name)
    with pytest.raises(CorruptLog) as caught, opened(str(path)):
        pass
    error = unwrapped(PySparkException(f"Traceback\ngossiplog.errors.CorruptLog: {caught.value}\n\n\tat java"))
    assert isinstance(error, CorruptLog)
    assert error.problems == caught.value.problems
    assert all(text.isprintable() for text in error.problems)
    path.write_text("no log" * 1000)
    with pytest.raises(NotALog) as second, opened(str(path)):
        pass
    assert str(unwrapped(PySparkException(f"gossiplog.errors.NotALog: {second.value}\nat"))) == str(second.value)
    with pytest.raises(NotALog) as third:
        locations([f"{path}x"])
    assert str(third.value).isprintable()


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
