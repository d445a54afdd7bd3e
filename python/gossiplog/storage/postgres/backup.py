"""Copies of a log in Postgres: what pg_dump writes of its schema, in its custom format.

So an application's tables, their indices and their rights come with the log, which no other back end could carry, and
pg_restore makes it anew in any server of the same version or a later one. The messages alone go into a file of SQLite,
or anywhere else, by `gossiplog sync`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gossiplog.errors import StorageError
from gossiplog.files import publish, sync
from gossiplog.storage.postgres.connections import quoted
from gossiplog.storage.postgres.url import PostgresURL

# Of what pg_dump says where it fails.
_MOST_WORDS = 500


def back_up(url: PostgresURL, snapshot: str, target: str, hide: Callable[[str], str]) -> None:
    """Write one state of a log's schema to a new file, which has its name when it is whole and on the disk.

    Args:
        url: of the log.
        snapshot: of the state, as pg_export_snapshot gave it, in a transaction that has not ended.
        target: the path of the new file.
        hide: removes secrets from a text.

    Raises:
        StorageError: there is a file of the name already, it cannot be written, or pg_dump fails or is not there.
    """
    path = Path(os.path.abspath(target))
    if os.path.lexists(path):
        raise StorageError(f"{target} is there already: give the name of a new file")
    if not path.parent.is_dir():
        raise StorageError(f"cannot make {target}: there is no folder {path.parent}; make it first")
    program = shutil.which("pg_dump")
    if program is None:
        raise StorageError(
            "a backup of a log in Postgres is made by pg_dump, which is not there: install Postgres' client programs"
            " (postgresql-client), or copy the messages with gossiplog sync"
        )
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _dump(program, url, snapshot, partial, hide)
        sync(str(partial))
        # A name that another program has taken meanwhile is not overwritten.
        publish(partial, path)
    except FileExistsError:
        raise StorageError(f"{target} is there already: give the name of a new file") from None
    except OSError as error:
        raise StorageError(f"cannot make {target}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            os.unlink(partial)


def _dump(program: str, url: PostgresURL, snapshot: str, partial: Path, hide: Callable[[str], str]) -> None:
    secrets = dict(url.parameters)
    password = secrets.pop("password", None)
    # Other users see the arguments of a process, and not its environment.
    environment = {**os.environ, **({} if password is None else {"PGPASSWORD": password})}
    shown = PostgresURL(tuple(secrets.items()), url.schema)
    if shown.has_secret:
        raise StorageError(
            f"cannot back up {url.place}: pg_dump takes secrets other than a password from its environment or from"
            " files only; name them there (https://www.postgresql.org/docs/current/libpq-envars.html)"
        )
    ran = subprocess.run(
        [
            program,
            "--format=custom",
            f"--schema={quoted(url.schema)}",
            f"--snapshot={snapshot}",
            f"--file={partial}",
            "--no-password",
            f"--dbname={shown.conninfo}",
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if ran.returncode:
        said = " ".join(hide(ran.stderr.decode(errors="replace")).split())[:_MOST_WORDS]
        raise StorageError(f"cannot back up {url.place}: pg_dump ended with status {ran.returncode}: {said}")
