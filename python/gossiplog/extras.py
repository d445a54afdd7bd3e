"""What may be missing where the package runs, its core and packages of extras, and errors that name the command.

A log, a client and a peer need none of the extras. docs/design/weight.md says what belongs to which extra, and why.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

CORE = "gossiplog._core"
"""The compiled core's module, as `ImportError.name` has it."""
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


def explain_core(error: ImportError) -> ImportError:
    """Return an error that says why the compiled core cannot be used, and which command is the way back.

    Args:
        error: of an import from CORE.
    """
    # A module whose import fails is not among them: then only a name in it is missing.
    compiled = sys.modules.get(CORE)
    if compiled is None and isinstance(error, ModuleNotFoundError):
        return ImportError(
            "gossiplog's compiled core is missing: install a wheel with `pip install gossiplog`, or build it in a"
            " checkout with `make setup`; GOSSIPLOG_CORE=python runs the slow reference implementation instead"
        )
    # Neither is needed where all is well, and both take a while to load.
    import tomllib
    from importlib import metadata

    manifest = Path(__file__).parents[2] / "Cargo.toml"
    if manifest.is_file():
        version = tomllib.loads(manifest.read_text(encoding="utf-8"))["workspace"]["package"]["version"]
        command = "make setup"
    else:
        version = metadata.version("gossiplog")
        command = "pip install --force-reinstall gossiplog"
    if compiled is None:
        return ImportError(f"gossiplog's compiled core cannot be loaded: {error}; `{command}` replaces it")
    core_version = getattr(compiled, "__version__", "an earlier version")
    return ImportError(
        f"gossiplog's compiled core is outdated: it is {core_version}, and the Python sources are {version}: {error};"
        f" `{command}` replaces it"
    )
