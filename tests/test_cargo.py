"""What cargo compiles for the development build of the extension serves the Rust tests, too.

A dependency that has other features in the tests is compiled anew, and all that depends on it: libp2p took 90 s.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.integration


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


def test_clippy_looks_at_every_crate() -> None:
    """`make lint` has cargo compile programs, tests, benchmarks and examples: a library is among its own benchmarks."""
    command = ["cargo", "metadata", "--quiet", "--locked", "--no-deps", "--format-version=1"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)["packages"]
    assert len(packages) > 3
    for package in packages:
        manifest = tomllib.loads(Path(package["manifest_path"]).read_text(encoding="utf-8"))
        for target in package["targets"]:
            assert target["test"] or manifest["lib"]["bench"], target["name"]
    # Clippy sees the bindings only with `cfg(test)`.
    assert not [path for path in (ROOT / "rust/python").rglob("*.rs") if "cfg(not(test))" in path.read_text("utf-8")]


def lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / ".ci/lint-crate", "rustc", *arguments], capture_output=True, text=True, check=False)


def arguments(folder: Path, name: str, body: str, *others: str) -> list[str]:
    """Return the arguments that cargo gives the compiler, for a crate of one function."""
    source = folder / f"{name}.rs"
    source.write_text(f"pub fn same(a: u8) -> u8 {{ {body} }}\n")
    output = ["--emit=dep-info,metadata,link", "-C", "extra-filename=-1", "--out-dir", str(folder)]
    return ["--crate-name", name, "--edition=2024", "--crate-type", "lib", str(source), *output, *others]


@pytest.mark.parametrize(("body", "status"), [("a", 0), ("return a;", 1), ("let b = 1; a", 1)])
def test_what_clippy_or_the_compiler_warns_of_is_refused(tmp_path: Path, body: str, status: int) -> None:
    done = lint(*arguments(tmp_path, "some", body))
    assert done.returncode == status, done.stderr
    # What cargo expects of a compiler, where it is content.
    assert (tmp_path / "libsome-1.rlib").exists() == (not status)


def test_a_crate_of_ours_is_read_from_what_clippy_left(tmp_path: Path) -> None:
    assert lint(*arguments(tmp_path, "gossiplog_some", "a")).returncode == 0
    uses = ["--extern", f"gossiplog_some={tmp_path}/libgossiplog_some-1.rlib"]
    done = lint(*arguments(tmp_path, "other", "gossiplog_some::same(a)", *uses))
    assert done.returncode == 0, done.stderr


def test_what_clippy_cannot_look_at_is_refused(tmp_path: Path) -> None:
    assert "rustc 1." in lint("-vV").stdout
    assert "no --crate-name" in lint("--crate-name=some").stderr
    given = tmp_path / "given"
    given.write_text("\n".join(arguments(tmp_path, "some", "return a;")))
    done = lint(f"@{given}")
    assert done.returncode == 1
    assert "cannot read arguments from a file" in done.stderr
