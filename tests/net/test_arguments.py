"""What the public functions of the network refuse at the call."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import AsyncLog, Hub, Limits, Log, Peer, Signer, StorageError

Open = Callable[..., Log]

URL = "ws://127.0.0.1:9"
MAKERS: dict[str, Callable[..., object]] = {
    "connect": lambda log, **given: gossiplog.connect(log, given.pop("url", URL), **given),
    "Hub": Hub,
    "Peer": Peer,
}


def rebase(log: Log, **given: Any) -> object:
    return gossiplog.rebase("a.db", log, signer=Signer(bytes(32)), **given)


def callbacks() -> list[tuple[str, str]]:
    """The parameters of the network's public functions and classes that are functions of the application."""
    found = []
    for name in gossiplog.__all__:
        public = getattr(gossiplog, name)
        if not callable(public) or not public.__module__.startswith("gossiplog.net.") or name == "Client":
            continue
        parameters = inspect.signature(public).parameters.values()
        found += [
            (name, each.name) for each in parameters if str(each.annotation).startswith(("Callable[", "Progress "))
        ]
    return found


def test_the_callbacks_of_the_network() -> None:
    made = [(name, on) for name in ("Hub", "Peer", "connect") for on in ("on_event", "on_message")]
    assert callbacks() == [*made, ("rebase", "on_rebased"), ("rebase", "progress"), ("repair", "progress")]


async def later(event: object) -> None: ...


def generator(event: object) -> Iterator[None]:
    yield


async def generator_of_both(event: object) -> AsyncIterator[None]:
    yield


class Later:
    async def __call__(self, event: object) -> None: ...


@pytest.mark.parametrize(("name", "callback"), callbacks())
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (later, "a coroutine or generator function, whose body does not run when it is called: expected an ordinary"),
        (partial(later), "a coroutine or generator function"),
        (generator, "a coroutine or generator function"),
        (generator_of_both, "a coroutine or generator function"),
        (Later(), "a coroutine or generator function"),
        ("x", "expected a function"),
        (lambda: None, "which cannot be called as"),
    ],
)
def test_a_callback_that_would_not_run(opened: Open, name: str, callback: str, given: Any, reason: str) -> None:
    # In the words of `gossiplog.open(apply=...)`.
    makers = MAKERS | {"rebase": rebase, "repair": partial(gossiplog.repair, "a.db")}
    for call, called in ((makers[name], callback), (partial(gossiplog.open, ":memory:", "notes"), "apply")):
        arguments = (opened(),) if called == callback else ()
        with pytest.raises(TypeError, match=f"^{called} is {re.escape(repr(given))}[:,] {reason}"):
            call(*arguments, **{called: given})


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("wrong", ["x.db", Path("x.db"), None, Log])
def test_what_is_no_log(make: Callable[..., object], wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^log is .*: expected a gossiplog\.Log, such as gossiplog\.open\(path\) "):
        make(wrong)


def test_a_log_for_coroutines_is_one(opened: Open) -> None:
    log = opened()
    shared = AsyncLog(log)
    peer = Peer(shared)
    assert peer.log is log
    assert repr(Hub(shared, peer=peer)) == repr(Hub(log))
    assert repr(gossiplog.connect(shared, URL)) == repr(gossiplog.connect(log, URL))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("connect", {"url": 8000}),
        ("connect", {"url": None}),
        ("Hub", {"access": "x"}),
        ("Hub", {"limits": 5}),
        ("Hub", {"broadcast": True}),
        ("Hub", {"sync_server": False}),
        ("Peer", {"broadcast": 4}),
        ("connect", {"sync_server": 1}),
        ("Hub", {"peer": "/ip4/127.0.0.1/tcp/9000"}),
        ("Hub", {"push_timeout": "1"}),
        ("Peer", {"limits": 5}),
        ("Peer", {"gossip": "g"}),
        ("Peer", {"listen": "/ip4/127.0.0.1/tcp/9000"}),
        ("Peer", {"bootstrap": "/ip4/127.0.0.1/tcp/9000"}),
        ("Peer", {"announce": "/ip4/127.0.0.1/tcp/9000"}),
        ("Peer", {"bootstrap": [None]}),
        ("Peer", {"allow_peers": "12D3KooWPeer"}),
    ],
)
def test_other_objects_of_another_kind(opened: Open, name: str, given: dict[str, Any]) -> None:
    (wrong,) = given
    with pytest.raises(TypeError, match=f"^{wrong} is .*: expected "):
        MAKERS[name](opened(), **given)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_push_timeout_is_above_0(opened: Open, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"^push_timeout is .*: expected a number above 0$"):
        Hub(opened(), push_timeout=seconds)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"app": "x.db"}, "app"),
        ({"app": None}, "app"),
        ({"tls": ("certificate.pem", "key.pem")}, "tls"),
        ({"limits": 5}, "limits"),
        ({"trusted_proxies": "127.0.0.1"}, "trusted_proxies"),
    ],
)
async def test_what_the_server_cannot_serve(opened: Open, given: dict[str, Any], name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} is .*: expected "):
        await gossiplog.serve(**{"app": Hub(opened()), **given})


