"""Who may use a hub: checks of Host, Origin and bearer tokens, for HTTP requests and WebSockets alike.

- *Host* must be a name under which the hub is known. Otherwise a page on any site could point its own name at the
  loopback address (DNS rebinding), and talk to a hub that listens there as if it were its own server.
- *Origin* comes from browsers alone: it must be the hub's own, or one that was allowed. Browsers let any page open a
  WebSocket to anywhere, and send simple requests; nothing but the server's look at the origin keeps them out.
- *Tokens*: one that allows reading, and one that allows writing, which includes reading. On a hub that has no token for
  reading, all who come this far may read; on one that has none for writing, all who may read may write.

An address that shows wrong tokens has to wait before it may show another one (`gossiplog.net.http.addresses`).

A token comes as `Authorization: Bearer TOKEN` (RFC 6750). For WebSockets, whose headers a page cannot set, and for
addresses that a person opens in a browser (`gossiplog.net.http.browser_paths`), it may be the query parameter `token`:
canvas-js's client opens the URL that it is given and takes nothing else. A URL shows up in the logs of proxies, so a
program that can set the header should. Neither is passed on to the application.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv6Address, ip_address
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from gossiplog.errors import KeyFileError
from gossiplog.net.arguments import check_texts
from gossiplog.net.http.addresses import Addresses, Refusal, host_of
from gossiplog.net.http.browser_paths import (
    SAFE_METHODS,
    BrowserPaths,
    is_read_of,
    token_of_query,
    with_header,
    without_token,
)
from gossiplog.net.rate_limited_log import RateLimitedLog, client_name
from gossiplog.signer import read_secret

if TYPE_CHECKING:
    # Settings and tokens are made without a web server, by clients, too.
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names under which a hub is always known."""
EVERY = "*"
"""Allows all hosts, or all origins."""
SCOPE_KEY = "gossiplog.access"
"""Where a scope that was let through says what it may do, an Allowed; one that was not, a Denied, for an access log.

Examples:
    >>> from gossiplog.lowlevel import SCOPE_KEY
    >>> async def application(scope, receive, send):
    ...     print(scope[SCOPE_KEY].write)
    >>> anyio.run(application, {SCOPE_KEY: gossiplog.Access().rights(None)}, None, None)
    True
"""

# What Starlette's TestClient calls the application that it tests.
_TEST_HOST = "testserver"
# RFC 6750, section 2.1: what a bearer token consists of.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_TOKEN_LENGTHS = range(16, 513)
_NO_TOKEN = "expected a token of 16 to 512 characters of A-Z, a-z, 0-9 and -._~+/"
# Shorter than every token: where a line has the two the wrong way round, no log shows the token as a name.
_NAME = re.compile(r"[A-Za-z0-9\-._]{1,15}")
_NO_NAME = "expected a name of up to 15 characters of A-Z, a-z, 0-9 and -._"
# Bytes of a file of tokens.
_LONGEST_FILE = 2**18
# Characters of a path in a line of the log.
_LONGEST_PATH = 200

_LOGGER = logging.getLogger(__name__)


