"""Every block of docs/applications.md runs: the programs after each other in one folder, the tests by pytest."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import DOCS, Shell, blocks, environment, fits, run_command, run_program, steps

pytestmark = pytest.mark.integration

PAGE = DOCS / "applications.md"
TIMEOUT = 120
NAMES = {
    *("notes.py", "async_notes.py", "follow.py", "web.py"),
    *("notes_2.py", "reading.py", "tasks.py", "test_notes.py"),
}


@pytest.fixture
def modules(tmp_path: Path) -> dict[str, str]:
    """The blocks by the names in their first lines, also as files in the folder of the test."""
    programs = [block.text for block in blocks(PAGE) if block.language == "python"]
    texts = {text.splitlines()[0].removeprefix("# "): text for text in programs}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return texts


def test_the_programs(modules: dict[str, str], tmp_path: Path) -> None:
    assert {*modules} == NAMES
    printed = [block.text for block in blocks(PAGE) if block.language == "text"]
    for name, text in zip(("tasks.py", "reading.py"), printed, strict=True):
        assert fits(text, run_program(modules[name], tmp_path, TIMEOUT)), name
    assert run_program(modules["async_notes.py"], tmp_path, TIMEOUT) == "clock 1\nclock 2\n"
    assert run_program(modules["follow.py"], tmp_path, TIMEOUT) == "2 messages\n"
    assert run_program(modules["notes_2.py"], tmp_path, TIMEOUT) == "version 2\n"
    texts = 'import notes\nprint(notes.texts("notes.db"))'
    assert run_program(texts, tmp_path, TIMEOUT) == "['milk', 'sugar']\n"
    (session,) = (block for block in blocks(PAGE) if block.language == "console")
    with Shell(tmp_path, TIMEOUT) as shell:
        for command, expected in steps(session):
            shell.run(command, expected)


def test_the_application_that_a_hub_is_mounted_in(modules: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "uvicorn", "web:app", "--port", address.rpartition(":")[2]]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path)) as server:
        try:
            client = (
                "import gossiplog, sys\n"
                "with gossiplog.open('client.db', 'org.example.notes') as log:\n"
                "    log.append({'text': 'sugar'}, signer=gossiplog.Signer.generate())\n"
            )
            run_program(client, tmp_path, TIMEOUT)
            run_command(f"curl -fsS --retry 60 --retry-delay 1 --retry-connrefused {address}/notes", tmp_path, TIMEOUT)
            run_command(f"curl -fsS -X POST '{address}/notes?text=milk'", tmp_path, TIMEOUT)
            run_command(f"gossiplog sync client.db ws://{address}/log/", tmp_path, TIMEOUT)
            printed = run_command(f"curl -fsS {address}/notes", tmp_path, TIMEOUT)
            assert sorted(json.loads(printed)) == ["milk", "sugar"]
        finally:
            server.terminate()


def test_the_tests(modules: dict[str, str], tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_notes.py"],
        cwd=tmp_path,
        env=environment(tmp_path) | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert "1 passed" in run.stdout, run.stdout
