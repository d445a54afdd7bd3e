"""Commands on logs in Postgres, and the mistakes that can be made with them."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.cli.support import PATIENCE, Program, Repository
from tests.cli.support import Server as HubProcess
from tests.postgres import DATABASE, USER, Server
from tests.postgres import program as program_of_postgres

SECRET = "s3cretword"


@pytest.fixture
def made(program: Program, postgres_url: str) -> str:
    """A log of the topic "notes" with two messages."""
    assert program("init", postgres_url, "--topic", "notes").code == 0
    assert program("append", postgres_url, '{"a":1}', '{"a":2}').code == 0
    return postgres_url


@pytest.mark.slow
def test_a_log_is_made_written_and_read(program: Program, made: str) -> None:
    assert (
        program("init", made, "--topic", "notes").err == f"gossiplog: {made} is there already, with the topic notes\n"
    )
    assert [line["payload"] for line in program("read", made).records] == [{"a": 1}, {"a": 2}]
    assert program("info", made).record["messages"] == 2
    assert program("verify", made).record["messages"] == 2
    assert len(program("graph", made).records) == 2
    id = program("read", made).records[0]["id"]
    assert program("show", made, id).record["id"] == id
    assert program("export", made).records[-1] == {"messages": 2}
    assert program("rebuild", made).code == 0


@pytest.mark.slow
def test_logs_move_between_back_ends(
    program: Program, made: str, new_postgres_url: Callable[[], str], home: Path
) -> None:
    assert program("sync", "notes.db", made).record["inserted"] == 2
    assert program("append", "notes.db", '{"b":1}').code == 0
    synced = program("sync", made, "notes.db").record
    assert (synced["log"], synced["source"], synced["inserted"]) == (made, "notes.db", 1)
    other = new_postgres_url()
    assert program("sync", other, made).record["inserted"] == 3
    assert program("append", other, '{"c":1}').code == 0
    assert [line["inserted"] for line in program("sync", "notes.db", other, "--both").records] == [1, 0]
    assert program("append", "notes.db", '{"d":1}').code == 0
    assert [line["inserted"] for line in program("sync", made, "notes.db", "--both").records] == [2, 0]
    assert {program("verify", each).record["root"]["hash"] for each in ("notes.db", made)} == {
        program("info", made).record["root"]["hash"]
    }


def test_a_source_has_to_be_another_log(program: Program, made: str) -> None:
    result = program("sync", made, made)
    assert result.code == 2
    assert f"SOURCE: {made} is the log itself" in result.err


def test_messages_come_from_another_log_with_import(program: Program, made: str, postgres_server: Server) -> None:
    lines = program("export", made).out
    Path("lines.jsonl").write_text(lines)
    assert program("import", "copy.db", "lines.jsonl", "--topic", "notes").record["inserted"] == 2
    assert program("import", made, "lines.jsonl").record["duplicates"] == 2


def test_a_damaged_file_is_recovered_into_postgres(
    program: Program, log: Path, new_postgres_url: Callable[[], str]
) -> None:
    assert program("append", log, "1", "2").code == 0
    new = new_postgres_url()
    assert program("recover", log, new).record["inserted"] == 2
    assert program("recover", log, new).err.startswith(f"gossiplog: {new} is there already, with the topic ")


def test_a_backup_is_restored_by_pg_restore(program: Program, made: str, postgres_server: Server) -> None:
    backup = program("backup", made, "notes.dump")
    assert backup.record["messages"] == 2
    postgres_server.run("CREATE DATABASE restored OWNER gossip")
    try:
        arguments = ["-h", postgres_server.folder, "-U", USER, "-d", "restored", "notes.dump"]
        subprocess.run([program_of_postgres("pg_restore"), *arguments], check=True)
        copy = made.replace(f"/{DATABASE}?", "/restored?")
        assert program("verify", copy).record["messages"] == 2
    finally:
        postgres_server.run("DROP DATABASE restored WITH (FORCE)")


@pytest.mark.parametrize("command", ["recover {} new.db"])
def test_what_works_on_files_says_what_to_do(program: Program, made: str, command: str) -> None:
    result = program(*(word.format(made) for word in command.split()))
    assert result.code == 1
    assert result.err.startswith(f"gossiplog: {made} is in Postgres: ")
    assert "gossiplog" in result.err.partition("is in Postgres: ")[2]


def findings(program: Program, url: str, *options: str) -> dict[str, tuple[str, str, str]]:
    return {
        row["about"]: (row["severity"], row["finding"], row["run"]) for row in program("doctor", url, *options).records
    }


@pytest.mark.slow
def test_the_doctor_looks_at_the_server_and_the_log(program: Program, made: str, postgres_server: Server) -> None:
    schema = made.partition("schema=")[2]
    found = findings(program, made)
    assert {about: severity for about, (severity, *_) in found.items()} == {
        "server": "note",
        "permissions": "fine",
        "tables": "fine",
        "messages": "fine",
        "application": "fine",
    }
    assert "pg_checksums" in found["server"][1]
    assert found["messages"][1] == "2 messages, all sound"
    assert program("doctor", made).code == 0
    assert findings(program, made, "--quick")["messages"][1] == "not verified (--quick)"
    postgres_server.run(f"CREATE SCHEMA {schema}_generation_0", user=USER)
    postgres_server.run(f"CREATE TABLE {schema}_generation_0.gossiplog_meta (a int)", user=USER)
    postgres_server.run(f"UPDATE {schema}.gossiplog_messages SET value = '' WHERE seq = 1", user=USER)
    postgres_server.role("cli_doctor")
    try:
        postgres_server.run(f"GRANT USAGE ON SCHEMA {schema} TO cli_doctor")
        postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO cli_doctor")
        reader = made.replace(f"{USER}@", "cli_doctor@")
        result = program("doctor", reader)
        assert result.code == 1
        found = findings(program, reader)
        assert found["permissions"][0] == "note"
        assert "cannot be written: the role cli_doctor lacks the right to INSERT on" in found["permissions"][1]
        assert f"the schema {schema}_generation_0 is a log" in found["leftovers"][1]
        assert found["damage"][0] == "wrong"
        assert found["damage"][2] == f"gossiplog repair '{reader}' --from SOURCE"
    finally:
        postgres_server.drop_role("cli_doctor")
        postgres_server.drop_schema(f"{schema}_generation_0")


def test_the_doctor_finds_no_log_and_no_server(program: Program, postgres_url: str, postgres_server: Server) -> None:
    assert "holds no log" in program("doctor", postgres_url).err
    (found,) = program("doctor", postgres_server.url(host=Path("/nowhere"))).records
    assert (found["about"], found["severity"]) == ("server", "wrong")
    assert "/nowhere" in found["finding"]


@pytest.mark.slow
def test_a_damaged_log_is_repaired(program: Program, made: str, postgres_server: Server) -> None:
    assert program("sync", "copy.db", made).code == 0
    sound = program("repair", made)
    assert (sound.code, sound.record["damaged"], sound.record["former"]) == (0, [], None)
    schema = made.partition("schema=")[2]
    postgres_server.run(f"UPDATE {schema}.gossiplog_messages SET value = '' WHERE seq = 1")
    assert f"gossiplog repair '{made}' --from SOURCE" in program("verify", made).err
    result = program("repair", made)
    assert result.code == 1
    assert f"gossiplog repair '{made}' --from SOURCE" in result.err
    try:
        result = program("repair", made, "--from", "copy.db")
        assert (result.record["fetched"], result.record["former"]) == (1, f"{made}_damaged")
        assert program("verify", made).record["messages"] == 2
        result = program("repair", made, "--from", made.replace(f"{USER}@", f"{USER}:{SECRET}@"))
        assert f"--from: {made} is the log itself" in result.err
        assert SECRET not in result.out + result.err
    finally:
        postgres_server.drop_schema(f"{schema}_damaged")


@pytest.mark.slow
def test_a_rebase_keeps_the_former_log_in_a_schema_beside_it(
    program: Program, made: str, new_postgres_url: Callable[[], str], postgres_server: Server
) -> None:
    target = new_postgres_url()
    assert program("init", target, "--topic", "notes").code == 0
    first, second = (line["id"] for line in program("read", made).records)
    given = target.replace(f"{USER}@", f"{USER}:{SECRET}@")
    schema = made.partition("schema=")[2]
    try:
        result = program("rebase", made, "--onto", given, "--drop", first)
        assert (result.code, result.record["dropped"], result.record["signed"]) == (0, 1, 1)
        assert (result.record["onto"], result.record["former"]) == (target, f"{made}_generation_0")
        assert SECRET not in result.out + result.err
        assert [line["payload"] for line in program("read", made).records] == [{"a": 2}]
        assert second in {line["id"] for line in program("read", f"{made}_generation_0").records}
    finally:
        postgres_server.drop_schema(f"{schema}_generation_0")


# What is no log, and what is said of it.


def test_there_is_no_log(program: Program, postgres_url: str) -> None:
    result = program("info", postgres_url)
    assert (result.code, result.out) == (1, "")
    schema = postgres_url.partition("schema=")[2]
    # Other tests may have logs in the database.
    others = re.compile(r" \(there are logs in [^)]*\)")
    assert others.sub("", result.err) == (
        f"gossiplog: {postgres_url} holds no log in its schema {schema}: gossiplog init '{postgres_url}' --topic TOPIC"
        " makes one\n"
    )
    result = program("sync", postgres_url, "/ip4/127.0.0.1/tcp/1/ws")
    said = f"holds no log in its schema {schema}: give --topic TOPIC to make one\n"
    assert others.sub("", result.err).endswith(said)


def test_the_schema_holds_something_else(program: Program, postgres_url: str, postgres_server: Server) -> None:
    schema = postgres_url.partition("schema=")[2]
    for statement in (f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.gossiplog_meta(a int)"):
        postgres_server.run(statement, user=USER)
    result = program("init", postgres_url, "--topic", "notes")
    assert result.code == 1
    assert "is not a log of this package" in result.err


def test_another_schema_version_or_topic(program: Program, made: str, postgres_server: Server) -> None:
    schema = made.partition("schema=")[2]
    result = program("sync", made, "ws://127.0.0.1:1", "--topic", "other")
    assert "is a log of the topic 'notes', not 'other'" in result.err
    postgres_server.run(f"UPDATE {schema}.gossiplog_meta SET value = '99' WHERE name = 'schema'")
    result = program("info", made)
    assert result.code == 1
    assert "upgrade gossiplog" in result.err


def test_a_wrong_password(program: Program, postgres_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres_server.role("cli_word", password=SECRET)
    try:
        url = postgres_server.url("notes", user="cli_word", password=f"not{SECRET}")
        result = program("info", url)
        assert result.code == 1
        assert 'password authentication failed for user "cli_word"' in result.err
        assert "all users of this machine can read the password" in result.err
        assert SECRET not in result.err + result.out
        monkeypatch.setenv("PGPASSFILE", "missing")
        result = program("info", postgres_server.url("notes", user="cli_word"))
        assert "the server asks for a password: set PGPASSWORD" in result.err
        monkeypatch.setenv("PGPASSWORD", SECRET)
        result = program("info", postgres_server.url("notes", user="cli_word"))
        assert "holds no log" in result.err
        assert "all users" not in result.err
    finally:
        postgres_server.drop_role("cli_word")


def test_a_missing_database_or_server(program: Program, postgres_server: Server) -> None:
    result = program("info", postgres_server.url(database="nowhere"))
    assert result.code == 1
    assert 'database "nowhere" does not exist' in result.err
    result = program("info", postgres_server.url(host=Path("/nowhere")))
    assert result.code == 1
    assert "/nowhere/.s.PGSQL.5432" in result.err
    result = program("info", "postgresql://127.0.0.1:1/notes")
    assert result.code == 1
    assert "127.0.0.1" in result.err


def test_a_role_without_rights(program: Program, made: str, postgres_server: Server) -> None:
    postgres_server.role("cli_nobody")
    try:
        schema = made.partition("schema=")[2]
        result = program("read", made.replace(f"{USER}@", "cli_nobody@"))
        assert result.code == 1
        assert f'GRANT USAGE ON SCHEMA "{schema}"' in result.err
        result = program("init", postgres_server.url("of_nobody", user="cli_nobody"), "--topic", "notes")
        assert result.code == 1
        assert 'CREATE SCHEMA "of_nobody" AUTHORIZATION' in result.err
        postgres_server.run(f"GRANT USAGE ON SCHEMA {schema} TO cli_nobody")
        postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO cli_nobody")
        reader = made.replace(f"{USER}@", "cli_nobody@")
        assert len(program("read", reader).records) == 2
        result = program("append", reader, "1")
        assert result.code == 1
        assert "the role lacks a right" in result.err
    finally:
        postgres_server.drop_role("cli_nobody")


@pytest.mark.parametrize("name", ['sch"ema', "Sch%ma @x", "select", "naïve", "a'b\\c", "x" * 63])
def test_names_that_need_quoting(program: Program, postgres_server: Server, name: str) -> None:
    url = postgres_server.url(name)
    try:
        assert program("init", url, "--topic", "notes").code == 0
        assert program("append", url, "1").code == 0
        assert program("verify", url).record["messages"] == 1
        if name.startswith("sch"):
            assert program("backup", url, "notes.dump").record["messages"] == 1
    finally:
        postgres_server.drop_schema(name)


def test_a_search_path_does_not_matter(program: Program, made: str, postgres_server: Server) -> None:
    """Neither the user's setting, nor tables and functions of the same names in another schema, are looked at."""
    # A role of its own: that of the other tests has its settings in their sessions, too.
    role = "cli_path"
    postgres_server.role(role)
    postgres_server.run(f"GRANT {USER} TO {role}")
    postgres_server.run(f"CREATE SCHEMA evil AUTHORIZATION {role}")
    url = made.replace(f"//{USER}@", f"//{role}@")
    try:
        with postgres_server.connect(role) as connection:
            connection.execute("SET search_path = evil")
            connection.execute("CREATE TABLE gossiplog_messages(seq bigint, links bytea, value bytea)")
            connection.execute("CREATE TABLE gossiplog_meta(name text, value text)")
            connection.execute("CREATE FUNCTION max(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint'")
        postgres_server.run(f"ALTER ROLE {role} SET search_path = evil, pg_catalog")
        assert postgres_server.run("SHOW search_path", user=role) == [("evil, pg_catalog",)]
        assert program("append", f"{url}&options=-csearch_path%3Devil,pg_catalog", "3").code == 0
        assert program("verify", url).record["messages"] == 3
    finally:
        postgres_server.drop_schema("evil")
        postgres_server.drop_role(role)


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("postgresql:/localhost/notes", "no two slashes is neither a URL nor the name of a file"),
        ("postgres:notes", "no two slashes is neither a URL nor the name of a file"),
        (f"postgresql://me:{SECRET}@x@localhost/notes", "more than one @"),
        (f"postgresql://me:{SECRET}/@localhost/notes", "more than one @"),
        (f"postgresql://localhost:{SECRET}/notes", "a port is not a number"),
        ("postgresql://localhost/notes?schema=pg_x", "Postgres' own"),
        (f"postgresql://localhost/notes?nosuch={SECRET}", "nosuch"),
    ],
)
def test_urls_that_are_none(program: Program, argument: str, said: str) -> None:
    for command in (("info",), ("sync", "notes.db"), ("backup",)):
        result = program(*command, argument, *(["copy"] if command == ("backup",) else []))
        assert result.code in (1, 2)
        assert said in result.err
        assert SECRET not in result.err


