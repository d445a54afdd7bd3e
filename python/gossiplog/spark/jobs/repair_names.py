"""What the folders of repair sets are called: by the hub and the file of the log that gets one.

The normal case are hubs that name their files alike, so that a file's name says nothing, and a number in a list less.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

from gossiplog.spark.source.remote import is_remote
from gossiplog.storage.location import is_url
from gossiplog.storage.sqlite.files import file_of

SUMMARY = "summary.json"
"""The file beside the repair sets, with the comparison in figures."""
# Bytes of a name, of 255 at most, beside "hub=" or "log=" and a number of ten digits.
_LONGEST = 240
# Of a name whose other signs Spark would escape, or Hadoop take for a pattern.
_SPECIAL = re.compile(r"[^\w.-]+")


def set_names(logs: Sequence[str]) -> list[str]:
    """Return the paths of the replicas' repair sets, below the folder of all of them.

    They are called as the files are; where two files are called alike, all have their paths below the folder that is
    common to them. Of a long name the middle gives way to a digest of all of it.

    Args:
        logs: the locations, each once.
    """
    places = [_place(log) for log in logs]
    names = [_file_name(log, place) for log, place in zip(logs, places, strict=True)]
    if len({*names}) < len(names):
        common = _common(places)
        folders = [os.path.relpath(os.path.dirname(place), common) for place in places]
        names = [os.path.normpath(os.path.join(*pair)) for pair in zip(folders, names, strict=True)]
    return _numbered(names, taken=(SUMMARY,))


def hub_names(logs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the hub of each log, which is its folder below the one that is common to all, and the name of its file.

    Both are such that Spark escapes nothing in them and a folder may be called so, and no two logs have the same.

    Args:
        logs: the locations, each once.
    """
    places = [_place(log) for log in logs]
    common = _common(places)
    folders = [os.path.dirname(place) for place in places]
    different = [*dict.fromkeys(folders)]
    below = [os.path.relpath(folder, common) for folder in different]
    hubs = [_plain(os.path.basename(common) if path == os.curdir else path, "logs") for path in below]
    named = dict(zip(different, _numbered(hubs), strict=True))
    pairs = [
        (named[folder], _plain(_file_name(log, place), "log"))
        for log, place, folder in zip(logs, places, folders, strict=True)
    ]
    files: dict[str, list[str]] = {}
    for hub, name in pairs:
        files.setdefault(hub, []).append(name)
    unique = {hub: iter(_numbered(names)) for hub, names in files.items()}
    return [(hub, next(unique[hub])) for hub, _ in pairs]


def _place(log: str) -> str:
    """Return a log's absolute path; of a URL, with its host in front, as no two hosts have the same files."""
    if is_remote(log) or is_url(log):
        url = urlsplit(log)
        return os.path.normpath(f"/{url.hostname or ''}/{unquote(url.path).lstrip('/')}")
    return os.path.abspath(file_of(log))


def _file_name(log: str, place: str) -> str:
    name = os.path.basename(place) or "log"
    if not is_url(log):
        return name
    query = "" if is_remote(log) else urlsplit(log).query
    return _plain(f"{name}?{query}" if query else name, "log")


def _common(places: Iterable[str]) -> str:
    return os.path.commonpath([os.path.dirname(place) for place in places] or [os.sep])


def _plain(name: str, otherwise: str) -> str:
    plain = _SPECIAL.sub("-", name).strip("-")
    return otherwise if plain in ("", os.curdir, os.pardir) else plain


def _shortened(name: str) -> str:
    """Return a name as it is; of one that is too long for a folder, its start, a digest and its end."""
    whole = name.encode()
    if len(whole) <= _LONGEST:
        return name
    digest = hashlib.sha256(whole).hexdigest()[:16]
    half = (_LONGEST - len(digest) - 2) // 2
    start, end = (part.decode(errors="ignore") for part in (whole[:half], whole[-half:]))
    return f"{start}-{digest}-{end}"


def _numbered(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return names, shortened where they are long, with a number after those that were there before."""
    found: list[str] = []
    used = {*taken}
    last: dict[str, int] = {}
    for long in names:
        base = "/".join(map(_shortened, long.split("/")))
        name, number = base, last.get(base, 1)
        while name in used:
            number += 1
            name = f"{base}-{number}"
        last[base] = number
        used.add(name)
        found.append(name)
    return found
