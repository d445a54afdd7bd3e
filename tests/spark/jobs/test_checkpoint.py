"""The folder of a state, without Spark."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gossiplog.errors import StorageError
from gossiplog.spark.jobs.checkpoint import Checkpoint, Layer, StateFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ZEROS = "0" * 32
SOUND = (
    '{"format": 3, "layers": [{"state": "state-1-ZEROS", "rows": 7}], "topic": "t", "messages": 1, "last": null,'
    ' "recipe": "", "generation": 0, "rows": 5}'
).replace("ZEROS", ZEROS)
FORMER = ('{"format": 2, "state": "state-1-ZEROS", "topic": "t", "messages": 1, "last": null, "recipe": ""}').replace(
    "ZEROS", ZEROS
)


def test_there_is_no_state_yet(tmp_path: Path) -> None:
    assert StateFolder(str(tmp_path / "none")).current() is None


def test_a_checkpoint_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.json").write_text(SOUND)
    found = StateFolder(str(tmp_path)).current()
    assert found == Checkpoint((Layer(f"state-1-{ZEROS}", 7),), "t", 1, None, "", 0, 5)
    (tmp_path / "checkpoint.json").write_text(SOUND.replace('"rows": 5', '"rows": 5, "origin": "abcdefgh"'))
    found = StateFolder(str(tmp_path)).current()
    assert found == Checkpoint((Layer(f"state-1-{ZEROS}", 7),), "t", 1, None, "", 0, 5, "abcdefgh")


def test_a_checkpoint_of_a_former_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.json").write_text(FORMER)
    assert StateFolder(str(tmp_path)).current() == Checkpoint((Layer(f"state-1-{ZEROS}", 0),), "t", 1, None, "")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        SOUND.replace('"format": 3', '"format": 4'),
        SOUND.replace('"format": 3', '"format": 2'),
        FORMER.replace('"format": 2', '"format": 3'),
        SOUND.replace('"rows": 7', '"rows": -7'),
        SOUND.replace('"rows": 5', '"rows": "5"'),
        SOUND.replace('"rows": 5', '"rows": 5, "origin": 5'),
        SOUND.replace('"state": ', '"name": '),
        '{"format": 3, "layers": [], "topic": "t", "messages": 1, "last": null, "recipe": ""}',
        SOUND.replace("state-1-", "../state-1-"),
        SOUND.replace('"last": null', '"last": 3'),
        SOUND.replace('"messages": 1', '"messages": "1"'),
    ],
)
def test_what_is_no_checkpoint(tmp_path: Path, content: str) -> None:
    (tmp_path / "checkpoint.json").write_text(content)
    with pytest.raises(StorageError, match="is no checkpoint of this version: remove"):
        StateFolder(str(tmp_path)).current()


@pytest.mark.parametrize(
    ("lost", "rows", "reason"),
    [
        ("none.parquet", 5, "has lost files: it has 4 rows of 5; put .* back"),
        ("a.parquet", 4, "has lost files: it has 3 rows of 4; put .* back"),
        ("*.parquet", 4, "has lost files: it has 0 rows of 4; put .* back"),
        ("*.parquet", 0, "has lost files: it has 0 rows of more; put .* back"),
        ("cut", 4, "is damaged .*: put .* back .*, or remove it to build the state anew"),
    ],
)
def test_a_layer_that_is_not_whole(lost: str, rows: int, reason: str, tmp_path: Path) -> None:
    """Spark reads the files that are there, and a table without some of its rows looks like any other."""
    layer = Layer(f"state-1-{ZEROS}", rows)
    (folder := tmp_path / layer.state).mkdir()
    for name, keys in (("a", [1]), ("b", [2, 3, 4])):
        pq.write_table(pa.table({"key": keys}), folder / f"{name}.parquet")
    if lost == "cut":
        os.truncate(folder / "a.parquet", 20)
    for file in folder.glob(lost):
        file.unlink()
    with pytest.raises(StorageError, match=f"{layer.state} {reason}"):
        StateFolder(str(tmp_path)).read(cast("SparkSession", None), [layer])


def test_a_state_that_was_folded_by_ids(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.json").write_text(FORMER.replace('"format": 2', '"format": 1'))
    with pytest.raises(StorageError, match=f"name another folder, or remove {tmp_path}, to build the state anew"):
        StateFolder(str(tmp_path)).current()


class Frame:
    """In place of a DataFrame: a row is a file."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.write = self

    def parquet(self, path: str) -> None:
        folder = Path(path.removeprefix("file://"))
        folder.mkdir(exist_ok=True)
        for number in range(self._rows):
            pq.write_table(pa.table({"key": [number]}), folder / f"part-{number}.parquet")


class Killed(BaseException):
    """The process ends here."""


# All by which a folder changes, or is made to survive a power cut.
CHANGES = ("fsync", "open", "remove", "rename", "replace", "rmdir", "unlink")


def advance(place: StateFolder, messages: int) -> None:
    """Add a layer, as a run does, and let the one before the last go."""
    place.clear()
    former = place.current()
    layers = former.layers if former else ()
    layer = place.write(cast("DataFrame", Frame(2)), messages)
    place.publish(Checkpoint((*layers[-1:], layer), "t", messages, None, ""))


def test_a_run_that_is_killed_anywhere_leaves_one_whole_state_or_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for last in itertools.count():
        place = StateFolder(str(tmp_path / str(last)))
        os.mkdir(place.path)
        for messages in (1, 2, 3):
            advance(place, messages)
        calls = itertools.count()

        def dying(real: Callable[..., object], calls: Iterator[int] = calls, last: int = last) -> Callable[..., object]:
            def call(*arguments: object, **keywords: object) -> object:
                if next(calls) >= last:
                    raise Killed
                return real(*arguments, **keywords)

            return call

        with monkeypatch.context() as patch:
            for name in CHANGES:
                patch.setattr(os, name, dying(getattr(os, name)))
            try:
                advance(place, 4)
            except Killed:
                finished = False
            else:
                finished = True
        current = place.current()
        assert current is not None
        seen.add(current.messages)
        for layer in current.layers:
            assert len(os.listdir(os.path.join(place.path, layer.state))) == layer.rows == 2
        # The next run goes on, and nothing stays of the one that was killed.
        advance(place, current.messages + 1)
        left = set(os.listdir(place.path))
        named = {each.state for found in (current, place.current()) if found for each in found.layers}
        assert left == named | {"checkpoint.json"}
        if finished:
            break
    assert seen == {3, 4}
    assert last > 10
