"""What `gossiplog doctor` finds: the lines, and those about what any log has, wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import gossiplog.log
from gossiplog.cli.output import steps_of
from gossiplog.errors import CorruptLog, NewerSchema, NotALog, OlderSchema, StorageError, TreeError
from gossiplog.log.log import replica_of
from gossiplog.reprs import counted, listed
from gossiplog.storage.base import REBUILD_REQUESTED
from gossiplog.storage.location import Location, storage_at

_PROBLEMS = 5
"""Named of what is damaged."""
SOURCE = ". Without --quick, it also says whether a repair needs a source"
"""A sentence where nothing was verified."""
_OPENS = "the application opens the log, which fails with the message's id where `apply` raises"


class Severity(Enum):
    """Whether something is to be done."""

    FINE = "fine"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, and what was found.

    Attributes:
        about: what was looked at.
        severity: whether something is to be done.
        finding: in words.
        run: the command that is the way on, "" where there is none.
    """

    about: str
    severity: Severity
    finding: str
    run: str = ""


def find_contents(
    location: Location, about: str, tables: Iterable[Finding], repair: Callable[[], str], *, quick: bool
) -> Iterator[Finding]:
    """Yield what is found of a log's tables and messages, and of its application.

    Args:
        location: of the log.
        about: what findings about its tables are about.
        tables: those findings; looked for first.
        repair: returns the command that repairs the log.
        quick: do not verify the messages.

    Raises:
        NotALog: there is none.
    """
    try:
        yield from tables
        with gossiplog.log.open(location, read_only=True) as log:
            if quick:
                replica_of(log).check_appendable()
                yield Finding("messages", Severity.NOTE, "not verified (--quick)")
            else:
                with steps_of("Verifying", len(log)) as advance:
                    verified = log.verify(progress=advance)
                yield Finding("messages", Severity.FINE, f"{counted(verified.messages, 'message')}, all sound")
        yield _find_application(location)
    except (NewerSchema, OlderSchema) as error:
        yield Finding(about, Severity.WRONG, str(error))
    except (CorruptLog, TreeError) as error:
        problems = error.problems if isinstance(error, CorruptLog) else [str(error)]
        finding = f"{listed(problems, _PROBLEMS, separator='; ')}{SOURCE if quick else ''}"
        yield Finding("damage", Severity.WRONG, finding, repair())
    except NotALog:
        raise
    except StorageError as error:
        yield Finding("messages", Severity.WRONG, str(error))


def _find_application(location: Location) -> Finding:
    """Say whether an application's tables are behind the log, which is sound."""
    storage = storage_at(location, read_only=True)
    storage.open(None, create=False)
    try:
        with storage.reader() as reader:
            position, tables = reader.position(), reader.application_tables()
    finally:
        storage.close()
    if position.is_rebuilding:
        version = f"version {position.apply_version} of `apply`"
        if position.rebuild == REBUILD_REQUESTED:
            finding = f"a rebuild of its tables, of {version}, was requested: it begins when {_OPENS}"
        else:
            finding = (
                f"its tables are being built anew by {version}, so far from {position.applied:,} of"
                f" {counted(position.count, 'message')}: that goes on when {_OPENS}"
            )
        return Finding("application", Severity.NOTE, finding, _rebuild(storage.argument, position.apply_version))
    if tables.missing:
        names = ", ".join(tables.missing)
        are = counted(len(tables.missing), "of its tables is", "of its tables are")
        finding = f"{are} missing, {names}: a rebuild of all of them begins when {_OPENS}"
        return Finding("application", Severity.NOTE, finding, _rebuild(storage.argument, position.apply_version))
    if 0 < position.applied < position.count:
        finding = (
            f"`apply` has run for {position.applied:,} of {counted(position.count, 'message')}: it runs for the"
            f" remaining ones when {_OPENS}"
        )
        return Finding("application", Severity.NOTE, finding)
    return Finding("application", Severity.FINE, "`apply` is not behind" if position.applied else "no `apply` has run")


def _rebuild(log: str, version: int) -> str:
    functions = f"--apply MODULE:FUNCTION --setup MODULE:FUNCTION --apply-version {version}"
    return f"gossiplog rebuild {log} {functions}"