class Token:
    """A secret that callers show. Neither `repr` nor a traceback shows it.

    Args:
        text: 16 to 512 characters of `A-Za-z0-9-._~+/`, with `=` at the end. A line end around them does not count.
        name: of who has it, for the log: up to 15 characters of `A-Za-z0-9-._`, fewer than a token has; "" for none.

    Attributes:
        name: as it was given.

    Raises:
        ValueError: another text, or another name.
        TypeError: something else than a text, such as the path of a file: `Token.load` reads one.

    Examples:
        >>> token = gossiplog.Token("a-secret-of-16-or-more", "laptop")
        >>> token, token.matches("a-secret-of-16-or-more")
        (<Token of laptop>, True)
    """

    __slots__ = ("_digest", "name")

    def __init__(self, text: str, name: str = "") -> None:
        text = bare_token(text)
        if name and not _NAME.fullmatch(name):
            raise ValueError(_NO_NAME)
        self.name: str = name
        if len(text) not in _TOKEN_LENGTHS:
            raise ValueError(_NO_TOKEN)
        self._digest = _digest(text)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Token:
        """Read a token from a file that only its owner can read: one line.

        Args:
            path: of the file.

        Raises:
            KeyFileError: it is missing, holds no token, or is open to others than its owner.
        """
        return cls(load_token(path))

    @classmethod
    def load_all(cls, path: str | os.PathLike[str]) -> tuple[Token, ...]:
        """Read the tokens of several clients from a file that only its owner can read: `NAME: TOKEN` in each line.

        A single token may be without a name. Lines that are blank do not count.

        Args:
            path: of the file.

        Raises:
            KeyFileError: the file is missing, is open to others than its owner, or a line is no token.
        """
        return tuple(cls(text, name) for name, text in _read_tokens(path))

    def matches(self, text: str | None) -> bool:
        """Return whether a caller showed this token; it takes the same time for every answer.

        Args:
            text: as it came; None where none was shown.
        """
        return text is not None and self._has(_digest(text))

    def _has(self, digest: bytes) -> bool:
        return hmac.compare_digest(self._digest, digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and hmac.compare_digest(self._digest, other._digest)

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"<Token of {self.name}>" if self.name else "<Token>"


def _digest(text: str) -> bytes:
    # Digests have one length, and comparing those does not show how much of a guess is right.
    return hashlib.sha256(text.encode()).digest()


def _matching(tokens: Iterable[Token], text: str | None) -> list[Token]:
    """Return the tokens that a caller showed; all are compared, so that the time does not show which it was."""
    if text is None:
        return []
    # Once: of a long text it takes longer than all comparisons.
    digest = _digest(text)
    return [token for token in tokens if token._has(digest)]


def bare_token(text: str) -> str:
    """Return a bearer token as it is sent: without the line end that files of tokens have.

    Raises:
        ValueError: a text with a character that no token has.
        TypeError: something else than a text.
    """
    if not isinstance(text, str):
        # Not shown: it may be the secret.
        raise TypeError(
            f"the token is of the type {type(text).__name__}: expected its text. A file's is Path(file).read_text(),"
            " and gossiplog.Token.load(file) for gossiplog.Access"
        )
    bare = text.strip()
    if not _TOKEN.fullmatch(bare):
        raise ValueError(_NO_TOKEN)
    return bare


def load_token(path: str | os.PathLike[str]) -> str:
    """Return the text of a token from a file that only its owner can read: one line.

    Raises:
        KeyFileError: it is missing, holds no token, or is open to others than its owner.
    """
    found = _read_tokens(path)
    if len(found) > 1:
        raise KeyFileError(f"the token file {os.fspath(path)} holds {len(found)} tokens: expected one")
    return found[0][1]


def _read_tokens(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Return the names and the texts of tokens in a file; no error shows a part of it.

    Raises:
        KeyFileError: the file is missing, is open to others than its owner, or a line is no token.
    """
    place = os.fspath(path)
    content = read_secret(path, "token file", _LONGEST_FILE + 1)
    if len(content) > _LONGEST_FILE:
        raise KeyFileError(f"the token file {place} is longer than {_LONGEST_FILE} bytes")
    lines = [(number, line.strip()) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    found: dict[str, str] = {}
    texts: set[str] = set()
    for number, line in lines:
        try:
            first, separator, second = line.decode("latin-1").partition(":")
            name, text = (first, bare_token(second)) if separator else ("", bare_token(first))
            if separator and not name:
                raise ValueError(_NO_NAME)
            Token(text, name)
        except ValueError as error:
            if separator:
                reason = f"line {number} of the token file {place} is not NAME: TOKEN, the name first"
            elif len(lines) == 1:
                reason = f"the token file {place} holds no token"
            else:
                reason = f"line {number} of the token file {place} is no token"
            raise KeyFileError(f"{reason}: {error}") from error
        if (not separator and len(lines) > 1) or name in found:
            raise KeyFileError(
                f"line {number} of the token file {place} needs a name of its own: expected NAME: TOKEN in each line,"
                " where there are several tokens"
            )
        if text in texts:
            raise KeyFileError(f"line {number} of the token file {place} has the token of another line, too")
        found[name] = text
        texts.add(text)
    if not found:
        raise KeyFileError(f"the token file {place} holds no token: {_NO_TOKEN}")
    return list(found.items())


@dataclass(frozen=True, slots=True)
class Allowed:
    """A request that is let through.

    Attributes:
        read: it may read.
        write: it may write, too.
        token: that was shown for it, or None.

    Examples:
        >>> from gossiplog.lowlevel import Allowed
        >>> gossiplog.Access().rights(None) == Allowed(read=True, write=True)
        True
    """

    read: bool
    write: bool
    token: Token | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Denied:
    """A request that is not let through.

    Attributes:
        status: of the answer.
        reason: what was wrong; it holds nothing secret.
        kind: what is counted: "host", "origin" or "token".
        token: that was shown and does not suffice, or None.
        is_guess: a token was shown that is none of these.

    Examples:
        >>> from gossiplog.lowlevel import Denied
        >>> denied = Denied(403, "unknown host evil.example.org", "host")
        >>> denied.status, denied.kind
        (403, 'host')
    """

    status: int
    reason: str
    kind: str
    token: Token | None = field(default=None, compare=False)
    is_guess: bool = field(default=False, compare=False)


Decision: TypeAlias = Allowed | Denied
"""What a hub's `Access` decides of a request, which is in the request's scope.

Examples:
    >>> from gossiplog.lowlevel import SCOPE_KEY, Allowed, Decision
    >>> def may_write(scope) -> bool:
    ...     decision: Decision = scope[SCOPE_KEY]
    ...     return isinstance(decision, Allowed) and decision.write
    >>> may_write({SCOPE_KEY: Allowed(read=True, write=False)})
    False
"""
Tokens: TypeAlias = Token | str | Collection[Token | str] | None
"""One token, or those of several clients; None where none is needed.

Examples:
    >>> both = [gossiplog.Token("a-secret-of-16-or-more", "laptop"), gossiplog.Token("another-secret-of-16", "phone")]
    >>> len(gossiplog.Access(read_token=both).read_token)
    2
"""


def name_of_token(decision: Decision) -> tuple[str, dict[str, str]]:
    """Return what a line of a log says about the token that was shown, and as fields; nothing if it has no name."""
    name = decision.token.name if decision.token is not None else ""
    return (f", token of {name}", {"token": name}) if name else ("", {})


@dataclass(frozen=True, slots=True, init=False)
class Access:
    """What a hub asks of its callers.

        gossiplog.Access(hosts=["hub.example.org"], write_token=gossiplog.Token.load("write.token"))

    Args:
        hosts: names and addresses without port under which the hub is known, beside "localhost", "127.0.0.1" and "::1";
            "*" allows all.
        origins: such as "https://app.example.org", beside the hub's own; "*" allows all.
        read_token: for reading, or None; its text, a Token, or those of several clients (`Token.load_all`).
        write_token: for writing, or None; likewise.
        addresses: whether any numeric address is accepted as well. A page of a website can have its own name resolve to
            this machine (DNS rebinding), but not an address.

    Attributes:
        hosts: as a set.
        origins: as a set.
        read_token: as Tokens, which do not show their texts, or None.
        write_token: likewise.
        addresses: as it was given.

    Raises:
        ValueError: something that is no host, no origin, or no token; or a collection without tokens.
        TypeError: a single text as `hosts` or `origins`, or a token that is no text, such as the path of its file.

    Examples:
        >>> access = gossiplog.Access(hosts=["hub.example.org"], write_token=gossiplog.Token("a-secret-of-16-or-more"))
        >>> gossiplog.Hub(log, access=access)
        <Hub ...>
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    read_token: tuple[Token, ...] | None
    write_token: tuple[Token, ...] | None
    addresses: bool

    def __init__(
        self,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        read_token: Tokens = None,
        write_token: Tokens = None,
        addresses: bool = False,
    ) -> None:
        for name, value in (
            ("hosts", frozenset(check_texts("hosts", hosts, "hub.example.org"))),
            ("origins", frozenset(check_texts("origins", origins, "https://app.example.org"))),
            ("read_token", as_tokens(read_token)),
            ("write_token", as_tokens(write_token)),
            ("addresses", addresses),
        ):
            object.__setattr__(self, name, value)
        for host in self.hosts - {EVERY}:
            if not (_is_address(host) if ":" in host else _host_name(host) == host):
                raise ValueError(f"{host!r} is no host: expected a name or an address in lower case, without a port")
        for origin in self.origins - {EVERY}:
            if _authority(origin) is None or origin != origin.lower():
                raise ValueError(f"{origin!r} is no origin: expected one in lower case, as https://app.example.org")

    def _decide(self, scope: Scope) -> Decision:
        """Return what a request or a WebSocket may do, by its scope (ASGI specification, "HTTP & WebSocket").

        Args:
            scope: of ASGI: its type, method, path, query and headers are looked at.
        """
        headers = _Headers(scope)
        host = headers.single("host")
        name = None if host is None else _host_name(host)
        if host is None or name is None:
            return Denied(400, "expected one Host header, with a name or an address", "host")
        if not self._knows(name):
            return Denied(403, self._unknown(name), "host")
        if headers.count("origin") > 1:
            return Denied(400, "expected one Origin header at most", "origin")
        origin = headers.single("origin")
        if origin is not None and not self._allows_origin(origin, host):
            reason = f"pages of the origin {origin[:200]!r} may not use this hub: it has to be allowed"
            return Denied(403, reason, "origin")
        return self._decide_by_token(scope, headers)

    def _shows_token(self, scope: Scope) -> bool:
        """Return whether a request shows a token that is to be compared.

        Args:
            scope: of ASGI.
        """
        asks = self.read_token is not None or self.write_token is not None
        return asks and _Headers(scope).bearer() is not None

    def rights(self, token: Token | None) -> Allowed:
        """Return what a caller may do who shows this token, or none; nothing if the token is none of the hub's.

        Args:
            token: as one of the hub's, or another; None where none was shown.
        """
        is_writer = token is not None and token in (self.write_token or ())
        is_reader = is_writer or (token is not None and token in (self.read_token or ()))
        is_unknown = token is not None and not is_reader
        may_read = is_reader or (self.read_token is None and not is_unknown)
        return Allowed(may_read, is_writer or (may_read and self.write_token is None), token)

    def _page(self, scope: Scope) -> str:
        """Return what the web page is known by that has a browser make a request; "" without a page.

        Every origin that was allowed by name has a name of its own, and so has the hub's own. Of others the name is a
        digest: they may be long. A program that is no browser can claim any of them.

        Args:
            scope: of ASGI.
        """
        headers = _Headers(scope)
        origin, host = headers.single("origin"), headers.single("host")
        if origin is None or origin in self.origins:
            return origin or ""
        if host is not None and _authority(origin) == host.lower():
            # Whatever port and scheme it names.
            return "the hub's own"
        return hashlib.sha256(origin.encode("latin-1")).hexdigest()

    def _unknown(self, name: str) -> str:
        hint = "allow it with Access(hosts=[...]), or gossiplog serve --allow-host"
        if self.addresses:
            hint = "call it by its address, or have it serve at the name, as with --dashboard NAME:PORT"
        if name == _TEST_HOST:
            hint = "Starlette's TestClient calls itself so: TestClient(application, base_url='http://localhost')"
        return f"this server is not known as {name!r}: {hint}"

    def _knows(self, name: str) -> bool:
        if EVERY in self.hosts or name in self.hosts or name in LOOPBACK:
            return True
        return self.addresses and _is_any_address(name)

    def _allows_origin(self, origin: str, host: str) -> bool:
        if EVERY in self.origins or origin in self.origins:
            return True
        # Without the scheme: the hub may stand behind a proxy that takes TLS off.
        return _authority(origin) == host.lower()

    def _decide_by_token(self, scope: Scope, headers: _Headers) -> Decision:
        is_websocket = scope["type"] == "websocket"
        method = "GET" if is_websocket else scope["method"]
        shown = headers.bearer()
        if shown is None and is_websocket:
            shown = token_of_query(scope)
        tokens = [*(self.write_token or ()), *(self.read_token or ())]
        matching = _matching(tokens, shown)
        if shown is not None and tokens and not matching:
            return Denied(401, "the token is not valid here", "token", is_guess=True)
        allowed = self.rights(matching[0] if matching else None)
        # Browsers ask with OPTIONS, without a token, what they may ask: the answer is the same for everybody.
        if method == "OPTIONS" or (allowed.write if method not in SAFE_METHODS else allowed.read):
            return allowed
        if method not in SAFE_METHODS and matching:
            return Denied(403, "this token allows reading, not writing", "token", matching[0])
        return Denied(401, f"{'reading' if method in SAFE_METHODS else 'writing'} needs a token here", "token")


def protect(
    app: ASGIApp,
    access: Access | Callable[[], Access],
    limited_log: RateLimitedLog | None = None,
    *,
    open_paths: Collection[str] = (),
    websockets: Counter[str] | None = None,
    addresses: Addresses | None = None,
    browser: BrowserPaths | None = None,
) -> ASGIApp:
    """Return an application behind these checks, with the headers of CORS.

    By these headers browsers let pages of other origins use it (https://fetch.spec.whatwg.org/#http-cors-protocol).

    The application finds what a caller may do, an Allowed, in the scope under SCOPE_KEY. A WebSocket needs the right to
    read; the application must look at `write` before it takes messages from it.

    Args:
        app: to protect.
        access: the checks; a function returns those of the moment, whose origins never change.
        limited_log: counts refused requests by `Denied.kind`, and as "rate" those whose address showed too many wrong
            tokens; logs the reasons. None makes its own.
        open_paths: paths that anybody may GET, as health checks do, which have no token and know the machine by an
            address. A caller that fails the checks is let through without the right to read or write.
        websockets: counts those of the refused requests that were WebSockets, likewise.
        addresses: limit how many requests with wrong tokens an address makes; None makes its own. How often it opens a
            WebSocket is to be limited around this application, where that costs less.
        browser: paths of a page; None where there is none.
    """
    from starlette.middleware.cors import CORSMiddleware

    def current() -> Access:
        return access if isinstance(access, Access) else access()

    return CORSMiddleware(
        _AccessControl(
            app,
            current,
            RateLimitedLog(_LOGGER) if limited_log is None else limited_log,
            open_paths,
            Counter() if websockets is None else websockets,
            Addresses() if addresses is None else addresses,
            browser,
        ),
        allow_origins=sorted(current().origins),
        allow_methods=("GET", "HEAD", "POST"),
        allow_headers=("Authorization",),
        expose_headers=("Location", "Link", "Retry-After"),
    )


class _AccessControl:
    def __init__(
        self,
        app: ASGIApp,
        access: Callable[[], Access],
        limited_log: RateLimitedLog,
        open_paths: Collection[str],
        websockets: Counter[str],
        addresses: Addresses,
        browser: BrowserPaths | None,
    ) -> None:
        self._app = app
        self._access = access
        self._limited_log = limited_log
        self._open_paths = open_paths
        self._websockets = websockets
        self._addresses = addresses
        self._browser = browser

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        access, is_websocket = self._access(), scope["type"] == "websocket"
        host = host_of(scope)
        # The access log around this application keeps the scope that it has.
        shown = with_header(scope) if self._is_page(scope) else scope
        refusal = self._addresses.token_refusal(host) if not is_websocket and access._shows_token(shown) else None
        # Before the token is compared.
        decision = refusal or access._decide(shown)
        if not is_websocket and isinstance(decision, Denied) and decision.is_guess:
            self._addresses.count_wrong_token(host)
        match decision:
            case Denied() | Refusal() if self._is_open(scope):
                await self._app({**without_token(scope), SCOPE_KEY: Allowed(False, False)}, receive, send)
            case Denied(kind="token", is_guess=False) if self._is_file(scope):
                await self._app({**without_token(scope), SCOPE_KEY: Allowed(False, False)}, receive, send)
            case Refusal() as found:
                self._note(found.kind, scope, found.reason)
                await as_response(found)(scope, receive, send)
            case Denied() as denied:
                if is_websocket:
                    self._websockets[denied.kind] += 1
                # Also for an access log around this application.
                scope[SCOPE_KEY] = denied
                name, fields = name_of_token(denied)
                answer = self._explanation(scope, denied)
                # A person who is asked for a token has done nothing wrong.
                if answer is None or denied.is_guess or denied.token is not None:
                    self._note(denied.kind, scope, denied.reason + name, fields)
                await (_deny(denied, scope, receive, send) if answer is None else answer(scope, receive, send))
            case Allowed() as allowed:
                # Likewise.
                scope[SCOPE_KEY] = allowed
                await self._app({**without_token(shown), SCOPE_KEY: allowed}, receive, send)

    def _note(self, kind: str, scope: Scope, reason: str, fields: Mapping[str, str] = MappingProxyType({})) -> None:
        what = "a WebSocket" if scope["type"] == "websocket" else "a request"
        text = f"refused {what} for {scope['path'][:_LONGEST_PATH]}: {reason}"
        self._limited_log.note(kind, client_name(scope.get("client")), text, more=fields)

    def _is_open(self, scope: Scope) -> bool:
        return is_read_of(scope, self._open_paths)

    def _is_page(self, scope: Scope) -> bool:
        return self._browser is not None and is_read_of(scope, (self._browser.page,))

    def _is_file(self, scope: Scope) -> bool:
        return self._browser is not None and is_read_of(scope, self._browser.files)

    def _explanation(self, scope: Scope, denied: Denied) -> ASGIApp | None:
        if self._browser is None or denied.kind != "token" or not self._is_page(scope):
            return None
        return self._browser.explain(scope, denied.status)


def as_response(refusal: Refusal) -> JSONResponse:
    """Return the answer to an address that is to come again later."""
    from starlette.responses import JSONResponse

    return JSONResponse({"error": refusal.reason}, 429, {"Retry-After": str(math.ceil(refusal.seconds))})


async def _deny(denied: Denied, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        # The server answers 403, whatever the reason.
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": denied.reason[:120]})
        return
    headers = {"WWW-Authenticate": "Bearer"} if denied.status == 401 else None
    # The response of a WebSocket's scope takes the form that WebSockets have for it.
    from starlette.responses import JSONResponse

    await JSONResponse({"error": denied.reason}, denied.status, headers)(scope, receive, send)


class _Headers:
    """The headers of a scope: names in lower case, values in Latin-1 (ASGI specification)."""

    def __init__(self, scope: Scope) -> None:
        self._items: Iterable[tuple[bytes, bytes]] = scope["headers"]

    def count(self, name: str) -> int:
        return len(self._values(name))

    def single(self, name: str) -> str | None:
        values = self._values(name)
        return values[0] if len(values) == 1 else None

    def bearer(self) -> str | None:
        """Return the bearer token that a caller shows, or text that is none where the header has another form."""
        values = self._values("authorization")
        if not values:
            return None
        scheme, _, text = values[0].partition(" ")
        return text.strip() if scheme.lower() == "bearer" and len(values) == 1 else ""

    def _values(self, name: str) -> list[str]:
        return [value.decode("latin-1") for found, value in self._items if found == name.encode()]


def as_tokens(tokens: Tokens) -> tuple[Token, ...] | None:
    """Return one token or several as a tuple; None for None.

    Raises:
        ValueError: a text that is no token, or a collection without tokens.
        TypeError: something else than texts and tokens.
    """
    if tokens is None:
        return None
    if isinstance(tokens, Mapping):
        # Its keys, which are no secrets, would be the tokens.
        raise TypeError("the tokens are a mapping: expected a collection, as [Token(text, name)]")
    if isinstance(tokens, (Token, str, bytes)) or not isinstance(tokens, Collection):
        tokens = [tokens]
    found = tuple(each if isinstance(each, Token) else Token(each) for each in tokens)
    if not found:
        # Not None: an empty list must not open a hub to everybody.
        raise ValueError("a collection without tokens: expected one at least, or None where no token is needed")
    return found


# A name or an address, in brackets where it is one of version 6, and a port.
_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9_]([a-z0-9_.-]{0,252})?))(?::\d{1,5})?", re.ASCII)


def _host_name(host: str) -> str | None:
    """Return a Host header without its port, in lower case; None where it has another form."""
    found = _HOST.fullmatch(host.lower())
    return found and (found[1] or found[2])


def _is_address(host: str) -> bool:
    try:
        return str(IPv6Address(host)) == host
    except AddressValueError:
        return False


def _is_any_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _authority(origin: str) -> str | None:
    """Return the host and port of an origin (RFC 6454, section 6.2), in lower case; None of "null" and other texts."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    is_origin = parts.scheme in ("http", "https") and f"{parts.scheme}://{parts.netloc}" == origin
    return parts.netloc.lower() if is_origin and _host_name(parts.netloc) else None
