"""Our log and canvas-js's hold the same, when either gets what the other wrote; and they judge alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gossiplog import Log, Signer
from tests import vectors
from tests.integration.conftest import Start
from tests.integration.contents import ALTERNATIVES, ALTERNATIVES_TOPIC, CONTENTS, CONTENTS_TOPIC, PAYLOADS, Content
from tests.integration.javascript import JavaScriptError
from tests.integration.replica import LogReplica

pytestmark = pytest.mark.integration

Opened = Callable[..., Log]

contents = pytest.mark.parametrize(
    ("content", "topic"), [(content, CONTENTS_TOPIC) for content in CONTENTS.values()], ids=CONTENTS
)


@contents
def test_canvas_js_writes(start: Start, opened: Opened, signer: Signer, topic: str, content: Content) -> None:
    theirs, ours = start("javascript"), LogReplica(opened(topic=topic), signer)
    content(theirs)
    assert ours.insert(theirs.values()) == []
    assert ours.state() == theirs.state()


@contents
def test_canvas_js_reads(start: Start, opened: Opened, signer: Signer, topic: str, content: Content) -> None:
    theirs, ours = start("javascript"), LogReplica(opened(topic=topic), signer)
    content(ours)
    values = ours.values()
    assert theirs.insert(values) == []
    assert theirs.state() == ours.state()
    # canvas-js encodes anew what it hands out.
    assert theirs.values() == values


@pytest.mark.parametrize("codec", ["dag-cbor", "dag-json"])
def test_payloads_of_canvas_js(start: Start, opened: Opened, topic: str, codec: str) -> None:
    theirs, ours = start("javascript"), opened(topic=topic)
    ids = [theirs.append(payload, codec=codec) for payload in PAYLOADS]
    ours.insert_many(theirs.values())
    for id, payload in zip(ids, PAYLOADS, strict=True):
        message = ours.get(id)
        assert (message.payload, message.codec) == (payload, codec)


def test_alternative_encodings(start: Start, opened: Opened, signer: Signer) -> None:
    """Another encoding of an honest message has an id of its own, and both logs keep it."""
    theirs = start("javascript", ALTERNATIVES_TOPIC)
    ours = LogReplica(opened(topic=ALTERNATIVES_TOPIC), signer)
    assert theirs.insert(ALTERNATIVES) == ours.insert(ALTERNATIVES) == []
    assert theirs.ids() == ours.ids()
    assert theirs.state() == ours.state()


# In IndexedDB, a stored map with the key "/" cannot be read again, and canvas-js scans messages to insert others.
@pytest.mark.parametrize(("kind", "left_out"), [("javascript", "nothing"), ("browser", "/")])
def test_canvas_js_judges_as_its_vectors_say(start: Start, kind: str, left_out: str) -> None:
    recorded: dict[str, Any] = vectors.load("verdicts")
    verdicts = [verdict for verdict in recorded["verdicts"] if left_out not in verdict["name"]]
    # How deep a payload may be nested depends on what the process has done before: recorded is what a new one does.
    own = {"process": None} if kind == "javascript" else {}
    theirs = start(kind, recorded["topic"], **own)
    assert theirs.insert([bytes.fromhex(value) for value in recorded["before"]]) == []
    refused = {index for index, _ in theirs.insert([bytes.fromhex(verdict["value"]) for verdict in verdicts])}
    assert refused == {index for index, verdict in enumerate(verdicts) if not verdict["accepted"]}


def test_the_log_on_disk_is_there_again(start: Start) -> None:
    first = start("javascript-disk")
    first.append_numbers(0, 10)
    state = first.state()
    first.kill()
    with pytest.raises(JavaScriptError, match="ended"):
        first.state()
    assert start("javascript-disk", directory=first.directory).state() == state


def test_a_refused_command_raises(start: Start) -> None:
    peer = start("javascript")
    with pytest.raises(JavaScriptError, match="not connected to ws://nowhere"):
        peer.disconnect("ws://nowhere")
    assert peer.state().count == 0
    assert [index for index, _ in peer.insert([b"junk"])] == [0]
