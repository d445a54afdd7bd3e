"""Opening a log in a schema of a Postgres database: it is found there, or made.

Tables of an application in the same schema do not matter.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from gossiplog.errors import CorruptLog, NewerSchema, NotALog, OlderSchema, StorageError
from gossiplog.reprs import listed
from gossiplog.storage.base import PREFIX, SCHEMA, Position, check_same_topic
from gossiplog.storage.postgres.connections import Session, TextArray, quoted
from gossiplog.storage.postgres.errors import DENIED, READ_ONLY, error_code
from gossiplog.storage.postgres.meta import check_identity, integer
from gossiplog.storage.postgres.tables import (
    COLUMNS,
    GUARD,
    GUARD_BODY,
    IN_APPLY,
    KEYS,
    Statements,
    statements_of_log,
)
from gossiplog.storage.postgres.url import PostgresURL

LOCK_CLASS = 0x676F7373
"""The first half of the key of advisory locks of logs: "goss". The second is the oid of the schema."""
_CREATION_CLASS = LOCK_CLASS + 1
# Of databases that store any text that is sent in UTF-8; the latter stores bytes as they come.
_ENCODINGS = ("UTF8", "SQL_ASCII")
# The first schema that a log in Postgres had: that of SQLite at the time.
_OLDEST = 4
# Before a statement that inserts, deletes, updates or truncates (src/include/catalog/pg_trigger.h).
_GUARD_TYPE = 2 | 4 | 8 | 16 | 32
# As Postgres says it, which names the schema of a function or an operator that is not its own.
_GUARD_WHEN = f" WHEN ((current_setting('{IN_APPLY}'::text, true) = 'on'::text)) EXECUTE FUNCTION "

_SPACE = "SELECT oid, pg_catalog.has_schema_privilege(oid, 'USAGE') FROM pg_catalog.pg_namespace WHERE nspname = %b"
_RELATIONS = """
    SELECT c.relname, c.relkind::pg_catalog.text, c.oid, c.relrowsecurity OR c.relhasrules, c.relpersistence = 'p',
      pg_catalog.has_table_privilege(c.oid, 'SELECT')
    FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = %b::pg_catalog.oid AND c.relkind NOT IN ('i', 'I', 'S', 't')
      AND pg_catalog.starts_with(c.relname, %b)
"""
# Of a superuser, Postgres says that he is a member of every role.
_OWNER = """
    SELECT o.rolname::pg_catalog.text, n.nspowner = me.oid OR n.nspowner = d.datdba OR o.rolsuper
      OR o.rolname = 'pg_database_owner' OR (NOT me.rolsuper AND pg_catalog.pg_has_role(n.nspowner, 'MEMBER')),
      pg_catalog.quote_ident(me.rolname)
    FROM pg_catalog.pg_namespace AS n JOIN pg_catalog.pg_roles AS o ON o.oid = n.nspowner
      JOIN pg_catalog.pg_roles AS me ON me.rolname = CURRENT_USER
      JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database()
    WHERE n.nspname = %b
"""
_COLUMNS = """
    SELECT c.relname, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated <> ''
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relnamespace = %b::pg_catalog.oid AND c.relname = ANY(%b) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attnum
"""
_PRIMARY_KEYS = """
    SELECT c.relname, pg_catalog.pg_get_constraintdef(k.oid)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_constraint AS k ON k.conrelid = c.oid
    WHERE c.relnamespace = %b::pg_catalog.oid AND c.relname = ANY(%b) AND k.contype = 'p'
"""
_TRIGGERS = """
    SELECT c.relname, t.tgname, pg_catalog.pg_get_triggerdef(t.oid), t.tgenabled IN ('O', 'A'),
      t.tgtype = %b AND p.pronamespace = c.relnamespace AND p.proname = %b AND p.prosrc = %b AND NOT p.prosecdef
      AND p.proowner IN (c.relowner, n.nspowner) AND l.lanname = 'plpgsql'
      AND pg_catalog.array_to_string(p.proconfig, ',') = 'search_path=pg_catalog'
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = c.oid
      JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relnamespace = %b::pg_catalog.oid AND c.relname = ANY(%b) AND NOT t.tgisinternal
