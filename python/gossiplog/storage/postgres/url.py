"""The URLs of Postgres: which server, which database, and which schema a log is in; shown without secrets.

URLs are read as libpq reads them (https://www.postgresql.org/docs/current/libpq-connect.html, "Connection URIs"), with
two differences: `schema` is ours, and one "@" at most may stand unescaped. libpq takes what follows the first one as
the host, so a password with an "@" of its own would be sent to a name server, and printed as a host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import quote

from gossiplog.errors import StorageError

DEFAULT_SCHEMA = "gossiplog"
"""The schema of a log whose URL names none."""
SHAPE = "postgresql://USER@HOST:PORT/DATABASE?schema=NAME"
"""How such a URL looks, in messages to users."""
_SCHEME = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)
# As a path has it.
_COLLAPSED = re.compile(r"postgres(?:ql)?:/(?!/)", re.IGNORECASE)
_NEARLY = re.compile(r"postgres(?:ql)?:(?!//)", re.IGNORECASE)
# Any URL with a password, perhaps without its second slash.
_OTHER = re.compile(r"(?!file:)([a-z][a-z0-9+.\-]*):/+[^/]*:[^/]*@", re.IGNORECASE)
# Such a URL as other drivers write it, and a secret among parameters, as of libpq's other form.
_PREFIXED = re.compile(r"([a-z][a-z0-9+.\-]*):postgres(?:ql)?:", re.IGNORECASE)
_WITH_SECRET = re.compile(r"(?!file:|[./])(?:.*[?&\s;])?(?:ssl)?password\s*=", re.IGNORECASE | re.DOTALL)
# Bytes of a name, beyond which Postgres cuts it off and two names are one.
_LONGEST_NAME = 63
_PARAMETER_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# What stands in the place of a host in a URL; all others, as folders of sockets, are parameters.
_PLAIN_HOST = re.compile(r"[A-Za-z0-9._\-]+|\[[0-9A-Fa-f:.]+\]")
_PORT = re.compile(r"[0-9]{0,5}", re.ASCII)
# libpq's parameters that hold no secret. The value of any other is not shown: of one that libpq gets later, or of a
# `passwd` that a user took for one.
_SHOWN_NAMES = """
    application_name channel_binding client_encoding connect_timeout dbname fallback_application_name gssdelegation
    gssencmode gsslib host hostaddr keepalives keepalives_count keepalives_idle keepalives_interval krbsrvname
    load_balance_hosts max_protocol_version min_protocol_version options passfile port replication require_auth
    requirepeer service servicefile ssl_max_protocol_version ssl_min_protocol_version sslcert sslcertmode sslcompression
    sslcrl sslcrldir sslkey sslmode sslnegotiation sslrootcert sslsni target_session_attrs tcp_user_timeout user
