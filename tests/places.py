"""Where a log is that an application keeps tables beside, and how another program reads and changes these."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql

from gossiplog.storage.postgres.url import PostgresURL


class Place:
    """A file of SQLite, or a schema of Postgres.

    Args:
        location: the path or the URL, as `gossiplog.open` takes it.
    """

    def __init__(self, location: Path | str) -> None:
        self.location: Any = location
        self.is_postgres = isinstance(location, str)

    def sql(self, statement: str) -> str:
        """Return a statement, whose parameters are marked as for SQLite, as the driver of this place takes it."""
        return statement.replace("?", "%s") if self.is_postgres else statement

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        """Run a statement on a connection of its own, and return its rows."""
        if not self.is_postgres:
            with closing(sqlite3.connect(self.location)) as connection, connection:
                return connection.execute(statement, parameters).fetchall()
        url = PostgresURL.parse(self.location)
        schema = sql.Identifier(url.schema)
        with psycopg.connect(url.conninfo, autocommit=True) as server:
            server.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
            server.execute(sql.SQL("SET search_path = {}").format(schema))
            cursor = server.execute(cast(LiteralString, self.sql(statement)), parameters or None)
            return cursor.fetchall() if cursor.description else []

    @property
    def numbered(self) -> str:
        """The type of a column that numbers the rows of a table as they come."""
        return "SERIAL" if self.is_postgres else "INTEGER"
