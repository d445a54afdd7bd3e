from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import DecodeError, EncodeError, Signer, core
from gossiplog.net.http.message_json import CONTENT_TYPES, from_body, to_json
from tests import strategies, vectors
from tests.net.support import TOPIC
from tests.strategies import build, repeatable

SIGNER = Signer(bytes(32))


def body_of(message: core.SignedMessage, content_type: str) -> bytes:
    body = core.json_decode(to_json(message))
    return to_json(message) if "json" in content_type else core.cbor_encode(body)


def means_itself_in_json(value: Any) -> bool:
    """A map with the key `/` looks like bytes or a link in dag-json, which has no way of telling."""
    match value:
        case list():
            return all(map(means_itself_in_json, value))
        case dict():
            return "/" not in value and all(map(means_itself_in_json, value.values()))
        case _:
            return True


@pytest.mark.slow
@repeatable(200)
@given(
    payload=strategies.values.filter(means_itself_in_json),
    content_type=st.sampled_from(CONTENT_TYPES),
    codec=st.sampled_from(["dag-cbor", "dag-json"]),
)
def test_canonical_messages_come_back(payload: Any, content_type: str, codec: str) -> None:
    _, value = SIGNER.sign(TOPIC, 1, [], build(core, payload), codec)
    assert from_body(body_of(core.verify(value, TOPIC), content_type), content_type) == value


@repeatable(300)
@given(data=st.binary(max_size=200), content_type=st.sampled_from(CONTENT_TYPES))
def test_any_bytes_are_read_or_refused(data: bytes, content_type: str) -> None:
    with pytest.raises((DecodeError, EncodeError)):
        from_body(data, content_type)


@repeatable(300)
@given(data=st.data(), content_type=st.sampled_from(CONTENT_TYPES))
def test_damaged_bodies_are_read_or_refused(data: st.DataObject, content_type: str) -> None:
    _, value = SIGNER.sign(TOPIC, 1, [], {"a": [1, "x", b"\0"]})
    body = bytearray(body_of(core.verify(value, TOPIC), content_type))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = from_body(bytes(body), content_type)
    except (DecodeError, EncodeError):
        return
    assert core.cbor_encode(core.cbor_decode(found)) == found


def test_payloads_of_the_vectors_come_back() -> None:
    recorded = vectors.load("messages")
    for entry in recorded["messages"]:
        value = bytes.fromhex(entry["value"])
        message = core.verify(value, recorded["topic"])
        assert from_body(to_json(message), "application/json") == value
