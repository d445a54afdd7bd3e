from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gossiplog import EncodeError, Log, Signer, TopicWarning, core
from gossiplog.message import check_topic, ids_of, key_asked_for, plain_json, stored_value


@pytest.mark.parametrize("topic", ["a", "org.example.chat", "A-9.", "chat#room1"])
def test_topics_of_every_version_pass(topic: str) -> None:
    check_topic(topic)


@pytest.mark.parametrize("topic", ["did:key", "a:b.c-d", ":"])
def test_topics_of_the_newest_version_only_warn(topic: str) -> None:
    with pytest.warns(TopicWarning, match=r"0\.13\.14 refuse"):
        check_topic(topic)


@pytest.mark.parametrize("topic", ["", " ", "a b", "a#", "#a", "a#b#c", "a:b#c", "a#b-c", "ä", "a\n", "a/b"])
def test_other_topics_are_refused(topic: str) -> None:
    with pytest.raises(EncodeError, match="is no topic"):
        check_topic(topic)


@pytest.mark.parametrize("topic", [5, b"a", Path("a")])
def test_a_topic_is_text(topic: Any) -> None:
    with pytest.raises(TypeError, match=f"expected the topic as text, not {type(topic).__name__}"):
        check_topic(topic)


def test_ids_and_keys() -> None:
    key = bytes(range(20))
    (id,) = ids_of([key])
    assert id == core.encode_id(key)
    assert core.decode_id(id) == key


def test_what_in_is_asked_for(log: Log, signer: Signer) -> None:
    message = log.append(1, signer=signer)
    assert key_asked_for(message) == key_asked_for(message.id) == message.key
    for other in (message.id[:-1], message.id.upper(), "", message.key, None, 7):
        assert key_asked_for(other) is None
        assert other not in log
        assert other not in log.at(message.id)


def test_the_stored_value(log: Log, signer: Signer) -> None:
    message = log.append(1, signer=signer)
    assert stored_value(message) == stored_value(message.value) == message.value
    with pytest.raises(TypeError, match="not str"):
        stored_value("text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        {"/": {"bytes": 1}},
        {"/": {"bytes": "AA"}},
        {"a": [{"/": {"bytes": "AA=="}}]},
        {"/": "bafkqaaa"},
        core.CID(b"\x12\x01a"),
        # A link without bytes, which no program makes, but a stranger.
        core.cbor_decode(
            bytes.fromhex(
                "a2695f5f70726f746f5f5ff6695f5f70726f746f5f5fa4695f5f70726f746f5f5f"
                "f6612f40695f5f70726f746f5f5fd82a440012016165627974657340"
            )
        ),
    ],
)
def test_a_value_whose_dag_json_is_read_as_another(value: object) -> None:
    with pytest.raises(EncodeError, match=r"dag-json has bytes and links as maps of the key '/'$"):
        plain_json(value)


@pytest.mark.parametrize(
    "value",
    [
        *({"/": "x"}, {"/": 1}, {"/": ""}, {"/": {"bytes": "AA", "x": 1}}, {"b": {"/": [b"\0"]}, "a": 1.0}),
        *(core.CID.parse("bafkqaaa"), b"\0", -0.0, 1e300, '"/"'),
    ],
)
def test_dag_json_that_is_read_as_it_was_written(value: object) -> None:
    read = core.json_decode(plain_json(value))
    assert read == value
    assert type(read) is type(core.cbor_decode(core.cbor_encode(value)))
