from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.cli import logs
from gossiplog.storage.base import SCHEMA
from gossiplog.storage.sqlite.commit_count import CommitCount
from gossiplog.storage.sqlite.upgrades import OLDEST
from tests.cli.support import Program
from tests.storage.damage import damage
from tests.storage.plant import plant
from tests.storage.sqlite.test_upgrades import SCHEMAS


def test_init(program: Program, home: Path) -> None:
    assert program("init", "a.db", "--topic", "notes").record == {"path": "a.db", "topic": "notes"}
    assert program("info", "a.db").record == {
        "topic": "notes",
        "messages": 0,
        "clock": 1,
        "heads": [],
        "root": {"level": 0, "hash": "af1349b9f5f9a1a6a0404dea36dcc949"},
        "authors": 0,
        "bytes": (home / "a.db").stat().st_size,
    }


def test_init_leaves_a_file_alone_that_is_there(program: Program, home: Path) -> None:
    (home / "a.db").write_text("precious")
    result = program("init", "a.db", "--topic", "notes")
    assert (result.code, result.err) == (1, "gossiplog: a.db is there already\n")
    assert (home / "a.db").read_text() == "precious"


def test_init_goes_on_from_an_empty_file(program: Program, home: Path) -> None:
    (home / "a.db").touch()
    assert program("init", "a.db", "--topic", "notes").code == 0
    assert program("info", "a.db").record["topic"] == "notes"


def test_init_leaves_alone_what_is_no_file(program: Program, home: Path) -> None:
    (home / "folder").mkdir()
    result = program("init", "folder", "--topic", "notes")
    assert (result.code, result.err) == (1, "gossiplog: folder is there already\n")


def test_init_leaves_a_log_alone(program: Program, log: Path) -> None:
    result = program("init", log, "--topic", "notes")
    assert (result.code, result.err) == (1, f"gossiplog: {log} is there already\n")


def test_a_log_in_memory_is_refused(program: Program, home: Path) -> None:
    result = program("init", ":memory:", "--topic", "notes")
    assert (result.code, result.out) == (1, "")
    assert result.err == "gossiplog: :memory: is no file: a log in memory would end with the command\n"
    assert list(home.iterdir()) == []


def test_init_refuses_a_topic_that_is_none(program: Program, home: Path) -> None:
    result = program("init", "a.db", "--topic", "no spaces")
    assert result.code == 1
    assert "no spaces" in result.err
    assert list(home.iterdir()) == []


def test_init_says_which_peers_refuse_the_topic(program: Program) -> None:
    result = program("init", "a.db", "--topic", "notes:1")
    assert result.code == 0
    assert result.err.startswith("gossiplog: peers of version 0.13.14 refuse the topic 'notes:1'")
    assert result.err.count("\n") == 1


def test_info(program: Program, log: Path) -> None:
    program("append", log, "1", "2")
    program("keygen", "other")
    program("append", log, "3", "--key", "other")
    info = program("info", log).record
    assert info["messages"] == 3
    assert info["clock"] == 4
    assert info["authors"] == 2
    assert info["heads"] == [program("read", log, "--reverse", "--limit", "1").record["id"]]


