"""Files that lose their names while a database is open: what it holds is saved when it is closed."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.errors import CorruptLog, LossWarning, StorageError
from gossiplog.log import Log
from gossiplog.log.log import replica_of
from gossiplog.storage.sqlite import files, open_files
from gossiplog.storage.sqlite.commit_count import CommitCount

TOPIC = "files.example.com"
STORED = 5


def opened(path: Path) -> Log:
    return gossiplog.open(path, TOPIC, signer=Signer(bytes(32)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of some messages, all in its file."""
    path = tmp_path / "the log.db"
    with opened(path) as log:
        log.append_many(range(STORED))
    return path


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    with opened(other) as log:
        log.append("of the other")
    other.replace(path)


LOSSES = [delete, delete_all, replace]


@pytest.mark.parametrize("appended", [0, 1, 30])
@pytest.mark.parametrize("lose", LOSSES)
def test_what_a_file_without_a_name_holds_is_saved_as_the_log_is_closed(
    path: Path, lose: Callable[[Path], None], appended: int
) -> None:
    """Where nothing was in the write-ahead log, the log was closed without an error, and all was gone."""
    log = opened(path)
    for number in range(appended):
        log.append(number)
    root = log.root
    lose(path)
    with pytest.raises(StorageError, match=r"while the log was open\. All that it held is saved") as raised:
        log.close()
    # The way back that it names, beside what was left.
    command = re.search(r"saved as .*?: (.*) puts it back", str(raised.value))
    assert command is not None
    subprocess.run(command[1], shell=True, check=True)
    with opened(path) as log:
        assert (log.verify().messages, log.root) == (STORED + appended, root)
        log.append("goes on")
    log.close()


@pytest.mark.parametrize("lose", LOSSES)
def test_an_open_log_without_a_name_says_how_it_is_saved(path: Path, lose: Callable[[Path], None]) -> None:
    log = opened(path)
    log.append("first")
    lose(path)
    way = rf"with Ctrl-C or SIGTERM, .* saves all as {path}\.saved\. .* sync COPY"
    with pytest.raises(StorageError, match=way):
        replica_of(log).check_files()
    copy = path.with_name("copy.db")
    assert log.backup(copy) == STORED + 1
    with pytest.raises(StorageError, match="All that it held is saved"):
        log.close()
    with opened(copy) as log:
        assert log.verify().messages == STORED + 1


def test_no_saved_file_takes_the_name_of_another(path: Path) -> None:
    saved = []
    for number in range(3):
        with opened(path) as log:
            log.append(number)
        log = opened(path)
        shutil.copyfile(path, path.with_name("kept.db"))
        path.unlink()
        with pytest.raises(StorageError) as raised:
            log.close()
        saved += re.findall(r"saved as (\S+ \S+):", str(raised.value))
        path.with_name("kept.db").rename(path)
    assert saved == [f"{path}.saved{suffix}" for suffix in ("", "-2", "-3")]


