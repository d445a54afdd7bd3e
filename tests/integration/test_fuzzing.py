"""What differs between the cores, or between them and canvas-js, is found by a fuzzer: `make fuzz` tries any number."""

from __future__ import annotations

import pytest

from gossiplog.reference.chunks import encode_in_chunks
from gossiplog.reference.message import parse
from tests.fuzzing.__main__ import payloads, run
from tests.fuzzing.encodings import text
from tests.fuzzing.judging import Difference, parse_alike
from tests.fuzzing.messages import TOPIC, Payload, fields_of, meant_by, read_by_reference, stored
from tests.fuzzing.shrinking import shrink
from tests.integration.javascript import JavaScriptPeer, SharedProcess

pytestmark = pytest.mark.integration


# 20,000 in all.
@pytest.mark.parametrize(
    ("mode", "count"), [("parse", 12_500), ("decode", 6_000), ("insert", 500), ("verify", 500), ("plan", 500)]
)
def test_no_encoding_is_judged_otherwise(javascript: SharedProcess, mode: str, count: int) -> None:
    done = 0
    for size, differences in run(mode, "make test", count, javascript.get):
        assert differences == []
        done += size
    assert done >= count


def test_the_same_seed_is_the_same_run() -> None:
    assert payloads("1-0", 50) == payloads("1-0", 50) != payloads("1-1", 50)


def test_an_encoding_that_differs_is_shrunk() -> None:
    inner = b"\xa2" + text(b"a") + b"\x82\x01\x18\x2a" + text(b"b") + b"\xf6"
    data = b"\x83\x61x" + inner + b"\x80"
    assert shrink(data, lambda smaller: b"\x18\x2a" in smaller) == b"\x18\x2a"
    broken = b"\xff\xff" + data
    assert shrink(broken, lambda smaller: smaller.startswith(b"\xff")) == b"\xff"


def test_a_difference_names_the_payload_and_the_verdicts() -> None:
    shown = str(Difference(Payload(b"\xf6", "dag-json"), {"rust": True, "reference": False}))
    assert shown.splitlines() == ["payload f6 signed in dag-json", "  rust: True", "  reference: False"]
    assert parse_alike([Payload(b"\xf6", "dag-json")]) == []


def test_a_signature_that_the_encoder_moved_says_nothing() -> None:
    """A negative length takes canvas-js's encoder back: what it signs is not what it read."""
    written_past = b"\xa2" + text(b"length") + b"\x20" + text(b"__proto__") + b"\x40"
    for data, is_said in ((b"\x82\x40\x01", True), (b"\x82" + written_past + b"\x01", False)):
        parsed = parse(stored(Payload(data, "dag-cbor")), TOPIC)
        meant = meant_by(encode_in_chunks(fields_of(parsed)), parsed, bytes(64))
        assert meant == (read_by_reference(parsed, bytes(64)) if is_said else None)


def test_canvas_js_is_not_asked_for_what_it_never_answers(javascript: SharedProcess) -> None:
    """A link whose codec adds up to Infinity, which both cores refuse; one group less is a number."""
    values = []
    for last in (4, 3):
        link = b"\x00\x01" + b"\x80" * 146 + bytes([last]) + b"\x00\x00"
        values.append(stored(Payload(b"\xd8\x2a\x58" + bytes([len(link)]) + link, "dag-cbor")))
    with JavaScriptPeer(TOPIC, bytes(32), process=javascript.get()) as peer:
        (endless, reason), (finite, _) = peer.judge(values)()
    assert (endless, reason) == (None, "untried")
    assert finite is not None