def test_what_each_author_wrote(program: Program, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("append", log, "1", "2")
    program("keygen", "other.key")
    program("append", log, '"a long payload"', "--key", "other.key")
    assert "by_author" not in program("info", log).record
    found = program("info", log, "--authors").record["by_author"]
    assert [written["messages"] for written in found] == [2, 1]
    values = [(record["author"], record["id"]) for record in program("read", log).records]
    assert {written["author"] for written in found} == {author for author, _ in values}
    assert all(100 < written["bytes"] / written["messages"] < 300 for written in found)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(logs, "_AUTHORS", 1)
    shown = program("info", log, "--authors").out
    assert found[0]["author"] in shown
    assert found[1]["author"] not in shown
    assert "and 1 more" in shown


def test_a_missing_log(program: Program, home: Path) -> None:
    for command in (("info", "no.db"), ("read", "no.db"), ("append", "no.db", "1"), ("verify", "no.db")):
        result = program(*command)
        assert result.code == 1
        assert result.err.endswith("there is no log no.db: gossiplog init no.db --topic TOPIC makes one\n")
        assert not (home / "no.db").exists()


def test_a_file_that_is_no_log(program: Program, home: Path) -> None:
    (home / "text").write_text("text")
    result = program("info", "text")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "text" in result.err


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA + 1))
@pytest.mark.parametrize("command", ["info", "info --authors", "verify", "read", "export", "graph", "show", "recover"])
def test_what_only_reads_does_not_upgrade(program: Program, home: Path, command: str, schema: int) -> None:
    path = Path(shutil.copy(SCHEMAS / f"schema-{schema}.db", home))
    before = path.read_bytes()
    name, *options = command.split()
    match name:
        case "show":
            options = [program("read", path, "--limit", 1).record["id"]]
        case "recover":
            options = ["new.db"]
    result = program(name, path, *options)
    assert (result.code, result.err) == (0, "")
    assert path.read_bytes() == before


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA + 1))
def test_what_writes_upgrades(program: Program, home: Path, schema: int) -> None:
    path = Path(shutil.copy(SCHEMAS / f"schema-{schema}.db", home))
    assert program("append", path, "1").code == 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'schema'").fetchone() == (SCHEMA,)


def test_verify(program: Program, log: Path) -> None:
    program("append", log, "1", "2", "3")
    assert program("verify", log).record["messages"] == 3


def test_verify_finds_damage(program: Program, log: Path) -> None:
    program("append", log, '"as it was"', '"and so on"')
    with closing(sqlite3.connect(log)) as database, database:
        ((value,),) = database.execute("SELECT value FROM gossiplog_messages WHERE seq = 1")
        database.execute("UPDATE gossiplog_messages SET value = ? WHERE seq = 1", (value.replace(b"was", b"is!"),))
    result = program("verify", log)
    assert result.code == 1
    assert result.err.startswith(f"gossiplog: {log}: the log is damaged: ")
    assert result.err.count("\n") == 1
    with closing(sqlite3.connect(log)) as database, database:
        database.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 1")
    read = program("read", log)
    assert (read.code, read.err.startswith(f"gossiplog: {log}: the log is damaged: ")) == (1, True)
    assert f"`gossiplog repair {log} --from SOURCE`" in read.err


def test_recover(program: Program, log: Path, home: Path) -> None:
    program("append", log, "1", "2", "3")
    sequence, id = plant(log, "notes", indexed=False)
    result = program("recover", log, "new.db")
    assert result.code == 1
    assert "1 message of" in result.err
    assert "and 0 lack parents" in result.err
    assert "gossiplog sync new.db SOURCE" in result.err
    assert (result.record["damaged"], result.record["descendants"]) == (1, 0)
    assert (result.record["inserted"], result.record["duplicates"]) == (3, 0)
    (refused,) = result.record["refused"]
    assert (refused["sequence"], refused["id"]) == (sequence, id)
    assert program("verify", "new.db").record["messages"] == 3
    assert program("recover", log, "new.db").err == "gossiplog: new.db is there already\n"
    assert program("recover", "no.db", "other.db").err == "gossiplog: there is no log no.db\n"


@pytest.mark.slow
def test_recover_counts_descendants_apart(program: Program, log: Path) -> None:
    for number in range(30):
        program("append", log, str(number))
    with closing(sqlite3.connect(log)) as database, database:
        database.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 3")
    result = program("recover", log, "new.db")
    assert (result.code, result.record["inserted"]) == (1, 2)
    assert (result.record["damaged"], result.record["descendants"]) == (1, 27)
    assert [refusal["sequence"] for refusal in result.record["refused"]] == [3]
    assert "1 message of" in result.err
    assert "and 27 lack parents" in result.err


@pytest.mark.parametrize("table", ["gossiplog_meta", "gossiplog_messages"])
def test_recover_reads_what_sqlite_cannot(program: Program, log: Path, home: Path, table: str) -> None:
    program("append", log, *map(str, range(500)))
    damage(log, table)
    before = log.read_bytes()
    result = program("recover", log, "new.db")
    assert (result.code, result.record["inserted"], result.record["lost"]) == (0, 500, 0)
    assert log.read_bytes() == before
    assert program("verify", "new.db").record["messages"] == 500


