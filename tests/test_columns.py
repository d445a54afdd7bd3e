"""Columns against the core: the same verdicts and contents, whatever the array they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import columns, core, reference
from gossiplog.errors import ColumnError, InvalidMessage, TreeError
from tests import strategies, vectors
from tests.strategies import TOPIC, Shape, alternative, damaged, longer_author, repeatable, shapes, signed

VERDICTS = vectors.load("verdicts")
MESSAGES = vectors.load("messages")
VERDICT_VALUES = [bytes.fromhex(verdict["value"]) for verdict in VERDICTS["verdicts"]]
SEED = b"\1" * 32

KINDS: dict[str, Callable[[Sequence[bytes | None]], Any]] = {
    "binary": lambda values: pa.array(values, pa.binary()),
    "large": lambda values: pa.array(values, pa.large_binary()),
    "sliced": lambda values: pa.array([b"before", None, *values, b"after"], pa.binary()).slice(2, len(values)),
    "foreign": lambda values: Foreign(pa.array(values, pa.large_binary())),
}


class Foreign:
    """An array of another library."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: object | None = None) -> Any:
        return self._array.__arrow_c_array__(requested_schema)


def row(message: Any) -> dict[str, Any]:
    """What `decode` must say, but for the payload, of a message that a core has read."""
    return {
        **{name: getattr(message, name) for name in ("id", "key", "clock", "topic", "author", "codec")},
        **{name: getattr(message, name) for name in ("canonical", "content_id")},
        "parents": list(message.parents),
        "parent_keys": [core.decode_id(parent) for parent in message.parents],
        "size": len(message.value),
        "error": None,
    }


def check_against(implementation: Any, values: Sequence[bytes], topic: str) -> None:
    """Holds both verdicts on each value, signature looked at or not, against those of a core."""
    array = pa.array(values, pa.binary())
    rows = columns.decode(array, topic).to_pylist()
    for found, expected in zip(rows, implementation.read_batch(values, topic), strict=True):
        if isinstance(expected, InvalidMessage):
            assert found.pop("error")
            assert set(found.values()) == {None}
        else:
            del found["payload"]
            assert found == row(expected)
    batch = implementation.verify_batch(values, topic)
    verdicts = columns.verify(None, array, topic).to_pylist()
    assert [found["key"] or b"" for found in verdicts] == batch.keys
    assert [found["error"] is None for found in verdicts] == [not isinstance(found, InvalidMessage) for found in batch]


@pytest.mark.parametrize(
    "implementation",
    [pytest.param(core, id="rust"), pytest.param(reference, marks=pytest.mark.slow, id="python")],
)
def test_every_verdict_of_canvas_js(implementation: Any) -> None:
    check_against(implementation, VERDICT_VALUES, VERDICTS["topic"])


def test_the_messages_of_canvas_js() -> None:
    values = [bytes.fromhex(message["value"]) for message in MESSAGES["messages"]]
    rows = columns.decode(pa.array(values), MESSAGES["topic"]).to_pylist()
    for found, message in zip(rows, core.verify_batch(values, MESSAGES["topic"]), strict=True):
        assert found.pop("payload").encode() == core.json_encode(message.payload)
        assert found == row(message)
    keys = pa.array([bytes.fromhex(message["key"]) for message in MESSAGES["messages"]], pa.binary(20))
    hashes = columns.leaf_hashes(keys, pa.array(values))
    assert hashes.type == pa.binary(16)
    assert [hash.hex() for hash in hashes.to_pylist()] == [message["leafHash"] for message in MESSAGES["messages"]]
    assert columns.verify(keys, pa.array(values), MESSAGES["topic"]).column("error").null_count == len(values)


@pytest.mark.slow
@repeatable(150)
@given(values=st.lists(st.one_of(damaged(VERDICT_VALUES[:40]), st.binary(max_size=24)), min_size=1, max_size=6))
def test_damaged_values_are_judged_as_the_cores_do(values: list[bytes]) -> None:
    check_against(reference, values, VERDICTS["topic"])


