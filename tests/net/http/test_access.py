"""Every combination of Host, Origin and token, for requests and for WebSockets."""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from gossiplog import KeyFileError
from gossiplog.net.http.access import (
    EVERY,
    SCOPE_KEY,
    Access,
    Allowed,
    Denied,
    Token,
    bare_token,
    protect,
)
from gossiplog.net.http.addresses import RENEWAL_SECONDS, USUAL_CONNECTIONS, Addresses
from gossiplog.net.rate_limited_log import FIELDS, LINES, RateLimitedLog
from tests.net.asgi import Answer, call, scope
from tests.strategies import repeatable

READ = "read-token-0123456789"
WRITE = "write-token-0123456789"
OTHER = "other-token-0123456789"
APP = "https://app.example.org"

# The last column: whether a hub takes it that is known as hub.example.org, too.
HOSTS = [
    ("localhost", True),
    ("localhost:8000", True),
    ("127.0.0.1:8000", True),
    ("[::1]:8000", True),
    ("LOCALHOST:8000", True),
    ("hub.example.org", True),
    ("hub.example.org:443", True),
    ("evil.example.org", False),
    ("localhost.evil.example.org", False),
    ("127.0.0.1.evil.example.org:8000", False),
    ("localhost:8000@evil.example.org", False),
    ("localhost:port", False),
    ("", False),
    (None, False),
]
# By how each origin relates to the host.
ORIGINS = [
    (None, True),
    ("http://{host}", True),
    ("https://{host}", True),
    (APP, True),
    ("http://app.example.org", False),
    ("https://app.example.org:8443", False),
    ("https://evil.example.org", False),
    ("https://evil.example.org/{host}", False),
    ("https://user@{host}", False),
    ("file://", False),
    ("null", False),
    ("", False),
    ("http://[", False),
]
TOKENS = [None, READ, WRITE, OTHER, "", READ + "x"]
POLICIES = [(None, None), (READ, None), (None, WRITE), (READ, WRITE)]


def access(read: str | None, write: str | None) -> Access:
    return Access(
        hosts=frozenset(["hub.example.org"]),
        origins=frozenset([APP]),
        read_token=Token(read) if read else None,
        write_token=Token(write) if write else None,
    )


def rights(policy: tuple[str | None, str | None], shown: str | None) -> tuple[bool, bool]:
    """May read, may write; the rules of the module, as a table."""
    return {
        (None, None): {None: (True, True)},
        (READ, None): {READ: (True, True)},
        (None, WRITE): {None: (True, False), WRITE: (True, True)},
        (READ, WRITE): {READ: (True, False), WRITE: (True, True)},
    }[policy].get(shown, (True, True) if policy == (None, None) else (False, False))


def headers(host: str | None, origin: str | None, token: str | None) -> list[tuple[str, str]]:
    found = [] if host is None else [("Host", host)]
    found += [] if origin is None else [("Origin", origin.format(host=host))]
    return found + ([] if token is None else [("Authorization", f"Bearer {token}")])


@pytest.mark.parametrize(("host", "host_is_known"), HOSTS)
@pytest.mark.parametrize(("origin", "origin_is_known"), ORIGINS)
def test_the_matrix(host: str | None, host_is_known: bool, origin: str | None, origin_is_known: bool) -> None:
    for policy, token, (kind, method) in itertools.product(
        POLICIES,
        TOKENS,
        [("http", "GET"), ("http", "HEAD"), ("http", "POST"), ("http", "DELETE"), ("websocket", "GET")],
    ):
        found = access(*policy)._decide(scope(kind, "/", method, headers(host, origin, token)))
        may_read, may_write = rights(policy, token)
        if not host_is_known or not origin_is_known:
            assert isinstance(found, Denied)
            assert found.status in (400, 403)
        elif may_write if method in ("POST", "DELETE") else may_read:
            assert found == Allowed(may_read, may_write)
        else:
            assert isinstance(found, Denied)
            assert found.status == (403 if may_read and token else 401)
        if isinstance(found, Denied):
            assert not any(secret in found.reason for secret in (READ, WRITE, OTHER))


@pytest.mark.parametrize("shown", [None, READ, WRITE, OTHER])
def test_the_query_is_for_websockets_alone(shown: str | None) -> None:
    target = "/" if shown is None else f"/?a=1&token={shown}"
    both = access(READ, WRITE)
    socket = both._decide(scope("websocket", target, headers=[("Host", "localhost")]))
    may_read, may_write = rights((READ, WRITE), shown)
    assert socket == Allowed(may_read, may_write) if may_read else isinstance(socket, Denied)
    request = both._decide(scope("http", target, headers=[("Host", "localhost")]))
    assert request == Denied(401, "reading needs a token here", "token")


