"""Programs of users are typed: those in `programs`, the examples, and the Python blocks of the README and of docs/.

mypy (strict) and pyright each run once over all of them. `programs` also runs, because what it asserts of types should
be so. Where a checker must find an error, the line has a comment for each that suppresses it. One that suppresses
nothing is an error: so a checker that does not find the package, or takes it for Any, fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import npm
from tests.npm import NODE
from tests.readme import DOCS, README, blocks, run_program

pytestmark = pytest.mark.integration

ROOT = README.parent
HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
TIMEOUT = 300  # seconds: a checker takes its time where others work, too
# Strict mode says of the libraries' untyped values what a reader of a page need not care for.
SETTINGS = {
    "strict": ["programs"],
    "enableTypeIgnoreComments": False,
    "reportUnnecessaryTypeIgnoreComment": "error",
    "reportMissingTypeStubs": "none",
    "pythonVersion": "3.11",
}


def names_and_texts(page: Path) -> list[tuple[str, str]]:
    """The Python blocks of a page, by the file names in their first lines where they have such."""
    found = []
    for block in blocks(page):
        if block.language == "python":
            first = block.text.partition("\n")[0].removeprefix("# ")
            stem = page.stem.lower().replace("-", "_")
            found.append((first if first.endswith(".py") else f"{stem}_line_{block.line}.py", block.text))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of them."""
    folder = tmp_path_factory.mktemp("typing")
    (folder / "programs").mkdir()
    for path in PROGRAMS:
        (folder / "programs" / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    texts = [(path.name, path.read_text(encoding="utf-8")) for path in EXAMPLES]
    for page in (README, *sorted(DOCS.glob("*.md"))):
        texts += names_and_texts(page)
    names = [name for name, _ in texts]
    assert len(set(names)) == len(names) > 30
    for name, text in texts:
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"MYPYPATH": f"{ROOT / 'python'}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.stdout + done.stderr


def test_mypy(folder: Path) -> None:
    files = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.py"))]
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    printed = run([sys.executable, "-m", "mypy", *settings, *files], folder)
    assert printed == f"Success: no issues found in {len(files)} source files\n"


def test_pyright(folder: Path) -> None:
    npm.install(HERE / "pyright")
    settings = SETTINGS | {"extraPaths": [str(ROOT / "python"), "."]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    pyright = HERE / "pyright" / "node_modules" / "pyright" / "index.js"
    # Most of its objects stay: a small young generation is collected often, for little.
    printed = run([str(NODE), "--max-semi-space-size=128", str(pyright), "--pythonpath", sys.executable], folder)
    assert printed == "0 errors, 0 warnings, 0 informations\n"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_programs_run(path: Path, tmp_path: Path) -> None:
    run_program(path.read_text(encoding="utf-8"), tmp_path, TIMEOUT)
