"""Logs as arguments of commands: what they name, and that no password among them is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossiplog.cli.places import LogPlace, warning_of, without_secrets
from gossiplog.errors import StorageError
from gossiplog.storage.postgres.url import PostgresURL

URL = "postgresql://me:s3cret%21@db.example.org/notes?schema=s"
SHOWN = "postgresql://me@db.example.org/notes?schema=s"


def test_files_and_urls() -> None:
    assert LogPlace.parse("a b/notes.db").location == Path("a b/notes.db")
    assert LogPlace.parse("a b/notes.db").argument == "'a b/notes.db'"
    assert LogPlace.parse("./postgresql:notes.db").location == Path("postgresql:notes.db")
    place = LogPlace.parse(URL)
    assert place.location == PostgresURL.parse(URL)
    assert str(place) == SHOWN
    assert place.argument == f"'{SHOWN}'"
    assert "s3cret" not in repr(place)


def test_what_lost_a_slash_is_no_file() -> None:
    with pytest.raises(StorageError, match="no two slashes"):
        LogPlace.parse("postgresql:/me@db.example.org/notes")


def test_commands_that_take_a_file_say_what_to_do_with_others() -> None:
    assert LogPlace.parse("notes.db").file("never said") == Path("notes.db")
    with pytest.raises(StorageError, match=r"^postgresql://me@.*schema=s is in Postgres: do that in its place$"):
        LogPlace.parse(URL).file("do that in its place")


@pytest.mark.parametrize(
    "text",
    [
        f"Got unexpected extra argument ({URL})",
        f"there is no file {Path(URL)}",
        "the URL is postgresql://me:s3cret%21@h@other/notes",
        f"there is no file {Path('postgresql://me:s3cret%21@h@other/notes')}",
    ],
)
def test_errors_that_repeat_arguments_repeat_no_password(text: str) -> None:
    arguments = ["info", "notes.db", URL, "postgresql://me:s3cret%21@h@other/notes", f"--onto={URL}"]
    shown = without_secrets(text, arguments)
    assert "s3cret" not in shown
    assert shown.startswith(text[:15])


def test_other_texts_stay_as_they_are() -> None:
    assert without_secrets(f"nothing of {SHOWN} is hidden", ["info", SHOWN]) == f"nothing of {SHOWN} is hidden"


def test_a_password_in_a_command_line_is_warned_of() -> None:
    assert "PGPASSWORD" in warning_of(["sync", "notes.db", URL])
    assert "PGPASSWORD" in warning_of(["rebase", "notes.db", f"--onto={URL}"])
    assert warning_of(["sync", "notes.db", SHOWN]) == ""
    assert warning_of(["info", "postgresql://a:b@c@d"]) == ""