@repeatable(100)
@given(payload=strategies.values)
def test_payloads_are_text_as_it_would_be_signed(payload: Any) -> None:
    built = strategies.build(core, payload)
    try:
        _, value = core.sign(TOPIC, 1, [], built, SEED)
    except ValueError:
        return
    text = columns.decode(pa.array([value]), TOPIC, ["payload"]).column("payload")[0].as_py()
    assert text.encode() == core.json_encode(core.verify(value, TOPIC).payload)


@pytest.mark.parametrize("codec", ["dag-cbor", "dag-json"])
def test_all_encodings_of_a_message_have_equal_columns(codec: str) -> None:
    _, value = core.sign(TOPIC, 1, [], {"bytes": b"\x7f\x80", "n": 1.5}, SEED, codec)
    values = [value, alternative(value), longer_author(value)]
    if codec == "dag-json":
        written = core.cbor_encode({"bytes": b"\x7f\x80", "n": 1.5})
        values.append(value.removesuffix(written) + core.cbor_encode({"bytes": {"/": {"bytes": "f4A"}}, "n": 1.5}))
    rows = columns.decode(pa.array(values), TOPIC).to_pylist()
    assert len({row["id"] for row in rows}) == len(values)
    signed = ("clock", "topic", "author", "codec", "parents", "payload", "content_id", "error")
    assert [[row[name] for name in signed] for row in rows] == [[rows[0][name] for name in signed]] * len(values)


@pytest.mark.slow
@repeatable(40)
@given(
    shape=shapes(),
    kind=st.sampled_from(sorted(KINDS)),
    nulls=st.sets(st.integers(0, 23)),
    bad=st.sets(st.integers(0, 23)),
)
def test_arrays_of_every_kind(shape: Shape, kind: str, nulls: set[int], bad: set[int]) -> None:
    values: list[bytes | None] = list(signed(shape))
    own = [message.key for message in core.read_batch(signed(shape), TOPIC)]
    for index in bad & set(range(len(values))):
        value = signed(shape)[index]
        values[index] = value[:100] + bytes([value[100] ^ 1]) + value[101:]
    for index in nulls & set(range(len(values))):
        values[index] = None
    array = KINDS[kind](values)
    decoded = columns.decode(array, TOPIC, ["size", "error"]).to_pylist()
    verified = columns.verify(KINDS[kind](own), array, TOPIC).to_pylist()
    hashes = columns.leaf_hashes(KINDS[kind](own), array).to_pylist()
    for index, value in enumerate(values):
        size = None if value is None else len(value)
        assert decoded[index] == {"size": size, "error": "the value is missing: null" if value is None else None}
        assert verified[index]["key"] == own[index]
        assert hashes[index] == (None if value is None else core.leaf_hash(own[index], value))
        if value is None:
            assert verified[index]["error"] == "the value is missing: null"
        elif index in bad:
            assert "does not hash to its key" in verified[index]["error"]
        else:
            assert verified[index]["error"] is None


def test_fixed_size_values() -> None:
    value = signed(((),))[0]
    array = pa.array([b"x" * len(value), value, None], pa.binary(len(value)))
    for values in (array.slice(1), array):
        found = columns.decode(values, TOPIC, ["id"]).column("id").to_pylist()
        assert found[-2:] == [core.verify(value, TOPIC).id, None]


def test_bad_signatures_are_found_and_repetitions_share_the_verdict() -> None:
    values = list(signed(((),) * 3)) * 50
    broken = values[1][:100] + bytes([values[1][100] ^ 1]) + values[1][101:]
    values[7] = values[90] = broken
    errors = columns.verify(None, pa.array(values), TOPIC).column("error").to_pylist()
    assert [index for index, error in enumerate(errors) if error] == [7, 90]
    assert "signature" in errors[7]


def test_a_value_under_another_key_hides_nothing() -> None:
    """The same value under the wrong key first: its own signature is still looked at under the right one."""
    value = signed(((),))[0]
    broken = value[:100] + bytes([value[100] ^ 1]) + value[101:]
    own = columns.verify(None, pa.array([broken]), TOPIC).column("key")[0].as_py()
    found = columns.verify(pa.array([b"x" * 20, own, own[:-1], None]), pa.array([broken] * 4), TOPIC).to_pylist()
    assert [row["key"] for row in found] == [b"x" * 20, own, own[:-1], None]
    assert "does not hash to its key" in found[0]["error"]
    assert "signature" in found[1]["error"]
    assert "does not hash to its key" in found[2]["error"]
    assert "key is missing" in found[3]["error"]


