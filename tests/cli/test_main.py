"""The program as a process: exit codes, pipes, signals, terminals."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest
import typer

from gossiplog.cli import main
from gossiplog.cli.main import _command
from tests.cli.support import PATIENCE, Program, Result

PROGRAM = (sys.executable, "-W", "error", "-m", "gossiplog")


@contextmanager
def start(*arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the program with a pipe to read; it must end by itself after the block, without a word on stderr."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=complaints)
        try:
            yield process
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            stdout(process).close()
        complaints.seek(0)
        assert complaints.read() == b""


def stdout(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def on_terminal(*arguments: str, width: int = 100) -> tuple[int, str]:
    """The exit code, and what the program writes to a terminal, which is its stdout and stderr."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(width), "LINES": "40"}
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            written += chunk
    except OSError:  # how Linux reports that the other side is closed
        pass
    os.close(ours)
    return process.wait(), written.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)


def test_help(program: Program) -> None:
    result = program()
    assert (result.code, result.err) == (0, "")
    commands = ["init", "keygen", "append", "read", "show", "graph", "info", "verify", "doctor", "repair"]
    commands += ["recover", "backup", "rebuild"]
    commands += [
        "sync",
        "rebase",
        "serve",
        "peers",
        "network",
        "dashboard",
        "simulate",
        "export",
        "import",
        "import-git",
        "demo",
        "bench",
        "completion",
    ]
    commands += ["help", "pipeline"]
    assert re.findall(r"^  ([a-z-]+)  ", result.out, re.MULTILINE)[-len(commands) :] == commands


def test_the_readme_has_every_exit_status() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| exit code | |\n")[2].partition("\n\n")[0]
    statuses = re.findall(r"(?m)^(\d+) ", main.__doc__ or "")
    assert re.findall(r"(?m)^\| (\d+) \|", table) == statuses
    assert {main.FAILED, main.REFUSED, main.INTERRUPTED, main.UNREAD} < {*map(int, statuses)}


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(program: Program, option: str) -> None:
    assert program(option) == Result(0, f"gossiplog {metadata.version('gossiplog')}\n", "")


