"""What checkpoints hold of logs that are followed."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog.errors import StorageError
from gossiplog.spark.source.offsets import Reached, StreamPosition, decode, digest, is_other_origin, origin
from tests.strategies import repeatable

NAMES = [
    "/a.db",
    "/b/a.db",
    "/b/c.db",
    "/b/c/a.db",
    "file:a.db",
    "postgresql://h/d?schema=a",
    "postgresql://h/d?schema=b",
]
LOGS = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(
        Reached,
        st.integers(1, 2**62),
        st.sampled_from([None, digest(b""), digest(b"value")]),
        st.integers(0, 3),
        st.sampled_from([None, "abcdefgh"]),
    ),
)


@repeatable(60)
@given(logs=LOGS, turn=st.sampled_from(["", "/a.db"]))
def test_an_offset_is_read_as_it_was_written(logs: dict[str, Reached], turn: str) -> None:
    position = StreamPosition(logs, turn)
    offset = json.loads(json.dumps(position.encode()))
    assert decode(offset) == position
    # Spark takes the same text for the same offset.
    assert json.dumps(decode(offset).encode()) == json.dumps(offset)


def test_a_log_that_was_not_begun_has_no_entry() -> None:
    assert StreamPosition({"/a.db": Reached()}).encode() == {"messages": 0, "logs": {}}


def test_ten_thousand_logs_take_six_hundred_kilobytes() -> None:
    logs = {
        f"/mnt/archive/hubs/hub-{number:05}.db": Reached(100_000 + number, digest(b""), 0, "abcdefgh")
        for number in range(10_000)
    }
    assert len(json.dumps(StreamPosition(logs, "/mnt/archive/hubs/hub-05000.db").encode())) < 600_000


@pytest.mark.parametrize(
    ("written", "reached"),
    [
        (7, Reached(7)),
        ({"sequence": 7, "digest": "ab"}, Reached(7, "ab")),
        ({"sequence": 7, "digest": "ab", "generation": 2}, Reached(7, "ab", 2)),
    ],
)
def test_offsets_of_former_versions(written: Any, reached: Reached) -> None:
    assert decode({"/data/a.db": written}) == StreamPosition({"/data/a.db": reached})


@pytest.mark.parametrize(
    ("written", "reached"),
    [([7, "ab"], Reached(7, "ab")), ([7, "ab", 2], Reached(7, "ab", 2)), ([7, None], Reached(7))],
)
def test_offsets_without_origins(written: list[Any], reached: Reached) -> None:
    assert decode({"logs": {"/data/": {"a.db": written}}}) == StreamPosition({"/data/a.db": reached})


def test_an_origin_is_compared_where_both_are_known() -> None:
    origins = ("abcdefgh", "hgfedcba", None)
    others = [(one, other) for one in origins for other in origins if is_other_origin(one, other)]
    assert others == [("abcdefgh", "hgfedcba"), ("hgfedcba", "abcdefgh")]
    assert origin(gossiplog.MemoryStorage(), 7) is None


def test_digests_of_former_versions() -> None:
    former = Reached(7, blake2b(b"value", digest_size=16).hexdigest())
    assert [former.is_of(b"value"), former.is_of(b"other")] == [True, False]
    assert [Reached(7, digest(b"value")).is_of(b"value"), Reached(7, digest(b"value")).is_of(b"other")] == [True, False]


@pytest.mark.parametrize(
    "offset",
    [
        None,
        [],
        "5",
        {"logs": 5},
        {"logs": {"/data/": 5}},
        {"logs": {"/data/": {"a.db": 5}}},
        {"logs": {"/data/": {"a.db": ["5"]}}},
        {"logs": {"/data/": {"a.db": [-1]}}},
        {"logs": {"/data/": {"a.db": [1, 2, 3, 4]}}},
        {"logs": {"/data/": {"a.db": [1, "ab", 0, 4]}}},
        {"logs": {"/data/": {"a.db": [1, "ab", 0, "cd", 5]}}},
        {"logs": {}, "turn": 5},
        {"/data/a.db": "5"},
        {"/data/a.db": {"sequence": 5}},
        {"/data/a.db": {"sequence": 5, "digest": 5}},
    ],
)
def test_what_is_no_offset(offset: object) -> None:
    with pytest.raises(
        StorageError, match=r"an offset that is not one of logs, .* restore the checkpoint from a backup"
    ):
        decode(offset)
