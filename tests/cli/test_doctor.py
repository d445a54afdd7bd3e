"""What `gossiplog doctor` finds, and what it says to run."""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.storage.base import REBUILD_REQUESTED
from gossiplog.storage.sqlite import write_ahead_log
from gossiplog.storage.sqlite.salvage import working_folder
from tests.cli.doctoring import found, log_to_look_at, run_as_printed
from tests.cli.support import Program
from tests.rot.shapes import SCHEMAS


@pytest.fixture
def path(home: Path) -> Path:
    return log_to_look_at(home)


def test_a_sound_log(program: Program, path: Path) -> None:
    findings = found(program, path, 0)
    assert {severity for severity, _, _ in findings.values()} == {"fine"}
    assert findings["messages"][1] == "20 messages, all sound"
    assert findings["programs"][1] == "no program has it open"
    assert found(program, path, 0, "--quick")["messages"] == ("note", "not verified (--quick)", "")


def test_damage_and_the_command_that_repairs_it(program: Program, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq > 3")
    severity, finding, run = found(program, path, 1)["damage"]
    assert (severity, run) == ("wrong", f"gossiplog repair {path} --from SOURCE")
    assert "sequence 4: " in finding
    assert "more" in finding


def test_a_quick_look_reads_what_an_append_reads(program: Program, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 20")
    severity, finding, run = found(program, path, 1, "--quick")["damage"]
    assert (severity, run) == ("wrong", f"gossiplog repair {path} --from SOURCE")
    assert finding.endswith(". Without --quick, it also says whether a repair needs a source")
    assert "--quick" not in found(program, path, 1)["damage"][1]


def test_a_damaged_header(program: Program, path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"x")
    _, finding, run = found(program, path, 1)["damage"]
    assert finding.endswith("is not a log: it is not an SQLite database")
    assert run == f"gossiplog repair {path}"
    assert run_as_printed(program, run, path) == ""
    assert program("verify", path).record["messages"] == 20


def test_an_empty_file(program: Program, path: Path, home: Path) -> None:
    (home / "empty.db").touch()
    _, finding, run = found(program, home / "empty.db", 1)["damage"]
    assert finding == "the file is empty: a replica has what was in it"
    assert run == f"gossiplog sync {home / 'empty.db'} SOURCE --topic TOPIC"
    assert run in program("recover", home / "empty.db", "new.db").err
    assert program("sync", home / "empty.db", path, "--topic", "org.example.test").record["messages"] == 20


@pytest.mark.slow
def test_a_header_that_keeps_a_log_from_being_written(program: Program, path: Path) -> None:
    """Before, all was fine, and appends failed."""
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\x06")
    run = f"gossiplog repair {path}"
    for options in ((), ("--quick",)):
        findings = found(program, path, 1, *options)
        assert findings["damage"] == ("wrong", "its header says that SQLite must not write it", run)
    assert program("repair", path).code == 0
    found(program, path, 0)


def test_a_damaged_write_ahead_log_is_not_opened(program: Program, home: Path) -> None:
    """SQLite would drop what is behind the damage."""
    path = home / "copy.db"
    with gossiplog.open(home / "made.db", "org.example.test", signer=Signer(bytes(32))) as log:
        for number in range(20):
            log.append(number)
        for suffix in ("", "-wal"):
            Path(f"{path}{suffix}").write_bytes(Path(f"{home / 'made.db'}{suffix}").read_bytes())
    wal = Path(f"{path}-wal")
    assert write_ahead_log.unread_commits(wal) == 0
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 4
    wal.write_bytes(content)
    findings = found(program, path, 1)
    assert findings["write-ahead log"][0] == "wrong"
    assert "messages" not in findings
    assert wal.read_bytes() == content


def test_a_log_that_has_lost_its_last_messages_is_left_as_it_is(program: Program, home: Path) -> None:
    """What SQLite reads of the write-ahead log was moved into the file."""
    path = home / "copy.db"
    with gossiplog.open(home / "made.db", "org.example.test", signer=Signer(bytes(32))) as log:
        for number in range(20):
            log.append(number)
        for suffix in ("", "-wal", "-count"):
            Path(f"{path}{suffix}").write_bytes(Path(f"{home / 'made.db'}{suffix}").read_bytes())
    wal = Path(f"{path}-wal")
    wal.write_bytes(wal.read_bytes()[:-4000])
    before = path.read_bytes(), wal.read_bytes()
    for options in ((), ("--quick",)):
        assert "acknowledged message" in found(program, path, 1, *options)["damage"][1]
        assert (path.read_bytes(), wal.read_bytes()) == before


def test_leftovers_an_earlier_schema_and_an_application_that_is_behind(program: Program, path: Path) -> None:
    folder, kept = Path(f"{path}.repair-abc"), Path(f"{path}.damaged")
    folder.mkdir()
    kept.write_bytes(b"")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = 5 WHERE name = 'applied'")
    result = program("doctor", path)
    assert {row["run"] for row in result.records if row["about"] == "leftovers"} == {f"rm -r {folder}", f"rm {kept}"}
    (application,) = [row["finding"] for row in result.records if row["about"] == "application"]
    assert application.startswith("`apply` has run for 5 of 20 messages")
    old = path.with_name("old.db")
    old.write_bytes((SCHEMAS / "schema-2.db").read_bytes())
    assert found(program, old, 0)["schema"][0] == "note"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = 99 WHERE name = 'schema'")
    assert "upgrade gossiplog" in found(program, path, 1)["schema"][1]


def test_a_running_repair_is_no_leftover(program: Program, path: Path) -> None:
    with working_folder(path, "repair"):
        assert "leftovers" not in found(program, path, 0)


@pytest.mark.parametrize("columns", ["40", "80"])
def test_commands_and_paths_are_not_cut_on_a_terminal(
    program: Program, path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    Path(f"{path}.damaged").touch()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    shown = program("doctor", path).out.splitlines()
    assert f"    rm {path}.damaged" in shown
    assert any(f"{path}.damaged is the file before a repair" in line for line in shown)


def test_the_file_before_a_rebase_is_a_leftover(program: Program, path: Path) -> None:
    for suffix in (".generation-0", ".generation-0-count", ".generation-x"):
        Path(f"{path}{suffix}").touch()
    rows = [row for row in program("doctor", path).records if row["about"] == "leftovers"]
    assert [row["run"] for row in rows] == [f"rm {path}.generation-0"]


def test_a_rebuild_that_was_requested_or_began(program: Program, path: Path) -> None:
    def finding(rebuild: int) -> str:
        with closing(sqlite3.connect(path)) as connection, connection:
            for name, value in (("applied", 5), ("rebuild", rebuild), ("apply_version", 3)):
                connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = ?", (value, name))
        return found(program, path, 0)["application"][1]

    way_on = "when the application opens the log, which fails with the message's id where `apply` raises"
    assert finding(20) == (
        f"its tables are being built anew by version 3 of `apply`, so far from 5 of 20 messages: that goes on {way_on}"
    )
    assert finding(REBUILD_REQUESTED) == (
        f"a rebuild of its tables, of version 3 of `apply`, was requested: it begins {way_on}"
    )
    assert finding(0).endswith(way_on)


def test_no_log(program: Program) -> None:
    assert program("doctor", "none.db").err == "gossiplog: there is no log none.db\n"


@pytest.mark.slow
def test_a_table_of_the_application_that_is_missing(program: Program, path: Path) -> None:
    """All was fine."""

    def setup(transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS notes(id)")

    def apply(message: gossiplog.SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("INSERT INTO notes VALUES (?)", (message.id,))

    gossiplog.open(path, apply=apply, setup=setup).close()
    assert found(program, path, 0)["application"][0] == "fine"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE notes")
    severity, finding, run = found(program, path, 0)["application"]
    assert (severity, finding.partition(":")[0]) == ("note", "1 of its tables is missing, notes")
    assert run.startswith(f"gossiplog rebuild {path} --apply ")
    gossiplog.open(path, apply=apply, setup=setup).close()
    assert found(program, path, 0)["application"][0] == "fine"


def test_commands_can_be_pasted_where_a_path_has_spaces(program: Program, path: Path) -> None:
    spaced = path.rename(path.with_name("my log.db"))
    Path(f"{spaced}.damaged").write_bytes(b"")
    (run,) = [row["run"] for row in program("doctor", spaced).records if row["about"] == "leftovers"]
    assert shlex.split(run) == ["rm", f"{spaced}.damaged"]


@pytest.mark.parametrize("command", ["doctor", "info", "repair", "verify"])
def test_a_folder_in_the_place_of_the_write_ahead_log(program: Program, path: Path, command: str) -> None:
    """`doctor` said "Is a directory"."""
    wal = path.with_name(f"{path.name}-wal")
    wal.mkdir()
    result = program(command, path)
    said = result.records[0]["finding"] if command == "doctor" else result.err
    assert f"{wal} is a folder, where SQLite keeps a file: mv {wal} {wal}.former" in said
    wal.rename(f"{wal}.former")
    assert program("verify", path).code == 0


def test_leftovers_of_what_was_killed(program: Program, path: Path) -> None:
    """Those of a rebase and of a backup were overlooked."""
    names = [
        f"{path.name}.rebasing",
        f"{path.name}.rebasing-wal",
        f"{path.name}-wal.former",
        f".{path.name}.0a.partial",
        f".{path.name}-wal.0a.partial",
    ]
    for name in names:
        path.with_name(name).touch()
    for options in ((), ("--quick",)):
        rows = [row for row in program("doctor", path, *options).records if row["about"] == "leftovers"]
        assert {row["run"] for row in rows} == {f"rm {path.with_name(name)}" for name in names}
        assert {row["severity"] for row in rows} == {"note"}


@pytest.mark.parametrize("content", [b"# A text\n" * 9000, b"SQLite format 3\0" + bytes(9000)])
def test_a_file_that_was_never_a_log_is_not_to_be_repaired(program: Program, home: Path, content: bytes) -> None:
    (home / "README.md").write_bytes(content)
    _, finding, run = found(program, home / "README.md", 1)["damage"]
    assert (run, "repair" in finding) == ("", False)


def test_a_database_without_a_log_is_not_to_be_repaired(program: Program, home: Path) -> None:
    with closing(sqlite3.connect(home / "other.db")) as connection:
        connection.execute("CREATE TABLE notes(text)")
    _, finding, run = found(program, home / "other.db", 1)["damage"]
    assert (run, "repair" in finding, "holds no log" in finding) == ("", False, True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--quick",)])
def test_a_count_that_tells_nothing(program: Program, path: Path, home: Path, options: tuple[str, ...]) -> None:
    """A restored backup beside the count of the former file, and a count that rotted, passed in silence."""
    count = path.with_name(f"{path.name}-count")
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append("counted")
        log.backup(home / "backup.db")
    assert "count" not in found(program, path, 0, *options)
    content = bytearray(count.read_bytes())
    content[20] ^= 1
    count.write_bytes(content)
    severity, finding, run = found(program, path, 0, *options)["count"]
    assert (severity, run) == ("note", f"gossiplog sync {path} SOURCE && gossiplog repair {path}")
    assert finding.startswith(f"{count} is damaged, so whether acknowledged messages are lost is not known")
    content[20] ^= 1
    count.write_bytes(content)
    path.write_bytes((home / "backup.db").read_bytes())
    severity, finding, run = found(program, path, 0, *options)["count"]
    assert (severity, finding.partition(",")[0]) == ("note", f"{count} is of another file")
    # A sync that brings nothing leaves it.
    assert run_as_printed(program, run, home / "backup.db") == ""
    assert "count" not in found(program, path, 0, *options)
    content[20] ^= 1
    count.write_bytes(content)
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append("counted anew")
    assert "count" not in found(program, path, 0, *options)


def test_leftovers_of_a_log_whose_name_is_a_pattern(program: Program, home: Path) -> None:
    path = home / "notes[1]*.db"
    with gossiplog.open(path, "org.example.test", signer=Signer(bytes(32))) as log:
        log.append(1)
    (home / "notes1.db.damaged").touch()
    assert "leftovers" not in found(program, path, 0)
    kept = home / "notes[1]*.db.damaged"
    kept.touch()
    assert found(program, path, 0)["leftovers"] == (
        "note",
        f"{kept} is the file before a repair: remove it when you no longer need it",
        shlex.join(["rm", str(kept)]),
    )


@pytest.mark.slow
def test_a_write_ahead_log_of_another_log(program: Program, home: Path) -> None:
    path, wal = home / "log.db", home / "log.db-wal"
    with gossiplog.open(path, "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(3))
    with gossiplog.open(home / "other.db", "org.example.other", signer=Signer(bytes(32))) as log:
        log.append_many(range(5))
        wal.write_bytes(Path(f"{home / 'other.db'}-wal").read_bytes())
    before = path.read_bytes(), wal.read_bytes()
    problem = f"{wal} was not written for {path}: message 3, the last one in the file, differs in it"
    severity, finding, run = found(program, path, 1)["write-ahead log"]
    assert (severity, run) == ("wrong", f"mv {wal} {wal}.former && gossiplog doctor {path}")
    assert finding.startswith(problem)
    for command in ("info", "verify", "repair"):
        assert problem in program(command, path).err
    assert (path.read_bytes(), wal.read_bytes()) == before
    wal.rename(f"{wal}.former")
    assert found(program, path, 0)["messages"][1] == "3 messages, all sound"


@pytest.mark.slow
def test_a_database_in_the_place_of_the_one_that_the_write_ahead_log_belongs_to(program: Program, home: Path) -> None:
    path, wal = home / "log.db", home / "log.db-wal"
    with gossiplog.open(home / "made.db", "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(300))
        log.backup(home / "backup.db")
        log.append_many(range(300, 600))
        for suffix in ("-wal", "-count"):
            Path(f"{path}{suffix}").write_bytes(Path(f"{home / 'made.db'}{suffix}").read_bytes())
    path.write_bytes((home / "backup.db").read_bytes())
    before = wal.read_bytes()
    for options in ((), ("--quick",)):
        findings = found(program, path, 1, *options)
        severity, finding, run = findings["write-ahead log"]
        # The file has what came before the write-ahead log began.
        assert (severity, run) == ("wrong", f"mv {path} {path}.copy && gossiplog repair {path} --from {path}.copy")
        assert f"{path} was replaced, and {wal} belongs to the file that was there before" in finding
        assert not {"messages", "count"} & findings.keys()
    assert wal.read_bytes() == before
    assert run in program("info", path).err
    assert run_as_printed(program, run, path) == ""
    assert found(program, path, 0)["messages"][1] == "600 messages, all sound"
