"""Key files by the names of authors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossiplog import Signer
from gossiplog.errors import KeyFileError
from gossiplog.spark.jobs.keystore import KeyStore


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
