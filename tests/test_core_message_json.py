"""Messages as maps of the HTTP API, on both cores: held against each other, and against writing Python's values."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import reference
from gossiplog.errors import DecodeError, EncodeError, GossipLogError, InvalidMessage
from gossiplog.reference.canonical import write_cbor
from tests import strategies, vectors
from tests.strategies import TOPIC, build, prototype_maps, repeatable, wild_cbor

MESSAGES = vectors.load("messages")
KEY = reference.SigningKey(bytes(32))


def unsigned(payload: bytes, parents: int = 0, codec: str = "dag-cbor") -> bytes:
    """A stored value whose payload is these bytes, however they are encoded, under a signature that does not hold."""
    keys = [reference.encode_clock(7) + bytes([number]) * 19 for number in range(parents)]
    return write_cbor([[codec, KEY.did, bytes(64)], TOPIC, 8 if keys else 1, keys, None])[:-1] + payload


def written(core: ModuleType, values: list[bytes], topic: str = TOPIC, *, limit: int = 2**20) -> tuple[str, Any]:
    """What is written in all, and of how many messages; or why nothing is."""
    try:
        text = core.MessageJson(values, topic)
    except GossipLogError as error:
        return "raised", type(error)
    pieces = list(iter(lambda: text.read(limit), b""))
    return "written", (b"".join(pieces), text.count)


@pytest.mark.parametrize("is_list", [False, True])
def test_the_vectors_are_written_as_their_values_are(core: ModuleType, is_list: bool) -> None:
    for entry in MESSAGES["messages"][:60]:
        message = core.read_message(bytes.fromhex(entry["value"]), MESSAGES["topic"])
        body = {
            "id": message.id,
            "signature": {"codec": message.codec, "publicKey": message.author, "signature": message.signature},
            "message": {
                "topic": message.topic,
                "clock": message.clock,
                "parents": list(message.parents),
                "payload": message.payload,
            },
        }
        text = core.MessageJson([message.value], message.topic, is_list=is_list)
        assert text.count == 1
        assert text.held >= len(message.value)
        assert text.read(2**30) == core.json_encode([body] if is_list else body)
        assert text.read(2**30) == b""


@pytest.mark.parametrize(
    ("payload", "is_written"),
    [
        ({"/": {"bytes": 1}}, False),
        ([{"a": {"/": {"bytes": "!"}}}], False),
        ({"/": {"bytes": "AA=="}}, False),
        ({"/": {"bytes": "AB"}}, False),
        ({"/": {"bytes": {"/": {"bytes": None}}}}, False),
        ({"/": {"bytes": "AA"}}, True),
        ({"/": {"bytes": 1, "more": 1}}, True),
        ({"/": {"bytes": 1}, "more": 1}, True),
        ({"/": "bytes"}, True),
        ([b"\xa1\x61/\xa1\x65bytes\x01"], True),
    ],
)
@pytest.mark.parametrize("codec", ["dag-cbor", "dag-json"])
def test_what_nobody_could_read_is_not_written(core: ModuleType, payload: Any, is_written: bool, codec: str) -> None:
    """One message made a whole page of the API unreadable for programs that read dag-json strictly."""
    value = unsigned(write_cbor(payload), codec=codec)
    if is_written:
        assert core.read_message_map(core.MessageJson([value], TOPIC, is_list=False).read(2**20), "dag-json")
    else:
        with pytest.raises(EncodeError, match=r"has no dag-json form: .*bytes"):
            core.MessageJson([value], TOPIC)


def encoded(value: Any) -> bytes:
    try:
        return reference.cbor_encode(build(reference, value))
    except EncodeError:
        # A map whose "/" equals its "bytes".
        return b"\xf6"


@repeatable(150)
@given(
    payloads=st.lists(st.one_of(wild_cbor, prototype_maps, strategies.values.map(encoded)), max_size=3),
    parents=st.integers(0, 3),
    codec=st.sampled_from(["dag-cbor", "dag-json"]),
    limit=st.integers(1, 100),
)
def test_both_cores_write_the_same(
    rust: ModuleType, payloads: list[bytes], parents: int, codec: str, limit: int
) -> None:
    values = [unsigned(payload, parents, codec) for payload in payloads]
    assert written(rust, values, limit=limit) == written(reference, values)


def nested(depth: int) -> bytes:
    return b"\x81" * (depth - 1) + b"\x80"


def test_what_is_nested_as_deep_as_peers_accept_is_written(core: ModuleType) -> None:
    kind, (text, count) = written(core, [unsigned(nested(2000))])
    assert (kind, count) == ("written", 1)
    assert b'"payload":' + b"[" * 2000 + b"]" * 2000 in text


def test_values_that_are_no_messages_are_refused(core: ModuleType) -> None:
    for value in (b"", b"\xff", b"\x80", unsigned(b"\xa2\x61a\x01\x61a\x02")):
        with pytest.raises(InvalidMessage):
            core.MessageJson([value], TOPIC)
    with pytest.raises(InvalidMessage, match="topic"):
        core.MessageJson([unsigned(b"\xf6")], "another")


def test_a_list_ends_before_the_first_message_without_a_form(core: ModuleType) -> None:
    length = 2**15
    formless = unsigned(core.cbor_encode(core.CID(b"\x12\x80\x80\x02" + bytes(length))))
    good = unsigned(b"\x01")
    id = core.read_message(formless, TOPIC).id
    with pytest.raises(EncodeError, match=f"message {id} has no dag-json form"):
        core.MessageJson([formless, good], TOPIC)
    assert written(core, [good, good, formless, good]) == ("written", (written(core, [good, good])[1][0], 2))


def test_by_itself_there_must_be_one(core: ModuleType) -> None:
    assert written(core, []) == ("written", (b"[]", 0))
    for values in ([], [unsigned(b"\x01")] * 2):
        with pytest.raises(EncodeError):
            core.MessageJson(values, TOPIC, is_list=False)


def outcome(core: ModuleType, data: bytes, codec: str) -> bytes | str:
    try:
        return bytes(core.read_message_map(data, codec))
    except DecodeError:
        return "refused"


@repeatable(150)
@given(payload=strategies.values, parents=st.integers(0, 3), codec=st.sampled_from(["dag-cbor", "dag-json"]))
def test_both_cores_read_the_same(rust: ModuleType, payload: Any, parents: int, codec: str) -> None:
    value = unsigned(encoded(payload), parents)
    text = reference.MessageJson([value], TOPIC, is_list=False).read(2**30)
    data = text if codec == "dag-json" else write_cbor(reference.json_decode(text))
    read = outcome(reference, data, codec)
    assert read == outcome(rust, data, codec)


FIELDS: list[Any] = [None, True, 1, 0.5, "dag-json", b"\0", [], ["short"], ["0" * 32], [1], {}, {"payload": 1}]


@repeatable(150)
@given(data=st.data(), codec=st.sampled_from(["dag-cbor", "dag-json"]))
def test_both_cores_refuse_the_same_maps(rust: ModuleType, data: st.DataObject, codec: str) -> None:
    def any_of(names: list[str]) -> dict[str, Any]:
        return {name: data.draw(st.sampled_from(FIELDS)) for name in names if data.draw(st.integers(0, 5))}

    body: Any = any_of(["id", "signature", "message"])
    if data.draw(st.booleans()):
        body["signature"] = {"codec": "x", "publicKey": "y", "signature": b"", **any_of(["codec", "signature"])}
        body["message"] = {"topic": "", "clock": 1, "parents": [], "payload": 1, **any_of(["clock", "parents"])}
    sent = (reference.json_encode if codec == "dag-json" else reference.cbor_encode)(body)
    assert outcome(rust, sent, codec) == outcome(reference, sent, codec)


@repeatable(150)
@given(data=st.binary(max_size=60), codec=st.sampled_from(["dag-cbor", "dag-json"]))
def test_any_bytes_are_read_alike(rust: ModuleType, data: bytes, codec: str) -> None:
    assert outcome(rust, data, codec) == outcome(reference, data, codec)


def line_outcome(core: ModuleType, line: bytes) -> bytes | str:
    try:
        return bytes(core.read_message_line(line))
    except DecodeError:
        return "refused"


@repeatable(150)
@given(data=st.data())
def test_both_cores_read_the_same_lines(rust: ModuleType, data: st.DataObject) -> None:
    value = unsigned(encoded({"value": b"inner"}))
    body: Any = reference.json_decode(reference.MessageJson([value], TOPIC, is_list=False).read(2**30))
    for name in ("id", "signature", "message", "value"):
        match data.draw(st.integers(0, 5)):
            case 0:
                body[name] = data.draw(st.sampled_from(FIELDS))
            case 1:
                body.pop(name, None)
    line = reference.json_encode(body)
    assert line_outcome(rust, line) == line_outcome(reference, line)


def test_the_value_of_a_line_goes_before_its_map(core: ModuleType) -> None:
    value = unsigned(encoded({"value": b"inner"}))
    line = core.MessageJson([value], TOPIC, is_list=False).read(2**30)
    assert core.read_message_line(line) == value
    assert core.read_message_line(line[:-1] + b',"value":{"/":{"bytes":"AQ"}}}') == b"\1"
    assert core.read_message_line(b'{"value":{"/":{"bytes":"AQ"}},"message":1}') == b"\1"
    for wrong, reason in (
        (b'{"value":1}', "'value' must be bytes, not int"),
        (b"[]", "the body must be a map, not list"),
        (b"{}", "'signature' is missing"),
    ):
        with pytest.raises(DecodeError, match=reason):
            core.read_message_line(wrong)


def test_another_codec_is_refused(core: ModuleType) -> None:
    with pytest.raises(EncodeError, match="codec"):
        core.read_message_map(b"{}", "raw")


def turns_beside(function: Callable[[], object], interval: float) -> int:
    """How often this thread gets the interpreter's lock while another calls a function.

    Args:
        function: that is called.
        interval: seconds after which the interpreter has a thread that holds the lock let go of it, between two steps.
    """
    begun, ended = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        function()
        ended.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        thread = threading.Thread(target=call)
        thread.start()
        begun.wait()
        turns = 0
        while not ended.is_set():
            turns += 1
            time.sleep(0)
        thread.join()
        return turns
    finally:
        sys.setswitchinterval(before)


COUNT = 2**18
COSTLY = {
    "lists": unsigned(b"\x9a" + COUNT.to_bytes(4) + b"\x80" * COUNT),
    "map": unsigned(b"\xb9\xff\xff" + b"".join(b"\x67%07d\xf6" % number for number in range(65535))),
}


@pytest.mark.parametrize("value", COSTLY.values(), ids=COSTLY.keys())
def test_other_threads_run_while_a_costly_value_is_read_and_written(rust: ModuleType, value: bytes) -> None:
    """Nobody is made to let go of the lock, so that one turn shows that the function does; some tries, since the other
    thread may not be awake in time."""
    text = rust.MessageJson([value], TOPIC, is_list=False).read(2**30)
    assert len(text) > len(value)
    opened = [rust.MessageJson([value], TOPIC) for _ in range(20)]
    for function in (
        lambda: rust.read_message(value, TOPIC),
        lambda: rust.MessageJson([value], TOPIC),
        lambda: opened.pop().read(2**30),
        lambda: rust.read_message_map(text, "dag-json"),
    ):
        assert any(turns_beside(function, 60) for _ in range(len(opened)))
    assert not any(turns_beside(lambda: sorted(text[:200_000]), 60) for _ in range(3))


@pytest.mark.integration
def test_other_threads_run_while_objects_are_made(rust: ModuleType) -> None:
    """For an application's functions, which get Python's objects: then the lock is let go of now and then. Some tries,
    since the other thread may not be awake in time."""
    message = rust.read_message(COSTLY["lists"], TOPIC)
    assert any(turns_beside(lambda: message.payload, 0.0005) > 8 for _ in range(10))
