"""The program `gossiplog`, also as `python -m gossiplog`."""

from __future__ import annotations

import importlib
import sys


def main() -> int:
    """Runs the command line, where there is a core to run it on.

    Returns:
        The exit code, as `gossiplog.cli.main` says.
    """
    try:
        importlib.import_module("gossiplog.core")
    except ImportError as error:
        sys.stderr.write(f"gossiplog: {error}\n")
        return 1
    from gossiplog.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