def test_a_header_goes_before_the_query() -> None:
    found = access(READ, WRITE)._decide(
        scope("websocket", f"/?token={WRITE}", headers=headers("localhost", None, READ))
    )
    assert found == Allowed(read=True, write=False)


@pytest.mark.parametrize("value", [f"Basic {READ}", f"{READ}", "Bearer", f"Bearer {READ} {READ}", f"bearer\t{READ}"])
def test_other_authorization_headers(value: str) -> None:
    found = access(READ, None)._decide(scope("http", "/", headers=[("Host", "localhost"), ("Authorization", value)]))
    assert found == Denied(401, "the token is not valid here", "token")


@pytest.mark.parametrize(
    ("doubled", "status"),
    [([("Host", "localhost")] * 2, 400), ([("Host", "localhost"), ("Origin", APP), ("Origin", APP)], 400)],
)
def test_doubled_headers(doubled: list[tuple[str, str]], status: int) -> None:
    found = access(None, None)._decide(scope("http", "/", headers=doubled))
    assert isinstance(found, Denied)
    assert found.status == status


def test_every_host_and_every_origin() -> None:
    every = Access(hosts=frozenset([EVERY]), origins=frozenset([EVERY]))
    for host, origin in [("evil.example.org", "https://any.example.org"), ("a", "null"), ("b:1", None)]:
        assert every._decide(scope("http", "/", headers=headers(host, origin, None))) == Allowed(True, True)
    assert isinstance(every._decide(scope("http", "/", headers=headers("a b", None, None))), Denied)


@repeatable(300)
@given(
    items=st.lists(
        st.tuples(
            st.sampled_from([b"host", b"origin", b"authorization", b"cookie"]),
            st.one_of(
                st.binary(max_size=12), st.sampled_from([b"localhost", b"http://localhost", f"Bearer {READ}".encode()])
            ),
        ),
        max_size=4,
    ),
    query=st.one_of(st.binary(max_size=12), st.just(f"token={READ}".encode())),
)
def test_any_headers_are_judged(items: list[tuple[bytes, bytes]], query: bytes) -> None:
    found = access(READ, None)._decide({**scope("websocket", "/"), "headers": items, "query_string": query})
    has_token = (b"authorization", f"Bearer {READ}".encode()) in items or query == f"token={READ}".encode()
    assert isinstance(found, Denied) or has_token


@pytest.mark.parametrize(
    "arguments",
    [
        {"hosts": frozenset(["http://a"])},
        {"hosts": frozenset(["a:80"])},
        {"hosts": frozenset(["A"])},
        {"hosts": frozenset([""])},
        {"origins": frozenset(["app.example.org"])},
        {"origins": frozenset(["https://app.example.org/"])},
        {"origins": frozenset(["https://App.example.org"])},
        {"origins": frozenset(["null"])},
    ],
)
def test_settings_that_could_never_match(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is no (host|origin): expected"):
        Access(**arguments)


def test_an_address_of_version_6_is_a_host() -> None:
    hub = Access(hosts=["2001:db8::1"])
    assert hub._decide(scope("http", "/", headers=[("Host", "[2001:db8::1]:8000")])) == Allowed(True, True)


# Tokens


@pytest.mark.parametrize("text", ["", "short", "x" * 513, "with space-0123456789", "ümlaut-0123456789", "=" * 20])
def test_texts_that_are_no_token(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a token of 16 to 512 characters"):
        Token(text)
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(KeyFileError, match="holds no token: expected a token of 16 to 512"):
        Token.load(file)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_token_is_its_text_with_or_without_a_line_end(end: str) -> None:
    found = Access(["hub.example.org"], [APP], READ + end, Token(WRITE + end))
    for token, is_writer in ((READ, False), (WRITE, True)):
        assert found._decide(scope("websocket", "/", "GET", headers("localhost", None, token))) == Allowed(
            True, is_writer
        )


@pytest.mark.parametrize("wrong", [READ.encode(), Path("read.token"), 5])
def test_what_is_no_text_is_no_token(wrong: Any) -> None:
    for take in (Token, bare_token, lambda token: Access(read_token=token), lambda token: Access(write_token=token)):
        with pytest.raises(TypeError, match=r"the token is of the type \w+: expected its text\. A file's is") as caught:
            take(wrong)
        assert READ not in str(caught.value)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, dict.fromkeys])
