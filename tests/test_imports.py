"""Modules import one way: from those above them in a list, never from those below, and never in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "python" / "gossiplog"

# CONTRIBUTING.md, "Layout", for packages that have layers. What shares a line knows nothing of the others in it.
LAYERS: Mapping[str, Sequence[Sequence[str]]] = {
    "": (
        ("extras", "replacements", "reprs"),
        ("errors",),
        ("checks", "event_loop", "files"),
        ("threads",),
        ("charts",),
        ("_core", "reference"),
        ("core",),
        ("columns",),
        ("message",),
        ("signer",),
        ("protocol",),
        ("replication",),
        ("pubsub",),
        ("storage",),
        ("log",),
        ("types",),
        ("net",),
        ("lowlevel",),
        ("dashboard",),
        ("testnet",),
        ("__init__",),
        ("sim",),
        ("spark",),
        ("cli",),
        ("__main__",),
    ),
    "protocol": (("wire_pb2",), ("wire",), ("push", "refusals", "sync"), ("gossip",), ("broadcast",), ("__init__",)),
    "storage": (("base",), ("memory", "postgres"), ("sqlite",), ("location",), ("__init__",)),
    "storage.postgres": (
        ("url",),
        ("connections", "errors", "meta"),
        ("tables",),
        ("backup", "changes", "checks", "guard", "health", "opening"),
        ("replacement", "transactions"),
        ("storage",),
        ("__init__",),
    ),
    "storage.sqlite": (
        ("files", "pages"),
        ("meta", "write_ahead_log"),
        ("database_file",),
        ("set_aside",),
        ("commit_count",),
        ("tables",),
        ("backup", "names", "replacement", "transactions", "upgrades"),
        ("opening",),
        ("checkpoints", "salvage"),
        ("open_files",),
        ("storage",),
        ("__init__",),
    ),
    "pubsub": (
        ("rpc_pb2",),
        ("rpc",),
        ("events",),
        ("unanswered", "wire"),
        ("authorship",),
        ("episub", "floodsub", "gossipsub", "simsub"),
        ("log_routers",),
        ("__init__",),
    ),
    "types": (("objects",), ("counters", "lists", "registers", "sets"), ("__init__",)),
    "net": (
        ("arguments", "garbage", "rate_limited_log", "service", "timers"),
        ("transport",),
        ("events", "host_service"),
        ("event_stream",),
        ("bootstrap", "routing"),
        ("replicator",),
        ("http",),
        ("client", "log_page", "peer"),
        ("fetching", "hub"),
        ("maintenance",),
        ("__init__",),
    ),
    "net.http": (
        ("addresses", "browser_paths", "message_json", "static_files", "tls"),
        ("access", "admission", "connections", "event_stream"),
        ("answers", "listener", "metrics"),
        ("api", "uvicorn_internals"),
        ("access_log", "application", "server"),
        ("__init__",),
    ),
    "net.log_page": (("activity", "messages"), ("server",), ("__init__",)),
    "dashboard": (("events",), ("recording", "state"), ("feed",), ("stream",), ("__init__",)),
    "testnet": (
        ("connection_graph", "plan"),
        ("cuts", "messages", "status", "translation"),
        ("member",),
        ("worker",),
        ("links",),
        ("browsers",),
        ("lifecycle", "schedule"),
        ("network",),
        ("controls",),
        ("__init__",),
    ),
    "sim": (("kernel", "latency"), ("routers", "whole"), ("__main__",), ("__init__",)),
    "spark": (
        ("conf", "java_process", "payload", "url_secrets"),
        ("failures",),
        ("folders", "session", "tasks"),
        ("source",),
        ("jobs",),
        ("__init__",),
    ),
    "spark.source": (
        ("locks", "offsets", "remote", "staging"),
        ("locations", "shares"),
        ("marks",),
        ("fleet", "options"),
        ("batches", "opening"),
        ("problems", "writer"),
        ("reader", "stream_writer"),
        ("stream_reader",),
        ("data_source",),
        ("__init__",),
    ),
    "spark.jobs": (
        (
            "checkpoint",
            "components",
            "folds",
            "forks",
            "log_metadata",
            "over_logs",
            "records",
            "repair_names",
            "sign",
            "summary",
        ),
        ("analyze", "events", "fetch_values", "materialize", "replica_keys", "root", "row_check", "sweep"),
        ("fleet_figures", "ingest", "log_analysis", "message_check", "reconcile", "report"),
        ("fleet_page", "reconcile_fleet", "verify"),
        ("analyze_fleet",),
        ("__init__",),
    ),
}
RANKS = {
    package: {part: rank for rank, layer in enumerate(layers) for part in layer} for package, layers in LAYERS.items()
}


def name_of(path: Path) -> str:
    """The dotted name of a source file below the package; that of a package ends with `__init__`."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


MODULES = {name_of(path): path for suffix in ("py", "pyi") for path in sorted(PACKAGE.rglob(f"*.{suffix}"))}


def module_named(name: str) -> str:
    """The module that an import below the package names: itself, a package's head, or where the name is defined."""
    for found in (name, f"{name}.__init__".lstrip(".")):
        if found in MODULES:
            return found
    return module_named(name.rpartition(".")[0])


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All that is no expression, below a node: what has no import in it is most of a tree."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def imported(name: str) -> Iterator[tuple[int, str]]:
    """The line and the module of every import of our own, wherever it stands: no circle hides in a function."""
    path = MODULES[name]
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0, names=names):
                modules = [f"{module}.{alias.name}" for alias in names]
            case ast.ImportFrom(level=level):
                pytest.fail(f"{path}:{node.lineno}: a relative import, {level} up")
            case _:
                continue
        for module in modules:
            package, _, rest = module.partition(".")
            if package == "gossiplog":
                yield node.lineno, module_named(rest)


@cache
def imports() -> Sequence[tuple[str, int, str]]:
    """Every import: the module that has it, the line, and what it imports."""
    # Not a constant: a run of other tests would read the sources as it collects them.
    return [(name, line, other) for name in MODULES for line, other in imported(name)]


def parting(name: str, other: str) -> tuple[str, str, str]:
    """The innermost package that holds both modules, and the part of it that each belongs to."""
    own, others = name.split("."), other.split(".")
    depth = next(index for index, (a, b) in enumerate(zip(own, others, strict=False)) if a != b)
    return ".".join(own[:depth]), own[depth], others[depth]


def test_every_module_has_its_place() -> None:
    assert len(MODULES) > 200
    for package, ranks in RANKS.items():
        prefix = f"{package}." if package else ""
        parts = {name.removeprefix(prefix).split(".")[0] for name in MODULES if name.startswith(prefix)}
        assert parts == ranks.keys(), package


def test_imports_go_one_way() -> None:
    assert len(imports()) > 500
    wrong = []
    for name, line, other in imports():
        if name != other:
            package, own, part = parting(name, other)
            ranks = RANKS.get(package)
            if ranks is not None and ranks[part] >= ranks[own]:
                wrong.append(f"{MODULES[name].relative_to(PACKAGE)}:{line} imports {other}")
    assert wrong == []


def test_no_imports_go_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for name, _, other in imports():
        graph.setdefault(name, set()).add(other)
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(after for _, after in pairwise(["", *reversed(error.args[1])])))
