from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path

import pytest

import gossiplog
from tests.processes import printed_by_another_process

PACKAGE = Path(__file__).parent.parent / "python" / "gossiplog"
SCRIPT = Path(sys.executable).parent / "gossiplog"
MISSING = "gossiplog's compiled core is missing: install a wheel"


@pytest.fixture
def without_core(tmp_path: Path) -> dict[str, str]:
    """An environment in which the package is found without its compiled core."""
    shutil.copytree(PACKAGE, tmp_path / "gossiplog", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    environment = {name: value for name, value in os.environ.items() if name != "GOSSIPLOG_CORE"}
    return environment | {"PYTHONPATH": str(tmp_path)}


@pytest.fixture
def with_core(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return environments whose compiled core is a module of this text."""

    def copied(text: str, version: str = "") -> dict[str, str]:
        folder = tmp_path / "python" if version else tmp_path
        shutil.copytree(PACKAGE, folder / "gossiplog", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
        (folder / "gossiplog" / "_core.py").write_text(text)
        if version:
            (tmp_path / "Cargo.toml").write_text(f'[workspace.package]\nversion = "{version}"\n')
        environment = {name: value for name, value in os.environ.items() if name != "GOSSIPLOG_CORE"}
        return environment | {"PYTHONPATH": str(folder)}

    return copied


def run(command: Sequence[str | Path], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_what_is_imported_is_not_looked_through_for_garbage() -> None:
    program = """if True:
        import contextlib, gc, io, sys
        from gossiplog.__main__ import main
        sys.argv = ["gossiplog", "completion", "bash"]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main() == 0
        print(gc.isenabled(), gc.get_freeze_count() > 10_000)
    """
    assert printed_by_another_process(program) == "True True"


@pytest.mark.parametrize("program", [(SCRIPT,), (sys.executable, "-m", "gossiplog")], ids=["script", "module"])
def test_a_missing_core_is_one_line(program: Sequence[str | Path], without_core: dict[str, str]) -> None:
    done = run([*program, "info", "no.db"], without_core)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"gossiplog: {MISSING}")


def test_ctrl_c_while_commands_are_loaded_ends_quietly(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "gossiplog", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "gossiplog" / "cli" / "main.py").write_text("raise KeyboardInterrupt")
    done = run([sys.executable, "-m", "gossiplog", "info", "no.db"], os.environ | {"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("program", [(SCRIPT,), (sys.executable, "-m", "gossiplog")], ids=["script", "module"])
def test_an_unknown_core_is_one_line(program: Sequence[str | Path]) -> None:
    done = run([*program, "info", "no.db"], os.environ | {"GOSSIPLOG_CORE": "foo"})
    expected = "gossiplog: GOSSIPLOG_CORE is 'foo'; it must be 'rust' or 'python'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


@pytest.mark.parametrize(
    "statement", ["from gossiplog import open", "import gossiplog; gossiplog.open", "from gossiplog import core"]
)
def test_a_library_gets_the_exception(statement: str, without_core: dict[str, str]) -> None:
    done = run([sys.executable, "-c", statement], without_core)
    assert done.returncode == 1
    assert f"ImportError: {MISSING}" in done.stderr


def test_a_library_gets_an_error_for_unknown_names(without_core: dict[str, str]) -> None:
    done = run([sys.executable, "-c", "import gossiplog; gossiplog.opne"], without_core)
    assert "AttributeError: module 'gossiplog' has no attribute 'opne'" in done.stderr


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ('__version__ = "0.0.1"', "9.0.0", "is outdated: it is 0.0.1, and the Python sources are 9.0.0: cannot import"),
        ("", "9.0.0", "is outdated: it is an earlier version, and the Python sources are 9.0.0: cannot import"),
        (
            "raise ImportError('wrong ELF class')",
            "9.0.0",
            "cannot be loaded: wrong ELF class; `make setup` replaces it",
        ),
    ],
)
def test_a_core_that_does_not_fit_is_one_line_with_the_way_back(
    text: str, version: str, expected: str, with_core: Callable[..., dict[str, str]]
) -> None:
    done = run([sys.executable, "-m", "gossiplog", "info", "no.db"], with_core(text, version))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"gossiplog: gossiplog's compiled core {expected}")
    assert done.stderr.endswith("; `make setup` replaces it\n")


def test_an_outdated_core_of_a_wheel_is_installed_anew(with_core: Callable[..., dict[str, str]]) -> None:
    done = run([sys.executable, "-m", "gossiplog", "info", "no.db"], with_core('__version__ = "0.0.1"'))
    assert f"it is 0.0.1, and the Python sources are {metadata.version('gossiplog')}: cannot import" in done.stderr
    assert done.stderr.endswith("; `pip install --force-reinstall gossiplog` replaces it\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        ("-m", "gossiplog", "sync", "no.db", "ws://127.0.0.1:1", "--topic", "a"),
        ("-c", "import gossiplog; gossiplog.connect"),
    ],
    ids=["command", "library"],
)
def test_a_core_that_lacks_what_the_network_needs_is_outdated(
    program: Sequence[str], with_core: Callable[..., dict[str, str]]
) -> None:
    compiled = next(path for path in PACKAGE.glob("_core.*") if path.suffix in (".so", ".pyd"))
    text = f"""
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("_core", {str(compiled)!r})
core = module_from_spec(spec)
spec.loader.exec_module(core)
hidden = ("redacted_url", "__name__", "__spec__")
globals().update({{name: value for name, value in vars(core).items() if name not in hidden}})
"""
    done = run([sys.executable, *program], with_core(text, "9.0.0"))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "gossiplog's compiled core is outdated: it is" in last
    assert "cannot import name 'redacted_url'" in last


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "number", "status"),
    [("repair", signal.SIGINT, 130), ("repair", signal.SIGTERM, 143), ("recover", signal.SIGHUP, 129)],
)
def test_a_signal_ends_a_command_that_removes_its_files(
    tmp_path: Path, command: str, number: signal.Signals, status: int
) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, "topic", signer=gossiplog.Signer(bytes(32))) as log:
        log.append_many(range(20))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 7")
    before = sorted(tmp_path.iterdir())
    # The command never ends: the moment of a signal is else a matter of luck.
    code = f"""if True:
        import os, sys, time
        from gossiplog.storage.sqlite import salvage
        def wait(copy, folder):
            os.write(1, b'.')
            while True: time.sleep(0.1)
        salvage.read_all = wait
        import gossiplog.__main__ as program
        sys.argv = {["gossiplog", command, str(path), *([str(tmp_path / "new.db")] if command == "recover" else [])]!r}
        sys.exit(program.main())
    """
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        assert sorted(tmp_path.iterdir()) != before
        process.send_signal(number)
        assert process.wait(60) == status
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.integration
def test_a_command_in_the_background_ends_by_sigterm_alone_and_in_order() -> None:
    """A shell without job control has what it starts with `&` ignore SIGINT."""
    code = """if True:
        import signal, sys
        import anyio.lowlevel
        from gossiplog import __main__
        from gossiplog.cli import main
        async def work():
            print(flush=True)
            try:
                while True:
                    await anyio.lowlevel.checkpoint()
            except anyio.get_cancelled_exc_class():
                print("cancelled", flush=True)
                raise
        def command():
            try:
                anyio.run(work)
            except KeyboardInterrupt:
                return main.INTERRUPTED
        main.main = command
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(__main__.main())
    """
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "cancelled\n"
        assert process.wait() == 143