def test_names_come_in_any_collection(kind: Callable[[list[str]], Collection[str]]) -> None:
    found = Access(kind(["hub.example.org"]), kind([APP]))
    assert found == Access(frozenset(["hub.example.org"]), frozenset([APP]))
    assert hash(found) == hash(Access(["hub.example.org"], [APP]))


@pytest.mark.parametrize("name", ["hosts", "origins"])
@pytest.mark.parametrize("wrong", ["localhost", b"localhost", None, 5, [b"localhost"], [None]])
def test_a_single_name_is_no_collection_of_names(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} is .*: expected a list of texts, such as \\["):
        Access(**{name: wrong})


def test_a_token_is_not_shown() -> None:
    assert READ not in f"{Token(READ)!r} {Token(READ)} {access(READ, None)!r}"


NOT_NAMED = "of the token file .* is not NAME: TOKEN, the name first"
NAMED = "alice: alice-may-write-0123456789\n\nbob:bob-may-write-0123456789\r\n"


def test_a_file_of_several_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text(NAMED)
    alice, bob = Token.load_all(file)
    assert (repr(alice), repr(bob)) == ("<Token of alice>", "<Token of bob>")
    assert alice.matches("alice-may-write-0123456789")
    assert bob == Token("bob-may-write-0123456789")
    with pytest.raises(KeyFileError, match="tokens holds 2 tokens: expected one"):
        Token.load(file)
    # A client's file may have the line that the hub's has.
    file.write_text(NAMED.partition("\n")[0])
    assert Token.load(file) == alice
    file.write_text(READ)
    assert [token.name for token in Token.load_all(file)] == [""]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no token: expected a token of 16"),
        (f"{NAMED}carol", "line 4 of the token file .* is no token: expected a token of 16"),
        (f"{NAMED}carol-0123456789", "line 4 of the token file .* needs a name of its own: expected NAME: TOKEN"),
        (f"{NAMED}bob: other-0123456789", "line 4 of the token file .* needs a name of its own"),
        (f"{NAMED}a b: other-0123456789", f"line 4 {NOT_NAMED}: expected a name of up to 15 characters"),
        (f"{NAMED}: other-0123456789", f"line 4 {NOT_NAMED}: expected a name of up to 15 characters"),
        (f"{NAMED}é: other-0123456789", f"line 4 {NOT_NAMED}: expected a name of up to 15 characters"),
        # The wrong way round.
        (f"{NAMED}other-0123456789: carol", f"line 4 {NOT_NAMED}: expected a name of up to 15 characters"),
        (f"{NAMED}other-0123456789: carol-at-home-2026", f"line 4 {NOT_NAMED}: expected a name of up to 15 characters"),
        ("other-0123456789: carol-at-home-2026", f"line 1 {NOT_NAMED}: expected a name of up to 15 characters"),
        ("carol: 0123456789", f"line 1 {NOT_NAMED}: expected a token of 16 to 512 characters"),
        (f"{NAMED}carol: bob-may-write-0123456789", "line 4 of the token file .* has the token of another line, too"),
        ("x" * 2**19, "is longer than"),
    ],
)
def test_files_that_hold_no_tokens(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(KeyFileError, match=reason) as caught:
        Token.load_all(file)
    assert "0123456789" not in str(caught.value)


def test_no_text_is_both_a_name_and_a_token() -> None:
    longest = "x" * 15
    assert Token("y" * 16, longest).name == longest
    for text, name in (("y" * 16, "x" * 16), ("y" * 15, longest)):
        with pytest.raises(ValueError, match=r"expected a (name of up to 15|token of 16 to 512) characters"):
            Token(text, name)


def test_names_are_not_taken_for_tokens() -> None:
    with pytest.raises(TypeError, match="the tokens are a mapping: expected a collection") as caught:
        Access(write_token={"alice-at-home-2026": "alice-may-write-0123456789"})
    assert "0123456789" not in str(caught.value)


def test_what_is_shown_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access(write_token=[f"{number:016}" for number in range(100)])
    hashed: list[bytes] = []

    def sha256(data: bytes) -> Any:
        hashed.append(data)
        return hashlib.sha256(data)

    monkeypatch.setattr("gossiplog.net.http.access.hashlib", SimpleNamespace(sha256=sha256))
    # As long as a header may be.
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + b"a" * 8000)]
    decision = access._decide({"type": "http", "method": "GET", "path": "/", "headers": headers})
    assert isinstance(decision, Denied)
    assert len(hashed) == 1


