"""What Postgres itself finds wrong with a log's tables, by reading all of them.

Where the extension amcheck is installed in the database, and the role may call it, it compares each index with its
table (https://www.postgresql.org/docs/current/amcheck.html). Without it, every row is read through the table and its
index, so that pages with wrong checksums, lost values, and entries without rows are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from gossiplog.storage.postgres.connections import Session
from gossiplog.storage.postgres.errors import DENIED, error_code
from gossiplog.storage.postgres.tables import COLUMNS, KEYS, Statements

_AMCHECK = """
    SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension AS e
    JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'amcheck'
"""
_INDICES = """
    SELECT i.indexrelid, i.indexrelid::pg_catalog.regclass::pg_catalog.text FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %b AND c.relname = %b ORDER BY 2
"""


def integrity_problems(session: Session, statements: Statements, schema: str) -> list[str]:
    """Return what is wrong with the tables of a log, one line each.

    Raises:
        psycopg.Error: the server failed otherwise.
    """
    amcheck = session.rows(_AMCHECK)
    found: list[str] = []
    for table in COLUMNS:
        found += _problems_of_table(session, statements, table)
        for index, name in session.rows(_INDICES, (schema, table)) if amcheck else ():
            found += _problem(
                session, f"SELECT {amcheck[0][0]}.bt_index_check(%b::pg_catalog.oid, true)", (index,), name
            )
    return found


def _problems_of_table(session: Session, statements: Statements, table: str) -> list[str]:
    """Read every row of a table, with its long values, and compare their number with that of its index."""
    # What computes a hash of a value reads all of it.
    hashes = [f"pg_catalog.sha256({name})" for name, kind in map(str.split, COLUMNS[table]) if kind == "bytea"]
    read = "".join(f", pg_catalog.sum(pg_catalog.octet_length({each}))" for each in hashes)
    name = statements[f"@.{table}"].decode()
    numbers: list[int] = []
    for off, statement in (
        (
            "enable_indexscan = off; SET LOCAL enable_indexonlyscan = off",
            f"SELECT pg_catalog.count(*){read} FROM {name}",
        ),
        (
            "enable_seqscan = off; SET LOCAL enable_sort = off",
            f"SELECT pg_catalog.count(*) FROM (SELECT {KEYS[table]} FROM {name} ORDER BY {KEYS[table]}) AS each",
        ),
    ):
        session.script(*session.begin_reading, f"SET LOCAL {off}".encode())
        try:
            if problems := _problem(session, statement, (), table, numbers):
                return problems
        finally:
            session.roll_back()
    return [f"{table} has {numbers[0]:,} rows, and its index {numbers[1]:,}"] if numbers[0] != numbers[1] else []


def _problem(
    session: Session, statement: str, parameters: Sequence[Any], name: str, numbers: list[int] | None = None
) -> list[str]:
    """Run a statement; return what Postgres finds wrong while it does, one line at most."""
    try:
        row = session.one(statement, parameters)
    except psycopg.Error as error:
        if error_code(error).startswith("XX") or error_code(error) == "58P01":
            return [f"{name}: {error.diag.message_primary}"]
        if error_code(error) == DENIED and numbers is None:
            # The tables were read.
            return []
        raise
    if numbers is not None:
        numbers.append(row[0])
    return []
