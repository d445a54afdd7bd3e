"""URLs of Postgres: read as libpq reads them, and shown without their secrets."""

from __future__ import annotations

import pickle
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

import gossiplog
from gossiplog import StorageError
from gossiplog.storage.postgres.url import PostgresURL, check_nearly, is_postgres_url
from tests.strategies import repeatable

# Nothing else in a URL has it, so that it is in no text by chance.
SECRET = "s€cret:pass/word"
# Postgres and libpq have no zeros in texts.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
HOSTS = st.lists(
    st.sampled_from(["localhost", "db.example.org", "10.0.0.1", "[::1]", "%2Frun%2Fpostgresql", ""]), max_size=3
)


@st.composite
def urls(draw: st.DrawFn, password: str | None = None) -> str:
    """A URL of all that may be in one, and with a password if that is given."""
    user = draw(st.none() | TEXTS)
    database = draw(st.none() | TEXTS)
    hosts = draw(HOSTS)
    ports = draw(st.lists(st.sampled_from(["", ":", ":5432", ":1"]), min_size=len(hosts), max_size=len(hosts)))
    query = draw(st.dictionaries(st.sampled_from(["sslmode", "application_name", "options", "passfile"]), TEXTS))
    userinfo = quote(user or "", safe="") + ("" if password is None else f":{quote(password, safe='')}")
    authority = ",".join(host + port for host, port in zip(hosts, ports, strict=True))
    return (
        f"{draw(st.sampled_from(['postgres', 'postgresql']))}://"
        + (f"{userinfo}@" if userinfo else draw(st.sampled_from(["", "@"])))
        + authority
        + (f"/{quote(database, safe='')}" if database else "")
        + ("?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items()) if query else "")
    )


@repeatable(100)
@given(urls())
def test_urls_are_read_as_libpq_reads_them(url: str) -> None:
    read = PostgresURL.parse(url)
    assert dict(read.parameters) == without_empty(conninfo_to_dict(url))
    assert read.schema == "gossiplog"


@repeatable(100)
@given(urls(SECRET))
def test_the_conninfo_says_the_same(url: str) -> None:
    read = PostgresURL.parse(url)
    assert conninfo_to_dict(read.conninfo) == dict(read.parameters)
    assert dict(read.parameters)["password"] == SECRET


@repeatable(100)
@given(urls(SECRET), TEXTS, TEXTS)
def test_no_secret_is_shown(url: str, schema: str, key: str) -> None:
    assume(len(schema.encode()) <= 63 and not schema.startswith("pg_") and schema != "information_schema")
    parameters = f"sslpassword={quote(SECRET + key, safe='')}&passwd={quote(SECRET, safe='')}"
    read = PostgresURL.parse(f"{url}{'&' if '?' in url else '?'}schema={quote(schema, safe='')}&{parameters}")
    for shown in (str(read), repr(read), read.place, f"{read}", str([read])):
        assert "cret" not in shown
        assert "passw" not in shown
    assert read.secrets == (SECRET, SECRET + key, SECRET)
    assert read.has_secret
    assert read.schema == schema


@repeatable(100)
@given(urls(), TEXTS)
def test_the_place_names_the_same_log(url: str, schema: str) -> None:
    assume(len(schema.encode()) <= 63 and not schema.startswith("pg_") and schema != "information_schema")
    read = PostgresURL.parse(f"{url}{'&' if '?' in url else '?'}schema={quote(schema, safe='')}")
    again = PostgresURL.parse(read.place)
    assert dict(again.parameters) == dict(read.parameters)
    assert again.schema == schema
    assert again.place == read.place
    assert not read.has_secret
    assert dict(read.parameters) == without_empty(conninfo_to_dict(PostgresURL.parse(url).place))


@repeatable(100)
@given(st.text(), TEXTS)
def test_what_is_refused_is_not_repeated(before: str, after: str) -> None:
    url = f"postgresql://me:{before}{SECRET}@{after}"
    try:
        shown = repr(PostgresURL.parse(url))
    except StorageError as error:
        shown = f"{error!r} {error.__context__!r}"
    assert "cret" not in shown


def without_empty(parameters: dict[str, str]) -> dict[str, str]:
    lists = "host", "port"  # with nothing between their commas
    return {name: value for name, value in parameters.items() if (value.strip(",") if name in lists else value)}


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgres://localhost/notes", "postgresql://localhost/notes"),
        ("postgresql://", "postgresql://"),
        ("POSTGRESQL:///notes", "postgresql:///notes"),
        ("postgresql://me:word@h:5433/notes?sslmode=require&schema=s", "postgresql://me@h:5433/notes?sslmode=require&schema=s"),
        ("postgresql://a:1,b:2/notes", "postgresql://a:1,b:2/notes"),
        ("postgresql://a,b:2/notes", "postgresql://a,b:2/notes"),
        ("postgresql://[::1]:5433/notes", "postgresql://[::1]:5433/notes"),
        ("postgresql:///notes?host=/run/postgresql&port=5433", "postgresql:///notes?host=/run/postgresql&port=5433"),
        ("postgresql://%2Frun%2Fpostgresql/notes", "postgresql:///notes?host=/run/postgresql"),
        ("postgresql:///?user=me&password=word", "postgresql://me@"),
        ("postgresql:///notes?ssl=true", "postgresql:///notes?sslmode=require"),
        ("postgresql:///notes?schema=gossiplog", "postgresql:///notes"),
        ("postgresql:///notes?schema=odd%20%22name%22", "postgresql:///notes?schema=odd%20%22name%22"),
        ("postgresql://me@corp.example%2Fx/n", "postgresql://me@/n?host=corp.example/x"),
    ],
)  # fmt: skip
def test_places(url: str, place: str) -> None:
    assert PostgresURL.parse(url).place == place
    assert repr(PostgresURL.parse(url)) == f"PostgresURL({place!r})"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://localhost", "begins otherwise"),
        # libpq would take what follows the first @ for the host.
        ("postgresql://me:p@ssword@host/notes", "more than one @"),
        ("postgresql://me:12/ssword@host/notes", "more than one @"),
        ("postgresql://me:pa/ssword@host/notes", "more than one @"),
        ("postgresql://me:pa/ssword", "a port is not a number"),
        ("postgresql://me:ssword:12@host:ssword/notes", "a port is not a number"),
        ("postgresql://host:70000/notes", "a port is not a number"),
        ("postgresql://host:0/notes", "a port is not a number"),
        ("postgresql:///notes?port=x", "a port is not a number"),
        ("postgresql://[::1/notes", "what is host and what is port is unclear"),
        ("postgresql://::1/notes", "what is host and what is port is unclear"),
        ("postgresql://host?user=me@corp", "an @ among its parameters"),
        ("postgresql:///notes?sslmode", "name=value"),
        ("postgresql:///notes?options=-c a=b", "name=value"),
        ("postgresql:///notes?ssword?=b", "name=value"),
        ("postgresql://me:100%ssword@host/notes", "hexadecimal"),
        ("postgresql://me:%ff@host/notes", "not UTF-8"),
        ("postgresql://me:%00@host/notes", "a zero"),
        ("postgresql:///notes?schema=a&schema=b", "names schema twice"),
        ("postgresql:///notes?schema=", "it is empty"),
        ("postgresql:///notes?schema=" + "x" * 64, "it has 64 bytes"),
        ("postgresql:///notes?schema=" + "%C3%A9" * 32, "it has 64 bytes"),
        ("postgresql:///notes?schema=pg_temp", "Postgres' own"),
        ("postgresql:///notes?schema=information_schema", "Postgres' own"),
    ],
)
def test_what_is_none(url: str, why: str) -> None:
    with pytest.raises(StorageError, match=why) as caught:
        PostgresURL.parse(url)
    assert "ssword" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize("url", ["postgresql://me:%ff@h", "postgresql://h:x", "postgresql:///a?b"])
