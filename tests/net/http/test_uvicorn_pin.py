"""The private names of uvicorn that `gossiplog.net.http.uvicorn_internals` uses, and the releases that have them.

uvicorn promises none of them, so pyproject.toml admits one minor release. To go on to the next one, raise both bounds
there, read what has changed in `uvicorn/protocols/http/h11_impl.py` and
`uvicorn/protocols/websockets/websockets_sansio_impl.py`, and adapt `uvicorn_internals` and the lists below until
tests/net/http and tests/net pass.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from h11 import Connection
from packaging.requirements import Requirement
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.protocol import Protocol
from websockets.server import ServerProtocol

from gossiplog.net.http import uvicorn_internals
from gossiplog.net.http.uvicorn_internals import HTTPConnection, WebSocketConnection

ADVICE = __doc__.partition("\n\n")[2]

OVERRIDDEN: Mapping[type, tuple[type, Mapping[str, tuple[str, ...]]]] = {
    HTTPConnection: (
        H11Protocol,
        {
            "connection_made": ("self", "transport"),
            "connection_lost": ("self", "exc"),
            "data_received": ("self", "data"),
            "handle_websocket_upgrade": ("self", "event"),
            "pause_writing": ("self",),
            "resume_writing": ("self",),
        },
    ),
    WebSocketConnection: (
        WebSocketsSansIOProtocol,
        {
            "connection_made": ("self", "transport"),
            "connection_lost": ("self", "exc"),
            "data_received": ("self", "data"),
            "handle_cont": ("self", "event"),
            "handle_connect": ("self", "event"),
            "handle_events": ("self",),
            "handle_parser_exception": ("self",),
            "pause_writing": ("self",),
            "resume_writing": ("self",),
            "send": ("self", "message"),
            "send_receive_event_to_app": ("self",),
            "shutdown": ("self",),
        },
    ),
}
"""Methods of our classes that stand in place of a base's, with the base's parameters."""

READ: Mapping[type, frozenset[str]] = {
    ServerState: frozenset({"connections", "default_headers", "tasks"}),
    H11Protocol: frozenset({"client", "config", "conn", "cycle", "headers", "logger", "loop", "transport"}),
    RequestResponseCycle: frozenset({"response_complete"}),
    WebSocketsSansIOProtocol: frozenset(
        {
            "client",
            "close_sent",
            "config",
            "conn",
            "curr_msg_data_type",
            "frames",
            "handshake_complete",
            "handshake_initiated",
            "logger",
            "queue",
            "transport",
            "writable",
        }
    ),
    # Of websockets only `parser_exc` lacks documentation, and uvicorn itself reads it, of any release since 13.
    Protocol: frozenset({"handshake_exc", "parser_exc"}),
}
"""Attributes that the base's constructor sets, and that we read or set."""

CALLED: Mapping[Any, frozenset[str]] = {
    Connection: frozenset({"their_state", "trailing_data"}),
    ServerProtocol: frozenset({"close_sent", "send_close", "state"}),
}
"""Documented attributes and methods of h11 and websockets, at the objects that uvicorn keeps."""


def requirement(name: str) -> Requirement:
    """What pyproject.toml asks for."""
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    found = [Requirement(line) for line in tomllib.loads(text)["project"]["optional-dependencies"]["hub"]]
    return next(requirement for requirement in found if requirement.name == name)


@pytest.mark.parametrize("name", ["uvicorn", "h11", "websockets"])
def test_the_installed_release_is_in_the_range_of_pyproject(name: str) -> None:
    installed = metadata.version(name)
    assert requirement(name).specifier.contains(installed), f"{name} {installed} is not tested. {ADVICE}"


def test_one_minor_release_of_uvicorn_is_admitted() -> None:
    major, minor, *_ = map(int, metadata.version("uvicorn").split("."))
    specifier = requirement("uvicorn").specifier
    assert not specifier.contains(f"{major}.{minor + 1}.0"), ADVICE
    assert not specifier.contains(f"{major}.{minor - 1}.0"), ADVICE


@pytest.mark.parametrize("ours", OVERRIDDEN, ids=lambda kind: kind.__name__)
def test_methods_that_are_overridden_have_the_expected_parameters(ours: type) -> None:
    """Nor is there another one: a method of ours must not stand in place of a new one of uvicorn's unnoticed."""
    base, expected = OVERRIDDEN[ours]
    own = {name for kind in ours.__mro__ if kind.__module__.startswith("gossiplog.") for name in vars(kind)}
    shared = {name for name in own & vars(base).keys() if not name.startswith("__")}
    found = {name: tuple(inspect.signature(inspect.unwrap(getattr(base, name))).parameters) for name in shared}
    assert found == expected, f"{base.__name__}: {ADVICE}"


def assigned(function: Callable[..., Any]) -> set[str]:
    """The attributes of `self` that a constructor sets."""
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_attributes_that_are_read_exist(kind: type) -> None:
    assert READ[kind] - assigned(kind.__init__) == set(), f"{kind.__name__}: {ADVICE}"  # type: ignore[misc]


@pytest.mark.parametrize("kind", CALLED, ids=lambda kind: kind.__name__)
def test_documented_attributes_exist(kind: type) -> None:
    names = set(dir(kind)) | assigned(kind.__init__) | assigned(Protocol.__init__)  # type: ignore[misc]
    assert CALLED[kind] - names == set(), f"{kind.__name__}: {ADVICE}"


def used() -> Iterator[str]:
    """Every attribute that `uvicorn_internals` takes of an object of uvicorn's: of `self`, or of one kept there."""
    objects = {"self", "self.conn", "self._cycle", "self._state", "state"}
    for node in ast.walk(ast.parse(inspect.getsource(uvicorn_internals))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in objects:
            yield node.attr


def test_every_private_name_that_is_used_is_listed() -> None:
    listed = frozenset().union(*READ.values(), *CALLED.values(), *(set(names) for _, names in OVERRIDDEN.values()))
    own = {name for name in used() if name.startswith("_")}
    own |= {name for kind in (HTTPConnection, WebSocketConnection) for name in kind.__annotations__}
    own |= {"drop", "is_idle", "limited_log", "successor", "table"}
    assert set(used()) - own - listed - set(dir(asyncio.Transport)) == set()