def test_other_arguments_with_passwords_are_not_repeated(program: Program, log: Path) -> None:
    for scheme in ("postgresql://", "postgresql:/", "postgress://", "mysql:/"):
        _check_hidden(program, log, f"{scheme}me:{SECRET}@localhost/notes")


def _check_hidden(program: Program, log: Path, url: str) -> None:
    for arguments in (
        ("info", url),
        ("info", log, url),
        ("sync", log, url),
        ("import", log, url),
        ("append", log, url),
        ("backup", log, url),
        ("rebase", log, "--onto", url),
        ("repair", log, f"--from={url}"),
        ("serve", log, "--hub", url),
        ("serve", log, "--identity", url),
    ):
        result = program(*arguments)
        assert SECRET not in result.err + result.out, arguments


def test_what_is_misspelt_is_named(program: Program, made: str, home: Path) -> None:
    schema = made.partition("schema=")[2]
    assert f"holds no log in its schema {schema}_none (there are logs in " in program("info", f"{made}_none").err
    (line,) = program("info", made.replace("schema=", "shema=")).err.splitlines()
    assert "did you mean schema?" in line
    for command in (("info",), ("append",), ("init",)):
        result = program(*command, "mysql://localhost/notes", *(["x"] if command == ("append",) else []))
        assert "a log is no mysql:// URL: expected the path of a file, or postgresql://" in result.err, command
    for command in (("keygen",), ("backup", made)):
        assert "a URL of Postgres is no file" in program(*command, made).err, command
    assert not (home / "postgresql:").exists()