def test_what_libpq_refuses_is_refused(url: str) -> None:
    with pytest.raises(StorageError):
        PostgresURL.parse(url)
    if "%ff" not in url and ":x" not in url:  # of these libpq says no more when it connects
        with pytest.raises(ProgrammingError):
            conninfo_to_dict(url)


def test_which_locations_are_meant_as_urls() -> None:
    assert is_postgres_url("postgres://h")
    assert is_postgres_url("PostgreSQL://")
    assert not is_postgres_url("postgresql:notes.db")
    assert not is_postgres_url("./postgresql://notes.db")


@pytest.mark.parametrize("location", ["postgresql:/me:word@h/notes", "postgres:notes", "POSTGRES:/"])
def test_a_url_that_lost_a_slash_is_no_file(location: str) -> None:
    with pytest.raises(StorageError, match="no two slashes") as caught:
        check_nearly(location)
    assert ":word" not in str(caught.value)


@pytest.mark.parametrize("location", ["postgress://me:word@h/notes", "mysql:/me:word@h/x", "POSTGRE://me:word@h"])
def test_a_url_of_another_kind_with_a_password_is_no_file(location: str) -> None:
    with pytest.raises(StorageError, match="names no log") as caught:
        check_nearly(location)
    assert ":word" not in str(caught.value)


@pytest.mark.parametrize(
    "location",
    ["postgresql://me:word@h/notes", "postgres.db", "./postgres:notes", "postgres", "file:///a:b@c", "C:/a", "a:/b@c"],
)
def test_other_locations_pass(location: str) -> None:
    check_nearly(location)


def test_urls_are_values() -> None:
    url = PostgresURL.parse("postgresql://me:word@h/notes?schema=s")
    assert url == PostgresURL.parse("postgres://me:word@h/notes?schema=s")
    assert url != PostgresURL.parse("postgres://me:other@h/notes?schema=s")
    assert pickle.loads(pickle.dumps(url)) == url
    assert len({url, PostgresURL.parse("postgres://me:word@h/notes?schema=s")}) == 1


@pytest.mark.parametrize(
    "location",
    [
        " postgresql://gossip:PW@h/notes",
        "\n\tPOSTGRES://gossip:PW@h/notes",
        " postgresql:/gossip:PW@h/notes",
        "jdbc:postgresql://h/notes?user=gossip&password=PW",
        "jdbc:postgresql://gossip:PW@h/notes",
        " jdbc:postgresql:notes?password=PW",
        "host=h user=gossip password = PW",
        "password=PW",
        "mysql://h/notes?a=b&sslpassword=PW",
        " https://gossip:PW@h/notes",
    ],
)
def test_what_is_no_file_is_not_repeated_with_its_password(location: str) -> None:
    with pytest.raises(StorageError) as failure:
        gossiplog.open(location, read_only=True)
    assert "PW" not in f"{failure.value!r} {failure.value}"
    assert "postgresql://" in str(failure.value) or "leave them out" in str(failure.value)


@pytest.mark.parametrize("location", ["./password=a", "/a?password=b", "my password", "file:a?password=b", " a"])
def test_names_of_files_may_say_password(location: str) -> None:
    check_nearly(location)


def test_a_schema_that_postgres_would_replace_by_the_role_is_refused() -> None:
    with pytest.raises(StorageError, match=r"'\$user' is for Postgres whichever has the role's name"):
        PostgresURL.parse("postgresql:///notes?schema=$user")