@pytest.mark.slow
def test_the_ways_back_are_no_circle(program: Program, log: Path, home: Path) -> None:
    """Both errors named the other command, and `recover` left an empty log."""
    program("append", log, *map(str, range(500)))
    damage(log, "gossiplog_meta")
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(bytes(500))
    repaired = program("repair", log)
    assert repaired.code == 1
    assert f"gossiplog recover {log} NEW" in repaired.err
    result = program("recover", log, "new.db")
    assert result.code == 1
    assert result.record["inserted"] == program("verify", "new.db").record["messages"] > 0
    assert result.record["inserted"] + result.record["damaged"] + result.record["descendants"] == 500
    assert "gossiplog sync new.db SOURCE" in result.err


def test_recover_reads_on_in_a_damaged_write_ahead_log(program: Program, home: Path) -> None:
    path, wal = home / "copy.db", home / "copy.db-wal"
    with gossiplog.open(home / "made.db", "notes", signer=Signer(bytes(32))) as log:
        for number in range(20):
            log.append(number)
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{home / 'made.db'}{suffix}", f"{path}{suffix}")
    with wal.open("r+b") as file:
        file.seek(wal.stat().st_size // 2)
        file.write(bytes(100))
    before = wal.read_bytes()
    result = program("recover", path, "new.db")
    assert (result.code, result.record["inserted"]) == (0, 20)
    assert wal.read_bytes() == before


def test_recover_says_how_many_messages_are_lost(program: Program, log: Path, home: Path) -> None:
    program("append", log, "1", "2")
    count = CommitCount(str(log))
    identity, _ = count.read() or (b"", 0)
    count.write(identity, 5)
    count.close()
    result = program("recover", log, "new.db")
    assert (result.code, Path("new.db").exists()) == (1, False)
    assert f"gossiplog recover {log} NEW --accept-loss" in result.err
    assert program("recover", log, "new.db", "--accept-loss").record["lost"] == 3


def test_recover_a_sound_log(program: Program, log: Path) -> None:
    program("append", log, "1", "2")
    result = program("recover", log, "new.db")
    assert (result.code, result.record["inserted"], result.record["refused"]) == (0, 2, [])


MODULE = """
def setup(transaction):
    transaction.execute("DROP TABLE IF EXISTS seen")
    transaction.execute("CREATE TABLE seen (payload)")


def apply(message, transaction):
    transaction.execute("INSERT INTO seen VALUES (?)", (message.payload,))
"""


@pytest.fixture
def application(home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module in the working folder, by a name that no other test imports."""
    name = f"application_{abs(hash(request.node.name))}"
    (home / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(home))
    return name


def seen(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [payload for (payload,) in connection.execute("SELECT payload FROM seen ORDER BY payload")]


def test_rebuild_with_the_application(program: Program, log: Path, application: str) -> None:
    program("append", log, "1", "2")
    options = ("--apply", f"{application}:apply", "--setup", f"{application}:setup")
    for version in ("1", "2", "2"):
        found = program("rebuild", log, *options, "--apply-version", version)
        assert (found.code, found.err) == (0, "")
        record = found.record
        assert (record["log"], record["messages"], record["rebuilt"]) == (str(log), 2, True)
        assert seen(log) == [1, 2]
    assert "rebuilding" not in program("info", log).record
    result = program("rebuild", log, *options)
    assert result.code == 1
    assert "written by version 2 of `apply`, this is version 1" in result.err
    # Nor does the newer program build them anew when it opens the log.
    assert "rebuilding" not in program("info", log).record


def test_rebuild_without_the_application_is_a_request(program: Program, log: Path, application: str) -> None:
    program("append", log, "1", "2")
    # No `apply` has run.
    result = program("rebuild", log)
    assert (result.code, result.record["requested"]) == (0, False)
    assert "nothing is requested" in result.err
    assert "rebuilding" not in program("info", log).record
    program("rebuild", log, "--apply", f"{application}:apply", "--setup", f"{application}:setup")
    for _ in range(2):
        record = program("rebuild", log).record
        assert (record["rebuilt"], record["requested"]) == (False, True)
    assert program("info", log).record["rebuilding"] == {"requested": True, "applied": 0, "apply_version": 1}


def test_a_requested_rebuild_has_applied_nothing_anew(program: Program, log: Path, application: str) -> None:
    program("append", log, "1", "2")
    program("rebuild", log, "--apply", f"{application}:apply", "--setup", f"{application}:setup")
    program("rebuild", log)
    assert program("info", log).record["rebuilding"] == {"requested": True, "applied": 0, "apply_version": 1}


def test_rebuild_says_what_it_did_on_a_terminal(
    program: Program, log: Path, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("append", log, "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    options = ("--apply", f"{application}:apply", "--setup", f"{application}:setup")
    assert "built anew from 1 message." in program("rebuild", log, *options).out
    assert "when it next opens or writes" in program("rebuild", log).out
    assert "requested; the application begins when it next opens" in program("info", log).out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--apply", "json:loads"], "--setup is missing"),
        (["--setup", "json:loads"], "--apply is missing"),
        (["--apply-version", "2"], "--apply-version is that of --apply"),
        (["--apply", "json", "--setup", "json:loads"], "--apply json: expected MODULE:NAME"),
        (["--apply", "json:nothing", "--setup", "json:loads"], "the module json has no nothing"),
        (["--apply", "no_module:x", "--setup", "json:loads"], "No module named 'no_module'"),
        (["--apply", "operator:add", "--setup", "os:getpid"], "cannot be called as setup(transaction)"),
        (["--apply", "os:getpid", "--setup", "json:loads"], "cannot be called as apply(message, transaction)"),
        (["--apply", "operator:add", "--setup", "math:pi"], "setup is 3.14"),
        (["--apply", "operator:add", "--setup", "json:loads", "--apply-version", str(2**63)], "apply_version is 9"),
    ],
)
def test_wrong_options_of_rebuild(program: Program, log: Path, options: list[str], reason: str) -> None:
    result = program("rebuild", log, *options)
    assert result.code == 2
    assert reason in result.err
    assert "rebuilding" not in program("info", log).record


@pytest.mark.parametrize(
    ("text", "reason"), [("def", "SyntaxError: invalid syntax"), ("1 / 0", "ZeroDivisionError: division by zero")]
)
def test_a_module_that_raises(program: Program, log: Path, application: str, text: str, reason: str) -> None:
    Path(f"{application}.py").write_text(text)
    result = program("rebuild", log, "--apply", f"{application}:apply", "--setup", f"{application}:setup")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert f"--apply {application}:apply: {reason}" in result.err


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("def apply(message, transaction):\n    {}['boom']", "built anew from all messages, for version 3 of `apply`"),
        ("def setup(transaction):\n    {}['boom']", "the log and the application's tables are as they were"),
    ],
)
def test_an_exception_of_the_application_in_a_rebuild(
    program: Program, log: Path, application: str, function: str, reason: str
) -> None:
    program("append", log, "1")
    with Path(f"{application}.py").open("a") as file:
        file.write(function)
    options = ("--apply", f"{application}:apply", "--setup", f"{application}:setup", "--apply-version", "3")
    result = program("rebuild", log, *options)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "raised KeyError: 'boom'" in result.err
    assert reason in result.err


def test_backup(program: Program, log: Path, home: Path) -> None:
    program("append", log, "1", "2")
    found = program("backup", log, "copy.db")
    assert (found.code, found.err) == (0, "")
    size = (home / "copy.db").stat().st_size
    record = found.record
    assert (record["log"], record["backup"], record["messages"], record["bytes"]) == (str(log), "copy.db", 2, size)
    assert program("verify", "copy.db").record["messages"] == 2
    again = program("backup", log, "copy.db")
    assert (again.code, again.err) == (1, "gossiplog: copy.db is there already: give the name of a new file\n")


def test_backup_says_what_it_did_on_a_terminal(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("append", log, "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = program("backup", log, "my copy.db").out
    assert "1 message," in shown
    assert "gossiplog verify 'my copy.db' checks the copy" in shown
