from __future__ import annotations

import stat
from pathlib import Path

from gossiplog.signer import default_key_path
from tests.cli.support import Program


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keygen(program: Program, home: Path) -> None:
    made = program("keygen").record
    assert made["path"] == str(home / "config" / "gossiplog" / "key")
    assert made["author"].startswith("did:key:z6Mk")
    assert mode(Path(made["path"])) == 0o600
    assert program("keygen", "other").record["author"] != made["author"]
    assert mode(home / "other") == 0o600


def test_keygen_never_overwrites(program: Program, home: Path) -> None:
    program("keygen", "key")
    before = (home / "key").read_bytes()
    again = program("keygen", "key")
    assert again.code == 1
    assert again.err == "gossiplog: key is there already: a key is never overwritten\n"
    assert (home / "key").read_bytes() == before
    assert [path.name for path in home.iterdir()] == ["key"]


def test_own_key_is_made_at_first_use(program: Program, log: Path) -> None:
    first = program("append", log, "1")
    assert first.code == 0
    assert first.err.startswith(f"gossiplog: made your key: {default_key_path()} (did:key:z6Mk")
    assert mode(default_key_path()) == 0o600
    second = program("append", log, "2")
    assert second.err == ""
    one, two = program("read", log).records
    assert one["author"] == two["author"]
    assert one["author"] in first.err


def test_no_key_is_made_for_a_log_that_is_not_there(program: Program, home: Path) -> None:
    result = program("append", "none.db", "1")
    assert (result.code, result.err) == (
        1,
        "gossiplog: there is no log none.db: gossiplog init none.db --topic TOPIC makes one\n",
    )
    assert not default_key_path().exists()


def test_a_given_key(program: Program, log: Path) -> None:
    author = program("keygen", "mine").record["author"]
    assert program("append", log, "1", "--key", "mine").err == ""
    assert program("read", log).record["author"] == author


def test_a_given_key_is_not_made(program: Program, log: Path, home: Path) -> None:
    result = program("append", log, "1", "--key", "nowhere")
    assert (result.code, result.err) == (1, "gossiplog: cannot read the key file nowhere: No such file or directory\n")
    assert not (home / "nowhere").exists()


def test_a_key_that_others_can_read(program: Program, log: Path, home: Path) -> None:
    program("keygen", "key")
    (home / "key").chmod(0o640)
    result = program("append", log, "1", "--key", "key")
    assert result.code == 1
    assert result.err.startswith("gossiplog: the key file key is open to other users: run chmod 600 key")
