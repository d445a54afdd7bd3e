"""Programs that tests run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def printed_by_another_process(program: str) -> str:
    """Run a Python program in a process that hashes strings differently; return the line that it prints."""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(["python", "."])},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()
