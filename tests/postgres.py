"""Private servers of Postgres: one for all tests of a run, and others for tests that stop or break theirs.

The first test that needs one starts it, whichever process it runs in; all other processes of the run find it in the
same folder. It ends when the last of them has ended, however that ended: a shell waits for the end of a pipe that they
all hold. Servers listen on a unix socket alone, and write nothing through to the disk unless a test asks for that.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, LiteralString, cast
from urllib.parse import quote

import psycopg
from psycopg import sql

# .ci/system-packages looks for the same.
_BINARIES = "/usr/lib/postgresql/*/bin"
_INSTALL = "apt-get install --yes --no-install-recommends postgresql"
_SUPERUSER = "postgres"
USER = "gossip"
"""The role of tests: no superuser, owner of its database."""
DATABASE = "notes"
WITH_PASSWORD = "with_password"
"""Roles that are members of this one have to give their password; all others are believed."""
_LOCK_TIMEOUT = "5s"
SOCKET = ".s.PGSQL.5432"
"""How libpq names the socket of port 5432, in the folder that is its host."""
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "min_wal_size": "32MB",
    "max_wal_size": "128MB",
    "log_min_messages": "warning",
    "password_encryption": "scram-sha-256",
}
# Forks have the same folder, and hold the same pipe.
_FOLDER = Path(
    "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir(),
    f"gossiplog-postgres-{os.getpid()}-{secrets.token_hex(4)}",
)
_WAITS_FOR, _HELD = os.pipe()
_NUMBERS = count(1)
_SHARED = _FOLDER / "shared"
# Of each process, by its id: a fork must not use its parent's.
_KEPT: dict[int, psycopg.Connection[Any]] = {}
# What ends the servers of a folder, and removes it, when nobody holds the pipe that is its input.
_CLEAN_UP = """
exec 3<&0
(
read -r _ <&3
for pid in "$1"/*/data/postmaster.pid; do [ -f "$pid" ] && kill -QUIT "$(head -n 1 "$pid")"; done
for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1" 2>/dev/null && break; sleep 0.2; done
) &
"""


class Server:
    """A server in a folder of its own.

    Args:
        folder: holds `data`, the socket, and the server's log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> str:
        """What the server has written into its log."""
        return (self.folder / "log").read_text(encoding="utf-8")

    def url(
        self,
        schema: str = "",
        *,
        user: str = USER,
        password: str = "",
        database: str = DATABASE,
        host: Path | None = None,
        **parameters: str,
    ) -> str:
        """Return the URL of a schema on this server.

        Args:
            schema: "" for none in the URL.
            user: the role.
            password: "" for none in the URL.
            database: on the server.
            host: the folder of another socket, as that of a proxy.
            **parameters: libpq's.
        """
        given = {"host": str(host or self.folder), **parameters} | ({"schema": schema} if schema else {})
        query = "&".join(f"{name}={quote(value, safe='/')}" for name, value in given.items())
        word = f":{quote(password, safe='')}" if password else ""
        return f"postgresql://{quote(user, safe='')}{word}@/{quote(database, safe='')}?{query}"

    @property
    def environment(self) -> dict[str, str]:
        """By which libpq finds this server where a URL names none, as in the blocks of docs."""
        return {"PGHOST": str(self.folder), "PGUSER": USER, "PGDATABASE": DATABASE}

    def connect(self, user: str = _SUPERUSER, database: str = DATABASE, **parameters: Any) -> psycopg.Connection[Any]:
        """Return a connection that commits each statement."""
        return psycopg.connect(host=str(self.folder), user=user, dbname=database, autocommit=True, **parameters)

    def run(self, statement: str, *parameters: Any, user: str = _SUPERUSER, database: str = DATABASE) -> list[Any]:
        """Run a statement on a connection of its own, as the superuser by default; return its rows."""
        with self.connect(user, database) as connection:
            cursor = connection.execute(cast(LiteralString, statement), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self._pg_ctl("start", "-l", str(self.folder / "log"), "-t", "120")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` ends its connections, `immediate` is a crash without a kill."""
        self._pg_ctl("stop", "-m", mode, "-t", "120")

    def restart(self, mode: str = "fast") -> None:
        """Stop and start the server."""
        self.stop(mode)
        self.start()

    def promote(self) -> None:
        """Make a standby a server of its own, and wait until it writes."""
        self._pg_ctl("promote", "-t", "120")

    def backends(self, name: str = "") -> list[int]:
        """Return the processes that serve clients, but for the one asked; those of an `application_name` if given."""
        found = self.run(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            " AND (%s = '' OR application_name = %s) ORDER BY pid",
            name,
            name,
        )
        return [pid for (pid,) in found]

    def end_backends(self, name: str = "") -> int:
        """End connections as an administrator does; return how many."""
        ended = self.run(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            " AND pid <> pg_backend_pid() AND (%s = '' OR application_name = %s)",
            name,
            name,
        )
        return len(ended)

    def kill_backends(self, name: str = "") -> int:
        """Kill the processes of connections, upon which the server restarts all others, too; return how many."""
        found = self.backends(name)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return len(found)

    def kill(self) -> None:
        """Kill the server with all its processes."""
        pid = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)
        _wait_for_end([pid, *map(int, children)])
        # A container may have nobody who takes note of their end: the next start would take them for alive.
        (self.data / "postmaster.pid").unlink()
        (self.folder / f"{SOCKET}.lock").unlink()

    def configure(self, **settings: str) -> None:
        """Change settings that need no restart."""
        with self.connect() as connection:
            for name, value in settings.items():
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
            connection.execute("SELECT pg_reload_conf()")

    def standby(self, name: str = "standby") -> Server:
        """Return a read-only copy that follows this server, started."""
        follower = Server(_made(self.folder.parent / f"{self.folder.name}-{name}"))
        _as_server(
            follower.folder,
            *("pg_basebackup", "-h", self.folder, "-U", _SUPERUSER, "-D", follower.data),
            *("-R", "-X", "stream", "-c", "fast", "--no-sync"),
        )
        _configure(follower, {})
        follower.start()
        return follower

    def end_following(self) -> None:
        """Have a standby get nothing more of what its server commits, as where the line to that is cut."""
        self.configure(primary_conninfo="")
        with self.connect() as connection:
            while connection.execute("SELECT FROM pg_stat_wal_receiver").fetchall():
                connection.execute("SELECT pg_sleep(0.01)")

    def wait_for_replay(self, follower: Server) -> None:
        """Wait until a standby has all that this server has committed."""
        (((position,),)) = self.run("SELECT pg_current_wal_lsn()::text")
        with follower.connect() as connection:
            behind = True
            while behind:
                row = connection.execute(
                    "SELECT pg_last_wal_replay_lsn() < %s::pg_lsn, pg_sleep(0.01)", [position]
                ).fetchone()
                assert row is not None
                behind = row[0]

    def role(self, name: str, *, password: str = "", superuser: bool = False) -> None:
        """Make a role that may log in; one with a password has to give it."""
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN {} PASSWORD {}").format(
                    sql.Identifier(name), sql.SQL("SUPERUSER" if superuser else ""), sql.Literal(password or None)
                )
            )
            if password:
                connection.execute(
                    sql.SQL("GRANT {} TO {}").format(sql.Identifier(WITH_PASSWORD), sql.Identifier(name))
                )

    def drop_role(self, name: str) -> None:
        """Drop a role with its rights in the tests' database."""
        with self.connect() as connection:
            for statement in ("DROP OWNED BY {} CASCADE", "DROP ROLE {}"):
                connection.execute(sql.SQL(statement).format(sql.Identifier(name)))  # type: ignore[arg-type]

    def drop_schema(self, name: str) -> None:
        """Drop a schema, and end connections that keep that from happening."""
        statement = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name))
        with self._dropping() as connection:
            try:
                connection.execute(statement)
            except psycopg.errors.LockNotAvailable:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks JOIN pg_class ON relation = pg_class.oid"
                    " WHERE relnamespace = %s::regnamespace AND pid <> pg_backend_pid()",
                    [sql.Identifier(name).as_string(connection)],
                )
                connection.execute(statement)

    @contextmanager
    def _dropping(self) -> Iterator[psycopg.Connection[Any]]:
        """Provide a connection to drop schemas by: one is kept to the server of all tests, and others are closed.

        Opening one costs the server three times what dropping the schema of a log does.
        """
        process = os.getpid()
        connection = _KEPT.get(process) if self.folder == _SHARED else None
        if connection is None or connection.closed:
            connection = self.connect(options=f"-c lock_timeout={_LOCK_TIMEOUT} -c client_min_messages=warning")
        try:
            yield connection
        finally:
            if self.folder == _SHARED:
                _KEPT[process] = connection
            else:
                connection.close()

    def _pg_ctl(self, *arguments: str) -> None:
        _as_server(self.folder, "pg_ctl", "-D", self.data, "-w", "-s", *arguments)


def shared_server() -> Server:
    """Return the server of all tests of this run; start it if this is the first test that needs it."""
    with _locked():
        server = Server(_SHARED)
        if not (server.folder / "ready").exists():
            _begin(server, {})
            (server.folder / "ready").touch()
    return server


@contextmanager
def own_server(**settings: str) -> Iterator[Server]:
    """Run a server for one test, which may stop it, break it, and make standbys of it.

    Args:
        **settings: of postgresql.conf; `fsync="on", full_page_writes="on"` for tests about what a crash leaves.
    """
    with _locked():
        server = Server(_FOLDER / f"own-{os.getpid()}-{next(_NUMBERS)}")
    _begin(server, settings)
    try:
        yield server
    finally:
        for folder in _FOLDER.glob(f"{server.folder.name}*"):
            if (folder / "data" / "postmaster.pid").exists():
                Server(folder).stop("immediate")
            shutil.rmtree(folder)


@contextmanager
def schema_of(server: Server, name: str = "") -> Iterator[str]:
    """Lend the name of a schema that does not exist yet, and drop it afterwards."""
    schema = name or f"test_{os.getpid()}_{next(_NUMBERS)}"
    try:
        yield schema
    finally:
        server.drop_schema(schema)


@contextmanager
def _locked() -> Iterator[None]:
    """Keep other processes of the run out, and make the folder with what removes it."""
    _FOLDER.mkdir(mode=0o700, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        template = _FOLDER / "template"
        if not template.exists():
            # By their names, since it has to run when this process has gone.
            subprocess.run(
                ["/bin/sh", "-c", _CLEAN_UP, "sh", str(_FOLDER)],
                stdin=_WAITS_FOR,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                check=True,
            )
            own(_FOLDER)
            _as_server(
                _FOLDER,
                *("initdb", "-D", template, "-U", _SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C"),
                *("--no-sync", "--no-instructions"),
            )
        yield


def _begin(server: Server, settings: Mapping[str, str]) -> None:
    _made(server.folder)
    subprocess.run(["cp", "-Rp", _FOLDER / "template", server.data], check=True)
    _configure(server, settings)
    server.start()
    with server.connect(database="postgres") as connection:
        connection.execute(f"CREATE ROLE {WITH_PASSWORD}")
        connection.execute(f"CREATE ROLE {USER} LOGIN")
        connection.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}")


def _configure(server: Server, settings: Mapping[str, str]) -> None:
    given = {**_SETTINGS, "unix_socket_directories": str(server.folder), **settings}
    with (server.data / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in given.items())
    (server.data / "pg_hba.conf").write_text(
        f"local all +{WITH_PASSWORD} scram-sha-256\nlocal all all trust\nlocal replication all trust\n",
        encoding="utf-8",
    )


def _as_server(folder: Path, name: str, *arguments: str | Path) -> None:
    """Run a program of Postgres, which refuses to run as root; its output is part of the error if it fails."""
    command = [str(_program(name)), *map(str, arguments)]
    # A pipe would stay open in the server that it starts.
    with (folder / "output").open("wb") as output:
        run = subprocess.run(
            command,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            **account(),
        )
    if run.returncode:
        said = [each.read_text(errors="replace") for each in (folder / "output", folder / "log") if each.exists()]
        raise RuntimeError(f"{' '.join(command)} failed:\n{''.join(said)}")


@cache
def account() -> dict[str, Any]:
    """Return what subprocess takes to run a program as the user that Debian's package makes, where this is root."""
    if os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        raise RuntimeError(
            f"Postgres refuses to run as root, and there is no user postgres: {_INSTALL} makes one"
        ) from None
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    own(folder)
    return folder


def own(folder: Path) -> None:
    """Give a folder to the user that Postgres runs as."""
    if found := account():
        os.chown(folder, found["user"], found["group"])


@cache
def _program(name: str) -> Path:
    """Return the path of a program of Postgres: Debian has them where nobody looks for programs."""
    folders = sorted(
        Path("/").glob(_BINARIES[1:]), key=lambda path: [int(part) for part in path.parent.name.split(".")]
    )
    on_path = shutil.which(name)
    found = [*([Path(on_path)] if on_path and not folders else []), *(each / name for each in folders)]
    if not found or not os.access(found[-1], os.X_OK):
        raise RuntimeError(f"the tests of Postgres start servers of their own, and {name} is missing: {_INSTALL}")
    return found[-1]


def program(name: str) -> str:
    """Return the path of a program of Postgres, as `psql` and `pg_dump`, of the version of the servers."""
    return str(_program(name))


def _wait_for_end(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        select.select([descriptor], [], [])
        os.close(descriptor)
