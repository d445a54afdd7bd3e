"""A plain installation reads, writes and replicates logs; what needs more says which command installs it."""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import gossiplog
from gossiplog.extras import EXTRAS, explain_extra

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "python" / "gossiplog"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Modules whose names are not those of their packages.
MODULES = {"griffelib": "griffe", "protobuf": "google"}
# Where the packages of extras may be imported, and of which, beside those of a plain installation. The first that fits.
AREAS: Mapping[str, tuple[str, ...]] = {
    "cli/messages/parquet_values.py": ("arrow",),
    "cli/pipeline/": ("cli", "spark"),
    "cli/": ("cli",),
    "columns.py": ("arrow",),
    "dashboard/": ("cli",),
    "log/payloads.py": ("pydantic",),
    "net/http/": ("hub",),
    "net/hub.py": ("hub",),
    "net/log_page/": ("hub",),
    "net/replicator/tracing.py": ("telemetry",),
    "sim/__main__.py": ("cli",),
    "sim/routers/tally.py": ("arrow",),
    "spark/": ("spark",),
    "storage/postgres/": ("postgres",),
    "testnet/": ("cli",),
    "": (),
}
# What packages bring along, or look for where it is installed, and is used here by its own name.
BROUGHT_ALONG = {"numpy": "pandas", "py4j": "pyspark", "pydantic_core": "pydantic", "sniffio": "anyio"}


def module_of(requirement: str) -> str:
    name = re.match(r"[\w-]+", requirement)
    assert name is not None
    module = MODULES.get(name[0], name[0].replace("-", "_"))
    return "opentelemetry" if module == "opentelemetry_api" else module


def modules_of(requirements: list[str]) -> set[str]:
    """The top-level modules of what is required, through the extras of our own that are named."""
    found: set[str] = set()
    for line in requirements:
        if match := re.match(r"gossiplog\[(.*)\]", line):
            for extra in match[1].split(","):
                found |= modules_of(PROJECT["optional-dependencies"][extra])
        else:
            found.add(module_of(line))
    return found


PLAIN = modules_of(PROJECT["dependencies"])


def imported(node: ast.AST) -> Iterator[str]:
    """The top-level modules that a source imports as it runs."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=rest):
                for part in rest:
                    yield from imported(part)
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module.partition(".")[0]
            case _:
                yield from imported(child)


def uses() -> Iterator[tuple[str, str]]:
    """Each source, with each package that it imports."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for module in set(imported(ast.parse(path.read_text(encoding="utf-8")))):
            if module not in sys.stdlib_module_names | {"gossiplog", "__future__"}:
                yield path.relative_to(PACKAGE).as_posix(), BROUGHT_ALONG.get(module, module)


@pytest.mark.slow
def test_sources_import_what_their_part_of_the_package_brings() -> None:
    used: dict[str, set[str]] = {}
    wrong = []
    for source, module in uses():
        area = next(area for area in AREAS if source.startswith(area))
        allowed = {extra for extra in AREAS[area] if module in modules_of(PROJECT["optional-dependencies"][extra])}
        if module not in PLAIN and not allowed:
            wrong.append(f"{source} imports {module}")
        for extra in allowed or {""}:
            used.setdefault(extra, set()).add(module)
    assert wrong == []
    assert used[""] >= PLAIN, "a package that nothing imports is installed"
    everything = set[str]().union(*used.values())
    for extra in {*PROJECT["optional-dependencies"]} - {"dev", "spark", "spark-connect"}:
        assert everything >= modules_of(PROJECT["optional-dependencies"][extra]), extra


def test_errors_name_the_extras_of_pyproject() -> None:
    for extra, modules in EXTRAS.items():
        own = [line for line in PROJECT["optional-dependencies"][extra] if not line.startswith("gossiplog[")]
        assert modules == {module_of(line) for line in own}


def test_what_is_in_no_extra_is_not_explained() -> None:
    for error in (ImportError("no name"), ModuleNotFoundError("No module named 'other'", name="other")):
        assert explain_extra(error, "it", "hub") is error


# Before everything else: only what a plain installation brings, and the standard library, can be imported.
BLOCKED = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in {sorted(modules_of(PROJECT["optional-dependencies"]["dev"]) - PLAIN)}:
            raise ModuleNotFoundError(f"No module named {{top!r}}", name=top)

sys.meta_path.insert(0, Blocked())
import gossiplog
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKED + program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def printed(program: str, folder: Path) -> list[str]:
    done = run(program, folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_log_needs_no_web_server(tmp_path: Path) -> None:
    program = """
signer = gossiplog.Signer.generate()
with gossiplog.open("one.db", "org.example.notes", signer=signer, payload=lambda payload: None) as one:
    first = one.append({"text": "one"})
with gossiplog.open("two.db", "org.example.notes", payload=None) as two:
    print(two.pull("one.db").inserted, two.get(first.id).payload, [message.clock for message in two])
    print(two.verify().messages)

import anyio

async def main():
    async with gossiplog.open_async("three.db", "org.example.notes", signer=signer) as three:
        await three.pull("one.db")
        async with gossiplog.Peer(three) as here:
            async with gossiplog.open_async("two.db", "org.example.notes") as two:
                async with gossiplog.Peer(two, bootstrap=here.addresses) as there:
                    await three.append({"text": "two"})
                    await there.synced()
                    print(await two.count())

anyio.run(main)
"""
    assert printed(program, tmp_path) == ["1 {'text': 'one'} [1]", "1", "2"]


@pytest.mark.slow
def test_names_that_need_more_name_the_command(tmp_path: Path) -> None:
    program = """
for name in sorted(gossiplog.__all__):
    try:
        getattr(gossiplog, name)
    except ImportError as error:
        print(error)
import gossiplog.lowlevel, gossiplog.protocol, gossiplog.types
try:
    gossiplog.open(":memory:", "org.example.notes", payload=dict)
except ImportError as error:
    print(error)
"""
    assert printed(program, tmp_path) == [
        "gossiplog.Hub needs starlette, which is not installed: pip install 'gossiplog[hub]' installs it",
        "gossiplog.serve needs starlette, which is not installed: pip install 'gossiplog[hub]' installs it",
        "a log whose payload= is a type needs pydantic, which is not installed: pip install 'gossiplog[pydantic]'"
        " installs it",
    ]


def test_the_command_line_names_its_own(tmp_path: Path) -> None:
    program = "from gossiplog.__main__ import main\nsys.argv = ['gossiplog', 'info', 'no.db']\nsys.exit(main())"
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "gossiplog: this command needs typer, which is not installed: pip install 'gossiplog[cli]' installs it\n"
    )


@pytest.mark.integration
def test_a_client_needs_no_web_server(port: int, tmp_path: Path) -> None:
    with gossiplog.open(tmp_path / "hub.db", "org.example.notes") as log:
        log.append("from the hub", signer=gossiplog.Signer.generate())
    command = [sys.executable, "-m", "gossiplog", "serve", "hub.db", "--hub", f"127.0.0.1:{port}"]
    program = f"""
import anyio

async def main():
    async with gossiplog.open_async("mine.db", "org.example.notes") as log:
        async with gossiplog.connect(log, "ws://127.0.0.1:{port}") as client:
            await client.synced()
            print([message.payload async for message in log.messages()])

anyio.run(main)
"""
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as hub:
        try:
            assert hub.stdout is not None
            hub.stdout.readline()
            assert printed(program, tmp_path) == ["['from the hub']"]
        finally:
            hub.send_signal(signal.SIGINT)
    assert hub.returncode == 0
