from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gossiplog import Signer, StorageError
from gossiplog.log import Log
from gossiplog.storage.postgres import backup
from gossiplog.storage.postgres.storage import PostgresStorage
from tests import postgres
from tests.places import Place
from tests.postgres import Server

TOPIC = "org.example.test"


@pytest.fixture(autouse=True)
def _pg_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian has a pg_dump on the path that looks for clusters of its own; this is the one of the servers' version."""
    folder = str(Path(postgres.program("pg_dump")).parent)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_backup_is_restored_with_the_applications_tables(
    postgres_server: Server, postgres_url: str, tmp_path: Path, signer: Signer, opened: Callable[..., Log]
) -> None:
    place = Place(postgres_url)
    place.rows("CREATE TABLE notes (a integer)")
    insert = "INSERT INTO notes VALUES (%s)"
    log = opened(postgres_url, TOPIC, signer=signer, apply=lambda message, to: to.execute(insert, (message.payload,)))
    log.append_many(range(20))
    target = tmp_path / "log.dump"
    assert log.backup(target) == 20
    assert target.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [target]
    root = log.root
    log.append(20)
    log.close()
    schema = PostgresStorage(postgres_url).url.schema
    postgres_server.drop_schema(schema)
    subprocess.run(
        [postgres.program("pg_restore"), "--dbname", "", str(target)],
        env={**os.environ, **postgres_server.environment},
        check=True,
    )
    restored = opened(postgres_url, None)
    assert (len(restored), restored.root) == (20, root)
    assert restored.verify().messages == 20
    assert place.rows("SELECT count(*) FROM notes") == [(20,)]


def test_a_backup_may_take_longer_than_a_transaction_may_idle(in_postgres: PostgresStorage, tmp_path: Path) -> None:
    url = f"{in_postgres.url}&options=-c%20idle_in_transaction_session_timeout%3D1"
    with closing(PostgresStorage(url)) as storage:
        storage.open(None, False)
        assert storage.backup(str(tmp_path / "log.dump")) == 0


def test_what_is_there_is_not_written_over(in_postgres: PostgresStorage, tmp_path: Path) -> None:
    target = tmp_path / "log.dump"
    target.write_text("mine")
    with pytest.raises(StorageError, match="is there already"):
        in_postgres.backup(str(target))
    assert target.read_text() == "mine"
    with pytest.raises(StorageError, match="there is no folder"):
        in_postgres.backup(str(tmp_path / "nowhere" / "log.dump"))


def test_what_pg_dump_lacks_is_said(
    in_postgres: PostgresStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup.shutil, "which", lambda name: None)
    with pytest.raises(StorageError, match="postgresql-client"):
        in_postgres.backup(str(tmp_path / "log.dump"))
    monkeypatch.setattr(backup.shutil, "which", lambda name: "/bin/false")
    with pytest.raises(StorageError, match="pg_dump ended with status 1"):
        in_postgres.backup(str(tmp_path / "log.dump"))
    assert [*tmp_path.iterdir()] == []


def test_no_argument_of_pg_dump_has_the_password(
    postgres_server: Server, in_postgres: PostgresStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = in_postgres.url.schema
    postgres_server.role("dumper", password="a s3cret")
    seen: list[list[str]] = []
    run = subprocess.run

    def noting(command: list[str], **options: object) -> object:
        seen.append(command)
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(backup.subprocess, "run", noting)
    try:
        postgres_server.run(f"GRANT USAGE ON SCHEMA {schema} TO dumper")
        postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO dumper")
        storage = PostgresStorage(postgres_server.url(schema, user="dumper", password="a s3cret"), read_only=True)
        storage.open(None, False)
        assert storage.backup(str(tmp_path / "log.dump")) == 0
        storage.close()
    finally:
        postgres_server.drop_role("dumper")
    assert len(seen) == 1
    assert "s3cret" not in " ".join(seen[0])
