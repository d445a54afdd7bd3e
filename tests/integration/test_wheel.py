"""The wheel installs where there is no compiler, and the README's first program runs there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.readme import first_program

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).parent.parent.parent
# The profile that the other tests have compiled already; `make wheel` tests what is released.
PROFILES = {"dev": ("--profile", "dev", "--features", "paused-time"), "release": ("--release",)}


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """What a command prints; with `path`, it finds no programs but those in there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment | ({"PATH": str(path)} if path else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    maturin = Path(sys.executable).parent / "maturin"
    profile = PROFILES[os.environ.get("GOSSIPLOG_WHEEL", "dev")]
    run(maturin, "build", *profile, "--quiet", "--out", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(folder: Path, wheel: str) -> Path:
    """The programs of a fresh environment: the wheel and what it needs, installed without a compiler."""
    # Its own pip would be installed first, which takes longer than the packages.
    run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    pip = ("-m", "pip", "--python", programs / "python", "--disable-pip-version-check", "install", "--quiet")
    run(sys.executable, *pip, "--no-compile", "--only-binary=:all:", wheel, cwd=folder, path=programs)
    return programs


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("plain"), str(wheel))


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("full"), f"{wheel}[cli]")


def test_it_is_for_every_python_from_3_11_on(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name


def test_it_has_what_spark_looks_for(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    settings = {f"gossiplog/spark/conf/{name}" for name in ("log4j2.properties", "sitecustomize.py")}
    assert {"pyspark_gossiplog/__init__.py", *settings} <= set(names)


def test_it_has_the_files_of_pages(wheel: Path) -> None:
    folders = ("dashboard", "net/http", "net/log_page", "testnet")
    pages = [f"gossiplog/{folder}/page" for folder in folders]
    files = {f"{page}/{path.name}" for page in pages for path in (ROOT / "python" / page).iterdir()}
    assert {"gossiplog/net/log_page/page/index.html", "gossiplog/testnet/page/peer.mjs"} < files
    assert files <= set(zipfile.ZipFile(wheel).namelist())


IMPORT_ALL = """
import importlib, pkgutil, sys, gossiplog

EXTRAS = ("gossiplog.spark", "gossiplog.columns", "gossiplog.storage.postgres", *sys.argv[1:])
found = pkgutil.walk_packages(gossiplog.__path__, "gossiplog.", onerror=lambda name: None)
names = [module.name for module in found if not module.name.startswith(EXTRAS) and not module.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""

# What needs an extra that a plain installation lacks.
BEYOND_PLAIN = ("cli", "dashboard", "net.http", "net.hub", "net.log_page", "testnet")
NO_COMMAND = """
import subprocess, sys
done = subprocess.run([sys.executable, "-m", "gossiplog", "info", "no.db"], capture_output=True, text=True)
print(done.returncode, done.stderr, end="")
"""


def test_every_module_finds_what_it_imports(full: Path, tmp_path: Path) -> None:
    """What tests and tools bring along is not there: a module that imports it would fail on a user's machine alone."""
    printed = run(full / "python", "-W", "error", "-c", IMPORT_ALL, cwd=tmp_path, path=full)
    assert int(printed) > 300


def test_a_plain_installation_has_what_logs_clients_and_peers_import(plain: Path, tmp_path: Path) -> None:
    command = (plain / "python", "-W", "error", "-c", IMPORT_ALL, *(f"gossiplog.{name}" for name in BEYOND_PLAIN))
    assert int(run(*command, cwd=tmp_path, path=plain)) > 150


def test_first_program(plain: Path, tmp_path: Path) -> None:
    program, output = first_program()
    printed = run(plain / "python", "-W", "error", "-c", program, cwd=tmp_path, path=plain)
    assert printed == output


def test_command(full: Path, tmp_path: Path) -> None:
    """Without Git and without a repository the demo makes a history up."""
    printed = run(full / "gossiplog", "demo", "--json", cwd=tmp_path, path=full)
    assert '"equal":true' in printed


def test_the_command_of_a_plain_installation_says_what_installs_it(plain: Path, tmp_path: Path) -> None:
    printed = run(plain / "python", "-c", NO_COMMAND, cwd=tmp_path, path=plain)
    assert (
        printed
        == "1 gossiplog: this command needs typer, which is not installed: pip install 'gossiplog[cli]' installs it\n"
    )
