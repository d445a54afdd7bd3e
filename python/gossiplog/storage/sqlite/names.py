"""What the names in a folder say: which files may be logs, and which are what this package keeps beside one.

A rebase keeps the former file, a repair the damaged one, and advice sets files aside. All of them are databases of the
same topic, with messages that were dropped or damaged. What lists the logs of a folder passes them over: taken for
replicas, they would bring back what was dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gossiplog.storage.sqlite.files import (
    COPY_SUFFIX,
    DAMAGED_SUFFIX,
    FORMER_SUFFIX,
    GENERATION_SUFFIX,
    REBASING_SUFFIX,
    SAVED_SUFFIX,
    WORKING_KINDS,
)
from gossiplog.storage.sqlite.tables import BESIDE

_BESIDE = "|".join(map(re.escape, BESIDE))
_KEPT = "|".join(map(re.escape, (DAMAGED_SUFFIX, FORMER_SUFFIX, SAVED_SUFFIX, REBASING_SUFFIX)))
# Whatever has become of the log that it stood beside. A number follows where a name was taken.
_REMAINS = re.compile(rf".+(?:{_KEPT}|{re.escape(GENERATION_SUFFIX)}[0-9]+)(?:-[0-9]+)?(?:{_BESIDE})?", re.DOTALL)
# Users call their own copies so, too.
_COPY = re.compile(rf"(.+){re.escape(COPY_SUFFIX)}(?:-[0-9]+)?(?:{_BESIDE})?", re.DOTALL)
# As `tempfile.mkdtemp` ends names.
_WORKING = re.compile(rf".+\.(?:{'|'.join(map(re.escape, WORKING_KINDS))})-[a-z0-9_]{{8}}", re.DOTALL)


def log_names(names: Iterable[str]) -> list[str]:
    """Return those of the names of a folder's files that may be logs, ascending.

    Args:
        names: of all files of the folder, since some names say what they are only beside others.
    """
    among = {*names}
    companions = {name + end for name in among for end in BESIDE}
    return sorted(name for name in among - companions if not is_remains(name) and not _is_copy(name, among))


def is_remains(name: str) -> bool:
    """Return whether a file has the name of what a rebase, a repair or a writer has kept of a log."""
    return _REMAINS.fullmatch(name) is not None


def is_working_folder(name: str) -> bool:
    """Return whether a folder has the name of one that a repair or a recovery works in, or was killed in."""
    return _WORKING.fullmatch(name) is not None


def _is_copy(name: str, among: set[str]) -> bool:
    found = _COPY.fullmatch(name)
    return found is not None and found[1] in among