"""
_SHOWN = frozenset(_SHOWN_NAMES.split())
# What a parameter may be meant as that is misspelt, and how like it is to it.
_NAMES = [*sorted(_SHOWN), "schema"]
_ALIKE = 0.75
_KNOWN = frozenset([*_NAMES, "password", "sslpassword"])


@dataclass(frozen=True, repr=False)
class PostgresURL:
    """Where a log is in Postgres.

    Attributes:
        parameters: libpq's, by name, with the secrets among them.
        schema: that holds the log's tables.

    Examples:
        >>> from gossiplog.lowlevel import PostgresURL
        >>> url = PostgresURL.parse("postgresql://me:secret@db.example.org/notes?schema=chat")
        >>> url.place, url.schema
        ('postgresql://me@db.example.org/notes?schema=chat', 'chat')
    """

    parameters: tuple[tuple[str, str], ...]
    schema: str = DEFAULT_SCHEMA

    def __post_init__(self) -> None:
        check_schema(self.schema)

    @classmethod
    def parse(cls, url: str) -> PostgresURL:
        """Read a URL.

        Args:
            url: with the schema as a parameter of its own.

        Raises:
            StorageError: it is none of Postgres. The message repeats nothing that may be part of a password.
        """
        if not is_postgres_url(url):
            raise _malformed("it begins otherwise")
        before, question, query = _after_userinfo(url)
        authority, _, database = before.partition("/")
        if "@" in authority or "@" in database or "@" in query:
            raise _malformed("it has more than one @")
        parameters = dict(_userinfo(url)) | dict(_hosts(authority))
        if database:
            parameters["dbname"] = _decoded(database)
        schema = DEFAULT_SCHEMA
        named: set[str] = set()
        for name, value in _query(query) if question else ():
            if name in named:
                raise StorageError(f"the URL of a log in Postgres names {name} twice")
            named.add(name)
            if name == "schema":
                schema = value
            elif name == "ssl" and value == "true":
                parameters["sslmode"] = "require"  # JDBC's, which libpq translates in URLs, too
            elif name not in _KNOWN and (alike := get_close_matches(name, _NAMES, 1, _ALIKE)):
                raise StorageError(
                    f"a parameter in the URL of a log in Postgres is none of libpq's: did you mean {alike[0]}? It is"
                    " not repeated here, since it may hold a password"
                )
            else:
                parameters[name] = value
        _check_ports(parameters.get("port", ""))
        return cls(tuple(parameters.items()), schema)

    @property
    def conninfo(self) -> str:
        """What libpq connects with, with the secrets: keywords and values, quoted."""
        return " ".join(f"{name}={_quoted(value)}" for name, value in self.parameters)

    @property
    def has_secret(self) -> bool:
        """Whether the URL holds what `place` does not show, as a password."""
        return any(name not in _SHOWN for name, _ in self.parameters)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that `place` does not show, for those who look through texts of others for them."""
        return tuple(value for name, value in self.parameters if name not in _SHOWN and value)

    @property
    def place(self) -> str:
        """The URL without its secrets, in one form for all ways to write it."""
        shown = {name: value for name, value in self.parameters if name in _SHOWN}
        user = f"{quote(shown.pop('user'), safe='')}@" if shown.get("user") else ""
        authority = _authority(shown.get("host", ""), shown.get("port", ""))
        if authority:
            shown.pop("host", None)
            shown.pop("port", None)
        database = f"/{quote(shown.pop('dbname'), safe='')}" if shown.get("dbname") else ""
        query = [*shown.items(), *([("schema", self.schema)] if self.schema != DEFAULT_SCHEMA else [])]
        tail = "&".join(f"{name}={quote(value, safe='/:,.')}" for name, value in query)
        # Without the slash, what follows a user would be taken for a host by other readers of URLs.
        return f"postgresql://{user}{authority}{database or ('/' if tail else '')}{f'?{tail}' if tail else ''}"

    def __str__(self) -> str:
        return self.place

    def __repr__(self) -> str:
        return f"PostgresURL({self.place!r})"


def is_postgres_url(location: str) -> bool:
    """Return whether a location is meant as the URL of a log in Postgres, right or wrong."""
    return _SCHEME.match(location) is not None


def check_nearly(location: str) -> None:
    """Refuse what is nearly such a URL, since it would be taken for a file and repeated with its password.

    Raises:
        StorageError: it lacks a slash, as a URL that went through a path has lost it; or there is something before it;
            or it has another scheme, and a password.
    """
    location, given = location.lstrip(), location
    if location != given and is_postgres_url(location):
        raise StorageError("there are spaces before the URL of a log in Postgres: leave them out")
    if prefixed := _PREFIXED.match(location):
        raise StorageError(f"a URL that begins with {prefixed[1]}: names no log: expected {SHAPE}")
    if not is_postgres_url(location) and _WITH_SECRET.match(location):
        raise StorageError(
            "a location with a password among its parameters names no log (it is not repeated here): expected the path"
            f" of a file, which may begin with ./, or {SHAPE}"
        )
    if nearly := _NEARLY.match(location):
        raise StorageError(
            f"a location that begins with {nearly[0]} and no two slashes is neither a URL nor the name of a file: a log"
            f" in Postgres is at {SHAPE}; a file of such a name is written ./{nearly[0]}…"
        )
    if not is_postgres_url(location) and (other := _OTHER.match(location)):
        raise StorageError(
            f"a URL that begins with {other[1]}: and has a password names no log (it is not repeated here): expected"
            f" the path of a file, or {SHAPE}"
        )


def check_is_file(location: str) -> None:
    """Refuse a URL of Postgres where a file is named, since errors about files repeat their names.

    Raises:
        StorageError: it is one, or nearly.
    """
    if is_postgres_url(location) or _COLLAPSED.match(location):
        raise StorageError(
            "a URL of Postgres is no file: gossiplog.open takes it, and gossiplog sync copies a log to it or from it"
        )
    check_nearly(location)


