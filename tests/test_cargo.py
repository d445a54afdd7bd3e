"""What cargo compiles for the development build of the extension serves the Rust tests, too.

A dependency that has other features in the tests is compiled anew, and all that depends on it: libp2p took 90 s.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def compiled(*arguments: str) -> set[str]:
    """Crates with their versions and features, but for the extension's own."""
    command = ["cargo", "tree", "--quiet", "--locked", "--prefix=none", "--format={p} [{f}]", *arguments]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line.removesuffix(" (*)") for line in printed.splitlines() if not line.startswith("gossiplog-python ")}


def test_the_extension_and_the_rust_tests_share_their_dependencies() -> None:
    extension = compiled("--package=gossiplog-python", "--features=paused-time", "--edges=normal,build")
    tests = compiled("--workspace", "--edges=normal,build,dev")
    assert len(extension) > 200
    assert sorted(extension - tests) == []
