"""What cargo compiles for the development build of the extension serves the Rust tests, too.

A dependency that has other features in the tests is compiled anew, and all that depends on it: libp2p took 90 s. Clippy
reads the same.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(("body", "status"), [("a", 0), ("return a;", 1), ("let b = 1; a", 1)])
def test_clippy_looks_at_what_cargo_means_to_compile(tmp_path: Path, body: str, status: int) -> None:
    source = tmp_path / "some.rs"
    source.write_text(f"pub fn same(a: u8) -> u8 {{ {body} }}\n")
    command = [ROOT / ".ci/lint-crate", "rustc", "--crate-name", "some", "--crate-type", "lib", str(source)]
    command += ["--emit=dep-info,metadata,link", "-C", "extra-filename=-1", "--out-dir", str(tmp_path)]
    assert subprocess.run(command, capture_output=True).returncode == status
    # What cargo expects of a compiler, where it is content.
    assert (tmp_path / "libsome-1.rlib").exists() == (not status)
