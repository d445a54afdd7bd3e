"""The folder of a state, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossiplog.errors import StorageError
from gossiplog.spark.jobs.checkpoint import StateFolder

SOUND = '{"format": 2, "state": "state-1-%s", "topic": "t", "messages": 1, "last": null, "recipe": ""}' % ("0" * 32)


def test_there_is_no_state_yet(tmp_path: Path) -> None:
    assert StateFolder(str(tmp_path / "none")).current() is None


def test_a_checkpoint_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.json").write_text(SOUND)
    found = StateFolder(str(tmp_path)).current()
    assert found is not None
    assert (found.state, found.messages) == (f"state-1-{'0' * 32}", 1)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        SOUND.replace('"format": 2', '"format": 3'),
        SOUND.replace("state-1-", "../state-1-"),
        SOUND.replace('"last": null', '"last": 3'),
        SOUND.replace('"messages": 1', '"messages": "1"'),
    ],
)
def test_what_is_no_checkpoint(tmp_path: Path, content: str) -> None:
    (tmp_path / "checkpoint.json").write_text(content)
    with pytest.raises(StorageError, match="is no checkpoint of this version: remove"):
        StateFolder(str(tmp_path)).current()


def test_a_state_that_was_folded_by_ids(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.json").write_text(SOUND.replace('"format": 2', '"format": 1'))
    with pytest.raises(StorageError, match=f"name another folder, or remove {tmp_path}, to build the state anew"):
        StateFolder(str(tmp_path)).current()
