from types import ModuleType
from typing import Any

import pytest

from gossiplog.errors import DecodeError, EncodeError, InvalidMessage
from tests.strategies import TOPIC, signed

SEED = b"\x01" * 32


def test_parents_are_written_ascending_without_duplicates(core: ModuleType) -> None:
    ids = [core.verify(value, TOPIC).id for value in signed(((), ()))]
    _, value = core.sign(TOPIC, 2, [*ids, *reversed(ids)], None, SEED)
    assert list(core.verify(value, TOPIC).parents) == sorted(ids)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"topic": "a b"}, EncodeError),
        ({"topic": "a:b#c"}, EncodeError),
        ({"topic": ""}, EncodeError),
        ({"clock": 0}, EncodeError),
        ({"clock": 2}, EncodeError),
        ({"parents": ["0" * 31]}, DecodeError),
        ({"parents": ["g0" + "0" * 30], "clock": 1}, EncodeError),
        ({"payload": float("nan")}, EncodeError),
        ({"private_key": b"\x01" * 31}, EncodeError),
        ({"codec": "json"}, EncodeError),
    ],
    ids=str,
)
def test_what_is_not_signed(core: ModuleType, changed: dict[str, Any], error: type[Exception]) -> None:
    arguments: dict[str, Any] = {"topic": TOPIC, "clock": 1, "parents": [], "payload": None, "private_key": SEED}
    with pytest.raises(error):
        core.sign(**arguments | changed)


@pytest.mark.parametrize("topic", ["a", "A-b.c", "a#b1", "a:b:c"])
def test_topics_of_either_version_are_signed(core: ModuleType, topic: str) -> None:
    assert core.verify(core.sign(topic, 1, [], None, SEED)[1], topic).topic == topic


def test_another_topic_is_refused_by_name(core: ModuleType) -> None:
    value = signed(((),))[0]
    with pytest.raises(InvalidMessage, match="topic") as caught:
        core.verify(value, "other.example.com")
    assert caught.value.id == core.verify(value, TOPIC).id


def test_reading_does_not_look_at_the_signature(core: ModuleType) -> None:
    value = bytearray(signed(((),))[0])
    value[100] ^= 1
    assert core.read_message(bytes(value), TOPIC).payload == 0
    with pytest.raises(InvalidMessage, match="signature"):
        core.verify(bytes(value), TOPIC)
    with pytest.raises(InvalidMessage):
        core.read_message(bytes(value), "other")


def test_messages_are_equal_when_their_values_are(core: ModuleType) -> None:
    first, second = (core.verify(signed(((), ()))[0], TOPIC) for _ in range(2))
    other = core.verify(signed(((), ()))[1], TOPIC)
    assert first == second
    assert hash(first) == hash(second)
    assert first != other
    assert first != first.value


def test_a_changed_payload_stays_the_caller_s(core: ModuleType) -> None:
    message = core.verify(core.sign(TOPIC, 1, [], {"a": 1}, SEED)[1], TOPIC)
    message.payload["a"] = 2
    assert message.payload == {"a": 1}
