"""Hubs and clients, each from any implementation, hold the same in the end, and see each other's messages at once."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gossiplog import Signer, core
from gossiplog.net.events import Disconnected, MessagesRefused, SyncEnded
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.protocol import wire
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.sync import SyncServerConfig, server
from tests.integration.conftest import Start
from tests.integration.contents import (
    ALTERNATIVES,
    ALTERNATIVES_TOPIC,
    CONTENTS,
    CONTENTS_TOPIC,
    LEGIBLE_ALTERNATIVES,
    Content,
    kinds,
    numbers,
)
from tests.integration.javascript import PATIENCE, BrowserPeer
from tests.integration.own import OwnPeer
from tests.integration.replica import Client, Hub, Live

pytestmark = pytest.mark.integration

# (hub, client). Ours by the name of its event loop. Those of canvas-js alone show that the tests themselves hold.
ORIGINALS = [("javascript", "javascript"), ("javascript", "browser")]
OURS = [("trio", "javascript"), ("javascript", "trio"), ("asyncio", "asyncio"), ("asyncio", "browser")]
PAIRS = [*ORIGINALS, *OURS]
pairs = pytest.mark.parametrize(("hub", "client"), PAIRS, indirect=True)

# A page takes some 16 ms of processor for each message. "four levels" stands there for the messages around the 128th as
# well: its last clock takes two bytes, too.
IN_A_PAGE = {name: content for name, content in CONTENTS.items() if name not in ("127 messages", "128 messages")} | {
    "2 messages": partial(numbers, 2),
    "40 messages": partial(numbers, 40),
}

contents = pytest.mark.parametrize(
    ("hub", "client", "content", "topic"),
    [
        pytest.param(hub, client, content, CONTENTS_TOPIC, id=f"{hub}-{client}-{name}")
        for hub, client in PAIRS
        for name, content in (IN_A_PAGE if client == "browser" else CONTENTS).items()
        if name in ("127 messages", "40 messages", "branches") or (hub, client) in OURS
    ],
    indirect=["hub", "client"],
)


@pytest.fixture
def hub(request: pytest.FixtureRequest, start: Start, topic: str) -> Any:
    # In a browser canvas-js does not go on after an Abort: its bundle has no WebSocket class to ask for OPEN. Our
    # hub is patient by itself.
    parameters = request.node.callspec.params
    patient = (
        {"abort_after": 60_000} if (parameters["hub"], parameters.get("client")) == ("javascript", "browser") else {}
    )
    return start(request.param, topic, **patient)


@pytest.fixture
def client(request: pytest.FixtureRequest, start: Start, topic: str) -> Any:
    return start(request.param, topic)


def assert_equal_when_at_rest(one: Live, other: Live, count: int) -> None:
    assert one.wait(count=count) == other.wait(count=count)
    assert one.ids() == other.ids()
    assert one.state().count == count


def meet(hub: Hub, *clients: Client) -> None:
    """Returns once appends go both ways. The first ones may come by a push or by a sync: streams are being opened."""
    first = hub.append("from the hub")
    for client in clients:
        client.wait_for_message(first)
        hub.wait_for_message(client.append("from a client"))
    for client in clients:
        client.wait(count=1 + len(clients))


@contents
def test_client_gets_what_the_hub_has(hub: Hub, client: Client, content: Content) -> None:
    content(hub)
    client.connect(hub.listen())
    assert_equal_when_at_rest(hub, client, hub.state().count)
    assert {client.wait_for_message(id) for id in client.ids()} <= {"sync"}


@contents
def test_hub_gets_what_the_client_has(hub: Hub, client: Client, content: Content) -> None:
    content(client)
    client.connect(hub.listen())
    assert_equal_when_at_rest(hub, client, client.state().count)


@pairs
def test_written_apart(hub: Hub, client: Client) -> None:
    url = hub.listen()
    numbers(40, hub)
    client.connect(url)
    assert_equal_when_at_rest(hub, client, 40)
    client.disconnect(url)
    CONTENTS["branches"](client)
    kinds("dag-json", hub)
    apart = hub.state().count + client.state().count - 40
    client.connect(url)
    assert_equal_when_at_rest(hub, client, apart)


@pairs
def test_appends_arrive_live(hub: Hub, client: Client) -> None:
    client.connect(hub.listen())
    meet(hub, client)
    for number in range(5):
        assert client.wait_for_message(hub.append({"hub": number})) == "push"
        assert hub.wait_for_message(client.append({"client": number}, codec="dag-json")) == "push"
    assert_equal_when_at_rest(hub, client, 12)


@pairs
def test_what_one_client_appends_reaches_the_others(hub: Hub, client: Client, start: Start, topic: str) -> None:
    other = start("javascript", topic)
    url = hub.listen()
    client.connect(url)
    other.connect(url)
    meet(hub, client, other)
    assert other.wait_for_message(client.append("to the other")) == "push"
    assert client.wait_for_message(other.append("and back")) == "push"
    # And what comes by a sync: an Update tells the others of it.
    client.disconnect(url)
    last = client.append("apart")
    client.connect(url)
    assert other.wait_for_message(last) == "sync"


def only_texts(payload: Any) -> None:
    if isinstance(payload, int):
        raise TypeError(f"{payload} is no text")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_refusals_harm_no_exchange_with_a_peer_that_does_not_speak_of_them(
    start: Start, topic: str, backend: str
) -> None:
    """The side that refuses opens a stream whose protocol canvas-js does not know."""
    checked, plain = start(backend, topic, payload=only_texts), start("javascript", topic)
    assert isinstance(checked, OwnPeer)
    plain.connect(checked.listen())
    meet(checked, plain)
    bad = plain.append(5)
    checked.wait_for_event(MessagesRefused, lambda event: [id for id, _ in event.refused] == [bad])
    # What the hub appends still arrives, by the streams that stand: nothing descends from what was refused.
    for number in range(10):
        plain.wait_for_message(checked.append(f"after {number}"))
    assert not any(isinstance(event, Disconnected) for event in checked.events)
    hub = start("javascript", topic)
    checked.connect(hub.listen())
    hub.wait(count=checked.state().count)
    worse = hub.append(6)
    checked.wait_for_event(MessagesRefused, lambda event: [id for id, _ in event.refused] == [worse])
    hub.wait_for_message(checked.append("to the hub"))
    assert not any(isinstance(event, Disconnected) for event in checked.events)


@pairs
def test_hub_is_restarted(hub: Hub, client: Client) -> None:
    url = hub.listen()
    client.connect(url)
    assert client.wait_for_message(hub.append("before"))
    hub.stop_listening()
    client.append("meanwhile")
    assert hub.listen() == url
    client.connect(url)
    assert_equal_when_at_rest(hub, client, 2)


@pytest.mark.parametrize("topic", [ALTERNATIVES_TOPIC])
@pairs
def test_alternative_encodings_arrive_live(hub: Hub, client: Client) -> None:
    """canvas-js keeps no bytes of what is not canonical: it passes such a message on when it comes, never later."""
    alternatives = LEGIBLE_ALTERNATIVES if isinstance(client, BrowserPeer) else ALTERNATIVES
    client.connect(hub.listen())
    assert hub.insert(alternatives) == []
    assert_equal_when_at_rest(hub, client, len(alternatives))


@pytest.mark.parametrize(
    ("aborting", "client", "abort", "count"),
    [
        ("javascript", "javascript", {"abort_at": 3}, 160),
        ("javascript", "asyncio", {"abort_at": 3}, 700),
        ("trio", "javascript", {"sync_server": SyncServerConfig(requests=8)}, 160),
        ("trio", "browser", {"sync_server": SyncServerConfig(time_limit=0.4)}, 120),
    ],
    indirect=["client"],
)
def test_sync_goes_on_after_an_abort(
    start: Start, topic: str, aborting: str, client: Client, abort: dict[str, Any], count: int
) -> None:
    hub = start(aborting, topic, **abort)
    hub.append_numbers(0, count)
    client.connect(hub.listen())
    assert_equal_when_at_rest(hub, client, count)
    if isinstance(client, OwnPeer):
        # What one sync has brought, the next one does not ask for.
        assert sum(sync.statistics.values for sync in client.syncs_ended()) == count
    assert len(client.syncs()) > 1


def test_who_was_refused_for_a_while_gets_everything_once_there_are_answers(
    start: Start, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where very many leaves are below one node, until a message divides it. canvas-js comes again at once."""
    fruitless: list[float] = []
    paused = threading.Event()

    def note(session: PeerSession, now: float, note: Callable[[PeerSession, float], None]) -> None:
        note(session, now)
        fruitless.append(now)
        if session.served_from > now + 1.5:
            paused.set()

    noted = PeerSession.note_fruitless
    monkeypatch.setattr(PeerSession, "note_fruitless", lambda session, now: note(session, now, noted))
    monkeypatch.setattr(server, "_MOST_CHILDREN", 0)
    hub, client = start("asyncio", topic), start("javascript", topic)
    hub.append_numbers(0, 100)
    client.connect(hub.listen())
    assert paused.wait(PATIENCE)
    monkeypatch.setattr(server, "_MOST_CHILDREN", wire.MAX_ANSWER // 42)
    assert_equal_when_at_rest(hub, client, 100)
    # Eight without a pause, one after which it lasts a second, and one after which it lasts two.
    assert len(fruitless) == 10
    assert fruitless[9] - fruitless[8] >= 1
    meet(hub, client)


def test_hub_falls_silent(start: Start) -> None:
    """canvas-js's hub serves no alternative encoding by sync. What is pushed arrives, and the user is notified."""
    hub = start("javascript", ALTERNATIVES_TOPIC)
    client = start("trio", ALTERNATIVES_TOPIC, broadcast=BroadcastConfig(stall=1.0, backoff=0.1, longest_backoff=0.2))
    url = hub.listen()
    client.connect(url)
    first = hub.append("first")
    client.wait_for_message(first)
    client.disconnect(url)
    assert hub.insert(ALTERNATIVES) == []
    client.connect(url)
    stalled = client.wait_for_event(SyncEnded, lambda sync: not sync.complete)
    assert stalled.error.startswith("no bytes came for 1 s; the peer was asked for ")
    # It is asked for less each time, and so the message is named.
    named = re.compile(r"no bytes came for 1 s; the peer was asked for message (\w{32})")
    last = client.wait_for_event(SyncEnded, lambda sync: named.fullmatch(sync.error) is not None)
    messages = {
        message.id: message for message in (core.read_message(value, ALTERNATIVES_TOPIC) for value in ALTERNATIVES)
    }
    found = named.fullmatch(last.error)
    assert found is not None
    assert not messages[found[1]].canonical
    assert client.wait_for_message(hub.append("live", parents=[first])) == "push"
    assert hub.wait_for_message(client.append("and back")) == "push"


def test_killed_and_started_again(start: Start) -> None:
    hub, client = start("javascript-disk"), start("javascript-disk")
    hub.append_numbers(0, 30)
    client.connect(hub.listen())
    client.wait(count=10)
    hub.kill()
    client.append("meanwhile")
    client.kill()
    hub, client = (start("javascript-disk", directory=peer.directory) for peer in (hub, client))
    client.connect(hub.listen())
    assert_equal_when_at_rest(hub, client, 31)


@pytest.mark.parametrize("hub", ["javascript", "asyncio"], indirect=True)
def test_api(hub: Hub) -> None:
    url = hub.listen().replace("ws:", "http:") + "/api"
    CONTENTS["branches"](hub)

    def get(path: str) -> bytes:
        with urllib.request.urlopen(f"{url}/{path}") as response:
            return bytes(response.read())

    state, ids = hub.state(), hub.ids()
    assert json.loads(get("clock")) == {"clock": state.clock, "parents": list(state.heads)}
    assert json.loads(get("messages/count")) == {"count": state.count}
    assert json.loads(get(f"messages/count?gt={ids[3]}")) == {"count": state.count - 4}
    page = core.json_decode(get("messages?order=desc&limit=5"))
    assert [entry["id"] for entry in page] == ids[-1:-6:-1]
    id = hub.append({"bytes": b"\0", "link": None})
    one = core.json_decode(get(f"messages/{id}"))
    assert (one["id"], one["message"]["payload"]) == (id, {"bytes": b"\0", "link": None})
    assert one["message"]["parents"] == list(state.heads)
    assert json.loads(get("connections")) == []


@pytest.mark.parametrize("hub", ["javascript", "asyncio"], indirect=True)
def test_posted_messages(hub: Hub, signer: Signer, topic: str) -> None:
    """In both codecs, and one whose signature does not hold."""
    url = hub.listen().replace("ws:", "http:") + "/api/messages"
    for kind, encode in [("json", core.json_encode), ("cbor", core.cbor_encode)]:
        key, value = signer.sign(topic, 1, [], {"posted as": kind})
        (codec, author, signature), *_ = core.cbor_decode(value)
        message = {"topic": topic, "clock": 1, "parents": [], "payload": {"posted as": kind}}
        body = {"signature": {"codec": codec, "publicKey": author, "signature": signature}, "message": message}
        request = urllib.request.Request(url, encode(body), {"content-type": f"application/{kind}"})
        with urllib.request.urlopen(request) as response:
            assert (response.status, response.headers["location"]) == (201, f"messages/{core.encode_id(key)}")
        assert core.encode_id(key) in hub.ids()
    request.data = encode(body | {"message": message | {"payload": "another"}})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(request)
