from __future__ import annotations

import os
import re
import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.errors import CorruptLog, StorageError
from gossiplog.storage import write_ahead_log
from gossiplog.storage.base import REBUILD_REQUESTED
from gossiplog.storage.database_file import read_identity_and_count
from gossiplog.storage.salvage import working_folder
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


def run_as_printed(program: Program, commands: str, source: Path) -> str:
    """Run commands that the program has printed, with a replica for SOURCE; return the error of the last one."""
    words = {"SOURCE": str(source), "TOPIC": "org.example.test", "NEW": "new.db"}
    err = ""
    for command in commands.split(" && "):
        name, *arguments = [words.get(word, word) for word in shlex.split(command)]
        if name == "rm":
            for path in arguments:
                Path(path).unlink()
        elif name == "mv":
            # Nothing that may have messages is overwritten: a write-ahead log's header has 32 bytes.
            target = Path(arguments[1])
            assert not target.exists() or target.stat().st_size <= 32
            Path(arguments[0]).rename(target)
        else:
            assert name == "gossiplog"
            result = program(*arguments)
            assert (result.code == 0) == (result.err == "")
            err = result.err
    return err


def first_command(text: str) -> str:
    """Return the first command in the text of an error, with those that follow it after `&&`."""
    words = text[re.search(r"\b(gossiplog|mv|rm) [a-z/]", text).start() :].replace("`", " ;").split()  # type: ignore[union-attr]
    command: list[str] = []
    for before, word in pairwise(["", *words]):
        bare = word.rstrip(";,.:")
        is_part = bare in ("gossiplog", "mv", "rm", "&&") or before == "gossiplog" or re.match("/|--|[A-Z]+$", bare)
        if not is_part:
            break
        command.append(bare)
        if bare != word:
            break
    return " ".join(command)


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


def without_count(damage: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        Path(f"{path}-count").unlink()
        damage(path)

    return change


def flip(place: float, suffix: str = "", *, at: int = 0) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        file = Path(f"{path}{suffix}")
        content = bytearray(file.read_bytes())
        content[int(place * len(content)) + at] ^= 4
        file.write_bytes(content)

    return change


def in_its_place(name: str) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.with_name(name).read_bytes())


