"""Folds over frames, against `Log.replay`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import gossiplog
from gossiplog import SignedMessage, core
from gossiplog.errors import EncodeError, OptionError, SparkError
from gossiplog.spark import SCHEMA, read, worker_errors
from gossiplog.spark.jobs import folds
from gossiplog.spark.jobs.folds import Counter, ElementSet, Fold, FunctionFold, LastWriter, Runs
from gossiplog.spark.jobs.materialize import Recipe, fold_messages
from tests.spark.conftest import TOPIC
from tests.spark.histories import braided, insert, shuffled
from tests.spark.in_tasks import set_of_two, trail
from tests.spark.shared import frame_of_rows
from tests.strategies import alternative, longer_author

STATE = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),
        ("content_id", pa.string()),
        ("stored", pa.binary()),
        ("topic", pa.string()),
    ]
)
SHAPE = "key string, value bigint, out boolean, n bigint"
State: TypeAlias = dict[str, Any]


def test_an_object_without_a_name_cannot_be_continued() -> None:
    fold = FunctionFold(partial(trail))
    with pytest.raises(
        OptionError, match=r"the fold functools\.partial\(.* has no name .*: give a function that calls"
    ):
        Recipe(fold, "key").describe()
    assert FunctionFold(trail).name == "tests.spark.in_tasks:trail"


async def later(state: Any, message: SignedMessage) -> Any:
    return state


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (5, "fold is 5: expected a function"),
        (later, "a coroutine or generator function"),
        (len, r"cannot be called as fold\(state, message\)"),
    ],
)
def test_what_cannot_be_a_fold(function: Any, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        FunctionFold(function)


FOLDS: dict[str, tuple[Fold, dict[str, str]]] = {
    "last": (LastWriter(), {"value": "payload.value"}),
    "count": (Counter(), {"value": "payload.value"}),
    "set": (ElementSet(), {"value": "payload.value", "removed": "payload.out"}),
    "function": (FunctionFold(trail), {}),
}


def replayed(log: gossiplog.Log, fold: str) -> State:
    """The same by replay, in the order of content ids."""
    state: State = defaultdict(set) if fold == "set" else {}

    def step(message: SignedMessage) -> None:
        if message.payload is None:
            return
        key, value = message.payload["key"], message.payload["value"]
        match fold:
            case "last":
                state[key] = value
            case "count":
                state[key] = state.get(key, 0) + value
            case "set":
                (state[key].discard if message.payload["out"] else state[key].add)(value)
            case _:
                state[key] = trail(state.get(key), message)

    # One encoding of each message, in the order of content ids.
    contents = {message.content_id: message for message in log.messages()}
    for _, message in sorted(contents.items()):
        step(message)
    return {key: value for key, value in state.items() if fold != "set" or value}


def table(frame: DataFrame, fold: str) -> State:
    """The rows of a state as `replayed` returns them."""
    with worker_errors():
        rows = frame.collect()
    if fold == "set":
        state: State = defaultdict(set)
        for row in rows:
            assert row.value not in state[row.key]
            state[row.key].add(row.value)
        return dict(state)
    assert len({row.key for row in rows}) == len(rows)
    return {row.key: core.json_decode(row.value.encode()) if fold == "function" else row.value for row in rows}


def recipe(fold: str) -> Recipe:
    from pyspark.sql.types import StructType

    kind, expressions = FOLDS[fold]
    return Recipe(kind, "payload.key", shape=StructType.fromDDL(SHAPE), **expressions)


@pytest.mark.parametrize("fold", FOLDS)
def test_a_fold_equals_the_replay(spark: SparkSession, tmp_path: Path, fold: str) -> None:
    for seed in range(2):
        path = tmp_path / f"{seed}.db"
        insert(path, TOPIC, shuffled(seed, braided(seed, 300, TOPIC)))
        with gossiplog.open(path) as log:
            expected = replayed(log, fold)
        assert len(expected) == 6
        assert table(fold_messages(read(spark, str(path), partitions=3), recipe(fold)), fold) == expected


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_counter_beyond_64_bits_is_an_error(spark: SparkSession, ansi: str) -> None:
    """Whatever the setting, without which sums wrap around."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    values = [("most", 2**63 - 1), ("least", -(2**63) + 1), ("least", -1), ("beyond\n", 2**63 - 1), ("beyond\n", 1)]
    rows = frame_of_rows(spark, values, "key string, value bigint").repartition(3)
    within = Counter().combine(rows.where("NOT startswith(key, 'beyond')"))
    assert {row.key: row.value for row in within.collect()} == {"most": 2**63 - 1, "least": -(2**63)}
    layers = rows.withColumn("layer", F.monotonically_increasing_id())
    for state in (Counter().combine(rows), Counter().merge(layers)):
        with pytest.raises(EncodeError, match=r'is beyond 64 bits, that of \{"key":"beyond\\n"\}$'), worker_errors():
            state.collect()


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (lambda: Recipe(LastWriter(), "nothing"), "the expression for key, nothing, cannot be used"),
        (lambda: Recipe(LastWriter(), "topic", value="("), r"the expression for value, \(, cannot be used"),
        (lambda: Recipe(Counter(), "topic", value="1.5D"), "the value has the type double: expected one of bigint"),
        (lambda: Recipe(Counter(), "parents"), "the key has the type array<string>"),
        (lambda: Recipe(LastWriter(), "topic", shape=int), "payloads as bigint: expected a type with fields"),
        (lambda: Recipe(LastWriter(), "topic", shape=bytes), "payload is bytes"),
        (lambda: Recipe(ElementSet(), "topic", value="map(1, 2)"), "a map, which Spark cannot compare"),
        (lambda: Recipe(ElementSet(), "topic", removed="1"), "the expression for removed, 1, is not true or false"),
        (lambda: Recipe(Counter(), "topic", removed="true"), "nothing can be removed by the fold count"),
    ],
)
def test_what_cannot_be_folded(spark: SparkSession, made: Callable[[], Recipe], complaint: str) -> None:
    messages = spark.createDataFrame([], SCHEMA)
    with pytest.raises(OptionError, match=complaint):
        fold_messages(messages, made())