@pytest.mark.integration
def test_the_package_is_the_program(program: Program) -> None:
    run = subprocess.run([sys.executable, "-m", "gossiplog", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == program("--version").out
    run = subprocess.run([sys.executable, "-m", "gossiplog", "info", "no.db"], capture_output=True, check=False)
    assert run.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["frobnicate"], "No such command 'frobnicate'."),
        (["init"], "Missing argument 'LOG'."),
        (["init", "a.db"], "Missing option '--topic'."),
        (["info", "a.db", "--frob"], "No such option: --frob"),
        (["read", "a.db", "--limit", "many"], "Invalid value for '--limit'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_calls(program: Program, arguments: Sequence[str], reason: str) -> None:
    result = program(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"gossiplog: {reason}")
    assert re.search(r" \(gossiplog( [a-z-]+)* --help says how to call it\)\n$", result.err)
    assert result.err.count("\n") == 1


def test_json_is_utf_8_in_any_locale(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("append", log, '"grün"')
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with start("read", log) as process:
        assert '"payload":"grün"' in stdout(process).read().decode()


@pytest.mark.integration
def test_a_reader_that_stops(program: Program, log: Path) -> None:
    for _ in range(4):
        program("append", log, *["1"] * 250)
    with start("read", log) as process:
        assert stdout(process).readline().startswith(b'{"author":')
        stdout(process).close()
    assert process.returncode == 141


@pytest.mark.integration
def test_interrupting(program: Program, log: Path) -> None:
    program("append", log, "1")
    with start("read", log, "--follow") as process:
        assert b'"payload":1' in stdout(process).readline()
        process.send_signal(signal.SIGINT)
        assert stdout(process).read() == b""
    assert process.returncode == 130


@pytest.mark.parametrize(("cause", "code"), [(KeyboardInterrupt, 130), (ValueError, None)])
def test_an_interrupt_that_loses_a_lock_ends_the_program_as_others(
    monkeypatch: pytest.MonkeyPatch, cause: type[BaseException], code: int | None
) -> None:
    def wait(*_: object) -> None:
        try:
            raise cause
        finally:
            threading.Lock().release()

    monkeypatch.setattr(main, "_command", lambda name: SimpleNamespace(make_context=wait))
    if code is None:
        with pytest.raises(RuntimeError, match="release unlocked lock"):
            main.main([])
    else:
        assert main.main([]) == code


@pytest.mark.integration
def test_following_another_process(program: Program, log: Path) -> None:
    program("append", log, "1")
    with start("read", log, "--follow", "--limit", "2") as process:
        assert b'"payload":1' in stdout(process).readline()
        program("append", log, "2")
        assert b'"payload":2' in stdout(process).read()
    assert process.returncode == 0


@pytest.mark.integration
def test_a_terminal_gets_colour(program: Program, log: Path) -> None:
    (record,) = program("append", log, '{"text": "hi"}').records
    author = program("read", log).record["author"]
    code, written = on_terminal("read", str(log))
    assert code == 0
    assert written != plain(written)
    assert plain(written).splitlines() == [
        f"{'id':32}  clock author  payload",
        f"…{author[-6:]} is {author}",
        f'{record["id"]}      1 …{author[-6:]} {{"text":"hi"}}',
    ]


@pytest.mark.integration
def test_a_terminal_is_not_obeyed_by_payloads(program: Program, log: Path) -> None:
    """U+009B begins a control sequence, U+202E turns text round; square brackets are rich's markup."""
    (record,) = program("append", log, '"\x9b31m\u202e\x1b[red]"'.replace("\x1b", "\\u001b")).records
    for command in (("read", str(log)), ("read", str(log), "--json"), ("show", str(log), record["id"])):
        _, written = on_terminal(*command)
        assert '"\\u009b31m\\u202e\\u001b[red]"' in plain(written)


@pytest.mark.integration
def test_a_terminal_gets_tables(program: Program, log: Path) -> None:
    program("append", log, "1", "2")
    code, written = on_terminal("info", str(log))
    assert code == 0
    assert [line.split()[0] for line in plain(written).splitlines()] == [
        "topic",
        "messages",
        "next",
        "authors",
        "bytes",
        "root",
        "heads",
    ]


def test_colour_can_be_forced(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = program("info", log)
    assert plain(result.out).startswith("topic       notes")
    assert plain(result.out) != result.out


@pytest.mark.integration
def test_a_terminal_gets_json_when_asked(log: Path) -> None:
    code, written = on_terminal("info", str(log), "--json")
    assert code == 0
    assert written.startswith('{"authors":0,')


@pytest.mark.slow
def test_long_lines_are_cut_to_the_terminal(program: Program, log: Path) -> None:
    program("append", log, '"' + "x" * 500 + '"')
    _, written = on_terminal("read", str(log), width=80)
    *_, line = plain(written).splitlines()
    assert len(line) == 80
    assert line.endswith("…")


@pytest.mark.integration
def test_an_author_is_named_in_full_on_a_narrow_terminal(program: Program, log: Path, home: Path) -> None:
    """It can be copied from there whole: it is wrapped, not cut, and stands there once."""
    program("keygen", home / "other.key")
    for key in ([], ["--key", str(home / "other.key")], []):
        program("append", log, *key, "1")
    authors = {record["author"] for record in program("read", log).records}
    _, written = on_terminal("read", str(log), width=40)
    assert [plain(written).replace("\n", "").count(author) for author in sorted(authors)] == [1, 1]


@pytest.mark.integration
def test_a_terminal_gets_a_pager(program: Program, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("append", log, *["1"] * 50)
    monkeypatch.setenv("PAGER", "sed 's/^/| /'")
    for command in ("read", "graph"):
        code, written = on_terminal(command, str(log))
        assert code == 0
        assert written != plain(written)
        assert all(line.startswith("| ") for line in plain(written).splitlines())
    # One with a quote that is not closed is none.
    monkeypatch.setenv("PAGER", "'")
    code, written = on_terminal("read", str(log), "--limit", "3")
    assert (code, len(plain(written).splitlines())) == (0, 5)
    # One that is left while output still waits, which is more than a pipe holds; and none where programs read.
    for _ in range(4):
        program("append", log, *["1"] * 250)
    monkeypatch.setenv("PAGER", "head -2")
    code, written = on_terminal("read", str(log))
    assert (code, len(plain(written).splitlines())) == (0, 2)
    code, written = on_terminal("read", str(log), "--json", "--limit", "3")
    assert (code, len(plain(written).splitlines())) == (0, 3)


@pytest.mark.integration
def test_demo_on_a_terminal() -> None:
    code, written = on_terminal("demo", width=80)
    assert code == 0
    text = plain(written)
    assert "2,000 commits by 4 authors" in text
    assert "3 heads. The latest:" in text
    assert "The same messages make the same root." in text
    assert "├─╯" in text
    assert "ben: note 4" in text


def test_the_module_of_a_command_has_its_name() -> None:
    """Those of a group of small commands have the name of what they are about."""
    groups = {"keys": {"keygen"}, "import_git": {"import-git"}}
    groups |= {"logs": {"init", "info", "verify", "recover", "backup", "rebuild"}}
    # `import` is a word of Python.
    groups |= {"messages": {"append", "export", "read", "show"}, "messages.import_values": {"import"}}
    groups |= {f"pipeline.{name}": {f"pipeline.{name}"} for name in ("read", "reconcile", "analyze", "sweep")}
    groups |= {"pipeline.verify": {"pipeline.root", "pipeline.verify"}}
    groups |= {"pipeline.state": {"pipeline.ingest", "pipeline.materialize"}}
    for name, command in _command().commands.items():
        if isinstance(command, typer.core.TyperGroup):
            callbacks = {f"{name}.{part}": each.callback for part, each in command.commands.items()}
        else:
            callbacks = {name: command.callback}
        for expected, callback in callbacks.items():
            assert callback is not None
            module = callback.__module__.removeprefix("gossiplog.cli.").removesuffix(".command")
            assert module == expected.partition(".")[0] or expected in groups.get(module, ()), expected


def test_a_command_is_built_without_the_others() -> None:
    for name, command in _command().commands.items():
        built = _command(name).commands
        if name in ("help", "completion"):
            assert built.keys() == _command().commands.keys()
        else:
            assert [*built] == [name]
            assert [each.opts for each in built[name].params] == [each.opts for each in command.params]
    # They would be built, and kept, for each wrong name.
    assert _command("apend") is _command("--version") is _command("help") is _command()


def test_a_command_starts_without_what_it_does_not_need(home: Path, log: Path) -> None:
    """Other commands, and what draws on terminals."""
    program = (
        "import sys; from gossiplog.cli.main import main; assert main(sys.argv[1:]) == 0;"
        "print(*sorted(name for name in sys.modules if name.startswith(('rich', 'gossiplog.cli.'))))"
    )
    run = subprocess.run([sys.executable, "-c", program, "read", log], capture_output=True, text=True, check=True)
    loaded = run.stdout.splitlines()[-1].split()
    needed = (
        "help output main options logs places keys messages messages.command messages.json_lines messages.rendering"
    )
    assert set(loaded) == {f"gossiplog.cli.{name}" for name in needed.split()}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "arguments",
    [
        "append notes.db 1 --key X",
        "peers http://localhost:9 --token-file X",
        "peers https://localhost:9 --ca-file X",
        "sync notes.db ws://localhost:9 --token-file X",
        "sync notes.db wss://localhost:9 --ca-file X",
        "sync notes.db X",
        "recover X new.db",
        "repair X",
        "serve notes.db --config X",
        "simulate --scenarios X --list",
        "simulate --latency X",
        "serve notes.db --hub localhost:0 --write-token X",
        "serve notes.db --hub localhost:0 --certificate X --private-key X",
        "serve notes.db --listen /ip4/127.0.0.1/tcp/0 --identity X",
    ],
)
def test_nothing_waits_for_what_is_no_file(
    program: Program, log: Path, home: Path, arguments: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "pipe":
        os.mkfifo(home / "X")
    else:
        (home / "X").symlink_to("/dev/zero")
    result = program(*arguments.split())
    assert result.code in (1, 2)
    assert f"it is a {'named pipe' if kind == 'pipe' else 'device'}; expected " in result.err


def test_names_of_files_need_not_be_utf_8(program: Program, home: Path) -> None:
    log, key = (home / os.fsdecode(name) for name in (b"log\xff.db", b"key\xff"))
    assert program("init", log, "--topic", "notes").code == 0
    assert program("keygen", key).code == 0
    assert program("append", log, "1", "--key", key).code == 0
    assert program("info", log).record["messages"] == 1
    assert program("verify", log).code == 0
    assert program("recover", log, home / os.fsdecode(b"new\xff.db")).record["new"].endswith("new\\udcff.db")
