"""Both cores' answers in a form in which they can be compared."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from gossiplog.errors import GossipLogError, InvalidMessage
from tests import vectors
from tests.strategies import TOPIC, build, neutral

VERDICTS = vectors.load("verdicts")
MESSAGES = vectors.load("messages")
VERDICT_VALUES = [bytes.fromhex(verdict["value"]) for verdict in VERDICTS["verdicts"] if len(verdict["value"]) < 1000]
MESSAGE_VALUES = [bytes.fromhex(message["value"]) for message in MESSAGES["messages"][:60]]

SLOW_WITH_REFERENCE = pytest.mark.parametrize(
    "core",
    ["gossiplog._core", pytest.param("gossiplog.reference", marks=pytest.mark.integration)],
    indirect=True,
)
"""For tests that take the reference core more than half a second."""


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call returns, or the type of what it raises on purpose, which is what two cores must agree on."""
    try:
        return "returned", call()
    except GossipLogError as error:
        return "raised", type(error)


def facts(verdict: Any) -> tuple[Any, ...]:
    """What is public of a message, or of why it is none."""
    if isinstance(verdict, InvalidMessage):
        return "invalid", verdict.id
    return (
        *(verdict.key, verdict.id, verdict.topic, verdict.clock, verdict.parents, verdict.author, verdict.codec),
        *(verdict.signature, verdict.value, verdict.canonical, verdict.content_id),
    )


def judged(core: ModuleType, value: bytes, topic: str) -> tuple[Any, ...]:
    try:
        message = core.verify(value, topic)
    except InvalidMessage as error:
        return facts(error)
    return (*facts(message), neutral(core, message.payload))


def signed_message(core: ModuleType, payload: Any, codec: str = "dag-cbor") -> tuple[str, bytes]:
    """The id and the stored value of a first message."""
    key, value = core.sign(TOPIC, 1, [], payload, bytes(32), codec)
    return core.encode_id(key), value


def encoded(core: ModuleType, encode: str, value: Any) -> bytes:
    data: bytes = getattr(core, encode)(build(core, value))
    return data


def decoded(core: ModuleType, decode: str, data: bytes) -> Any:
    return neutral(core, getattr(core, decode)(data))
