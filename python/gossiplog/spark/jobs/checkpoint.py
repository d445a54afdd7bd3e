"""A folder that holds a state as Parquet, and always a whole one.

    checkpoint.json     names the state that is current, and says what it was made of
    state-COUNT-HEX/    states: the current one, the one before, for those who still read it, and what a run left that
                        was killed; the next run removes that

A state is written under a name of its own, and becomes current when `checkpoint.json` is replaced, by one rename.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import uuid
from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame, SparkSession

from gossiplog.errors import StorageError
from gossiplog.files import open_file, sync
from gossiplog.spark.folders import local_path, read_path, write_path

_CHECKPOINT = "checkpoint.json"
_STATE = re.compile(r"state-\d+-[0-9a-f]{32}")
_FORMAT = 2
# Folded by ids instead of content ids, so that each encoding of a message was folded for itself.
_FOLDED_BY_IDS = 1
# Of checkpoint.json, in bytes: shapes of payloads are in it.
_LONGEST = 2**20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a state was made of.

    Attributes:
        state: the name of its folder.
        messages: how many messages were folded: those with sequences up to this one.
        last: the id of the last of them in the order of arrival; None where there are none.
        recipe: how they were folded: a state is continued only in the same way.
    """

    state: str
    topic: str
    messages: int
    last: str | None
    recipe: str
    generation: int = 0


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

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the current state.

        Raises:
            StorageError: there is none.
        """
        current = self.current()
        if current is None:
            raise StorageError(f"there is no state in {self.path}")
        return spark.read.parquet(read_path(os.path.join(self.path, current.state)))

    def publish(
        self, state: DataFrame, topic: str, messages: int, last: str | None, recipe: str, generation: int
    ) -> Checkpoint:
        """Write a state and make it the current one, for one process at a time. The arguments are as in `Checkpoint`.

        Raises:
            StorageError: it cannot be written. The former state is still current.
        """
        former = self.current()
        made = Checkpoint(f"state-{messages}-{uuid.uuid4().hex}", topic, messages, last, recipe, generation)
        self._sweep({former.state} if former else set())
        state.write.parquet(write_path(os.path.join(self.path, made.state)))
        try:
            self._replace(made)
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}") from error
        self._sweep({made.state, former.state} if former else {made.state})
        return made

    def _replace(self, made: Checkpoint) -> None:
        folder = os.path.join(self.path, made.state)
        # A checkpoint that survives a power cut names a state that does.
        for name in (*os.listdir(folder), "."):
            sync(os.path.join(folder, name))
        with tempfile.NamedTemporaryFile("w", dir=self.path, prefix=".checkpoint-", delete=False) as file:
            json.dump({"format": _FORMAT, **asdict(made)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, os.path.join(self.path, _CHECKPOINT))
        sync(self.path)

    def _sweep(self, kept: set[str]) -> None:
        """Remove all states but some, with what runs left that were killed."""
        for name in os.listdir(self.path):
            path = os.path.join(self.path, name)
            if _STATE.fullmatch(name) and name not in kept:
                shutil.rmtree(path)
            elif name.startswith(".checkpoint-"):
                os.remove(path)


def _parsed(content: bytes) -> Checkpoint | int | None:
    """Return what a checkpoint says, its format where that is another one, None where it is no checkpoint."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    match found:
        case {"format": int(version), "state": str(), "recipe": str()} if version != _FORMAT:
            return version
        case {
            "format": int(version),
            "state": str(state),
            "topic": str(topic),
            "messages": int(messages),
            "last": str() | None as last,
            "recipe": str(recipe),
        } if version == _FORMAT and _STATE.fullmatch(state):
            # Former versions wrote no generation.
            generation = found.get("generation", 0)
            return Checkpoint(state, topic, messages, last, recipe, generation if isinstance(generation, int) else 0)
    return None