def check_schema(schema: str) -> None:
    """Refuse what cannot be the name of a log's schema.

    Raises:
        StorageError: it is empty, too long, or reserved by Postgres.
    """
    length = len(schema.encode("utf-8", "surrogatepass"))
    if not schema or "\0" in schema or length > _LONGEST_NAME:
        found = "it is empty" if not schema else "it has a zero" if "\0" in schema else f"it has {length} bytes"
        raise StorageError(f"the schema of a log is a name of 1 to {_LONGEST_NAME} bytes: {found}")
    if schema == "$user":
        raise StorageError("the schema '$user' is for Postgres whichever has the role's name: write that")
    if schema.startswith("pg_") or schema == "information_schema":
        raise StorageError(
            f"the schema {schema!r} is Postgres' own: give the log one of another name, as ?schema=notes"
        )


def _malformed(why: str) -> StorageError:
    return StorageError(
        f"the URL of a log in Postgres cannot be read ({why}): expected {SHAPE}, in which @ : / ? # % of a name or a"
        " password are written %40 %3A %2F %3F %23 %25. It is not repeated here, since it may hold a password"
    )


def _after_userinfo(url: str) -> tuple[str, str, str]:
    """Return what follows the user: host and database, a question mark if there is one, and the parameters."""
    rest = _SCHEME.sub("", url, count=1)
    user, at, after = rest.partition("@")
    return (after if at and "/" not in user else rest).partition("?")


def _userinfo(url: str) -> Iterator[tuple[str, str]]:
    found, at, _ = _SCHEME.sub("", url, count=1).partition("@")
    if not at or "/" in found:
        return
    user, _, password = found.partition(":")
    if "?" in user:
        raise _malformed("it has an @ among its parameters")
    if user:
        yield "user", _decoded(user)
    if password:
        yield "password", _decoded(password)


def _hosts(authority: str) -> Iterator[tuple[str, str]]:
    hosts: list[str] = []
    ports: list[str] = []
    for each in authority.split(","):
        found = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(?::([^:]*))?", each)
        if found is None:
            raise _malformed("what is host and what is port is unclear: an IPv6 address stands in brackets, as [::1]")
        hosts.append(found[1].removeprefix("[").removesuffix("]"))
        ports.append(found[2] or "")
    if any(hosts):
        yield "host", _decoded(",".join(hosts))
    if any(ports):
        yield "port", _decoded(",".join(ports))


def _query(query: str) -> Iterator[tuple[str, str]]:
    for each in query.split("&") if query else ():
        name, equals, value = each.partition("=")
        if not equals or "=" in value or not _PARAMETER_NAME.fullmatch(name):
            raise _malformed("a parameter is not of the form name=value, with other = written %3D")
        yield name, _decoded(value)


def _check_ports(ports: str) -> None:
    for each in ports.split(","):
        if not _PORT.fullmatch(each) or (each and not 0 < int(each) < 2**16):
            raise _malformed("a port is not a number from 1 to 65535")


def _decoded(text: str) -> str:
    """Return a part of a URL without its escapes; a plus is a plus."""
    if _ESCAPE.search(text):
        raise _malformed("a % is not followed by two hexadecimal digits")
    try:
        decoded = bytes(_bytes_of(text)).decode("utf-8")
    except UnicodeError:
        raise _malformed("it is not UTF-8") from None
    if "\0" in decoded:
        raise _malformed("it has a zero")
    return decoded


def _bytes_of(text: str) -> Iterator[int]:
    for index, part in enumerate(re.split(r"%([0-9A-Fa-f]{2})", text)):
        if index % 2:
            yield int(part, 16)
        else:
            yield from part.encode("utf-8")


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", r"\\").replace("'", r"\'") + "'"


def _authority(host: str, port: str) -> str:
    """Return hosts and ports as a URL begins with them; "" for those that have to be parameters."""
    hosts = [f"[{each}]" if ":" in each else each for each in host.split(",")]
    ports = port.split(",") if port else [""] * len(hosts)
    if len(ports) != len(hosts) or not all(_PLAIN_HOST.fullmatch(each) for each in hosts):
        return ""
    return ",".join(f"{name}:{number}" if number else name for name, number in zip(hosts, ports, strict=True))