def test_a_name_that_another_program_takes_meanwhile_is_passed_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two servers that end together, one said that it cannot save what it held."""
    saved, back_up = Path(f"{path}.saved"), open_files.back_up

    def take(source: sqlite3.Connection, target: str, mode: int, progress: None, *, is_copy: bool) -> None:
        if target == str(saved):
            saved.write_bytes(b"of the other program")
        back_up(source, target, mode, progress, is_copy=is_copy)

    monkeypatch.setattr(open_files, "back_up", take)
    log = opened(path)
    path.unlink()
    with pytest.raises(StorageError, match=rf"All that it held is saved as {saved}-2:"):
        log.close()
    assert saved.read_bytes() == b"of the other program"


@pytest.mark.parametrize("stray", ["-wal", None])
def test_a_name_that_cannot_be_taken_is_passed_over(path: Path, stray: str | None) -> None:
    """A write-ahead log without its file would be taken for that of the file that is saved."""
    taken = Path(f"{path}.saved{stray or ''}")
    taken.write_bytes(bytes(5000)) if stray else taken.mkdir()
    log = opened(path)
    path.unlink()
    with pytest.raises(StorageError, match=rf"All that it held is saved as {path}\.saved-2:"):
        log.close()


@pytest.mark.parametrize("count", [2, 3])
def test_programs_that_have_one_file_open_save_it_once(path: Path, count: int) -> None:
    logs = [opened(path) for _ in range(count)]
    logs[0].append("last")
    path.unlink()
    for log in logs:
        with pytest.raises(StorageError, match=rf"All that it held is saved as {path}\.saved:"):
            log.close()
    assert [each.name for each in path.parent.glob("*.saved*")] == [f"{path.name}.saved"]
    with opened(Path(f"{path}.saved")) as log:
        assert log.verify().messages == STORED + 1


def test_what_another_program_writes_meanwhile_does_not_make_the_copy_start_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of the copy had a read transaction of its own."""
    log, back_up = opened(path), open_files.back_up
    left: list[int] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE notes(content)")
        # More than one step.
        other.execute("INSERT INTO notes VALUES (zeroblob(6000000))")

        def report(done: int, total: int) -> None:
            left.append(total - done)
            if len(left) == 1:
                other.execute("INSERT INTO notes VALUES ('of the other program')")

        def copy(source: sqlite3.Connection, target: str, mode: int, progress: None, *, is_copy: bool) -> None:
            back_up(source, target, mode, report, is_copy=is_copy)

        monkeypatch.setattr(open_files, "back_up", copy)
        path.unlink()
        with pytest.raises(StorageError, match=rf"All that it held is saved as {path}.saved:"):
            log.close()
    assert len(left) == 2
    with closing(sqlite3.connect(f"{path}.saved")) as saved:
        assert saved.execute("SELECT count(*) FROM notes").fetchone() == (1,)


def test_the_saved_file_has_the_mode_of_the_log(path: Path) -> None:
    path.chmod(0o640)
    log = opened(path)
    path.unlink()
    with pytest.raises(StorageError):
        log.close()
    assert path.with_name("the log.db.saved").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("with_others", [True, False])
def test_the_former_file_is_named_where_a_backup_was_restored_beside_a_running_program(
    path: Path, with_others: bool
) -> None:
    """Issue 19: the advice was to move back "it", a file that was there, and the program had another one."""
    damaged, backup = path.with_name("damaged"), path.with_name("backup.db")
    log = opened(path)
    log.append("more")
    log.backup(backup)
    damaged.mkdir()
    for each in [*path.parent.glob(f"{path.name}*")] if with_others else [path]:
        each.rename(damaged / each.name)
    way_back = f"move that file away before, and the former one back{', with the files beside it' * with_others}$"
    with pytest.raises(StorageError, match=r": move it back from .*/damaged/the log\.db"):
        replica_of(log).check_files()
    shutil.copy(backup, path)
    with pytest.raises(StorageError, match=way_back) as raised:
        replica_of(log).check_files()
    replaced = f"the file {path} was replaced by another file while the log was open"
    former = f". The program has the former one open, which is {damaged / path.name} now. Start it (the server) anew"
    assert str(raised.value).startswith(f"{replaced}, so nothing more is written to it{former}")
    with pytest.raises(StorageError, match=way_back) as raised:
        log.close()
    assert str(raised.value).startswith(f"{replaced}{former}")
    if not with_others:
        # The write-ahead log is that of the former file.
        path.unlink()
        (damaged / path.name).rename(path)
    with opened(damaged / path.name if with_others else path) as log:
        assert log.verify().messages == STORED + 1


@pytest.mark.parametrize("appended", [0, 1])
def test_a_file_that_has_another_name_is_not_saved(path: Path, appended: int) -> None:
    log = opened(path)
    log.append_many(range(appended))
    moved = path.rename(path.with_name("moved.db"))
    with pytest.raises(StorageError, match=r"was moved away while the log was open: move it back from .*moved\.db"):
        log.close()
    assert not [*path.parent.glob("*.saved*")]
    moved.rename(path)
    with opened(path) as log:
        assert log.verify().messages == STORED + appended


