"""The count of acknowledged messages beside a database."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import Signer
from gossiplog.errors import CorruptLog, CorruptSource, LossWarning, NotALog
from gossiplog.log import Log
from gossiplog.log.repair import repair_file as repair
from gossiplog.storage.sqlite import write_ahead_log
from gossiplog.storage.sqlite.commit_count import CommitCount, describe_former
from gossiplog.storage.sqlite.storage import SQLiteStorage
from gossiplog.storage.sqlite.tables import BESIDE
from tests.strategies import repeatable

TOPIC = "count.example.com"
SIGNER = gossiplog.Signer(bytes(32))
IDENTITY = bytes(range(16))
COUNT = 6


def put(path: Path, files: dict[str, bytes]) -> Path:
    """Write a database and the files beside it."""
    for suffix in ("", *BESIDE):
        file = path.with_name(path.name + suffix)
        file.unlink(missing_ok=True)
        if suffix in files:
            file.write_bytes(files[suffix])
    return path


def opened(path: Path, **options: Any) -> Log:
    return gossiplog.open(path, TOPIC, signer=SIGNER, **options)


def count_of(path: Path) -> int | None:
    found = CommitCount(str(path)).read()
    return None if found is None else found[1]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that a process leaves that is killed after COUNT messages, all in the write-ahead log."""
    path = tmp_path_factory.mktemp("killed") / "log.db"
    opened(path).close()
    with opened(path) as log:
        for number in range(COUNT):
            log.append(number)
        return {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal", "-count")}


@pytest.fixture
def cut(killed: dict[str, bytes]) -> dict[str, bytes]:
    """The files with one bit of the last frame of the write-ahead log flipped."""
    wal = bytearray(killed["-wal"])
    wal[-1] ^= 1
    return killed | {"-wal": bytes(wal)}


def test_what_a_killed_process_acknowledged_is_there(killed: dict[str, bytes], tmp_path: Path) -> None:
    with opened(put(tmp_path / "log.db", killed)) as log:
        assert len(log) == COUNT


@pytest.mark.slow
@repeatable(100)
@given(data=st.data())
def test_a_flip_in_the_write_ahead_log_is_named(
    killed: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Issue 19, 4: SQLite ends the recovery there, and 250 of 250 flips lost messages silently."""
    wal = bytearray(killed["-wal"])
    bit = data.draw(st.integers(0, len(wal) * 8 - 1))
    wal[bit // 8] ^= 1 << bit % 8
    path = put(tmp_path_factory.getbasetemp() / "flipped.db", killed | {"-wal": bytes(wal)})
    try:
        log = opened(path)
    except CorruptLog as error:
        (problem,) = error.problems
        assert "of" in problem
        with pytest.warns(LossWarning):
            lossy = opened(path, accept_loss=True)
        with lossy:
            assert len(lossy) < COUNT
            assert f"holds {len(lossy):,}" in problem
    else:
        with log:
            assert len(log) == COUNT


def test_the_error_names_the_loss_and_the_ways_back(cut: dict[str, bytes], tmp_path: Path) -> None:
    path = put(tmp_path / "log.db", cut)
    with pytest.raises(CorruptLog) as raised:
        opened(path)
    text = str(raised.value)
    assert f"the last acknowledged message of {path} is lost" in text
    assert "--from SOURCE gets it back" in text
    assert f"{path}-count says that {COUNT} were on disk" in text
    assert f"gossiplog repair {path} --from SOURCE" in text
    assert "in programs, accept_loss=True goes on with 5 of the 6 acknowledged messages, those that SQLite" in text


@pytest.mark.parametrize("options", [{"read_only": True}, {"synchronous": "normal"}, {"synchronous": "off"}])
def test_every_opening_names_the_loss(cut: dict[str, bytes], tmp_path: Path, options: dict[str, Any]) -> None:
    path = put(tmp_path / "log.db", cut)
    for _ in range(2):
        with pytest.raises(CorruptLog, match="acknowledged"):
            gossiplog.open(path, **options)
    with (
        pytest.warns(LossWarning, match=r"log\.db goes on without 1 acknowledged message$"),
        gossiplog.open(path, accept_loss=True, **options) as log,
    ):
        assert len(log) == COUNT - 1


@pytest.mark.parametrize("read_only", [False, True])
def test_a_refused_opening_leaves_the_write_ahead_log_for_repair(
    killed: dict[str, bytes], tmp_path: Path, read_only: bool
) -> None:
    """Messages behind the damage are whole: SQLite does not read them, and `repair` does."""
    wal = bytearray(killed["-wal"])
    # The checksum of a frame; its page is sound. https://sqlite.org/fileformat2.html#walformat
    frames = (len(wal) - 32) // (24 + 4096)
    wal[32 + (frames // 2) * (24 + 4096) + 16] ^= 1
    path = put(tmp_path / "log.db", killed | {"-wal": bytes(wal)})
    for _ in range(2):
        with pytest.raises(CorruptLog, match="acknowledged"):
            gossiplog.open(path, read_only=read_only)
    assert Path(f"{path}-wal").read_bytes() == bytes(wal)
    repair(path)
    with opened(path) as log:
        assert log.verify().messages == COUNT


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        lambda file: bytes(4096) + file[4096:],
        lambda file: b"another file" + file[12:],
        lambda file: file[:18] + b"\x07\x07" + file[20:],
        lambda file: file.replace(b"gossiplog_meta", b"gossiplog_mfta"),
    ],
    ids=["zeros", "no database", "another format", "another table"],
)
def test_a_failed_opening_leaves_the_write_ahead_log_where_the_first_page_is_damaged(
    tmp_path: Path, damage: Callable[[bytes], bytes], read_only: bool
) -> None:
    """SQLite deleted it, and with it the only copy of what was appended last."""
    path, files = tmp_path / "log.db", dict[str, bytes]()
    with opened(path) as log:
        log.append_many(range(COUNT))
    with opened(path) as log:
        log.append("in the write-ahead log alone")
        files = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal", "-count")}
    put(path, files | {"": damage(files[""])})
    for _ in range(2):
        with pytest.raises(NotALog):
            gossiplog.open(path, read_only=read_only)
        assert Path(f"{path}-wal").read_bytes() == files["-wal"]
    repair(path)
    with opened(path) as log:
        assert log.verify().messages == COUNT + 1


def test_a_loss_that_was_accepted_is_not_named_again(cut: dict[str, bytes], tmp_path: Path) -> None:
    path = put(tmp_path / "log.db", cut)
    with pytest.warns(LossWarning), gossiplog.open(path, read_only=True, accept_loss=True):
        assert count_of(path) == COUNT
    with pytest.warns(LossWarning), opened(path, accept_loss=True):
        assert count_of(path) == COUNT - 1
    with opened(path) as log:
        log.append("on")
        assert (len(log), count_of(path)) == (COUNT, COUNT)


def test_an_opening_of_another_file_names_no_loss_of_the_former_one(cut: dict[str, bytes], tmp_path: Path) -> None:
    """A storage that was opened again went on to name it."""
    path = put(tmp_path / "log.db", cut)
    storage = SQLiteStorage(path, accept_loss=True)
    with pytest.warns(LossWarning):
        gossiplog.open(storage).close()
    CommitCount(str(path)).write(IDENTITY, COUNT)
    gossiplog.open(storage).close()


@pytest.fixture
def uncounted(cut: dict[str, bytes], tmp_path: Path) -> Path:
    """A log of whose write-ahead log SQLite does not read the last transaction, without a count."""
    return put(tmp_path / "log.db", {suffix: cut[suffix] for suffix in ("", "-wal")})


def test_a_writer_names_the_copy_of_what_is_not_read(uncounted: Path, cut: dict[str, bytes]) -> None:
    """Programs were told nothing."""
    with pytest.warns(LossWarning, match=rf"drops 1 transaction\. {uncounted}-wal\.former is a copy"):
        log = opened(uncounted)
    with log:
        assert len(log) == COUNT - 1
    assert Path(f"{uncounted}-wal.former").read_bytes() == cut["-wal"]
    opened(uncounted).close()


def test_what_is_not_read_is_not_dropped_where_no_copy_can_be_made(
    uncounted: Path, cut: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk it was dropped in silence."""

    def fail(descriptor: int, copy: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(write_ahead_log, "copy_bytes", fail)
        with pytest.raises(CorruptLog, match=r"no copy .* \(No space left on device\): make room there; goss"):
            opened(uncounted)
    assert {each.name for each in uncounted.parent.iterdir()} == {"log.db", "log.db-wal", "log.db-shm"}
    assert Path(f"{uncounted}-wal").read_bytes() == cut["-wal"]
    repair(uncounted)
    with opened(uncounted) as log:
        assert len(log) == COUNT


def test_without_the_write_ahead_log(killed: dict[str, bytes], tmp_path: Path) -> None:
    path = put(tmp_path / "log.db", {suffix: killed[suffix] for suffix in ("", "-count")})
    with pytest.raises(CorruptLog, match="removed, or the file is an older copy"):
        gossiplog.open(f"file:{path}?immutable=1")
    with pytest.raises(CorruptLog, match=f"last {COUNT} acknowledged messages"):
        opened(path)


def test_a_source_that_lost_messages_is_a_damaged_source(cut: dict[str, bytes], tmp_path: Path) -> None:
    path = put(tmp_path / "log.db", cut)
    with opened(tmp_path / "mine.db") as log, pytest.raises(CorruptSource, match="acknowledged"):
        log.pull(path)


def test_recover_reads_behind_the_damage(cut: dict[str, bytes], tmp_path: Path) -> None:
    """SQLite drops the last transaction, in which one message is damaged, or none."""
    path = put(tmp_path / "log.db", cut)
    result = gossiplog.recover(path, tmp_path / "new.db")
    assert (result.inserted, result.lost, Path(f"{path}-wal").read_bytes()) == (COUNT, 0, cut["-wal"])


def lose_last(path: Path) -> None:
    """Have a log lack a message that it no longer has in its write-ahead log either."""
    with pytest.warns(LossWarning):
        gossiplog.open(path, accept_loss=True).close()
    count = CommitCount(str(path))
    identity, _ = count.read() or (b"", 0)
    count.write(identity, COUNT)
    count.close()


def test_recover_names_a_loss_unless_told_otherwise(cut: dict[str, bytes], tmp_path: Path) -> None:
    """Before, it passed over a loss that the write-ahead log does not show."""
    path, new = put(tmp_path / "log.db", cut), tmp_path / "new.db"
    lose_last(path)
    with pytest.raises(CorruptLog, match="the last acknowledged message is lost") as raised:
        gossiplog.recover(path, new)
    assert f"gossiplog recover {path} NEW --accept-loss" in raised.value.advice
    assert not new.exists()
    result = gossiplog.recover(path, new, accept_loss=True)
    assert (result.inserted, result.lost) == (COUNT - 1, 1)
    assert (count_of(path), count_of(new)) == (COUNT, COUNT - 1)
    with opened(new) as log:
        assert log.verify().messages == COUNT - 1


def test_recover_of_a_log_whose_identity_is_damaged(killed: dict[str, bytes], tmp_path: Path) -> None:
    """What was lost is not known then."""
    path = put(tmp_path / "log.db", killed)
    opened(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = 'damaged' WHERE name = 'identity'")
    result = gossiplog.recover(path, tmp_path / "new.db")
    assert (result.inserted, result.lost) == (COUNT, 0)


def test_the_loss_comes_back(cut: dict[str, bytes], killed: dict[str, bytes], tmp_path: Path) -> None:
    path, replica = put(tmp_path / "log.db", cut), put(tmp_path / "replica.db", killed)
    with pytest.warns(LossWarning):
        log = opened(path, accept_loss=True)
    with log:
        assert log.pull(replica).inserted == 1
        assert count_of(path) == COUNT


def test_repair_brings_the_loss_back(cut: dict[str, bytes], killed: dict[str, bytes], tmp_path: Path) -> None:
    path, replica = put(tmp_path / "log.db", cut), put(tmp_path / "replica.db", killed)
    lose_last(path)
    with pytest.raises(CorruptLog, match=r"messages? (is|are) lost.*, and not even (its id is|their ids are) left"):
        repair(path)
    result = repair(path, replica)
    assert result.damaged == ("the last acknowledged message is lost",)
    with opened(path) as log, opened(replica) as theirs:
        assert (len(log), log.root) == (COUNT, theirs.root)
    assert repair(path).damaged == ()


@pytest.mark.parametrize("with_source", [True, False])
def test_a_repair_goes_on_without_what_was_lost_only_if_told(
    cut: dict[str, bytes], tmp_path: Path, with_source: bool
) -> None:
    path, replica = put(tmp_path / "log.db", cut), tmp_path / "replica.db"
    lose_last(path)
    opened(replica).close()
    before = path.read_bytes(), count_of(path)
    for source, where in ((replica, " here and in the source"), (None, "")):
        with pytest.raises(CorruptLog, match=f"1 message is lost{where}, and not even its id is left") as raised:
            repair(path, source)
        assert raised.value.advice.count(f"gossiplog repair {path} --from SOURCE") >= 1
        assert f"--accept-loss goes on with {COUNT - 1} of the {COUNT} acknowledged messages" in raised.value.advice
        assert (path.read_bytes(), count_of(path)) == before
    result = repair(path, replica if with_source else None, accept_loss=True)
    assert len(result.notes) == 1
    assert "1 message is lost" in result.notes[0]
    with opened(path) as log:
        assert len(log) == COUNT - 1


def test_a_copy_of_the_file_alone_has_no_count(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    with opened(path) as log:
        log.append_many(range(COUNT))
    shutil.copy(path, copy)
    with opened(copy) as log:
        assert (len(log), count_of(copy)) == (COUNT, None)
        log.append("on")
        assert count_of(copy) == COUNT + 1


def test_an_older_count_is_no_loss(killed: dict[str, bytes], tmp_path: Path) -> None:
    path = put(tmp_path / "log.db", killed)
    identity, _ = CommitCount(str(path)).read() or (b"", 0)
    older = CommitCount(str(path))
    older.write(identity, 1)
    older.close()
    with opened(path) as log:
        log.append("on")
        assert count_of(path) == COUNT + 1


def test_a_count_of_another_database_is_overwritten(killed: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    opened(path).close()
    Path(f"{path}-count").write_bytes(killed["-count"])
    with opened(path) as log:
        assert count_of(path) == COUNT
        log.append("on")
        assert count_of(path) == 1


@pytest.mark.parametrize("text", [b"", b"x", bytes(28), b"\xff" * 28, b"\0" * 29])
def test_a_damaged_count_is_none(cut: dict[str, bytes], tmp_path: Path, text: bytes) -> None:
    path = put(tmp_path / "log.db", cut | {"-count": text})
    assert count_of(path) is None
    with pytest.warns(LossWarning, match="SQLite drops 1 transaction"):
        log = opened(path)
    with log:
        assert len(log) == COUNT - 1
        log.append("on")
        assert count_of(path) == COUNT


@repeatable(50)
@given(bit=st.integers(0, 28 * 8 - 1))
def test_no_flip_of_the_count_is_taken_for_a_count(
    killed: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, bit: int
) -> None:
    count = bytearray(killed["-count"])
    count[bit // 8] ^= 1 << bit % 8
    path = put(tmp_path_factory.getbasetemp() / "count.db", killed | {"-count": bytes(count)})
    with opened(path) as log:
        assert len(log) == COUNT


def test_several_writers_count_all(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with opened(path) as one, opened(path) as other:
        for number in range(COUNT):
            (one, other)[number % 2].append(number)
            assert count_of(path) == number + 1
    with opened(path) as log:
        assert len(log) == COUNT


@pytest.mark.parametrize(("synchronous", "count"), [("off", None), ("normal", None), ("full", 3), ("extra", 3)])
def test_what_may_be_lost_is_not_counted(tmp_path: Path, synchronous: Any, count: int | None) -> None:
    path = tmp_path / "log.db"
    with opened(path, synchronous=synchronous) as log:
        log.append_many(range(3))
        assert count_of(path) == count


def test_logs_in_memory_have_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for storage in (":memory:", gossiplog.MemoryStorage()):
        with gossiplog.open(storage, TOPIC, signer=SIGNER) as log:
            log.append(1)
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_is_only_read_gets_no_count(killed: dict[str, bytes], tmp_path: Path) -> None:
    path = put(tmp_path / "log.db", {suffix: killed[suffix] for suffix in ("", "-wal")})
    with gossiplog.open(path, read_only=True) as log:
        assert (len(log), count_of(path)) == (COUNT, None)


def test_a_failed_transaction_counts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with opened(path, apply=lambda message, _: 1 // message.payload) as log:
        log.append(1)
        with pytest.raises(gossiplog.RefusedMessage):
            log.append(0)
        assert count_of(path) == 1


def test_a_log_of_a_former_schema_is_counted_after_its_upgrade(tmp_path: Path) -> None:
    path = Path(shutil.copy(Path(__file__).parent.parent / "schemas" / "schema-3.db", tmp_path / "log.db"))
    with gossiplog.open(path, signer=SIGNER) as log:
        log.append(1)
        assert count_of(path) == 316


@pytest.mark.parametrize("value", ["'x'", "NULL", "7"])
def test_a_damaged_identity(killed: dict[str, bytes], tmp_path: Path, value: str) -> None:
    path = put(tmp_path / "log.db", killed)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE gossiplog_meta SET value = {value} WHERE name = 'identity'")
    with pytest.raises(CorruptLog, match="identity of the database"):
        opened(path)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_it_has_the_mode_of_the_database(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "log.db"
    opened(path).close()
    path.chmod(mode)
    with opened(path) as log:
        log.append(1)
    assert stat.S_IMODE(Path(f"{path}-count").stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_it_has_the_owner_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    opened(path).close()
    os.chown(path, 65534, 65534)
    with opened(path) as log:
        log.append(1)
    found = Path(f"{path}-count").stat()
    assert (found.st_uid, found.st_gid) == (65534, 65534)


def link(place: Path) -> None:
    place.with_name("victim").write_bytes(b"precious")
    place.symlink_to("victim")


@pytest.mark.parametrize("make", [link, Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_left_alone(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Appends go on, without a count."""
    make(tmp_path / "log.db-count")
    with opened(tmp_path / "log.db") as log:
        log.append(1)
        assert count_of(tmp_path / "log.db") is None
    victim = tmp_path / "victim"
    assert not victim.exists() or victim.read_bytes() == b"precious"


def test_it_stands_beside_the_file_that_a_link_names(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("log.db")
    opened(tmp_path / "log.db").close()
    with opened(tmp_path / "link.db") as log:
        log.append(1)
    assert count_of(tmp_path / "log.db") == 1
    assert not (tmp_path / "link.db-count").is_symlink()
    assert not (tmp_path / "link.db-count").exists()


def test_write_after_close(tmp_path: Path) -> None:
    (tmp_path / "log.db").touch()
    count = CommitCount(str(tmp_path / "log.db"))
    for number in (1, 2):
        count.write(IDENTITY, number)
        assert count.read() == (IDENTITY, number)
        count.close()
    count.close()


@pytest.mark.parametrize("left", ["nothing", "an empty file", "a byte"])
def test_no_log_is_made_in_the_place_of_one_with_messages(tmp_path: Path, signer: Signer, left: str) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, signer=signer) as log:
        log.append_many(range(20))
    path.unlink()
    if left != "nothing":
        path.write_bytes(b"" if left == "an empty file" else b"S")
    with pytest.raises(CorruptLog, match=r"log\.db-count says that a log with 20 messages was there") as caught:
        gossiplog.open(path, TOPIC)
    assert caught.value.run == f"gossiplog repair {path} --from SOURCE"
    moved = f". If the file was moved on purpose, move {path}-count with it"
    assert caught.value.advice.endswith(moved) == (left == "nothing")
    assert path.exists() == (left != "nothing")
    with (
        pytest.warns(LossWarning, match="20 acknowledged messages"),
        gossiplog.open(path, TOPIC, accept_loss=True) as log,
    ):
        assert len(log) == 0
    # What an empty log leaves is no reason.
    path.unlink()
    (tmp_path / "log.db-count").unlink()
    for _ in range(2):
        with gossiplog.open(path, TOPIC) as log:
            assert len(log) == 0
        path.unlink()


def contents(path: Path) -> dict[str, bytes]:
    """Return the files of a log but for those that only reading makes."""
    return {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal", "-count")}


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that a killed process leaves, and in the place of the database two that may be put there."""
    path = tmp_path_factory.mktemp("replaced") / "log.db"
    with opened(path) as log:
        log.append_many(range(300))
    copy = path.read_bytes()
    with opened(path) as log:
        log.append_many(range(300, 600))
    with opened(path) as log:
        for number in range(600, 620):
            log.append(number)
        log.backup(path.with_name("backup.db"))
        return contents(path) | {"copy": copy, "backup": path.with_name("backup.db").read_bytes()}


REPLACEMENTS = [
    ("copy", "holds 300 messages, and the former file had 600"),
    ("backup", "has another identity"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "difference"), REPLACEMENTS)
def test_a_database_in_the_place_of_another_is_not_mixed_with_its_write_ahead_log(
    replaced: dict[str, bytes], tmp_path: Path, file: str, difference: str
) -> None:
    """Issue 19: it was damage of some message, `repair` was advised, and the copy took up pages of the other file."""
    path = put(tmp_path / "log.db", replaced | {"": replaced[file]})
    calls: list[Callable[[], object]] = [
        lambda: gossiplog.open(path),
        lambda: gossiplog.open(path, read_only=True),
        lambda: gossiplog.open(path, accept_loss=True),
        lambda: repair(path),
        lambda: gossiplog.recover(path, tmp_path / "new.db"),
    ]
    before = contents(path)
    for call in calls:
        with pytest.raises(CorruptLog, match=f"was replaced, and .*log.db-wal belongs to .*{difference}") as raised:
            call()
        says = {
            "copy": f", mv {path}-wal {path}-wal.former && gossiplog repair {path} --accept-loss goes on with 300 of"
            " the 620 acknowledged messages",
            "backup": f" the write-ahead log lacks: mv {path} {path}.copy && gossiplog repair {path}"
            f" --from {path}.copy",
        }
        assert says[file] in str(raised.value)
        assert contents(path) == before
    # As the error says.
    if file == "backup":
        path.rename(f"{path}.copy")
        assert repair(path, f"{path}.copy").messages == 620
    else:
        path.with_name("log.db-wal").rename(tmp_path / "log.db-wal.former")
        assert repair(path, accept_loss=True).messages == 300
    with gossiplog.open(path) as log:
        assert log.verify().messages == len(log) == (620 if file == "backup" else 300)


@pytest.mark.slow
@repeatable(20)
@given(data=st.data())
def test_no_earlier_copy_is_mixed_with_a_later_write_ahead_log(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A copy of the database from any moment gives the whole log with what is beside it now, or is named."""
    path = tmp_path_factory.mktemp("copies") / "log.db"
    copies = []
    steps = st.lists(st.sampled_from(["append", "batch", "checkpoint", "reopen"]), min_size=2, max_size=12)
    log = opened(path)
    log.append("first")
    with closing(sqlite3.connect(path)) as other:
        for step in data.draw(steps):
            copies.append(path.read_bytes())
            match step:
                case "append":
                    log.append(len(log))
                case "batch":
                    log.append_many(range(len(log), len(log) + 100))
                case "checkpoint":
                    other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                case "reopen":
                    log.close()
                    log = opened(path)
        files, count, root = contents(path), len(log), log.root
    log.close()
    put(path, files | {"": data.draw(st.sampled_from(copies))})
    try:
        reopened = opened(path)
    except CorruptLog as error:
        (problem,) = error.problems
        assert "was replaced" in problem or "acknowledged" in problem
    else:
        with reopened:
            assert (len(reopened), reopened.root) == (count, root)
            reopened.verify()


def test_a_database_that_rotted_is_not_taken_for_another(replaced: dict[str, bytes], tmp_path: Path) -> None:
    """A flipped bit of the identity in the file, and of the count of messages: `repair` is the way back of both."""
    identity = replaced["-count"][:16].hex().encode()
    assert replaced[""].count(identity) == 1
    rotten = replaced[""].replace(identity, (b"0" if identity[:1] != b"0" else b"1") + identity[1:])
    with opened(put(tmp_path / "log.db", replaced | {"": rotten})) as log:
        assert len(log) == 620
    path = put(tmp_path / "log.db", replaced | {"": replaced[""][: len(replaced[""]) // 2]})
    assert CommitCount(str(path)).find_replacement() == ""


def test_a_count_of_an_earlier_version_ties_nothing(replaced: dict[str, bytes], tmp_path: Path) -> None:
    earlier = replaced["-count"][:28]
    path = put(tmp_path / "log.db", replaced | {"": replaced["backup"], "-count": earlier})
    assert CommitCount(str(path)).find_replacement() == ""
    assert count_of(path) == 620


@pytest.mark.parametrize("name", ["log.db", "./log.db", "link.db"])
def test_errors_spell_the_path_as_the_caller_did(
    replaced: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One message had two spellings of one path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.db").symlink_to("log.db")
    put(tmp_path / "log.db", replaced | {"": replaced["backup"]})
    shown = str(tmp_path / "log.db") if name == "link.db" else name
    with pytest.raises(CorruptLog, match=f"^the log is damaged: {shown} was replaced, and {shown}-wal belongs"):
        gossiplog.open(name)
    (tmp_path / "log.db").unlink()
    with pytest.raises(CorruptLog, match=f"^the log is damaged: {shown} is gone, and {shown}-wal has"):
        gossiplog.open(name)


def test_what_was_set_aside_beside_the_target_of_a_link_is_named(killed: dict[str, bytes], tmp_path: Path) -> None:
    """It was looked for beside the link."""
    folder, link = tmp_path / "folder", tmp_path / "link.db"
    folder.mkdir()
    path = put(folder / "log.db", killed)
    link.symlink_to(path)
    assert describe_former(str(link)) == ""
    shutil.copy(f"{path}-wal", f"{path}-wal.former-2")
    assert describe_former(str(link)).startswith(f". {path}-wal.former-2, which an earlier step has set aside, may")
    opened(path).close()
    path.rename(f"{path}.copy")
    assert describe_former(str(link)).endswith(f"mv {path}.copy {path} puts it back")


def without_readers_files(path: Path) -> dict[str, bytes]:
    """Return all files of a log but for the index of its write-ahead log."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}


def history(path: Path, topic: str, signer: Signer, steps: list[tuple[str, int]]) -> list[dict[str, bytes]]:
    """Return the files of a log as a kill after each step would leave them."""
    states = []
    with gossiplog.open(SQLiteStorage(path, synchronous="off"), topic, signer=signer) as log:
        for step, count in steps:
            if step == "checkpoint":
                with closing(sqlite3.connect(path)) as other:
                    other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            elif step == "batch":
                log.append_many(range(count))
            else:
                for number in range(count):
                    log.append(number)
            states.append({suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")})
    return states


STEPS = [("append", 4), ("checkpoint", 0), ("append", 6), ("batch", 100), ("checkpoint", 0), ("append", 3)]


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, bytes]]]:
    """The files of logs at several moments, where most have a write-ahead log."""
    folder = tmp_path_factory.mktemp("histories")
    other = gossiplog.Signer(bytes([1] * 32))
    return {
        "own": history(folder / "own.db", TOPIC, SIGNER, STEPS),
        "another author": history(folder / "author.db", TOPIC, other, STEPS),
        "another topic": history(folder / "topic.db", "other.example.com", SIGNER, STEPS),
        "long": history(folder / "long.db", TOPIC, other, [("batch", 300), ("checkpoint", 0), ("append", 5)]),
    }


def values(path: Path) -> list[bytes]:
    """Return the messages in a database without its write-ahead log."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM gossiplog_messages ORDER BY seq")]


FOREIGN = [
    ("another author", 0, "the file is sound, and cannot be read with it"),
    ("another topic", 3, "message 113, the last one in the file, is missing in it"),
    ("long", 0, "it is of a log with another identity"),
    # What the file has come from: it was restored, or its write-ahead log was.
    ("own", 3, "message 113, the last one in the file, is missing in it"),
]


@pytest.mark.parametrize(("log", "moment", "clause"), FOREIGN)
def test_a_write_ahead_log_of_another_file_is_not_moved_into_the_database(
    histories: dict[str, list[dict[str, bytes]]], tmp_path: Path, log: str, moment: int, clause: str
) -> None:
    """A job that only reads had the other's messages, and closing the log wrote them over its own."""
    (tmp_path / "log").mkdir()
    path = put(tmp_path / "log" / "log.db", histories["own"][-1])
    opened(path).close()
    path.with_name("log.db-wal").write_bytes(histories[log][moment]["-wal"])
    calls: list[Callable[[], object]] = [
        lambda: gossiplog.open(path),
        lambda: gossiplog.open(path, read_only=True),
        lambda: gossiplog.open(path, accept_loss=True),
        lambda: repair(path),
        lambda: gossiplog.recover(path, tmp_path / "new.db"),
    ]
    before = without_readers_files(path)
    for call in calls:
        with pytest.raises(CorruptLog, match=f"{path}-wal was not written for {path}: {clause}") as raised:
            call()
        assert f" mv {path}-wal {path}-wal.former && gossiplog doctor {path} opens it" in str(raised.value)
        assert without_readers_files(path) == before
    # As the error says.
    path.with_name("log.db-wal").rename(f"{path}-wal.former")
    with gossiplog.open(path) as own:
        assert own.verify().messages == 113


@repeatable(20)
@given(one=st.integers(0, 20), other=st.integers(0, 20), read_only=st.booleans())
def test_a_database_keeps_its_messages_beside_any_write_ahead_log(
    histories: dict[str, list[dict[str, bytes]]],
    tmp_path_factory: pytest.TempPathFactory,
    one: int,
    other: int,
    read_only: bool,
) -> None:
    moments = [files for states in histories.values() for files in states]
    path = tmp_path_factory.mktemp("pairs") / "log.db"
    put(path, {"": moments[one][""], "-wal": moments[other]["-wal"]})
    held, before = values(path), without_readers_files(path)
    try:
        log = gossiplog.open(path, read_only=read_only)
    except CorruptLog:
        assert one != other
        assert without_readers_files(path) == before
    else:
        with log:
            log.verify()
        assert values(path)[: len(held)] == held


def test_a_write_ahead_log_of_another_identity_is_named(
    histories: dict[str, list[dict[str, bytes]]], tmp_path: Path
) -> None:
    """Two copies of one log have the same messages, but not the same settings."""
    path = put(tmp_path / "log.db", histories["own"][-1])
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(path)) as other:
        other.execute("SELECT * FROM gossiplog_meta").fetchone()
        connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = 'identity'", (IDENTITY.hex(),))
        connection.commit()
        files = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")}
    put(path, files)
    with pytest.raises(CorruptLog, match=r"-wal was not written for .*: it is of a log with another identity"):
        gossiplog.open(path, read_only=True)
    assert {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")} == files