def test_each_of_several_tokens_is_let_in() -> None:
    alice, bob, reader = Token("alice-0123456789", "alice"), Token("bob-0123456789012", "bob"), Token(READ)
    access = Access(read_token=[reader], write_token=(alice, bob))
    for token in (alice, bob):
        assert access.rights(token) == Allowed(read=True, write=True)
    assert access.rights(reader) == Allowed(read=True, write=False)
    without = replace(access, write_token=alice)
    assert without.rights(bob) == Allowed(read=False, write=False)
    assert replace(access, addresses=True).write_token == (alice, bob)
    # An empty list must not open a hub.
    with pytest.raises(ValueError, match="a collection without tokens"):
        Access(write_token=[])


def test_a_token_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(KeyFileError, match="cannot read the token file"):
        Token.load(file)
    file.write_text(READ + "\n")
    file.chmod(0o640)
    with pytest.raises(KeyFileError, match="open to other users: run chmod 600"):
        Token.load(file)
    file.chmod(0o600)
    assert Token.load(file).matches(READ)
    assert not Token.load(file).matches(READ + "\n")


# The middleware


class Inner:
    """An application that remembers what it was asked."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"inside"})


async def open_websocket(
    access: Access, inner: Inner, target: str, items: list[tuple[str, str]], **more: Any
) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await protect(inner, access)({**scope("websocket", target, headers=items), **more}, receive, send)
    return sent


@pytest.mark.anyio
async def test_what_is_let_through_carries_its_rights_and_no_token() -> None:
    inner = Inner()
    app = protect(inner, access(READ, WRITE))
    answer = await call(app, "/a?b=1&token=x", headers=headers("localhost", None, READ))
    assert (answer.status, answer.body) == (200, b"inside")
    await open_websocket(access(READ, WRITE), inner, f"/?a=%20b&token={WRITE}&c=", [("Host", "localhost")])
    request, socket = inner.scopes
    assert request[SCOPE_KEY] == Allowed(read=True, write=False)
    assert socket[SCOPE_KEY] == Allowed(read=True, write=True)
    assert request["query_string"] == b"b=1&token=x"
    assert socket["query_string"] == b"a=+b&c="
    assert not any(secret in str(inner.scopes) for secret in (READ, WRITE))


@pytest.mark.anyio
async def test_what_is_not_let_through_learns_why(caplog: pytest.LogCaptureFixture) -> None:
    inner = Inner()
    limited_log = RateLimitedLog(logging.getLogger("gossiplog.test"))
    app = protect(inner, access(READ, WRITE), limited_log)
    missing = await call(app, "/", headers=headers("localhost", None, None))
    wrong = await call(app, "/a\nb?token=c", headers=headers("localhost", None, OTHER))
    reading = await call(app, "/", "POST", headers=headers("localhost", None, READ))
    origin = await call(app, "/", headers=headers("localhost", "https://evil.example.org", READ))
    host = await call(app, "/", headers=headers("evil.example.org", None, READ))
    assert (missing.status, missing.error) == (401, "reading needs a token here")
    assert missing.headers["www-authenticate"] == "Bearer"
    assert (wrong.status, wrong.error) == (401, "the token is not valid here")
    assert (reading.status, reading.error) == (403, "this token allows reading, not writing")
    assert origin.status == 403
    assert "https://evil.example.org" in origin.error
    assert host.status == 403
    assert inner.scopes == []
    assert limited_log.counts == {"token": 3, "origin": 1, "host": 1}
    assert caplog.messages == [
        "127.0.0.1:50000: refused a request for /: reading needs a token here",
        "127.0.0.1:50000: refused a request for /a\\nb: the token is not valid here",
        "127.0.0.1:50000: refused a request for /: this token allows reading, not writing",
        f"127.0.0.1:50000: refused a request for /: {origin.error}",
        f"127.0.0.1:50000: refused a request for /: {host.error}",
    ]
    assert not any(secret in caplog.text for secret in (READ, WRITE, OTHER))


def test_an_unknown_host_learns_what_to_do() -> None:
    found = Access()._decide(scope("http", "/", "GET", headers("hub.example.net", None, None)))
    assert isinstance(found, Denied)
    assert found.reason == (
        "this server is not known as 'hub.example.net': allow it with Access(hosts=[...]), or gossiplog serve"
        " --allow-host"
    )
    # What Starlette's TestClient says.
    found = Access()._decide(scope("http", "/", "GET", headers("testserver", None, None)))
    assert isinstance(found, Denied)
    assert found.reason.endswith("calls itself so: TestClient(application, base_url='http://localhost')")
    assert Access(hosts=frozenset({"testserver"}))._decide(scope("http", "/", "GET", headers("testserver", None, None)))


@pytest.mark.anyio
async def test_lines_about_who_is_not_let_through_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    app = protect(Inner(), access(READ, WRITE))
    for _ in range(LINES + 5):
        await call(app, "/", headers=headers("localhost", None, OTHER))
    assert len(caplog.messages) == LINES


@pytest.mark.anyio
async def test_the_line_about_a_token_that_does_not_suffice_has_its_name(caplog: pytest.LogCaptureFixture) -> None:
    limited_log = RateLimitedLog(logging.getLogger("gossiplog.test"))
    readers = [Token(READ, "alice"), Token(OTHER)]
    app = protect(Inner(), Access(read_token=readers, write_token=WRITE), limited_log)
    for shown in (READ, OTHER):
        answer = await call(app, "/", "POST", headers=headers("localhost", None, shown))
        assert answer.error == "this token allows reading, not writing"
    line = "127.0.0.1:50000: refused a request for /: this token allows reading, not writing"
    assert caplog.messages == [f"{line}, token of alice", line]
    assert [getattr(record, FIELDS).get("token") for record in caplog.records] == ["alice", None]
    assert not any(secret in caplog.text for secret in (READ, OTHER))


@pytest.mark.anyio
async def test_some_paths_are_open_to_all() -> None:
    inner = Inner()
    app = protect(inner, access(READ, WRITE), open_paths=["/healthz"])
    strange = [("Host", "10.0.0.1:80"), ("Authorization", f"Bearer {OTHER}"), ("Origin", "https://evil.example.org")]
    for method in ("GET", "HEAD"):
        assert (await call(app, "/healthz?token=x", method, headers=strange)).status == 200
    assert [scope[SCOPE_KEY] for scope in inner.scopes] == [Allowed(read=False, write=False)] * 2
    assert OTHER not in str(inner.scopes)
    known = headers("localhost", None, READ)
    assert (await call(app, "/healthz", headers=known)).status == 200
    assert inner.scopes[-1][SCOPE_KEY] == Allowed(read=True, write=False)
    assert (await call(app, "/healthz", "POST", headers=strange)).status == 403
    for path in ("/", "/healthz/", "/api/healthz", "/HEALTHZ"):
        assert (await call(app, path, headers=strange)).status == 403
    (closed,) = await open_websocket(access(READ, WRITE), inner, "/healthz", strange)
    assert closed["type"] == "websocket.close"

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": "/hub"}, receive, send)

    assert (await call(mounted, "/hub/healthz", headers=strange)).status == 200


@pytest.mark.anyio
async def test_who_guesses_tokens_waits() -> None:
    """Its right token is refused, too: what is answered must not tell which one is right."""
    now = 0.0
    inner, limited_log = Inner(), RateLimitedLog(logging.getLogger("gossiplog.test"))
    app = protect(
        inner, access(READ, WRITE), limited_log, open_paths=["/healthz"], addresses=Addresses(clock=lambda: now)
    )

    async def ask(token: str | None, client: str = "10.0.0.1", path: str = "/") -> Answer:
        async def there(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "client": (client, 1234)}, receive, send)

        return await call(there, path, headers=headers("localhost", None, token))

    # Paths that are open to all count, too: the answer to a reader says more.
    guesses = [await ask(OTHER, path=path) for path in ("/", "/healthz") for _ in range(USUAL_CONNECTIONS // 2)]
    assert {answer.status for answer in guesses} == {401, 200}
    for token in (OTHER, READ, WRITE, ""):
        answer = await ask(token)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert answer.error == "too many requests of 10.0.0.1 had a wrong token: show one again in 0.3 s"
        assert (await ask(token, path="/healthz")).status == 200
        assert inner.scopes[-1][SCOPE_KEY] == Allowed(read=False, write=False)
    assert limited_log.counts == {"token": USUAL_CONNECTIONS // 2, "rate": 4}
    # Who shows none learns nothing, and others do not notice.
    assert (await ask(None)).status == 401
    assert (await ask(READ, "10.0.0.2")).status == 200
    # Refusals do not prolong it.
    now += RENEWAL_SECONDS / USUAL_CONNECTIONS
    assert [(await ask(READ)).status for _ in range(3)] == [200] * 3
    assert [(await ask(OTHER)).status for _ in range(2)] == [401, 429]


@pytest.mark.anyio
async def test_requests_that_show_no_wrong_token_cost_nobody_a_wait() -> None:
    """Any page on the web can have its visitor's browser make them, and they cost what others do."""
    addresses = Addresses(1, clock=lambda: 0.0)
    app = protect(Inner(), access(READ, WRITE), addresses=addresses)
    for _ in range(2 * USUAL_CONNECTIONS):
        for host, origin, token, method in (
            ("localhost", None, None, "GET"),
            ("localhost", None, READ, "POST"),
            ("evil.example.org", None, OTHER, "GET"),
            ("localhost", "https://evil.example.org", OTHER, "GET"),
        ):
            assert (await call(app, "/", method, headers=headers(host, origin, token))).status in (401, 403)
    assert (await call(app, "/", headers=headers("localhost", None, READ))).status == 200
    # Where there are no tokens, none is wrong.
    app = protect(Inner(), access(None, None), addresses=addresses)
    for _ in range(2 * USUAL_CONNECTIONS):
        assert (await call(app, "/", headers=headers("localhost", None, OTHER))).status == 200


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("10.0.0.1", True),
        ("10.0.0.1:9100", True),
        ("[2001:db8::1]:9100", True),
        ("localhost", True),
        ("metrics.example.org", True),
        ("evil.example.org", False),
        # What a resolver might take for an address, a name server can answer.
        ("1", False),
        ("0x7f.1", False),
    ],
)
def test_a_numeric_address_can_be_allowed_as_such(host: str, is_known: bool) -> None:
    found = Access(hosts=frozenset(["metrics.example.org"]), addresses=True)
    decision = found._decide(scope("http", "/", headers=[("Host", host)]))
    assert isinstance(decision, Allowed) is is_known


