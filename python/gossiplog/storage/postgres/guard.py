"""What keeps an application's statements from the log's tables and from the transaction: guards against mistakes.

- A statement that ends the transaction, or changes settings beyond it, is known by its first words.
- Rows of the log's tables are kept by triggers (`tables.statements_of_log`), which look at a setting of the
  transaction.
- What changes the tables themselves shows in the locks that the transaction holds (`pg_locks`), and so do the tables
  that a statement has written to, whether it names them, or a view, a function or a trigger does. They are looked at in
  the round trip of the statement, for each text once: another time the same text takes the same locks, but for what a
  function decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from gossiplog.errors import StorageError
from gossiplog.storage.base import PREFIX
from gossiplog.storage.postgres.tables import GUARD

LOCKS = f"""
    SELECT lock.mode, lock.relation = ANY(%b::pg_catalog.oid[]), pg_catalog.starts_with(class.relname, '{PREFIX}')
      AND space.nspname = %b, class.relkind IN ('r', 'p', 'f') AND NOT class.relispartition
      AND class.relpersistence <> 't', class.oid::pg_catalog.regclass::pg_catalog.text
    FROM pg_catalog.pg_locks AS lock LEFT JOIN pg_catalog.pg_class AS class ON class.oid = lock.relation
      LEFT JOIN pg_catalog.pg_namespace AS space ON space.oid = class.relnamespace
    WHERE lock.pid = pg_catalog.pg_backend_pid() AND lock.locktype = 'relation' AND lock.granted
      AND lock.mode NOT IN ('AccessShareLock', 'RowShareLock')
      AND coalesce(space.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast'), true)
"""
"""The locks of this transaction that one has who writes; parameters: the oids of the log's tables, and its schema."""
_WRITES, _DROPS = "RowExclusiveLock", "AccessExclusiveLock"
# Texts that are kept; after so many the application makes them up as it goes.
_MOST_TEXTS = 1024
_COMMENT = re.compile(r"\s+|--[^\n]*(?:\n|\Z)|[();]")
_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
_ENDS = frozenset({"commit", "end", "rollback", "abort", "begin", "start", "savepoint", "release"})
# What changes rows, and no table.
_ROWS = frozenset({"delete", "insert", "merge", "select", "table", "update", "values", "with"})
# Of the connection, which other messages' statements run on after the transaction.
_SETS = frozenset({"set", "reset", "discard", "listen", "unlisten"})
_SETS_BEYOND = re.compile(r"\bset_config\s*\([^;]*?,\s*(?:false|'f\w*')\s*\)", re.IGNORECASE)
_TEMPORARY = frozenset({"temp", "temporary", "local", "global"})
_ON_COMMIT_DROP = re.compile(r"\bon\s+commit\s+drop\b", re.IGNORECASE)
_INTO_TEMPORARY = re.compile(r"(?:^|\W)select\b[^;']*\binto\s+(?:local\s+|global\s+)?temp", re.IGNORECASE)


def first_words(sql: str) -> list[str]:
    """Return the first two words of a statement, in lower case, without comments and parentheses before them."""
    words: list[str] = []
    place = 0
    while place < len(sql) and len(words) < 2:
        if sql.startswith("/*", place):
            place = _after_comment(sql, place)
        elif found := _COMMENT.match(sql, place):
            place = found.end()
        elif found := _WORD.match(sql, place):
            words.append(found[0].lower())
            place = found.end()
        else:
            break
    return words


def _after_comment(sql: str, place: int) -> int:
    """Return where a comment ends; Postgres' comments nest."""
    depth = 0
    for found in re.finditer(r"/\*|\*/", sql[place:]):
        depth += 1 if found[0] == "/*" else -1
        if not depth:
            return place + found.end()
    return len(sql)


def changes_rows(sql: str) -> bool:
    """Return whether a statement reads or changes rows, and no table."""
    return not _ROWS.isdisjoint(first_words(sql)[:1])


def check_statement(sql: str, schema: str) -> None:
    """Refuse a statement that would end the transaction, or leave something on the connection for later ones.

    Args:
        sql: the statement.
        schema: of the log.

    Raises:
        StorageError: it would.
    """
    words = first_words(sql)
    if not words:
        return
    if words[0] not in _ROWS and GUARD in sql.lower():
        raise StorageError(f"`apply` and `setup` must not change {PREFIX} tables: {sql}")
    first, second = words[0], words[1] if len(words) > 1 else ""
    if first in _ENDS or (first == "prepare" and second == "transaction"):
        raise StorageError(f"`apply` and `setup` must not end the transaction, nor use savepoints in it: {sql}")
    if first == "copy":
        raise StorageError(f"`apply` and `setup` must not COPY, which is no statement alone: INSERT the rows: {sql}")
    if (first, second) == ("alter", "schema") and schema.lower() in sql.lower():
        raise StorageError(f"`apply` and `setup` must not change the schema of the log: {sql}")
    if (first == "create" and second in _TEMPORARY and not _ON_COMMIT_DROP.search(sql)) or _INTO_TEMPORARY.search(sql):
        raise StorageError(
            "`apply` and `setup` must not leave temporary tables to later messages: CREATE TEMP TABLE … ON COMMIT DROP,"
            f" and drop it where the next message makes it again: {sql}"
        )
    if _SETS_BEYOND.search(sql) or (
        first in _SETS and (first, second) not in (("set", "local"), ("set", "constraints"))
    ):
        raise StorageError(
            "`apply` and `setup` must not change settings beyond the transaction (SET LOCAL and set_config(…, true) are"
            f" within it): {sql}"
        )


class Guard:
    """What is known of the statements of an application on one storage.

    Args:
        oids: of the log's tables.
        schema: of the log.

    Attributes:
        written: names of tables that were written to since the last commit which noted them.
        has_dropped: whether one was dropped since then.
    """

    def __init__(self, oids: Collection[int], schema: str) -> None:
        self.oids = tuple(oids)
        self.schema = schema
        self.written: set[str] = set()
        self.has_dropped = False
        self._known: set[str] = set()

    def is_known(self, sql: str) -> bool:
        """Return whether the locks of a statement were looked at."""
        return sql in self._known

    def know(self, texts: Iterable[str]) -> None:
        """Take over the texts of statements whose locks were looked at, in a transaction that is committed."""
        if len(self._known) > _MOST_TEXTS:
            self._known.clear()
        self._known.update(texts)

    def look(self, rows: Iterable[tuple[Any, ...]], sql: str) -> None:
        """Look at the locks that a transaction holds after a statement.

        Args:
            rows: of LOCKS.
            sql: the statement.

        Raises:
            StorageError: the statement has changed the log's tables, or made one of a name like theirs.
        """
        names: set[str] = set()
        for mode, is_ours, is_named_like, is_table, name in rows:
            if mode != _WRITES and (is_ours or is_named_like):
                raise StorageError(f"`apply` and `setup` must not change {PREFIX} tables: {sql}")
            self.has_dropped |= mode == _DROPS and name is None
            if is_table and not is_ours and not is_named_like and name is not None:
                names.add(name)
        self.written |= names
