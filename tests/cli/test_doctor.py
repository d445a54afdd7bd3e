from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.storage import write_ahead_log
from gossiplog.storage.base import REBUILD_REQUESTED
from tests.cli.support import Program
from tests.rot.shapes import SCHEMAS


@pytest.fixture
def path(home: Path) -> Path:
    place = home / "notes.db"
    with gossiplog.open(place, "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(20))
    return place


def found(program: Program, path: Path, code: int, *options: str) -> dict[str, tuple[str, str, str]]:
    result = program("doctor", path, *options)
    assert (result.code, result.err) == (code, "")
    return {row["about"]: (row["severity"], row["finding"], row["run"]) for row in result.records}


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
    severity, _, run = found(program, path, 1, "--quick")["damage"]
    assert (severity, run) == ("wrong", f"gossiplog repair {path} --from SOURCE")


def test_a_damaged_header(program: Program, path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"x")
    _, finding, run = found(program, path, 1)["damage"]
    # What the finding says, as other commands do.
    assert finding.endswith(f": {run}")
    assert run == f"gossiplog repair {path} --from SOURCE"


def test_an_empty_file(program: Program, path: Path, home: Path) -> None:
    (home / "empty.db").touch()
    _, finding, run = found(program, home / "empty.db", 1)["damage"]
    assert finding == "the file is empty: a replica has what was in it"
    assert run == f"gossiplog sync {home / 'empty.db'} SOURCE"
    assert run in program("recover", home / "empty.db", "new.db").err
    assert program(*shlex.split(run.replace("SOURCE", str(path)))[1:]).record["messages"] == 20


def test_a_header_that_keeps_a_log_from_being_written(program: Program, path: Path) -> None:
    """Before, all was fine, and appends failed."""
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\x06")
    findings = found(program, path, 1)
    run = f"gossiplog repair {path} --from SOURCE"
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


def test_commands_can_be_pasted_where_a_path_has_spaces(program: Program, path: Path) -> None:
    spaced = path.rename(path.with_name("my log.db"))
    Path(f"{spaced}.damaged").write_bytes(b"")
    (run,) = [row["run"] for row in program("doctor", spaced).records if row["about"] == "leftovers"]
    assert shlex.split(run) == ["rm", f"{spaced}.damaged"]


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
        assert (severity, run) == ("wrong", f"rm {wal}")
        assert f"{path} was replaced, and {wal} belongs to the file that was there before" in finding
        assert "messages" not in findings
    assert wal.read_bytes() == before
    assert f": rm {wal}" in program("info", path).err
    wal.unlink()
    assert found(program, path, 0)["messages"][1] == "300 messages, all sound"
