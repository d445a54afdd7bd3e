"""Key files by the names of authors, and what tasks sign with them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gossiplog import SignedMessage, Signer, core
from gossiplog.errors import KeyFileError
from gossiplog.spark.jobs import sign
from gossiplog.spark.jobs.sign import MERGED_HEADS, KeyStore, Merging, Signing


@pytest.mark.parametrize(
    ("author", "name"),
    [
        ("ann", "ann.key"),
        ("ann@example.org", "ann%40example.org.key"),
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd.key"),
        ("..", "...key"),
        ("é\0", "%C3%A9%00.key"),
    ],
)
def test_a_key_is_found_in_the_folder(tmp_path: Path, author: str, name: str) -> None:
    signer = Signer.generate()
    signer.save(tmp_path / "keys" / name)
    assert KeyStore(str(tmp_path / "keys")).load(author).did == signer.did


@pytest.mark.parametrize("author", ["", "a" * 252])
def test_a_name_that_no_file_can_have(author: str) -> None:
    with pytest.raises(KeyFileError, match=f"an author's name of {len(author)} characters"):
        KeyStore("/keys").path(author)


def test_a_key_that_others_can_read(tmp_path: Path) -> None:
    Signer.generate().save(tmp_path / "ann.key")
    os.chmod(tmp_path / "ann.key", 0o640)
    with pytest.raises(KeyFileError, match="is open to other users"):
        KeyStore(str(tmp_path)).load("ann")


TOPIC = "org.example.spark"
Event = tuple[int, str, int | None, str, list[str], Any]

SCHEMA = pa.schema(
    [
        ("component", pa.int64()),
        ("author", pa.string()),
        ("sequence", pa.int64()),
        ("id", pa.string()),
        ("parents", pa.list_(pa.string())),
        ("payload", pa.struct([("text", pa.string()), ("size", pa.float64())])),
    ]
)


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    for number, author in enumerate(["ann", "ben", "cleo"], 1):
        Signer(bytes([number]) * 32).save(tmp_path / "keys" / f"{author}.key")
    return KeyStore(str(tmp_path / "keys"))


def event(component: int, author: str, sequence: int | None, id: str, *parents: str, size: float = 0.5) -> Event:
    return component, author, sequence, id, list(parents), {"text": id, "size": size}


def batches(events: list[Event], size: int = 3) -> Iterator[pa.RecordBatch]:
    rows = [dict(zip(SCHEMA.names, one, strict=True)) for one in sorted(events, key=lambda one: one[:4])]
    for start in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[start : start + size], SCHEMA)


def signed(events: list[Event], keys: KeyStore, size: int = 3) -> list[dict[str, Any]]:
    return [row for batch in Signing(TOPIC, keys)(batches(events, size)) for row in batch.to_pylist()]


def messages(rows: list[dict[str, Any]]) -> dict[str, SignedMessage]:
    assert [row["problem"] for row in rows if row["problem"]] == []
    found = [core.verify(row["value"], TOPIC) for row in rows]
    assert [message.key for message in found] == [row["key"] for row in rows]
    return {message.payload["text"]: message for message in found}


def test_an_event_follows_its_authors_last_and_those_that_it_names(keys: KeyStore) -> None:
    events = [
        event(1, "ann", 1, "a1"),
        event(1, "ann", 2, "a2", "b1"),
        event(1, "ann", 3, "a3"),
        event(1, "ben", 1, "b1"),
        event(1, "ben", 9, "b2", "a1", "b1"),
        event(2, "cleo", -5, "c1"),
    ]
    rows = signed(events, keys)
    found = messages(rows)
    parents = {
        name: {found[name].id for name in names}
        for name, names in {"a1": [], "a2": ["a1", "b1"], "a3": ["a2"], "b1": [], "b2": ["a1", "b1"], "c1": []}.items()
    }
    assert {name: set(message.parents) for name, message in found.items()} == parents
    clocks = {name: message.clock for name, message in found.items()}
    assert clocks == {
        "a1": 1,
        "a2": 2,
        "a3": 3,
        "b1": 1,
        "b2": 2,
        "c1": 1,
    }
    assert {message.author for message in found.values()} == {Signer(bytes([n]) * 32).did for n in (1, 2, 3)}
    assert sorted(core.verify(row["value"], TOPIC).payload["text"] for row in rows if row["head"]) == ["a3", "b2", "c1"]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sign and return a tenth at a time."""
    for name in ("_CHUNK", "_SIGNED_AT_ONCE", "_BATCH_ROWS"):
        monkeypatch.setattr(sign, name, getattr(sign, name) // 10)


@pytest.mark.integration
@pytest.mark.usefixtures("small_chunks")
def test_batches_and_tasks_do_not_matter(keys: KeyStore) -> None:
    chance = random.Random(4)
    events = [
        event(
            number % 7,
            "ann" if number % 7 < 5 else "ben",
            None,
            f"{number:04}",
            *(
                {f"{chance.randrange(number % 7, number, 7):04}" for _ in range(chance.randrange(3))}
                if number >= 7
                else ()
            ),
        )
        for number in range(2000)
    ]
    whole = {row["event"]: row["value"] for row in signed(events, keys, size=2000)}
    assert len(whole) == 2000
    # Components of a few batches, and batches of a few components.
    for size in (100, 791):
        assert {row["event"]: row["value"] for row in signed(events, keys, size)} == whole
    apart = [row for component in range(7) for row in signed([one for one in events if one[0] == component], keys)]
    assert {row["event"]: row["value"] for row in apart} == whole


@pytest.mark.integration
@pytest.mark.usefixtures("small_chunks")
def test_a_component_that_is_larger_than_a_chunk(keys: KeyStore) -> None:
    sizes = {1: 10, 2: 1000, 3: 2000, 4: 1, 5: 900}
    numbered = [(one, number) for one, size in sizes.items() for number in range(size)]
    events = [event(one, "ann" if one % 2 else "ben", number, f"{one}-{number}") for one, number in numbered]
    rows = signed(events, keys, size=100)
    assert len(rows) == sum(sizes.values())
    assert sorted(core.verify(row["value"], TOPIC).clock for row in rows if row["head"]) == sorted(sizes.values())


def test_a_payload_that_no_message_can_have(keys: KeyStore) -> None:
    events = [event(1, "ann", number, f"a{number}") for number in range(5)]
    events[3] = event(1, "ann", 3, "a3", size=float("nan"))
    events.append(event(2, "ben", 1, "b1", size=float("inf")))
    rows = signed(events, keys)
    problems = {row["event"]: row["problem"] for row in rows if row["problem"]}
    assert list(problems) == ['{"author":"ann","id":"a3","sequence":3}', '{"author":"ben","id":"b1","sequence":1}']
    assert all(problem.startswith("no message can have its payload: ") for problem in problems.values())


def test_a_message_that_peers_would_not_read(keys: KeyStore) -> None:
    long = (1, "ann", 1, "a1", [], {"text": "x" * 2**22, "size": 0.0})
    (row,) = signed([long], keys)
    assert row["problem"].startswith("its message has 4194")
    assert row["value"] is None


@pytest.mark.parametrize(
    ("links", "cycles"),
    [
        ({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["c"], "e": []}, [{"a", "b", "c"}]),
        ({"a": ["a"], "b": ["b"]}, [{"a"}, {"b"}]),
        ({str(n): [str((n + 1) % 9)] for n in range(9)}, [{str(n) for n in range(5)}]),
    ],
)
def test_cycles(keys: KeyStore, links: dict[str, list[str]], cycles: list[set[str]]) -> None:
    rows = signed([event(1, "ann", None, name, *parents) for name, parents in links.items()], keys)
    problems = [row for row in rows if row["problem"]]
    assert {row["problem"] for row in problems} == {"it descends from itself"}
    found = [
        {core.json_decode(part.split(" and ")[0].encode())["id"] for part in row["event"].split(" <- ")}
        for row in problems
    ]
    assert found == cycles


def test_a_cycle_through_the_sequence(keys: KeyStore) -> None:
    rows = signed([event(1, "ann", 1, "a1", "a2"), event(1, "ann", 2, "a2")], keys)
    assert [row["problem"] for row in rows] == ["it descends from itself"]


@pytest.mark.parametrize("heads", [0, 1, 2, 32, 33, 1024, 1025, pytest.param(5000, marks=pytest.mark.slow)])
def test_heads_are_merged_into_one(keys: KeyStore, heads: int) -> None:
    made = sorted(Signer(bytes(32)).sign(TOPIC, 1, (), number)[0] for number in range(heads))
    given = (
        pa.RecordBatch.from_pylist([{"key": key} for key in made[start : start + 1000]])
        for start in range(0, heads, 1000)
    )
    rows = [row for batch in Merging(TOPIC, keys, "ben")(given) for row in batch.to_pylist()]
    merges = [core.verify(row["value"], TOPIC) for row in rows]
    assert [message.key for message in merges] == [row["key"] for row in rows]
    followed = [core.decode_id(parent) for message in merges for parent in message.parents]
    assert len(followed) == len(set(followed))
    assert len({*made, *(message.key for message in merges)} - set(followed)) == min(heads, 1)
    assert max((len(message.parents) for message in merges), default=0) <= MERGED_HEADS
    assert min((len(message.parents) for message in merges), default=2) >= 2
    assert {message.author for message in merges} <= {Signer(bytes([2]) * 32).did}
