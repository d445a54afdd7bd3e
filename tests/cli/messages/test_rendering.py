from __future__ import annotations

from typing import Any

import pytest

import gossiplog
from gossiplog import Signer, core
from gossiplog.cli.messages.rendering import message_record, payload_line
from tests.strategies import TOPIC


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"/": {"bytes": 1}}, "maps of the key"),
        ({"/": {"bytes": "AA"}}, "is read as another value"),
        ([core.CID(b"\x12\x01a")], "is read as another value"),
    ],
)
def test_a_payload_that_is_not_what_its_text_says(payload: Any, reason: str) -> None:
    """A line that a program cannot read would end its reading: anybody may write such a message."""
    with gossiplog.open(":memory:", TOPIC, signer=Signer(bytes(32))) as log:
        message = log.append(payload)
    found = message_record(message)
    assert found["payload"] is None
    assert reason in found["unprintable"]
    assert core.json_decode(core.json_encode(found)) == found
    # For people it is shown as it is written.
    assert payload_line(message) == core.json_encode(payload).decode()


def test_a_payload_is_that_of_the_message() -> None:
    with gossiplog.open(":memory:", TOPIC, signer=Signer(bytes(32))) as log:
        message = log.append({"/": b"\0"})
    assert message_record(message) == {
        "id": message.id,
        "clock": 1,
        "parents": [],
        "author": message.author,
        "payload": {"/": b"\0"},
    }