def test_the_error_of_a_state_that_cannot_be_kept_comes_from_its_worker(spark: SparkSession) -> None:
    key, value = core.sign(TOPIC, 1, [], 0, bytes(32))
    rows = frame_of_rows(
        spark,
        [("a", None, core.encode_id(key), bytearray(value), TOPIC)],
        "key string, value string, content_id string, stored binary, topic string",
    )
    with pytest.raises(EncodeError, match="the fold's state of the key 'a' cannot be kept"), worker_errors():
        FunctionFold(set_of_two).combine(rows).collect()


def test_a_state_that_cannot_be_kept() -> None:
    key, value = core.sign(TOPIC, 1, [], 0, bytes(32))
    row = {"key": TOPIC, "value": None, "content_id": core.encode_id(key), "stored": value, "topic": TOPIC}
    with pytest.raises(EncodeError, match=f"the fold's state of the key '{TOPIC}' cannot be kept"):
        list(Runs(set_of_two)([pa.RecordBatch.from_pylist([row])]))


@pytest.mark.parametrize("payload", [{"/": {"bytes": 1}}, {"/": {"bytes": "AA"}}])
def test_a_state_that_would_be_read_as_another_cannot_be_kept(payload: Any) -> None:
    """It would be found out by who continues the fold, or by nobody."""
    key, value = core.sign(TOPIC, 1, [], payload, bytes(32))
    row = {"key": "a", "value": None, "content_id": core.encode_id(key), "stored": value, "topic": TOPIC}
    with pytest.raises(EncodeError, match=r"the fold's state of the key 'a' cannot be kept: .* maps of the key '/'"):
        list(Runs(last_payload)([pa.RecordBatch.from_pylist([row])]))


def last_payload(state: Any, message: SignedMessage) -> Any:
    return message.payload


def needs_a_field(state: Any, message: SignedMessage) -> Any:
    return message.payload["stock"] + (state or 0)