def test_verdicts_come_with_columns_of_whatever_is_the_message_of_its_key() -> None:
    values = list(signed(((), (0,), (1,)))) * 50
    own = columns.verify(None, pa.array(values), TOPIC)["key"].to_pylist()
    broken = values[1][:100] + bytes([values[1][100] ^ 1]) + values[1][101:]
    values[1], own[1] = broken, columns.verify(None, pa.array([broken]), TOPIC)["key"][0].as_py()
    values[2], values[3], own[4], own[5] = b"broken", None, None, own[0]  # type: ignore[call-overload]
    wanted = ["parent_keys", "author", "size"]
    found = columns.verify(pa.array(own), pa.array(values), TOPIC, wanted)
    assert found.schema.names == ["key", "error", *wanted]
    assert found.select(["key", "error"]) == columns.verify(pa.array(own), pa.array(values), TOPIC)
    assert [row for row, error in enumerate(found["error"].to_pylist()) if error] == [1, 2, 3, 4, 5]
    expected = columns.decode(pa.array(values), TOPIC, wanted).to_pylist()
    nothing = dict.fromkeys(wanted)
    assert [expected[row] for row in (2, 3)] == [nothing] * 2
    assert found.select(wanted).to_pylist() == [nothing if row in (4, 5) else one for row, one in enumerate(expected)]
    for wrong in (["key"], ["error"], ["size", "size"], ["sizes"]):
        with pytest.raises(ColumnError):
            columns.verify(None, pa.array(values), TOPIC, wrong)


def test_columns_are_those_asked_for_in_their_order() -> None:
    array = pa.array(signed(((), (0,))))
    assert columns.decode(array, TOPIC, ["parents", "clock"]).schema.names == ["parents", "clock"]
    whole = columns.decode(array, TOPIC)
    for name in whole.schema.names:
        assert columns.decode(array, TOPIC, [name]).column(0) == whole.column(name)
    empty = columns.decode(array.slice(0, 0), TOPIC)
    assert (empty.num_rows, empty.schema) == (0, whole.schema)
    for wanted in ([], ["id", "id"], ["ids"]):
        with pytest.raises(ColumnError):
            columns.decode(array, TOPIC, wanted)


def test_shares_of_a_large_batch_are_put_together_in_order() -> None:
    values = [*signed(((),) * 30), b"broken"] * 30
    rows = columns.decode(pa.array(values), TOPIC).to_pylist()
    assert rows == columns.decode(pa.array(values[:31]), TOPIC).to_pylist() * 30


def test_a_payload_without_text_is_null() -> None:
    link = core.CID(b"\x12\x80\x80\x04" + bytes(2**16))
    _, value = core.sign(TOPIC, 1, [], link, SEED)
    assert columns.decode(pa.array([value]), TOPIC, ["payload", "error"]).to_pylist() == [
        {"payload": None, "error": None}
    ]