@pytest.mark.anyio
async def test_a_log_is_no_application(opened: Open) -> None:
    with pytest.raises(TypeError, match=r"^app is <Log .*: expected .* gossiplog\.Hub\(gossiplog\.open\(path\)\)"):
        await gossiplog.serve(opened())  # type: ignore[arg-type]


@pytest.mark.parametrize("token", ["", "two words of it", "line\nend", "ümlaut"])
def test_a_token_with_a_character_that_none_has(opened: Open, token: str) -> None:
    with pytest.raises(ValueError, match="expected a token of 16 to 512 characters") as caught:
        gossiplog.connect(opened(), URL, token=token)
    assert token == "" or token not in str(caught.value)


@pytest.mark.parametrize("token", [b"a-token-0123456789", Path("a.token")])
def test_a_token_that_is_no_text(opened: Open, token: Any) -> None:
    with pytest.raises(TypeError, match=r"the token is of the type \w+: expected its text\. A file's is"):
        gossiplog.connect(opened(), URL, token=token)


@pytest.mark.parametrize("make", [MAKERS["connect"], Peer])
@pytest.mark.parametrize("location", ["{}", "file:{}?immutable=1", "file:{}?mode=ro"])
def test_a_log_that_takes_nothing(tmp_path: Path, make: Callable[..., object], location: str) -> None:
    path = tmp_path / "log.db"
    gossiplog.open(path, "notes").close()
    with gossiplog.open(location.format(path), read_only=location == "{}") as log:
        with pytest.raises(ValueError, match=r"<Log .* was opened read-only, .*: open it without read_only\."):
            make(log)
        assert Hub(log, limits=Limits()).obstacle


@pytest.mark.parametrize("make", [MAKERS["connect"], Peer])
def test_a_log_whose_file_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., object]
) -> None:
    path = tmp_path / "log.db"
    gossiplog.open(path, "notes").close()
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)
    with (
        gossiplog.open(path) as log,
        pytest.raises(StorageError, match=r"log\.db cannot store what others send: .* cannot be written: user \d+ may"),
    ):
        make(log)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"listen": ["127.0.0.1:9000"]}, 'listen: "127.0.0.1:9000" is no address that a host can use'),
        ({"bootstrap": ["/ip4/192.0.2.7/tcp/9000", "12D3"]}, 'bootstrap: "12D3" is no address'),
        ({"announce": ["/ip4/192.0.2.7"]}, "announce: .*it is not TCP or a WebSocket"),
        ({"allow_peers": ["alice"]}, 'allow_peers: "alice" is no peer id'),
    ],
)
def test_addresses_and_ids_of_peers(opened: Open, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Peer(opened(), **given)
