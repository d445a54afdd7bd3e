"""What `gossiplog doctor` looks at where a log is in Postgres."""

from __future__ import annotations

from collections.abc import Iterator

from gossiplog.cli.findings import Finding, Severity, find_contents
from gossiplog.errors import StorageError
from gossiplog.reprs import shell_path
from gossiplog.storage.base import SCHEMA
from gossiplog.storage.location import server_health, storage_at
from gossiplog.storage.postgres.url import PostgresURL


def find_in_postgres(url: PostgresURL, quick: bool) -> Iterator[Finding]:
    """Yield what is found of a log in Postgres.

    Args:
        url: of the log.
        quick: do not verify the messages.

    Raises:
        NotALog: there is none.
    """
    try:
        server = server_health(url)
    except StorageError as error:
        yield Finding("server", Severity.WRONG, str(error))
        return
    kind = ", a standby, which takes no writes" if server.is_standby else ""
    severity = Severity.NOTE if server.is_standby else Severity.FINE
    yield Finding("server", severity, f"Postgres {server.version}{kind}")
    if not server.has_checksums:
        finding = "it has no checksums, by which a server finds damaged pages itself (pg_checksums --enable)"
        yield Finding("server", Severity.NOTE, finding)
    if not server.write_refusal:
        yield Finding("permissions", Severity.FINE, f"the role {server.role} can read and write it")
    elif not server.is_standby:
        finding = f"it cannot be written: {server.write_refusal}. docs/postgres.md has the GRANTs of a writer"
        yield Finding("permissions", Severity.NOTE, finding)
    for former in server.formers:
        name = former.replace('"', '""')
        finding = (
            f'the schema {former} is a log that a rebase or a repair has kept: DROP SCHEMA "{name}" CASCADE removes it'
        )
        yield Finding("leftovers", Severity.NOTE, finding)
    yield from find_contents(
        url, "tables", _tables(url), lambda: f"gossiplog repair {shell_path(url.place)} --from SOURCE", quick=quick
    )


def _tables(url: PostgresURL) -> Iterator[Finding]:
    storage = storage_at(url, read_only=True)
    storage.open(None, create=False)
    storage.close()
    yield Finding("tables", Severity.FINE, f"version {SCHEMA}")
