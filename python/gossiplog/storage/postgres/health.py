"""What a server of Postgres says about itself, and about what a role may do with a log there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossiplog.storage.postgres.connections import Session, TextArray
from gossiplog.storage.postgres.errors import PostgresErrors, hiding
from gossiplog.storage.postgres.tables import COLUMNS
from gossiplog.storage.postgres.url import PostgresURL

_SERVER = """
    SELECT pg_catalog.current_setting('server_version'), pg_catalog.pg_is_in_recovery(),
      pg_catalog.current_setting('data_checksums') = 'on', pg_catalog.current_user()::pg_catalog.text
"""
# What a transaction that writes needs; the tables that it only adds to are all but two.
_MAY_WRITE = """
    SELECT pg_catalog.bool_and(pg_catalog.has_table_privilege(c.oid, 'INSERT')) FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %b AND c.relname = ANY(%b)
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
        may_write: whether the role may add messages.
        formers: schemas that a rebase or a repair has kept.
    """

    version: str
    is_standby: bool
    has_checksums: bool
    role: str
    may_write: bool
    formers: Sequence[str]


def look_at_server(url: PostgresURL) -> ServerHealth:
    """Ask a server about itself, and about the log at a URL.

    Raises:
        StorageError: it cannot be reached.
    """
    with PostgresErrors(url.place, "open", hiding(url)):
        session = Session(url, synchronous="full")
        try:
            version, is_standby, has_checksums, role = session.one(_SERVER)
            (may_write,) = session.one(_MAY_WRITE, (url.schema, TextArray(COLUMNS)))
            # A pattern of the schema's name, in which nothing but letters and digits stands for itself.
            name = "".join(char if char.isalnum() or char == "_" else f"\\{char}" for char in url.schema)
            formers = [former for (former,) in session.rows(_FORMERS, (f"^{name}{_IN_WORDS}",))]
        finally:
            session.close()
    return ServerHealth(version.split()[0], is_standby, has_checksums, role, bool(may_write), formers)