def test_the_driver_is_missing(program: Program, monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith("gossiplog.storage.postgres") and "url" not in name]:
        monkeypatch.delitem(sys.modules, name)
    result = program("info", postgres_url)
    assert result.code == 1
    assert result.err.endswith("whose driver is missing: pip install 'gossiplog[postgres]' installs it\n")


def test_a_mesh_needs_a_key_of_its_own(program: Program, made: str) -> None:
    result = program("serve", made, "--listen", "/ip4/127.0.0.1/tcp/0/ws")
    assert result.code == 2
    assert "--identity is missing" in result.err


def test_errors_of_the_driver_are_none_of_ours(postgres_server: Server) -> None:
    """The tests above would not notice a server that takes any password."""
    postgres_server.role("cli_check", password=SECRET)
    try:
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(postgres_server.url(user="cli_check", password="x"))
    finally:
        postgres_server.drop_role("cli_check")


@pytest.mark.integration
def test_what_serves_shows_no_password(program: Program, made: str, home: Path) -> None:
    """Not in its lines, its pages and metrics, in copies of its environment, nor in the arguments of others."""
    given = made.replace(f"{USER}@", f"{USER}:{SECRET}@")
    options = ("--hub", "127.0.0.1:0", "--dashboard", "--log-level", "debug", "--access-log")
    with HubProcess(given, *options, "--listen", "/ip4/127.0.0.1/tcp/0/ws", "--identity", "id.key") as served:
        assert served.ready["log"] == made
        assert program("sync", "copy.db", served.ready["hub"], "--topic", "notes").record["inserted"] == 2
        assert program("append", "copy.db", '{"b":1}').code == 0
        assert program("sync", "copy.db", served.ready["hub"]).record["sent"] == 1
        # A commit of another process reaches a client.
        assert program("append", made, '{"c":1}').code == 0
        assert program("sync", "copy.db", served.ready["hub"]).record["inserted"] == 1
        hub = served.ready["api"].removesuffix("/api")
        for page in (served.ready["page"], f"{hub}/metrics", f"{hub}/peers"):
            with urllib.request.urlopen(urllib.request.Request(page, headers={"Accept": "text/html"})) as answer:
                assert SECRET.encode() not in answer.read()
        children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
        assert not any(SECRET.encode() in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)
        served.process.send_signal(signal.SIGTERM)
        out, err = served.process.communicate(timeout=PATIENCE)
        assert served.process.returncode == 0
    assert SECRET.encode() not in out + err
    assert b"PGPASSWORD" in err
    assert len(program("read", made).records) == 4