DAMAGE: dict[str, tuple[bool, Callable[[Path], None]]] = {
    # Whether the process that wrote it was killed, and what happens to the file then.
    **{f"{size} bytes left": (False, cut(size)) for size in (0, 1, 511, 4096, 8192)},
    **{f"{size} bytes left, no count": (False, without_count(cut(size))) for size in (0, 511)},
    "the header": (False, flip(0.0)),
    "the page size": (False, flip(0.0, at=16)),
    "half of it": (False, lambda path: os.truncate(path, path.stat().st_size // 2)),
    "half of it, and the write-ahead log": (True, lambda path: os.truncate(path, path.stat().st_size // 2)),
    "a page in the middle": (False, lambda path: path.write_bytes(path.read_bytes()[:20_000] + bytes(40_000))),
    "the write-ahead log": (True, flip(0.5, "-wal")),
    "no write-ahead log": (True, lambda path: Path(f"{path}-wal").unlink()),
    "an older copy": (True, in_its_place("older.db")),
    "a backup": (True, in_its_place("backup.db")),
}


def damaged(files: dict[bool, dict[str, bytes]], home: Path, damage: str) -> Path:
    """Lay out the files of a log, damage them, and return the path of the log."""
    path = home / "log.db"
    is_killed, change = DAMAGE[damage]
    for name, content in files[is_killed].items():
        (home / name).write_bytes(content)
    change(path)
    return path


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_it_says_to_run_is_the_way_back(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, damage: str
) -> None:
    """Issue 19: of a file of less than a page `repair` had nothing left, and of an empty one `sync` asked for more."""
    path, new = damaged(files, home, damage), home / "new.db"
    for _ in range(3):
        records = program("doctor", path).records
        wrong = [record["run"] for record in records if record["severity"] == "wrong"]
        if not wrong:
            break
        assert run_as_printed(program, wrong[0], home / "whole.db") == ""
        if new.exists():
            path = new
    assert program("verify", path).record["messages"] >= 300
    if damage != "a backup":
        assert program("info", path).record["root"] == program("info", "whole.db").record["root"]


WITHOUT_REPLICA = re.compile("Without a (?:replica|source), |Only if [a-z ]+: ")


@pytest.mark.parametrize("damage", [damage for damage in DAMAGE if damage[:2] not in ("0 ", "1 ", "51")])
def test_without_a_replica_as_many_messages_are_left_as_was_said(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, damage: str
) -> None:
    """Issue 19: "gives up at most 110 messages" were 300, 69 were 928, and a chain of steps ended in an empty log."""
    path, new = damaged(files, home, damage), home / "new.db"
    there = read_identity_and_count(str(path))
    err, said = program("verify", path).err, None
    for _ in range(5):
        if not err or "no log can be made" in err or "nothing of a log is left" in err:
            break
        if number := re.search(r"(?:(?<!True goes on )with|of) (\d+) (?:of the \d+ acknowledged )?messages", err):
            said = int(number[1])
        command = first_command(err.removeprefix("gossiplog: "))
        if "SOURCE" in command:
            # What names no other way is tried without a source.
            rest = WITHOUT_REPLICA.split(err, maxsplit=1)[1:]
            command = first_command(rest[0]) if rest else command.removesuffix(" --from SOURCE")
        assert "SOURCE" not in command
        # Nothing is given up before.
        assert said is not None or ("--accept-loss" not in command and ".former" not in command)
        err = run_as_printed(program, command, home / "none.db")
        path = new if new.exists() else path
        err = err or program("verify", path).err
    if err:
        assert not new.exists()
        return
    left = program("verify", path).record["messages"]
    assert said is None or left == said
    assert left >= (there[1] if there is not None and there[1] is not None else 0)


# Of an empty file the error says first how a log is made.
@pytest.mark.parametrize("damage", [damage for damage in DAMAGE if damage != "0 bytes left, no count"])
def test_what_errors_say_to_run_is_the_way_back(
    program: Program, files: dict[bool, dict[str, bytes]], home: Path, damage: str
) -> None:
    path, new = damaged(files, home, damage), home / "new.db"
    err = program("verify", path).err
    for _ in range(4):
        if err:
            err = run_as_printed(program, first_command(err.removeprefix("gossiplog: ")), home / "whole.db")
        path = new if new.exists() else path
        err = err or program("verify", path).err
    assert program("verify", path).record["messages"] >= 300


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, bytes]]:
    """The files of a log with a replica, an older copy and a backup: as it is left by a kill or in order."""
    folder = tmp_path_factory.mktemp("files")
    path, found = folder / "log.db", {}
    signer = Signer(bytes(32))
    with gossiplog.open(path, "org.example.test", signer=signer) as log:
        log.append_many(range(300))
        log.backup(folder / "backup.db")
    (folder / "older.db").write_bytes(path.read_bytes())
    with gossiplog.open(path, signer=signer) as log:
        log.append_many(range(300))
    with gossiplog.open(path, signer=signer) as log:
        log.append(1)
        log.append(2)
        log.backup(folder / "whole.db")
        found[True] = {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".db-shm"}
    found[False] = {file.name: file.read_bytes() for file in folder.iterdir()}
    return found


def test_an_empty_file(program: Program, path: Path, home: Path) -> None:
    (home / "empty.db").touch()
    _, finding, run = found(program, home / "empty.db", 1)["damage"]
    assert finding == "the file is empty: a replica has what was in it"
    assert run == f"gossiplog sync {home / 'empty.db'} SOURCE --topic TOPIC"
    assert run in program("recover", home / "empty.db", "new.db").err
    assert program("sync", home / "empty.db", path, "--topic", "org.example.test").record["messages"] == 20


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


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = 3",
        "DELETE FROM gossiplog_heads",
        "UPDATE gossiplog_tree SET hash = zeroblob(16)",
        "UPDATE gossiplog_messages SET links = x'ff' WHERE seq = 9",
    ],
)
def test_what_follows_from_the_messages_is_repaired_without_a_source(program: Program, path: Path, damage: str) -> None:
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append_many(range(300))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(damage)
    _, _, run = found(program, path, 1)["damage"]
    assert run == f"gossiplog repair {path}"
    assert program(*shlex.split(run)[1:]).code == 0
    found(program, path, 0)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE gossiplog_messages SET value = x'00' WHERE seq = 9",
        "DELETE FROM gossiplog_messages WHERE seq = 20",
        "DELETE FROM gossiplog_messages WHERE seq = 5; DELETE FROM gossiplog_leaves WHERE seq = 5",
    ],
)
def test_lost_messages_are_repaired_from_a_source(program: Program, path: Path, damage: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(damage)
    _, _, run = found(program, path, 1)["damage"]
    assert run == f"gossiplog repair {path} --from SOURCE"


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
