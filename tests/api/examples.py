"""Examples of docstrings, run as doctest does, after the lines that docs/reference/README.md says they begin with."""

from __future__ import annotations

import doctest
import gc
import io
import warnings
from contextlib import chdir
from pathlib import Path

import anyio

import gossiplog
from gossiplog.log import blocking

PREAMBLE = """\
import anyio
import gossiplog

alice = gossiplog.Signer.generate()
log = gossiplog.open("notes.db", "org.example.notes", signer=alice)
"""


def failures(name: str, example: str, folder: Path) -> str:
    """Run an example in an empty folder; return what it did not print as it says."""
    alice = gossiplog.Signer.generate()
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    with chdir(folder), gossiplog.open("notes.db", "org.example.notes", signer=alice) as log:
        names = {"anyio": anyio, "gossiplog": gossiplog, "alice": alice, "log": log}
        test = doctest.DocTestParser().get_doctest(example, names, name, f"the example of {name}", 0)
        with warnings.catch_warnings():
            # What holds up an event loop is no example, also where another has been warned of the same call.
            warnings.simplefilter("error", gossiplog.BlockingCallWarning)
            blocking._warned.clear()
            # A shell shows it; here it would be an error. What is written to databases is closed with the process.
            warnings.simplefilter("ignore", ResourceWarning)
            runner.run(test, out=said.write, clear_globs=True)
            names.clear()
            gc.collect()
    return said.getvalue()
