"""What differs between the cores, or between them and canvas-js, is found by a fuzzer: `make fuzz` tries any number."""

from __future__ import annotations

from itertools import islice

import pytest

from gossiplog.reference.chunks import encode_in_chunks
from gossiplog.reference.message import parse
from tests.fuzzing.__main__ import batch_seeds, payloads, run
from tests.fuzzing.encodings import text
from tests.fuzzing.judging import Difference, decode_alike, parse_alike
from tests.fuzzing.messages import TOPIC, Envelope, Payload, fields_of, meant_by, read_by_reference, stored
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


def test_the_number_of_a_batch_names_that_batch_alone() -> None:
    assert [*islice(batch_seeds("7"), 3)] == ["7-0", "7-1", "7-2"]
    assert [*batch_seeds("7-1")] == ["7-1"]
    ((done, differences),) = run("plan", "7-1", 10_000, lambda: pytest.fail("no process is needed"))
    assert (done > 0, differences) == (True, [])


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


def test_a_parent_that_passes_for_bytes_counts_in_the_model_of_canvas_js(javascript: SharedProcess) -> None:
    """A payload may pass for 4 MiB, and one beside a parent that passes for 20 bytes may not."""
    data = b"\xa2" + text(b"length") + b"\x1a\x00\x40\x00\x00" + text(b"__proto__") + b"\x40"
    key = b"\x54\x01" + b"\x02" * 19
    passing = b"\xa3" + text(b"byteLength") + b"\x14" + text(b"length") + b"\x14" + text(b"__proto__") + key
    payloads = [
        Payload(data, "dag-json", Envelope(clock=b"\x02", parents=b"\x82" + key + parent)) for parent in (key, passing)
    ]
    with JavaScriptPeer(TOPIC, bytes(32), process=javascript.get()) as peer:
        assert decode_alike(peer.judge)(payloads)() == []


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