@pytest.mark.anyio
async def test_a_websocket_that_is_not_let_through() -> None:
    inner = Inner()
    items = headers("localhost", "https://evil.example.org", None)
    (closed,) = await open_websocket(access(None, None), inner, "/", items)
    assert (closed["type"], closed["code"]) == ("websocket.close", 1008)
    start, body = await open_websocket(
        access(None, None), inner, "/", items, extensions={"websocket.http.response": {}}
    )
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 403)
    assert b"evil.example.org" in body["body"]
    assert inner.scopes == []


@pytest.mark.anyio
async def test_pages_of_allowed_origins() -> None:
    app = protect(Inner(), access(READ, WRITE))
    preflight = [("Host", "localhost"), ("Origin", APP), ("Access-Control-Request-Method", "POST")]
    preflight.append(("Access-Control-Request-Headers", "authorization, content-type"))
    asked = await call(app, "/", "OPTIONS", headers=preflight)
    assert asked.status == 200
    assert asked.headers["access-control-allow-origin"] == APP
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert "authorization" in asked.headers["access-control-allow-headers"].lower()
    answer = await call(app, "/", headers=headers("localhost", APP, READ))
    assert answer.headers["access-control-allow-origin"] == APP
    assert "Origin" in answer.headers["vary"]
    assert answer.headers["access-control-expose-headers"] == "Location, Link, Retry-After"
    # A page can read why it was refused.
    refused = await call(app, "/", headers=headers("localhost", APP, OTHER))
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, APP)


@pytest.mark.anyio
async def test_pages_of_other_origins() -> None:
    app = protect(Inner(), access(None, None))
    preflight = [
        ("Host", "localhost"),
        ("Origin", "https://evil.example.org"),
        ("Access-Control-Request-Method", "POST"),
    ]
    asked = await call(app, "/", "OPTIONS", headers=preflight)
    assert asked.status == 400
    assert "access-control-allow-origin" not in asked.headers
    answer = await call(app, "/", headers=headers("localhost", "https://evil.example.org", None))
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.anyio
async def test_every_origin_is_told_so() -> None:
    app = protect(Inner(), Access(origins=frozenset([EVERY])))
    answer = await call(app, "/", headers=headers("localhost", "https://any.example.org", None))
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")


@pytest.mark.anyio
async def test_other_scopes_pass() -> None:
    inner = Inner()

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    await protect(inner, access(READ, WRITE))({"type": "lifespan"}, receive, send)
    assert inner.scopes == [{"type": "lifespan"}]
