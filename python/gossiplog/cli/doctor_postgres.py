"""What `gossiplog doctor` looks at where a log is in Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import gossiplog.log
from gossiplog.cli.findings import PROBLEMS, SOURCE, Finding, Severity, find_application
from gossiplog.cli.output import progress
from gossiplog.errors import CorruptLog, NewerSchema, NotALog, OlderSchema, StorageError, TreeError
from gossiplog.log.log import replica_of
from gossiplog.reprs import counted, listed, shell_path
from gossiplog.storage.base import SCHEMA
from gossiplog.storage.location import server_health
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
    yield from _contents(url, quick)


def _contents(url: PostgresURL, quick: bool) -> Iterator[Finding]:
    log = shell_path(url.place)
    try:
        with gossiplog.log.open(url, read_only=True) as opened:
            yield Finding("tables", Severity.FINE, f"version {SCHEMA}")
            if quick:
                replica_of(opened).check_appendable()
                yield Finding("messages", Severity.NOTE, "not verified (--quick)")
            else:
                with progress("Verifying", len(opened)) as advance:
                    verified = opened.verify(advance)
                yield Finding("messages", Severity.FINE, f"{counted(verified.messages, 'message')}, all sound")
        yield find_application(url)
    except (NewerSchema, OlderSchema) as error:
        yield Finding("tables", Severity.WRONG, str(error))
    except (CorruptLog, TreeError) as error:
        found = error.problems if isinstance(error, CorruptLog) else [str(error)]
        finding = f"{listed(found, PROBLEMS, separator='; ')}{SOURCE if quick else ''}"
        yield Finding("damage", Severity.WRONG, finding, f"gossiplog repair {log} --from SOURCE")
    except NotALog:
        raise
    except StorageError as error:
        yield Finding("messages", Severity.WRONG, str(error))
