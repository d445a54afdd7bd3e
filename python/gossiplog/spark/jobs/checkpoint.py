"""A folder that holds a state as Parquet, in layers, and always a whole one.

    checkpoint.json     names the layers that are current, and says what they were made of
    state-COUNT-HEX/    layers: the current ones, those before, for those who still read them, and what a run left that
                        was killed; the next run removes that

A run adds a layer with what it changed, under a name of its own, which becomes current when `checkpoint.json` is
replaced, by one rename. The other layers stay as they are.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from gossiplog.errors import StorageError
from gossiplog.files import open_file, sync
from gossiplog.reprs import counted
from gossiplog.spark.folders import local_path, parquet_files, read_path, write_path

_CHECKPOINT = "checkpoint.json"
_STATE = re.compile(r"state-\d+-[0-9a-f]{32}")
_FORMAT = 3
# One layer, of which it is not known how many rows the table has.
_ONE_LAYER = 2
# Folded by ids instead of content ids, so that each encoding of a message was folded for itself.
_FOLDED_BY_IDS = 1
# Where a Parquet file has the columns as Spark wrote them.
_COLUMNS = b"org.apache.spark.sql.parquet.row.metadata"
# Of checkpoint.json, in bytes: shapes of payloads are in it.
_LONGEST = 2**20


@dataclass(frozen=True, slots=True)
class Layer:
    """What a run wrote, or several together.

    Attributes:
        state: the name of its folder.
        rows: how many it has.
    """

    state: str
    rows: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a state was made of.

    Attributes:
        layers: from the oldest to the newest.
        messages: how many messages were folded: those with sequences up to this one.
        last: the id of the last of them in the order of arrival; None where there are none.
        recipe: how they were folded: a state is continued only in the same way.
        generation: of the log.
        rows: how many the table has; None of a former version, which wrote none.
        origin: from which the log has the messages that were folded; None where that is not known, and of a former
            version.
    """

    layers: tuple[Layer, ...]
    topic: str
    messages: int
    last: str | None
    recipe: str
    generation: int = 0
    rows: int | None = None
    origin: str | None = None


