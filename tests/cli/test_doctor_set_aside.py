"""Logs whose file is gone, replaced or cut off, and write-ahead logs that were set aside: nothing is given up."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.errors import CorruptLog, StorageError
from tests.cli.doctoring import DAMAGE, files_of_a_log, found, log_to_look_at, run_as_printed
from tests.cli.support import Program


@pytest.fixture
def path(home: Path) -> Path:
    return log_to_look_at(home)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, bytes]]:
    return files_of_a_log(tmp_path_factory.mktemp("files"))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["a backup", "an older copy", "the file itself", "a link to the file"])
def test_a_write_ahead_log_that_was_set_aside_is_a_way_back(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, damage: str
) -> None:
    """It was to be removed, whatever it had."""
    path, wal = home / "log.db", home / "log.db-wal"
    for name, content in files[True].items():
        (home / name).write_bytes(content)
    if damage in DAMAGE:
        DAMAGE[damage][1](path)
    former = wal.rename(f"{wal}.former")
    assert program("repair", path, "--accept-loss").code == 0
    link = home / "link.db"
    link.symlink_to(path)
    name = link if damage == "a link to the file" else path
    findings = [row for row in program("doctor", name).records if f"{former} is the write" in row["finding"]]
    assert [row["severity"] for row in findings] == ["note"]
    if damage not in DAMAGE:
        assert findings[0]["finding"].endswith(", and has 2 messages that the log lacks: a repair adds them")
        assert run_as_printed(program, findings[0]["run"], path) == ""
        assert program("verify", name).record["messages"] == 602
        return
    assert findings[0]["run"] == f"gossiplog sync {path} SOURCE"
    assert "descend from lost ones; a replica may have them" in findings[0]["finding"]
    program("sync", path, "whole.db")
    (finding,) = [row for row in program("doctor", path).records if f"{former} is the write" in row["finding"]]
    assert (finding["run"], "has no message that the log lacks" in finding["finding"]) == (f"rm {former}", True)


def test_a_write_ahead_log_that_was_set_aside_beside_a_damaged_file(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path
) -> None:
    path, wal = home / "log.db", home / "log.db-wal"
    for name, content in files[True].items():
        (home / name).write_bytes(content)
    os.truncate(path, path.stat().st_size // 2)
    wal.rename(f"{wal}.former")
    (run,) = [row["run"] for row in program("doctor", path).records if "-wal.former" in row["finding"]]
    assert run == f"mv {wal}.former {wal} && gossiplog doctor {path}"
    # It belongs to another file.
    (home / "log.db-count").unlink()
    (run,) = [row["run"] for row in program("doctor", path).records if "-wal.former" in row["finding"]]
    assert run == ""


COMMANDS: dict[str, tuple[str, ...]] = {
    "append": ("--key", "none", "text"),
    "doctor": (),
    "info": (),
    "init": ("--topic", "org.example.test"),
    "rebase": ("--onto", "whole.db"),
    "serve": ("--topic", "org.example.test"),
    "sync": ("whole.db", "--topic", "org.example.test"),
    "verify": (),
}


@pytest.mark.parametrize("left", ["nothing", "an empty file", "no count"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_gone_but_for_its_write_ahead_log(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, command: str, left: str
) -> None:
    """They said that there is no log, and to make one: SQLite deletes the write-ahead log of a file that it makes."""
    path, wal = home / "log.db", home / "log.db-wal"
    for name, content in files[True].items():
        (home / name).write_bytes(content)
    path.unlink()
    if left == "an empty file":
        path.touch()
    if left == "no count":
        (home / "log.db-count").unlink()
    before = wal.read_bytes()
    result = program(command, path, *COMMANDS[command])
    assert result.code == 1
    said = result.err + "".join(map(str, result.records))
    assert f"{path} is {'empty or cut off' if left == 'an empty file' else 'gone'}, and {wal} has what was" in said
    assert ("says that a log with 602 messages was there" in said) == (left != "no count")
    assert f"gossiplog repair {path} --from SOURCE" in said
    assert wal.read_bytes() == before
    # The way back that it names. What lacks some of the messages leaves all as it was.
    assert program("repair", path, "--from", "older.db").code == 1
    assert (wal.read_bytes(), path.exists()) == (before, left == "an empty file")
    assert program("repair", path, "--from", "whole.db").code == 0
    assert program("verify", path).record["messages"] == 602


def test_a_log_that_is_all_in_its_write_ahead_log_is_recovered_without_its_file(program: Program, home: Path) -> None:
    path, wal = home / "log.db", home / "log.db-wal"
    with gossiplog.open(home / "made.db", "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(300))
        for suffix in ("-wal", "-count"):
            Path(f"{path}{suffix}").write_bytes(Path(f"{home / 'made.db'}{suffix}").read_bytes())
    before = wal.read_bytes()
    assert program("recover", path, "new.db").record["inserted"] == 300
    assert (path.exists(), wal.read_bytes()) == (False, before)
    assert program("verify", "new.db").record["messages"] == 300


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["an older copy", "a backup"])
def test_what_only_the_write_ahead_log_has_is_not_given_up(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, damage: str
) -> None:
    """The replica lacks the last two messages, and the command that is advised gets them."""
    path = home / "log.db"
    for name, content in files[True].items():
        (home / name).write_bytes(content)
    with gossiplog.open(home / "whole.db", read_only=True) as whole, gossiplog.open(home / "r.db", whole.topic) as log:
        log.insert_many([*whole.messages()][:600])
    DAMAGE[damage][1](path)
    run = found(program, path, 1)["write-ahead log"][2]
    assert run_as_printed(program, run, home / "r.db") == ""
    assert program("verify", path).record["messages"] == 602


def test_what_is_left_of_a_log_whose_file_is_gone_is_a_finding(program: Program, path: Path, home: Path) -> None:
    """They were errors, so that nothing was on the standard output, where JSON was promised."""
    count, wal = home / "notes.db-count", home / "notes.db-wal"
    copy = home / "copy.db"
    copy.write_bytes(path.read_bytes())
    path.unlink()
    says = f"{path} is gone, and {count} says that a log with 20 messages was there; put the file"
    _, finding, run = found(program, path, 1)["damage"]
    assert finding.startswith(says)
    assert run == f"gossiplog repair {path} --from SOURCE"
    assert run_as_printed(program, run, copy) == ""
    assert program("verify", path).record["messages"] == 20
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append("more")
        kept = wal.read_bytes()
    path.unlink()
    wal.write_bytes(kept)
    _, finding, run = found(program, path, 1)["damage"]
    assert finding.startswith(f"{path} is gone, and {wal} has what was written last")
    assert run == f"gossiplog repair {path} --from SOURCE"


def test_a_deleted_file_that_a_program_has_open_or_has_saved(program: Program, path: Path, home: Path) -> None:
    """`sync` made another log, on the write-ahead log of a server that still had the former one."""
    copy = home / "copy.db"
    copy.write_bytes(path.read_bytes())
    log = gossiplog.open(path, signer=Signer(bytes(32)))
    log.append("more")
    path.unlink()
    _, finding, run = found(program, path, 1)["damage"]
    assert finding.startswith(f"{path} is gone, and process {os.getpid()} has the former file open. The program may")
    assert run == "gossiplog sync COPY SERVER --topic TOPIC"
    # As a user does who follows the advice for a log of which no program has anything.
    (home / "notes.db-count").unlink()
    assert f"process {os.getpid()} has the former file open" in program("sync", path, copy).err
    with pytest.raises(StorageError, match="All that it held is saved"):
        log.close()
    _, finding, run = found(program, path, 1)["damage"]
    assert f"{path} is gone, and a program that had it open has saved what it held as {path}.saved; {path}" in finding
    for command in (("init", path, *COMMANDS["init"]), ("sync", path, copy)):
        result = program(*command)
        assert (result.code, f"mv {path}.saved {path} puts it back" in result.err) == (1, True)
    (home / "notes.db.saved").rename(path)
    assert run == f"mv {path}.saved {path}"
    assert program("verify", path).record["messages"] == 21


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize(
    "command",
    [
        ("repair", "notes.db"),
        ("repair", "notes.db", "--from", "copy.db"),
        ("recover", "notes.db", "new.db", "--accept-loss"),
        ("rebase", "notes.db", "--onto", "copy.db"),
        ("append", "notes.db", "text", "--key", "none"),
        ("info", "notes.db"),
    ],
    ids=lambda command: " ".join(command[:1] + command[2:3]),
)
def test_nothing_takes_the_place_of_a_file_that_a_program_still_has(
    program: Program, path: Path, home: Path, command: tuple[str, ...], is_gone: bool
) -> None:
    """Issue 19: `repair` took the write-ahead log of a server that ran, and dropped the application's rows."""
    copy, wal = home / "copy.db", home / "notes.db-wal"
    with gossiplog.open(path, read_only=True) as log:
        log.backup(copy)
        log.backup(home / "other.db")
    log = gossiplog.open(path, signer=Signer(bytes(32)))
    log.append("more")
    if is_gone:
        path.unlink()
    else:
        (home / "other.db").replace(path)
    before = wal.read_bytes(), is_gone or path.read_bytes()
    result = program(*command)
    assert result.code == 1
    assert f"{path.name} {'is gone' if is_gone else 'was replaced'}, and" in result.err
    assert f"process {os.getpid()} has the former file open. The program" in result.err
    assert "lost" not in result.err
    assert (wal.read_bytes(), is_gone or path.read_bytes()) == before
    about = ("damage",) if is_gone else ("programs", "write-ahead log")
    findings = found(program, path, 1)
    for each in about:
        severity, finding, run = findings[each]
        assert (severity, run) == ("wrong", "gossiplog sync COPY SERVER --topic TOPIC")
        assert f"process {os.getpid()} has the former file open" in finding
    with pytest.raises(StorageError, match="All that it held is saved"):
        log.close()