def damaged_offsets(offsets: Sequence[int]) -> Any:
    """An array of three values as a stream brings it, whose offsets were tampered with: pyarrow does not look."""
    batch = pa.record_batch({"v": pa.array([b"AAAAA", b"BBBBB", b"CCCCC"])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    own = b"".join(number.to_bytes(4, "little") for number in (0, 5, 10, 15))
    changed = b"".join(number.to_bytes(4, "little", signed=True) for number in offsets)
    data = sink.getvalue().to_pybytes()
    assert data.count(own) == 1
    return pa.ipc.open_stream(data.replace(own, changed)).read_next_batch().column("v")


@pytest.mark.parametrize(
    "offsets", [(0, 5, 2, 15), (0, 5, 10, 2**31 - 1), (-5, 0, 5, 10), (0, 20, 10, 15), (0, -1, 3, 15)]
)
def test_hostile_offsets(offsets: tuple[int, ...]) -> None:
    array = damaged_offsets(offsets)
    for call in (
        lambda: columns.decode(array, TOPIC),
        lambda: columns.verify(None, array, TOPIC),
        lambda: columns.leaf_hashes(array, array),
        lambda: columns.fragment(array, array),
    ):
        with pytest.raises(ColumnError):
            call()


def test_arrays_that_are_not_taken() -> None:
    good = pa.array([b"x"])
    for bad in (
        pa.array(["x"]),
        pa.array([1]),
        pa.chunked_array([good]),
        pa.array([None]),
        5,
        pa.array([b"x"], pa.binary_view()),
    ):
        with pytest.raises(ColumnError):
            columns.decode(bad, TOPIC)
    for call in (columns.leaf_hashes, columns.fragment, lambda left, right: columns.verify(left, right, TOPIC)):
        with pytest.raises(ColumnError, match="as many"):
            call(good, pa.array([b"x", b"y"]))


def test_fragments_of_batches_join_to_the_root() -> None:
    rows = vectors.load("log")
    entries = sorted((core.decode_id(id), bytes.fromhex(value)) for id, value in rows["entries"])
    keys, values = (pa.array(part) for part in zip(*entries, strict=True))
    hashes = columns.leaf_hashes(keys, values)
    whole = columns.fragment(keys, hashes)
    assert (whole.root.level, whole.root.hash.hex()) == (rows["root"]["level"], rows["root"]["hash"])
    third = len(entries) // 3
    parts = [columns.fragment(keys.slice(at, third), hashes.slice(at, third)) for at in range(0, len(entries), third)]
    joined = columns.Fragment()
    for part in parts:
        joined = joined.join(columns.Fragment.from_bytes(part.to_bytes()))
    assert joined == whole


def test_entries_that_make_no_fragment() -> None:
    keys = pa.array([b"a", b"b"])
    for hashes in (pa.array([bytes(16), None]), pa.array([bytes(16), bytes(15)])):
        with pytest.raises(ColumnError, match="row 1"):
            columns.fragment(keys, hashes)
    with pytest.raises(ColumnError, match="no key"):
        columns.fragment(pa.array([None, b"b"]), pa.array([bytes(16)] * 2))
    for wrong in ([b"b", b"a"], [b"a", b"a"], [b"", b"a"]):
        with pytest.raises(TreeError):
            columns.fragment(pa.array(wrong), pa.array([bytes(16)] * 2))


def test_rows_are_gathered_up_to_a_limit_and_no_further() -> None:
    rows = iter([(number, bytes([number]) * 10) for number in range(6)])
    first = columns.gather(rows, {"number": int, "data": bytes}, 2, 1000)
    assert first.schema == pa.schema({"number": pa.int64(), "data": pa.binary()})
    assert first.to_pydict() == {"number": [0, 1], "data": [b"\0" * 10, b"\1" * 10]}
    # Each row has 18 bytes: the second goes beyond the limit, and is the last.
    assert columns.gather(rows, {"number": int, "data": bytes}, 100, 18)["number"].to_pylist() == [2, 3]
    assert next(rows) == (4, b"\4" * 10)
    assert len(columns.gather(rows, {"number": int, "data": bytes}, 100, 1000)) == 1
    assert len(columns.gather(rows, {"number": int, "data": bytes}, 100, 1000)) == 0


def test_rows_that_are_not_gathered() -> None:
    def broken() -> Iterator[tuple[int]]:
        yield (1,)
        raise KeyError("the disk")

    shape: dict[str, type[int | bytes]] = {"number": int}
    with pytest.raises(ColumnError, match="row 0 has 2 items, expected 1"):
        columns.gather(iter([(1, 2)]), shape, 10, 100)
    for item in ("text", None, 2**63, b"bytes"):
        with pytest.raises(ColumnError, match=r'row 1, column "number"'):
            columns.gather(iter([(1,), (item,)]), shape, 10, 100)
    with pytest.raises(ColumnError, match=r'row 0, column "data"'):
        columns.gather(iter([("text",)]), {"data": bytes}, 10, 100)
    with pytest.raises(ColumnError, match="cannot be of the type <class 'str'>, expected int or bytes"):
        columns.gather(iter([]), {"data": str}, 10, 100)  # type: ignore[dict-item]
    with pytest.raises(KeyError, match="the disk"):
        columns.gather(broken(), shape, 10, 100)