class StateFolder:
    """A folder with a state, on this machine, which the executors see, too.

    Args:
        path: of the folder; it is made where there is none.

    Raises:
        OptionError: it is not on this machine.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(local_path(path, "the state"))

    def current(self) -> Checkpoint | None:
        """Return what the current state was made of; None where there is none yet.

        Raises:
            StorageError: `checkpoint.json` cannot be read, is none, or is a former version's.
        """
        path = os.path.join(self.path, _CHECKPOINT)
        try:
            with open_file(path) as file:
                content = file.read(_LONGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}") from error
        found = _parsed(content)
        if found == _FOLDED_BY_IDS:
            raise StorageError(
                f"{path} was written by a former version, which folded each encoding of a message for itself: name"
                f" another folder, or remove {self.path}, to build the state anew"
            )
        if not isinstance(found, Checkpoint):
            raise StorageError(f"{path} is no checkpoint of this version: remove {self.path} to build the state anew")
        return found

    def read(self, spark: SparkSession, layers: Iterable[Layer]) -> DataFrame:
        """Return the rows of layers with the column `layer`, a number that is larger for later ones.

        Raises:
            StorageError: files of a layer are gone, or damaged.
        """
        checked = [(layer, self._checked(layer)) for layer in layers]
        frames = [
            spark.read.schema(columns)
            .parquet(read_path(os.path.join(self.path, layer.state)))
            .withColumn("layer", F.lit(number))
            for number, (layer, columns) in enumerate(checked)
        ]
        # Those of former versions lack a column.
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

    def _checked(self, layer: Layer) -> StructType:
        """Return the columns of a layer that has its rows, by what its files say of themselves.

        Spark takes what is there for all, and starts a job to look for the columns.

        Raises:
            StorageError: it has not.
        """
        path = os.path.join(self.path, layer.state)
        try:
            files = _files(path)
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"{path} is damaged ({error}): {self._advice}") from error
        rows = sum(file.num_rows for file in files)
        # Of a former version it is not known how many there are.
        if not files or (layer.rows and rows != layer.rows):
            raise StorageError(
                f"{path} has lost files: it has {counted(rows, 'row')} of {layer.rows or 'more'}; {self._advice}"
            )
        columns = (files[0].metadata or {}).get(_COLUMNS)
        if columns is None:
            raise StorageError(f"{path} is damaged (it does not name its columns): {self._advice}")
        return StructType.fromJson(json.loads(columns))

    @property
    def _advice(self) -> str:
        return f"put {self.path} back as a backup has it, or remove it to build the state anew"

    def write(self, state: DataFrame, messages: int) -> Layer:
        """Write a layer, which is current once it is published. One process at a time does.

        Args:
            state: its rows.
            messages: that the state has with it.
        """
        name = f"state-{messages}-{uuid.uuid4().hex}"
        path = os.path.join(self.path, name)
        state.write.parquet(write_path(path))
        return Layer(name, sum(file.num_rows for file in _files(path)))

    def clear(self) -> None:
        """Remove what runs left that were killed, and what nobody reads any more."""
        former = self.current()
        self._sweep({layer.state for layer in former.layers} if former else set())

    def publish(self, made: Checkpoint) -> None:
        """Make layers that were written the current ones, for one process at a time.

        Raises:
            StorageError: it cannot be written. The former state is still current.
        """
        former = self.current()
        kept = {layer.state for layer in former.layers} if former else set()
        try:
            self._replace(made, {layer.state for layer in made.layers} - kept)
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}") from error
        self._sweep(kept | {layer.state for layer in made.layers})

    def _replace(self, made: Checkpoint, new: Iterable[str]) -> None:
        # A checkpoint that survives a power cut names a state that does.
        for folder in (os.path.join(self.path, state) for state in new):
            for name in (*os.listdir(folder), "."):
                sync(os.path.join(folder, name))
        with tempfile.NamedTemporaryFile("w", dir=self.path, prefix=".checkpoint-", delete=False) as file:
            json.dump({"format": _FORMAT, **asdict(made)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, os.path.join(self.path, _CHECKPOINT))
        sync(self.path)

    def _sweep(self, kept: set[str]) -> None:
        """Remove all layers but some, with what runs left that were killed."""
        for name in os.listdir(self.path):
            path = os.path.join(self.path, name)
            if _STATE.fullmatch(name) and name not in kept:
                shutil.rmtree(path)
            elif name.startswith(".checkpoint-"):
                os.remove(path)


def _files(folder: str) -> list[pq.FileMetaData]:
    """Return what the Parquet files of a folder say of themselves."""
    return [pq.read_metadata(file) for file in parquet_files(folder)]


def _parsed(content: bytes) -> Checkpoint | int | None:
    """Return what a checkpoint says, its format where that is another one, None where it is no checkpoint."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    match found:
        case {"format": int(version), "recipe": str()} if version not in (_ONE_LAYER, _FORMAT):
            return version
        case {
            "topic": str(topic),
            "messages": int(messages),
            "last": str() | None as last,
            "recipe": str(recipe),
        }:
            layers = _layers(found)
            # Former versions wrote none of these.
            generation, rows, origin = found.get("generation", 0), found.get("rows"), found.get("origin")
            is_sound = isinstance(generation, int) and isinstance(rows, int | None) and isinstance(origin, str | None)
            if layers and is_sound:
                return Checkpoint(layers, topic, messages, last, recipe, generation, rows, origin)
    return None


def _layers(found: Mapping[str, object]) -> tuple[Layer, ...]:
    """Return the layers that a checkpoint names; none where it names none, or what is none."""
    match found:
        case {"format": 2, "state": str(state)} if _STATE.fullmatch(state):
            # How many rows it has is not known: the next run merges it with its own.
            return (Layer(state, 0),)
        case {"format": 3, "layers": [*listed]}:
            layers = [_layer(each) for each in listed]
            return tuple(layer for layer in layers if layer is not None) if None not in layers else ()
    return ()


def _layer(found: object) -> Layer | None:
    match found:
        case {"state": str(state), "rows": int(rows)} if rows >= 0 and _STATE.fullmatch(state):
            return Layer(state, rows)
    return None