def test_a_replaced_file_that_a_program_still_has_is_found_without_a_write_ahead_log(
    program: Program, path: Path, home: Path
) -> None:
    """The write-ahead log is empty, so that it belongs to no file."""
    with gossiplog.open(path, read_only=True) as log:
        log.backup(home / "other.db")
    log = gossiplog.open(path, signer=Signer(bytes(32)))
    (home / "other.db").replace(path)
    severity, finding, run = found(program, path, 1)["programs"]
    assert (severity, run) == ("wrong", "gossiplog sync COPY SERVER --topic TOPIC")
    assert f"the file was replaced, and process {os.getpid()} has the former file open" in finding
    with pytest.raises(CorruptLog, match=rf"was replaced, and process {os.getpid()} has the former file open"):
        gossiplog.repair(path)
    with pytest.raises(StorageError):
        log.close()


def test_a_log_that_is_made_beside_what_was_set_aside_of_a_former_one(program: Program, home: Path) -> None:
    (home / "new.db-wal.former").write_bytes(b"a write-ahead log")
    assert program("init", "new.db", "--topic", "org.example.test").err == (
        "gossiplog: a new log is made: new.db-wal.former may have messages of a former one\n"
    )
    assert program("append", "new.db", "1").err.count("former") == 0


@pytest.mark.slow
@pytest.mark.parametrize("count", ["gone", "of another file"])
def test_what_is_not_read_of_a_write_ahead_log_is_named_where_no_count_tells(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, count: str
) -> None:
    """`info` and `verify` passed over it, and SQLite dropped it as they ended."""
    path, wal = home / "log.db", home / "log.db-wal"
    for name, content in files[True].items():
        (home / name).write_bytes(content)
    damaged = bytearray(wal.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    wal.write_bytes(damaged)
    if count == "gone":
        (home / "log.db-count").unlink()
    else:
        with gossiplog.open(home / "other.db", "org.example.test", signer=Signer(bytes(32))) as log:
            log.append("of another file")
        (home / "log.db-count").write_bytes((home / "other.db-count").read_bytes())
    _, finding, _ = found(program, path, 1)["write-ahead log"]
    clause = finding.partition(", and a repair")[0]
    assert re.fullmatch(rf"{wal} is damaged, .*: the next program that opens the log drops \d+ transactions?", clause)
    for command in ("info", "verify", "read", "export"):
        result = program(command, path)
        assert (result.code, result.out) == (1, "")
        assert f"{path}: the log is damaged: {clause}, and no count says whether these were acknowledged" in result.err
    # A writer, as a server after a power cut, goes on, and keeps it, beside one that it has kept before.
    (home / "log.db-wal.former").write_bytes(b"of another time")
    former = home / "log.db-wal.former-2"
    appended = program("append", path, "1")
    assert 602 - appended.record["clock"] + 1 > 0
    assert f"{former} is a copy with what SQLite does not read" in appended.err
    assert (former.read_bytes(), (home / "log.db-wal.former").read_bytes()) == (damaged, b"of another time")
    findings = [row["finding"] for row in program("doctor", path).records if row["about"] == "leftovers"]
    assert f"{former} is the write-ahead log of a former file" in findings[1]
    assert program("append", path, "2").err == ""


@pytest.mark.slow
def test_a_log_that_was_replaced_and_saved_is_put_back(program: Program, path: Path, home: Path) -> None:
    other = home / "other.db"
    with gossiplog.open(path, read_only=True) as log:
        log.backup(other)
    log = gossiplog.open(path, signer=Signer(bytes(32)))
    log.append("more")
    other.replace(path)
    with pytest.raises(StorageError, match="All that it held is saved"):
        log.close()
    run = found(program, path, 1)["write-ahead log"][2]
    assert run == f"mv {path} {path}.copy && mv {path}.saved {path}"
    assert run_as_printed(program, run, path) == ""
    assert program("verify", path).record["messages"] == 21
    # Where the log goes on without it, what it lacks is got from there.
    (home / "notes.db.copy").rename(home / "notes.db.saved")
    (home / "notes.db.saved-count").touch()
    _, finding, run = found(program, path, 0)["leftovers"]
    assert finding.endswith(", and holds 20 messages, all of which the log has: remove it when you no longer need it")
    assert run == f"rm {path}.saved"
    with gossiplog.open(f"{path}.saved", signer=Signer(bytes(32))) as log:
        log.append("another")
    _, finding, run = found(program, path, 0)["leftovers"]
    assert finding.endswith(", and holds 21 messages, 1 of which the log lacks")
    assert run == f"gossiplog sync {path} {path}.saved"
    assert run_as_printed(program, run, path) == ""
    (home / "notes.db.saved").unlink()
    with gossiplog.open(f"{path}.copy", "org.example.other", signer=Signer(bytes(32))) as log:
        log.append("another")
    _, finding, run = found(program, path, 0)["leftovers"]
    assert finding.endswith(".copy is a file that an earlier step has set aside, and holds 1 message, of another topic")
    assert run == ""


@pytest.mark.parametrize("size", [0, 4096])
def test_a_file_whose_beginning_alone_is_left_comes_back_from_a_write_ahead_log_that_was_set_aside(
    program: Program, home: Path, size: int
) -> None:
    """`doctor` referred to itself, or named a new log from a replica alone."""
    path, wal = home / "log.db", home / "log.db-wal"
    gossiplog.open(path, "org.example.test").close()
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append_many(range(60))
        kept = path.read_bytes(), wal.read_bytes()
    path.write_bytes(kept[0][:size])
    wal.unlink(missing_ok=True)
    Path(f"{wal}.former").write_bytes(kept[1])
    _, finding, run = found(program, path, 1)["damage"]
    assert run == f"mv {wal}.former {wal} && gossiplog repair {path}"
    assert run in finding
    assert run_as_printed(program, run, path) == ""
    assert program("verify", path).record["messages"] == 60


@pytest.mark.parametrize("number", [2, 3])
def test_the_saved_file_with_the_most_messages_is_put_back(
    program: Program, path: Path, home: Path, number: int
) -> None:
    """The first was, and none was found where only a second one was left."""
    saved = home / f"notes.db.saved-{number}"
    path.replace(saved)
    for suffix in ("-count", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    if number == 3:
        with gossiplog.open(f"{path}.saved", "org.example.test", signer=Signer(bytes(32))) as log:
            log.append("another")
    _, finding, run = found(program, path, 1)["damage"]
    assert f"{saved}, which an earlier step has set aside, holds 20 messages: {run} puts it back" in finding
    assert run == f"mv {saved} {path}"
    assert run in program("init", path, *COMMANDS["init"]).err


def test_what_is_set_aside_is_the_source_of_a_repair(program: Program, path: Path, home: Path) -> None:
    """A replica was asked for, and what was set aside was to be removed."""
    copy = home / "notes.db.copy"
    copy.write_bytes(path.read_bytes())
    with gossiplog.open(f"{path}.saved", "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(map(str, range(30)))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 7")
    way = f"gossiplog repair {path} --from {copy}"
    findings = program("doctor", path).records
    assert [row["run"] for row in findings if row["about"] == "damage"] == [way]
    # What has more messages lacks the lost one.
    assert not [row for row in findings if row["run"].startswith("rm")]
    assert f"{copy}, which an earlier step has set aside, holds 20 messages: {way}. " in program("repair", path).err
    assert way in program("repair", path, "--from", home / "notes.db.saved").err
    assert run_as_printed(program, way, path) == ""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_messages WHERE seq = 20")
        connection.execute("DELETE FROM gossiplog_leaves WHERE seq = 20")
    (home / "notes.db.saved").unlink()
    assert f"; {copy}, which an earlier step has set aside, holds 20 messages: {way}" in program("info", path).err


def test_the_recovery_that_a_repair_names_is_not_refused(program: Program, path: Path) -> None:
    """It was named without --accept-loss, and asked for that."""
    older = path.read_bytes()
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append("more")
    path.write_bytes(older)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 7")
    err = program("repair", path).err
    assert f"gossiplog recover {path} NEW --accept-loss makes a log of 6 of the 21 acknowledged messages" in err
    assert program("recover", path, "new.db", "--accept-loss").record["inserted"] == 6


def test_no_command_that_sets_a_file_aside_overwrites_another(program: Program, home: Path) -> None:
    """What an earlier step had set aside was lost, and could be what had the messages."""
    path, wal = home / "log.db", home / "log.db-wal"
    with gossiplog.open(home / "made.db", "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(3))
        log.backup(home / "backup.db")
        log.append("only in the write-ahead log")
        for suffix in ("-wal", "-count"):
            Path(f"{path}{suffix}").write_bytes(Path(f"{home / 'made.db'}{suffix}").read_bytes())
    path.write_bytes((home / "backup.db").read_bytes())
    taken = {f"{path}.copy": b"a copy", f"{path}.copy-2-wal": b"a write-ahead log", f"{wal}.former": b"another"}
    for name, content in taken.items():
        Path(name).write_bytes(content)
    run = found(program, path, 1)["write-ahead log"][2]
    assert run == f"mv {path} {path}.copy-3 && gossiplog repair {path} --from {path}.copy-3"
    assert run_as_printed(program, run, path) == ""
    assert program("verify", path).record["messages"] == 4
    Path(f"{path}.copy-3").unlink()
    # What a damaged file lacks is in a write-ahead log that was set aside.
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append("more")
        kept, before = wal.read_bytes(), path.read_bytes()
    path.write_bytes(before)
    former = Path(f"{wal}.former-2")
    former.write_bytes(kept)
    wal.unlink(missing_ok=True)
    (run,) = [row["run"] for row in program("doctor", path).records if f"{former} is the write" in row["finding"]]
    back = f"mv {former} {wal} && gossiplog repair {path} --from {path}.copy-3"
    assert run == f"mv {path} {path}.copy-3 && {back}"
    assert {name: Path(name).read_bytes() for name in taken} == taken


@pytest.mark.parametrize("count", ["sound", "damaged"])
def test_a_file_without_its_first_page_is_a_log_by_what_is_beside_it(program: Program, home: Path, count: str) -> None:
    """It was said not to be a log, and no command was named."""
    path, wal = home / "log.db", home / "log.db-wal"
    gossiplog.open(path, "org.example.test").close()
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append_many(range(13))
        kept = path.read_bytes(), wal.read_bytes()
    path.write_bytes(bytes(4096) + kept[0][4096:])
    wal.write_bytes(kept[1])
    if count == "damaged":
        (home / "log.db-count").write_bytes(bytes(48))
    run = found(program, path, 1)["damage"][2]
    # Whether there were more messages, a damaged count does not say.
    assert run == f"gossiplog repair {path}{' --from SOURCE' if count == 'damaged' else ''}"
    assert program("repair", path).record["messages"] == 13
    assert program("verify", path).record["messages"] == 13


def test_what_is_said_to_be_left_of_a_damaged_write_ahead_log_is(program: Program, home: Path) -> None:
    """A number, or more, was said to be left by a repair that refused, and left less."""
    path, wal = home / "log.db", home / "log.db-wal"
    with gossiplog.open(path, "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(146))
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append_many(range(4))
        before = wal.stat().st_size
        log.append("last")
        files = {each: each.read_bytes() for each in (path, wal, home / "log.db-count")}
    damaged = bytearray(files[wal])
    place = damaged.index(b"did:key", before)
    damaged[place - 40 : place + 400] = bytes(440)
    for each, content in (files | {wal: bytes(damaged)}).items():
        each.write_bytes(content)
    err = program("info", path).err
    assert "in programs, accept_loss=True goes on with 150 of the 151 acknowledged messages" in err
    assert "--accept-loss" not in err
    with pytest.warns(gossiplog.LossWarning), gossiplog.open(path, accept_loss=True) as log:
        assert log.verify().messages == 150
