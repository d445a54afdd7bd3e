"""Packages that `pip install gossiplog` leaves out, and errors that name the command which brings them.

A log, a client and a peer need none of them. docs/design/weight.md says what belongs to which extra, and why.
"""

from __future__ import annotations

from collections.abc import Mapping

EXTRAS: Mapping[str, frozenset[str]] = {
    "hub": frozenset({"h11", "prometheus_client", "starlette", "uvicorn", "websockets"}),
    "pydantic": frozenset({"pydantic"}),
    "cli": frozenset({"rich", "typer"}),
}
"""The top-level modules of the packages of each extra that a module of this package imports without asking. Those of
`arrow`, `postgres`, `spark` and `telemetry` are asked for where they are used."""


def explain_extra(error: ImportError, user: str, extra: str) -> ImportError:
    """Return an error that says what needs the missing package, and how it is installed.

    Args:
        error: of an import; returned itself where what it lacks is in no extra.
        user: what needs the package, as a caller knows it.
        extra: that brings it, and all else that the user needs.
    """
    package = (error.name or "").partition(".")[0]
    if not any(package in packages for packages in EXTRAS.values()):
        return error
    return ModuleNotFoundError(
        f"{user} needs {package}, which is not installed: pip install 'gossiplog[{extra}]' installs it", name=error.name
    )
