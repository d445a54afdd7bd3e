"""Whose key signs. `gossiplog keygen`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossiplog.cli.output import Json, Output, note
from gossiplog.signer import Signer, default_key_path
from gossiplog.storage.postgres.url import check_is_file

Key = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        help="Sign with the key in this file. The default is your own key, which is made at its first use.",
    ),
]


def load_signer(path: Path | None) -> Signer:
    """Return the signer with the key in a file; the user's own where `path` is None.

    The user's own key is made when it is not there.

    Raises:
        KeyFileError: the file is missing, is not a key, or is open to others than its owner.
    """
    if path is not None:
        return Signer.load(path)
    own = default_key_path()
    first_use = not own.exists()
    signer = Signer.load_or_create(own)
    if first_use:
        note(f"made your key: {own} ({signer.did})")
    return signer


def keygen(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The key file to make. The default is your own: on Linux ~/.config/gossiplog/key."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a new key, in a file that only you can read."""
    output = Output(json)
    path = path or default_key_path()
    check_is_file(str(path))
    signer = Signer.generate()
    signer.save(path)
    if output.json:
        output.record({"path": str(path), "author": signer.did})
    else:
        output.show(f"{path}\n{signer.did}")