@pytest.mark.integration
def test_a_hub_of_a_reader_says_so_and_stays_ready(
    program: Program, made: str, postgres_server: Server, home: Path
) -> None:
    schema = made.partition("schema=")[2]
    postgres_server.role("cli_reader")
    try:
        postgres_server.run(f"GRANT USAGE ON SCHEMA {schema} TO cli_reader")
        postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO cli_reader")
        reader = made.replace(f"{USER}@", "cli_reader@")
        with HubProcess(reader, "--hub", "127.0.0.1:0") as served:
            hub = served.ready["hub"]
            assert program("sync", "copy.db", hub, "--topic", "notes").record["inserted"] == 2
            assert program("append", "copy.db", '{"b":1}').code == 0
            refused = program("sync", "copy.db", hub)
            assert "that the log cannot be written, and lacks messages of this log" in refused.err
            ready = served.ready["api"].removesuffix("/api") + "/readyz"
            with urllib.request.urlopen(ready) as answer:
                assert answer.status == 200
            served.process.send_signal(signal.SIGTERM)
            _, err = served.process.communicate(timeout=PATIENCE)
        (line,) = err.decode().splitlines()
        assert "clients can only read: the role cli_reader lacks the right to INSERT on" in line
        # Into such a log nothing is synced.
        result = program("sync", reader, "copy.db")
        assert (result.code, result.out) == (1, "")
        mesh = program("serve", reader, "--listen", "/ip4/127.0.0.1/tcp/0/ws", "--identity", "id.key")
        assert mesh.code == 1
        assert "cannot store what others send: the role cli_reader lacks" in mesh.err
    finally:
        postgres_server.drop_role("cli_reader")


def test_a_git_history_is_imported(program: Program, branching: Repository, postgres_url: str) -> None:
    assert program("import-git", postgres_url, branching.path, "--topic", "notes").record["inserted"] == 9
    assert program("verify", postgres_url).record["messages"] == 9