def link(path: Path) -> None:
    path.with_name("moved.db").hardlink_to(path)
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


@pytest.mark.parametrize("lose", [move, link])
@pytest.mark.parametrize("others", [("-wal",), ("-wal", "-shm", "-count")])
def test_a_moved_file_is_saved_whose_write_ahead_log_is_deleted(
    path: Path, lose: Callable[[Path], None], others: tuple[str, ...]
) -> None:
    """It has another name, but what was written last had none, and was lost."""
    log = opened(path)
    log.append_many(range(50))
    root = log.root
    lose(path)
    for suffix in others:
        Path(f"{path}{suffix}").unlink()
    with pytest.raises(StorageError, match=r"was moved away .* saves all as"):
        replica_of(log).check_files()
    with pytest.raises(StorageError, match=r"was moved away while the log was open\. All that it held is saved"):
        log.close()
    with opened(path.with_name("the log.db.saved")) as log:
        assert (log.verify().messages, log.root) == (STORED + 50, root)


def test_a_file_that_is_moved_back_as_it_is_looked_for_is_no_link(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as log:
        moved, look = path.rename(path.with_name("moved.db")), files.NamedFiles.find_lost

        def find_lost(named: files.NamedFiles, **options: bool) -> str | None:
            lost = look(named, **options)
            if moved.exists():
                moved.rename(path)
            return lost

        monkeypatch.setattr(files.NamedFiles, "find_lost", find_lost)
        with pytest.raises(StorageError, match=r"the log\.db was .* while the log was open, so nothing"):
            log.append("refused")
        log.append("taken")


def test_where_the_system_lists_no_open_files_all_is_saved(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_DESCRIPTORS", "/nowhere")
    log = opened(path)
    path.unlink()
    with pytest.raises(StorageError, match=r"was deleted or moved away .* All that it held is saved"):
        log.close()


@pytest.mark.parametrize("appended", [0, 1])
def test_what_cannot_be_saved_stays_open(path: Path, monkeypatch: pytest.MonkeyPatch, appended: int) -> None:
    """All was lost. The write-ahead log stays as it is, however long it is."""
    monkeypatch.setattr(open_files, "_MOST_SAVED", 0)
    log = opened(path)
    log.append_many(range(appended))
    wal = path.with_name("the log.db-wal")
    written = wal.read_bytes()
    path.unlink()
    way = "repair .* --from SOURCE" if appended else "sync .* SOURCE --topic TOPIC"
    for _ in range(2):
        with pytest.raises(StorageError, match=rf"was deleted .* cannot be saved: move away .*once more.*{way}"):
            log.close()
    assert wal.read_bytes() == written
    monkeypatch.undo()
    with pytest.raises(StorageError, match="All that it held is saved"):
        log.close()
    log.close()
    with opened(path.with_name("the log.db.saved")) as log:
        assert log.verify().messages == STORED + appended


def lose_folder(path: Path, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(path.parent)


def fill_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.unlink()
    back_up = open_files.back_up

    def fail(source: sqlite3.Connection, target: str, mode: int, progress: None, *, is_copy: bool) -> None:
        if Path(target).parent == path.parent:
            raise StorageError(f"cannot make {target}: No space left on device")
        back_up(source, target, mode, progress, is_copy=is_copy)

    monkeypatch.setattr(open_files, "back_up", fail)


@pytest.mark.parametrize("fault", [lose_folder, fill_disk])
def test_where_nothing_can_be_saved_beside_it_the_temporary_folder_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "folder" / "log.db"
    path.parent.mkdir()
    log = opened(path)
    log.append_many(range(STORED))
    fault(path, monkeypatch)
    place = "the temporary folder" if fault is lose_folder else f"{path}.saved"
    with pytest.raises(StorageError, match=rf"it saves all as .*{place}\. Until"):
        replica_of(log).check_files()
    with pytest.raises(StorageError, match=rf"All that it held is saved as {tmp_path}/gossiplog-") as raised:
        log.close()
    command = re.search(r"saved as .*?: (.*) puts it back", str(raised.value))
    assert command is not None
    subprocess.run(command[1], shell=True, check=True)
    with opened(path) as log:
        assert log.verify().messages == STORED


def test_nothing_is_left_in_the_temporary_folder_where_it_is_full_as_well(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(open_files, "_MOST_SAVED", 0)
    log = opened(path)
    path.unlink()
    with pytest.raises(StorageError, match="cannot be saved"):
        log.close()
    assert not [*tmp_path.glob("gossiplog-*")]
    monkeypatch.undo()
    with pytest.raises(StorageError, match="All that it held is saved"):
        log.close()


def test_a_nameless_write_ahead_log_that_cannot_be_moved_stays_open(path: Path) -> None:
    """SQLite says nothing where the last connection cannot move it, as on a full disk, and it was lost."""
    log = opened(path)
    log.append_many(range(50))
    path.with_name("the log.db-wal").unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))
        with pytest.raises(StorageError, match="disk"):
            log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    log.close()
    with opened(path) as log:
        assert log.verify().messages == STORED + 50


def test_a_nameless_write_ahead_log_is_moved_after_another_program_failed_to_open_the_log(path: Path) -> None:
    """That has left an empty one."""
    log = opened(path)
    log.append_many(range(50))
    path.with_name("the log.db-wal").unlink()
    with pytest.raises(StorageError, match="a program still has the log open"):
        opened(path)
    log.close()
    with opened(path) as log:
        assert log.verify().messages == STORED + 50


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_shorter_write_ahead_log_in_the_place_of_the_former_one_does_not_cut_that_off(
    path: Path, *, is_deleted: bool
) -> None:
    """An older copy was put back, and all was lost that the former one had."""
    log = opened(path)
    log.append_many(range(50))
    wal, older = path.with_name("the log.db-wal"), path.with_name("older")
    older.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])
    older.replace(wal)
    if is_deleted:
        path.unlink()
    with pytest.raises(StorageError, match=rf"is saved as {path}\.saved: "):
        log.close()
    with opened(path.with_name("the log.db.saved")) as log:
        assert log.verify().messages == STORED + 50


