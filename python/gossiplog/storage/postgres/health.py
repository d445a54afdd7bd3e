"""What a server of Postgres says about itself, and about what a role may do with a log there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gossiplog.reprs import listed
from gossiplog.storage.postgres.connections import Session, TextArray
from gossiplog.storage.postgres.errors import PostgresErrors, hiding
from gossiplog.storage.postgres.tables import COLUMNS
from gossiplog.storage.postgres.url import PostgresURL

_SERVER = """
    SELECT pg_catalog.current_setting('server_version'), pg_catalog.pg_is_in_recovery(),
      pg_catalog.current_setting('data_checksums') = 'on', pg_catalog.current_user()::pg_catalog.text
"""
# Before a transaction that writes begins, its settings are those of the session.
_TAKES_WRITES = """
    SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on',
      pg_catalog.current_user()::pg_catalog.text
"""
# What transactions that write need.
_RIGHTS: Mapping[str, Sequence[str]] = {
    "INSERT": tuple(COLUMNS),
    "UPDATE": ("gossiplog_tree", "gossiplog_meta"),
    "DELETE": ("gossiplog_heads",),
}
_LACKS = """
    SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %b AND c.relname = ANY(%b)
      AND NOT pg_catalog.has_table_privilege(c.oid, %b) ORDER BY 1
"""
_FORMERS = """
    SELECT nspname::pg_catalog.text FROM pg_catalog.pg_namespace AS n
    WHERE nspname ~ %b AND EXISTS (
      SELECT FROM pg_catalog.pg_class WHERE relnamespace = n.oid AND relname = 'gossiplog_meta'
    ) ORDER BY 1
"""
_IN_WORDS = r"_(generation_\d+|damaged)(_\d+)?$"


@dataclass(frozen=True, slots=True)
class ServerHealth:
    """What was found.

    Attributes:
        version: of the server.
        is_standby: whether it takes no writes.
        has_checksums: whether it finds damaged pages itself.
        role: as which this program is connected.
        write_refusal: why the role cannot write to the log; "" if it can.
        formers: schemas that a rebase or a repair has kept.
    """

    version: str
    is_standby: bool
    has_checksums: bool
    role: str
    write_refusal: str
    formers: Sequence[str]


def look_at_server(url: PostgresURL) -> ServerHealth:
    """Ask a server about itself, and about the log at a URL.

    Raises:
        StorageError: it cannot be reached.
    """
    with PostgresErrors(url.place, "open", hiding(url)):
        session = Session(url, synchronous="full")
        try:
            with session.reading():
                version, is_standby, has_checksums, role = session.one(_SERVER)
                refusal = find_write_refusal(session, url.schema)
                # A pattern of the schema's name, in which nothing but letters and digits stands for itself.
                name = "".join(char if char.isalnum() or char == "_" else f"\\{char}" for char in url.schema)
                formers = [former for (former,) in session.rows(_FORMERS, (f"^{name}{_IN_WORDS}",))]
        finally:
            session.close()
    return ServerHealth(version.split()[0], is_standby, has_checksums, role, refusal, formers)


def find_write_refusal(session: Session, schema: str) -> str:
    """Return why a role cannot write to the log in a schema; "" if it can."""
    is_standby, is_read_only, role = session.one(_TAKES_WRITES)
    if is_standby:
        return "the server is a standby, which takes no writes"
    if is_read_only:
        return f"default_transaction_read_only is on for the server or the role {role}"
    lacks = [
        f"{right} on {listed(tables, len(tables))}"
        for right, needed in _RIGHTS.items()
        if (tables := [table for (table,) in session.rows(_LACKS, (schema, TextArray(needed), right))])
    ]
    return f"the role {role} lacks the right to {', and to '.join(lacks)}" if lacks else ""