def test_a_function_that_raises() -> None:
    """The error names the function, where it raised, the message and its key."""
    key, value = core.sign(TOPIC, 1, [], {"n": 1}, bytes(32))
    row = {"key": "item-1", "value": None, "content_id": core.encode_id(key), "stored": value, "topic": TOPIC}
    line = needs_a_field.__code__.co_firstlineno + 1
    with pytest.raises(SparkError) as caught:
        list(Runs(needs_a_field)([pa.RecordBatch.from_pylist([row])]))
    assert str(caught.value) == (
        f"the fold needs_a_field raised KeyError: 'stock' (test_folds.py, line {line}), given the message"
        f" {core.encode_id(key)} of the key 'item-1': `gossiplog show` shows the message"
    )


def test_what_a_function_raises_with_several_lines() -> None:
    def fail(state: Any, message: SignedMessage) -> Any:
        raise ValueError("one\n  two")

    _, value = core.sign(TOPIC, 1, [], 0, bytes(32))
    row = {"key": 7, "value": None, "content_id": "", "stored": value, "topic": TOPIC}
    with pytest.raises(SparkError, match="raised ValueError: one two "):
        list(Runs(fail)([pa.RecordBatch.from_pylist([row])]))


def test_each_key_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is reset at each new key, also where batches end, and where a key starts from a stored state."""
    monkeypatch.setattr(folds, "_BATCH", 2)

    def message(key: str, number: int) -> dict[str, Any]:
        signed = core.sign(TOPIC, 1, [], {"n": number}, bytes(32))
        return {"key": key, "value": None, "content_id": core.encode_id(signed[0]), "stored": signed[1], "topic": TOPIC}

    state = {"key": "c", "value": "[7]", "content_id": core.encode_id(bytes(20)), "stored": None, "topic": None}
    rows = [message("a", 1), message("a", 2), message("b", 3), state, message("c", 5), message("d", 6)]
    batches = [pa.RecordBatch.from_pylist(some, STATE) for some in (rows[:1], rows[1:4], rows[4:])]
    found = [batch.to_pylist() for batch in Runs(trail)(batches)]
    assert [[(row["key"], row["value"], row["content_id"]) for row in batch] for batch in found] == [
        [("a", "[1,4]", rows[1]["content_id"]), ("b", "[3]", rows[2]["content_id"])],
        [("c", "[7,10]", rows[4]["content_id"]), ("d", "[6]", rows[5]["content_id"])],
    ]


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2, 3, 4, 5)])
def test_a_function_gets_one_encoding_of_each_message(cuts: tuple[int, ...]) -> None:
    first, second = (core.sign(TOPIC, 1, [], {"n": n}, bytes(32))[1] for n in (1, 2))
    values = [("a", first), ("a", alternative(first)), ("a", second), ("b", second), ("b", longer_author(second))]
    rows = [
        {"key": key, "content_id": core.read_message(value, TOPIC).content_id, "stored": value, "topic": TOPIC}
        for key, value in values
    ]
    # The state of a key, and a further encoding of its last message.
    rows += [{**rows[0], "key": "c", "value": "[7]", "stored": None}, {**rows[1], "key": "c"}]
    bounds = [0, *cuts, len(rows)]
    batches = [pa.RecordBatch.from_pylist(rows[start:end], STATE) for start, end in pairwise(bounds)]
    found = [row for batch in Runs(trail)(batches) for row in batch.to_pylist()]
    assert [(row["key"], row["value"]) for row in found] == [("a", "[1,4]"), ("b", "[2]"), ("c", "[7]")]


@pytest.mark.parametrize("fold", FOLDS)
def test_encodings_and_replicas_in_one_frame_are_folded_once(
    spark: SparkSession, replicas_of_encodings: tuple[Path, Path], fold: str
) -> None:
    one, other = replicas_of_encodings
    with gossiplog.open(one) as log, gossiplog.open(other) as second:
        assert {message.content_id for message in log} == {message.content_id for message in second}
        expected = replayed(log, fold)
        assert expected == replayed(second, fold)
    frame = read(spark, str(one), str(other), partitions=3)
    assert table(fold_messages(frame, recipe(fold)), fold) == expected