@pytest.mark.integration
def test_a_nameless_write_ahead_log_is_saved_where_another_has_its_name(path: Path) -> None:
    """SQLite moves it into the file where the last connection is closed, and beside another program this is not it."""
    log = opened(path)
    log.append_many(range(50))
    for suffix in ("-wal", "-shm", "-count"):
        Path(f"{path}{suffix}").unlink()
    program = (
        "import gossiplog, sys; log = gossiplog.open(sys.argv[1], signer=gossiplog.Signer(bytes(32)));"
        " log.append('of the other'); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        with pytest.raises(StorageError, match=r"deleted, moved away or replaced .* is saved as .*: gossiplog sync"):
            log.close()
    with opened(path) as log, opened(path.with_name("the log.db.saved")) as saved:
        assert saved.verify().messages == STORED + 50
        log.pull(saved)
        assert log.verify().messages == STORED + 51


@pytest.mark.parametrize("lose", LOSSES)
def test_a_reader_saves_nothing(path: Path, lose: Callable[[Path], None]) -> None:
    """What it has read was there. It may be the only one that has it."""
    copy = path.with_name("copy.db")
    # Its former file is nobody's concern where another one is in its place.
    warned = nullcontext() if lose is replace else pytest.warns(LossWarning, match="was deleted while .*: restore")
    with warned, gossiplog.open(path, read_only=True) as log:
        lose(path)
        with pytest.raises(StorageError, match=r"while the log was open.* log\.backup\(PATH\) in it makes a copy"):
            replica_of(log).check_files()
        log.backup(copy)
    with opened(copy) as log:
        assert log.verify().messages == STORED
    assert not [*path.parent.glob("*.saved*")]


def test_a_cut_off_write_ahead_log_is_not_saved(path: Path) -> None:
    """It would be zeros."""
    log = opened(path)
    log.append("first")
    os.truncate(path.with_name("the log.db-wal"), 0)
    path.unlink()
    with pytest.raises(StorageError):
        log.append("second")
    with pytest.raises(StorageError, match="was deleted while the log was open"):
        log.close()
    assert not [*path.parent.glob("*.saved*")]


@pytest.mark.parametrize("others", [(), ("-count",), ("-count", "-wal"), ("-shm",)])
def test_no_log_is_made_where_a_program_has_the_former_one_open(path: Path, others: tuple[str, ...]) -> None:
    """SQLite would use the write-ahead log of the former file for both."""
    log = opened(path)
    for suffix in ("", *others):
        Path(f"{path}{suffix}").unlink()
    with pytest.raises(CorruptLog, match=rf"is gone, and process {os.getpid()} has the former file open\. The program"):
        opened(path)
    with pytest.raises(StorageError, match="All that it held is saved"):
        log.close()
    with pytest.raises(CorruptLog, match=r"has saved what it held as .*mv .* puts it back"):
        opened(path)
    path.with_name("the log.db.saved").rename(path)
    with opened(path) as log:
        assert log.verify().messages == STORED


def test_processes_that_have_a_deleted_file_open(path: Path) -> None:
    """Other files whose names begin so, and files that are there, do not count."""
    with path.open("rb"), path.with_name("the log.db (deleted)").open("wb"):
        assert files.holders(str(path)) == {}
        path.unlink()
        assert [*files.holders(str(path))] == [os.getpid()]
    assert files.holders(str(path)) == {}


def test_a_file_of_the_name_that_is_no_log_is_not_taken_for_it(path: Path) -> None:
    """An empty file that another program had made under the name kept all commands from making a log."""
    other = path.with_name("none.db")
    for content in (b"", b"SQLite format 3\0", bytes(5000)):
        other.write_bytes(content)
        with other.open("rb"):
            other.unlink()
            assert files.holders(str(other)) == {}


@pytest.mark.integration
def test_the_processes_of_others_that_have_a_deleted_log_open(path: Path) -> None:
    command = [sys.executable, "-c", "import sys; f = open(sys.argv[1], 'rb'); print(flush=True); sys.stdin.read()"]
    with subprocess.Popen([*command, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        path.unlink()
        assert [*files.holders(str(path))] == [other.pid]
        other.communicate()


PROGRAMS = {
    "tail": "held = open(path, 'rb')",
    "a reader": "held = gossiplog.open(path, read_only=True); len(held)",
    "a writer": "held = gossiplog.open(path, signer=gossiplog.Signer(bytes(32))); held.append_many(range(50))",
    # Nothing but its write-ahead log is left of what it wrote.
    "tail, after a writer was killed": (
        "held = open(path, 'rb'); os.fork() or ("
        "gossiplog.open(path, signer=gossiplog.Signer(bytes(32))).append_many(range(50)), os._exit(0)); os.wait()"
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("lose", [delete, delete_all])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_command_that_is_named_copies_what_another_program_has_open(
    path: Path, program: str, lose: Callable[[Path], None]
) -> None:
    """Of any program it was said that it saves all as it is stopped. Only a writer does, and the last copy was gone."""
    code = f"import gossiplog, os, sys; path = sys.argv[1]; {PROGRAMS[program]}; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-W", "ignore", "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        is_left = "killed" not in program or lose is delete
        lose(path)
        held, advice = CommitCount(str(path)).describe_holders()
        assert held == f"process {other.pid} has the former file open"
        found = re.search(r"Before you stop it, (cp .*) && gossiplog verify COPY makes a copy", advice)
        assert found is not None
        subprocess.run(found[1], shell=True, check=True, cwd=path.parent)
        other.kill()
    with opened(path.with_name("COPY")) as log:
        assert log.verify().messages == STORED + (50 if "writer" in program and is_left else 0)