"""


# Their schemas, for those who have misspelt one.
_MOST_NAMED = 5
_LOGS = """
    SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relname = 'gossiplog_meta' ORDER BY 1
"""
_ROLE = "SELECT pg_catalog.quote_ident(CURRENT_USER)"
_LOST = "SELECT FROM @.gossiplog_leaves WHERE NOT EXISTS (SELECT FROM @.gossiplog_messages) LIMIT 1"


@dataclass(frozen=True, slots=True)
class Found:
    """A log in a schema.

    Attributes:
        topic: of the log.
        space: the oid of the schema.
        tables: the oids of the log's tables, by their names.
        identity: random; no two logs that are written to have the same.
    """

    topic: str
    space: int
    tables: Mapping[str, int]
    identity: bytes

    @property
    def mark(self) -> str:
        """What tells the log from all others, and from a copy of it that was restored in its place.

        Whoever has the former open takes the lock of a schema that is gone, and listens on its channel.
        """
        return f"{self.identity.hex()} {self.tables['gossiplog_meta']}"


@dataclass(frozen=True, slots=True)
class Opening:
    """How a log is opened.

    Attributes:
        url: of the database and the schema.
        read_only: whether nothing is written to the log.
        statements: over the log's tables.
    """

    url: PostgresURL
    read_only: bool
    statements: Statements

    def run(self, session: Session, topic: str | None, create: bool) -> Found:
        """Return the log in the schema; make it first where there is none and one may be made.

        Raises:
            CorruptLog: its tables are not those that this package makes.
            NotALog: there is no log, and none is to be made, or tables of another program take its place.
            NewerSchema, OlderSchema: the log cannot be read.
            StorageError: the topic is another, or the role lacks a right.
            psycopg.Error: the database failed.
        """
        self._check_encoding(session)
        with session.reading():
            found = self.find(session)
        if found is None:
            if topic is None or not create:
                others = [schema for (schema,) in session.rows(_LOGS)]
                where = f" (there are logs in {listed(others, _MOST_NAMED)})" if others else ""
                advice = "" if self.read_only else ": give a topic to make one"
                raise NotALog(f"{self.url.place} holds no log in its schema {self.url.schema}{where}{advice}")
            found = self._create(session, topic)
        elif session.rows(self.statements[_LOST]):
            raise CorruptLog(["the table gossiplog_messages is empty, and gossiplog_leaves is not: messages were lost"])
        check_same_topic(self.url.place, found.topic, topic)
        return found

    def _check_encoding(self, session: Session) -> None:
        """Refuse to write where a stranger's text would be an error in an application's table, and nowhere else."""
        encoding = session.connection.info.parameter_status("server_encoding")
        if encoding is not None and encoding not in _ENCODINGS and not self.read_only:
            raise StorageError(
                f"{self.url.place} has the encoding {encoding}, which does not have all characters that messages may"
                " have: make the database with `createdb --encoding UTF8 --template template0`; read_only=True opens a"
                " log that is there, to copy it"
            )

    def find(self, session: Session) -> Found | None:
        """Return the log in the schema, None where there is none.

        Raises: as `run`.
        """
        place, schema = self.url.place, self.url.schema
        spaces = session.rows(_SPACE, (schema,))
        if not spaces:
            return None
        ((space, may_use),) = spaces
        relations = {row[0]: row[1:] for row in session.rows(_RELATIONS, (space, PREFIX))}
        if not relations:
            return None
        if "gossiplog_meta" not in relations:
            raise NotALog(
                f"{place} holds no log in its schema {schema}, but {min(relations)}: names that begin with {PREFIX} are"
                " for a log's"
            )
        if not may_use or not all(may_read for *_, may_read in relations.values()):
            (role,) = session.one(_ROLE)
            raise StorageError(
                f"cannot read {place}: the role lacks a right on the schema {schema} or its tables: as their owner,"
                f" GRANT USAGE ON SCHEMA {quoted(schema)} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA"
                f" {quoted(schema)} TO {role}"
            )
        self._check_kind(relations, "gossiplog_meta")
        meta = self._meta(session, space)
        stored, topic = integer(meta.get("schema")), meta.get("topic")
        if stored is None or not isinstance(topic, str):
            raise NotALog(f"{place} is not a log of this package: its table gossiplog_meta says something else")
        if stored > SCHEMA:
            raise NewerSchema(
                f"{place} was written by a newer version of this package (its tables are of version {stored}, this one"
                f" reads {SCHEMA}): upgrade gossiplog"
            )
        if stored < _OLDEST:
            raise OlderSchema(
                f"{place} says that its tables are of version {stored}, which no log in Postgres had: it is damaged, or"
                " of another program"
            )
        self._check_tables(session, space, relations)
        tables = {name: relations[name][1] for name in COLUMNS}
        return Found(topic, space, tables, check_identity(meta.get("identity")))

    def _meta(self, session: Session, space: int) -> Mapping[str, Any]:
        """Return what the log says of itself; nothing, where its table is of something else."""
        columns = [row[1:3] for row in session.rows(_COLUMNS, (space, TextArray(["gossiplog_meta"])))]
        if columns != [("name", "text"), ("value", "text")]:
            return {}
        return dict(
            session.rows(
                self.statements[
                    "SELECT name, value FROM @.gossiplog_meta WHERE name IN ('schema', 'topic', 'identity')"
                ]
            )
        )

    def _check_kind(self, relations: Mapping[str, tuple[Any, ...]], name: str) -> None:
        """Refuse a view or another thing in the place of a table, and a table that hides rows or does other things."""
        kind, _, is_changed, is_logged, _ = relations[name]
        if kind != "r":
            raise CorruptLog([f"{name} in {self.url.place} is no table of its own"])
        if not is_logged:
            raise CorruptLog(
                [f"the table {name} in {self.url.place} is UNLOGGED, and a crash of the server empties it: SET LOGGED"]
            )
        if is_changed:
            raise CorruptLog([f"the table {name} in {self.url.place} has rules, or row security: remove them"])

    def _check_tables(self, session: Session, space: int, relations: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuse everything but the tables that this package makes. More indices do no harm.

        Raises:
            CorruptLog: something else is there, or something is missing.
        """
        problems = list(self._wrong_tables(session, space, relations))
        if problems:
            raise CorruptLog(problems)

    def _wrong_tables(self, session: Session, space: int, relations: Mapping[str, tuple[Any, ...]]) -> Iterator[str]:
        names = TextArray(COLUMNS)
        missing = [name for name in COLUMNS if name not in relations]
        yield from (f"the table {name} is missing" for name in missing)
        yield from (f"{name} is not one that this package makes" for name in relations if name not in COLUMNS)
        if missing:
            return
        for name in COLUMNS:
            self._check_kind(relations, name)
        columns: dict[str, list[tuple[str, bool, bool]]] = {}
        for table, column, kind, is_filled, is_generated in session.rows(_COLUMNS, (space, names)):
            columns.setdefault(table, []).append((f"{column} {kind}", is_filled, is_generated))
        for table, expected in COLUMNS.items():
            if columns.get(table) != [(column, True, False) for column in expected]:
                yield f"the table {table} has other columns than this package makes"
        keys = dict(session.rows(_PRIMARY_KEYS, (space, names)))
        for table, key in KEYS.items():
            if keys.get(table) != f"PRIMARY KEY ({key})":
                yield f"the table {table} has another primary key than this package makes"
        yield from self._wrong_triggers(session, space, names)

    def _wrong_triggers(self, session: Session, space: int, names: TextArray) -> Iterator[str]:
        """Yield what is wrong with the guards, whose functions run with the rights of whoever writes."""
        missing = set(COLUMNS)
        for table, trigger, text, is_on, is_ours in session.rows(
            _TRIGGERS, (_GUARD_TYPE, GUARD, GUARD_BODY, space, names)
        ):
            if trigger != GUARD:
                yield f"the table {table} has the trigger {trigger}: drop it"
                continue
            missing.discard(table)
            if not is_ours or _GUARD_WHEN not in text:
                yield f"the trigger {GUARD} of the table {table} is another than this package makes"
            elif not is_on:
                yield f"the trigger {GUARD} of the table {table} is off: ALTER TABLE {table} ENABLE TRIGGER {GUARD}"
        yield from (f"the table {table} lacks the trigger {GUARD}" for table in COLUMNS if table in missing)

    def _check_owners(self, owners: Iterable[tuple[str, bool, str]]) -> None:
        """Refuse to make a log in a schema that a stranger has made before: its owner could do everything to it."""
        for owner, is_trusted, role in owners:
            if not is_trusted:
                raise StorageError(
                    f"cannot make a log in {self.url.place}: the schema {self.url.schema} belongs to {owner}, of whom"
                    f" the role {role} is no member: make the log as {owner}, or, if {owner} is not to have it, in"
                    f" another schema, or ALTER SCHEMA {quoted(self.url.schema)} OWNER TO {role}"
                )

    def _create(self, session: Session, topic: str) -> Found:
        """Make a log in the schema, beside what an application has there, unless another process was quicker."""
        place, schema = self.url.place, self.url.schema
        try:
            with session.writing():
                # Those who make the same log at once wait for each other.
                session.run(
                    "SELECT pg_catalog.pg_advisory_xact_lock(%b::pg_catalog.int4, pg_catalog.hashtext(%b))",
                    (_CREATION_CLASS, schema),
                )
                found = self.find(session)
                if found is not None:
                    return found
                owners = session.rows(_OWNER, (schema,))
                self._check_owners(owners)
                if not owners:
                    session.script(f"CREATE SCHEMA {quoted(schema)}".encode())
                for statement in statements_of_log(schema):
                    session.script(statement)
                session.run(
                    self.statements["INSERT INTO @.gossiplog_meta(name, value) SELECT * FROM unnest(%b, %b)"],
                    (TextArray(rows := new_meta(topic)), TextArray(rows.values())),
                )
                found = self.find(session)
        except psycopg.Error as error:
            if error_code(error) == DENIED:
                (role,) = session.one(_ROLE)
                advice = (
                    f"as the owner of the schema, GRANT USAGE, CREATE ON SCHEMA {quoted(schema)} TO {role}"
                    if session.rows(_SPACE, (schema,))
                    else f"as the owner of the database, CREATE SCHEMA {quoted(schema)} AUTHORIZATION {role}"
                )
                raise StorageError(f"cannot make a log in {place}: the role lacks a right: {advice}") from error
            if error_code(error) == READ_ONLY:
                raise StorageError(
                    f"there is no log in {place}, and none can be made: the server takes no writes, as a standby"
                ) from error
            raise
        if found is None:
            raise StorageError(f"cannot make a log in {place}: its tables are not there after they were made")
        return found


def new_meta(topic: str) -> Mapping[str, str]:
    """Return the rows of gossiplog_meta of a new log."""
    position = Position()
    return {
        "schema": str(SCHEMA),
        "topic": topic,
        "applied": str(position.applied),
        "indexed": str(position.indexed),
        "generation": str(position.generation),
        "apply_version": str(position.apply_version),
        "rebuild": str(position.rebuild),
        "setup": "0",
        "tables": "[]",
        "identity": os.urandom(16).hex(),
    }


def lock_key(space: int) -> tuple[int, int]:
    """Return the key of a log's advisory lock, as two signed numbers of 32 bits."""
    return LOCK_CLASS, space - 2**32 if space >= 2**31 else space
