"""Named runs: plans as TOML has them, and many seeds of one beside what was published of it.

The plans are those of `scenarios.toml` beside this module, or of a user's own file. A table for each run: `about` and
`router`, the fields of `Plan` by their names, `conditions` with the fields of `Conditions`, `churn`, `failures` and
`partitions` with theirs, and `published`, rows that a run is compared with. `latency` is "uniform", "geographic", a
table of `low` and `high`, or rows of a matrix; `attack` a name, or a table of `name` and `hostile`; `gossip` a table of
gossipsub's parameters.
"""

from __future__ import annotations

import multiprocessing
import signal
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from gossiplog.errors import ScenarioError
from gossiplog.files import open_file
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.pubsub.gossipsub.config import read_gossip
from gossiplog.sim.routers.mixture import Mixture, read_routers
from gossiplog.sim.routers.plan import (
    Attack,
    Churn,
    Conditions,
    Failure,
    Geographic,
    Matrix,
    Partition,
    Plan,
    Uniform,
    attack_named,
    with_hostile,
)
from gossiplog.sim.routers.simulation import simulate

BUILT_IN = Path(__file__).parent / "scenarios.toml"

_Fields = TypeVar("_Fields", Plan, Conditions, Churn, Failure, Partition, Uniform)
_NUMBERS = (int, float)


@dataclass(frozen=True, slots=True)
class Named:
    """A run.

    Attributes:
        name: by which it is asked for.
        about: what it is, in a line.
        router: the kind of routers, or several with their parts of the nodes, in the form of `read_routers`.
        plan: what happens.
        published: rows that it is compared with, by name.
        gossip: gossipsub's parameters; None for the defaults.
    """

    name: str
    about: str = ""
    router: str = "simsub"
    plan: Plan = field(default_factory=Plan)
    published: Mapping[str, int] = field(default_factory=dict)
    gossip: GossipConfig | None = None

    def routers(self) -> Mixture:
        """Return the routers of the nodes.

        Raises:
            ScenarioError: there is no such kind, kinds cannot be mixed, there are too few nodes for all of them, or
                `gossip` is given without gossipsub.
        """
        mixture = read_routers(self.router, self.gossip)
        mixture.counts(self.plan.nodes)
        return mixture

    def with_seed(self, seed: int) -> Named:
        """Return the same run with another seed."""
        return replace(self, plan=replace(self.plan, seed=seed))


def read(path: Path = BUILT_IN) -> dict[str, Named]:
    """Return all runs of a file, by name.

    Raises:
        ScenarioError: the file cannot be read, is no TOML, or says what cannot be.
    """
    try:
        with open_file(path) as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise ScenarioError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} is no TOML: {error}") from error
    except RecursionError as error:
        raise ScenarioError(f"{path} cannot be used: its lists and tables are nested too deeply") from error
    found = {}
    for name, table in tables.items():
        try:
            found[name] = _named(name, table)
        except ScenarioError as error:
            raise ScenarioError(f"{path}, {name}: {error}") from error
    return found


def _named(name: str, table: Any) -> Named:
    if not isinstance(table, dict):
        raise ScenarioError(f"{table!r} is no run: expected a table")
    rest = dict(table)
    about, router = (_text(key, rest.pop(key, default)) for key, default in (("about", ""), ("router", "simsub")))
    publishers = rest.pop("publishers", None)
    if publishers is not None and type(publishers) is not int:
        raise ScenarioError(f"publishers is {publishers!r}: expected a whole number")
    attack_of_run = attack(rest.pop("attack", "none"))
    parameters = _gossip(rest.pop("gossip", None))
    published = rest.pop("published", {})
    if not isinstance(published, dict) or not all(type(count) is int for count in published.values()):
        raise ScenarioError(f"published is {published!r}: expected a table of counts")
    conditions = _conditions(rest.pop("conditions", {}))
    plan = replace(_fill(Plan(), rest), conditions=conditions, publishers=publishers, attack=attack_of_run)
    return Named(name, about, router, plan, published, parameters)


def _gossip(table: Any) -> GossipConfig | None:
    if table is None:
        return None
    if not isinstance(table, dict) or not all(type(value) in _NUMBERS for value in table.values()):
        raise ScenarioError(f"gossip is {table!r}: expected a table of numbers")
    try:
        return read_gossip([f"{name}={value}" for name, value in table.items()])
    except ValueError as error:
        raise ScenarioError(f"gossip: {error}") from error


def _conditions(table: Any) -> Conditions:
    if not isinstance(table, dict):
        raise ScenarioError(f"conditions are {table!r}: expected a table")
    rest = dict(table)
    delays = latency(rest.pop("latency", "uniform"))
    churn = rest.pop("churn", None)
    failures, partitions = (_array(name, rest.pop(name, [])) for name in ("failures", "partitions"))
    bandwidth = rest.pop("bandwidth", None)
    if bandwidth is not None and type(bandwidth) not in _NUMBERS:
        raise ScenarioError(f"bandwidth is {bandwidth!r}: expected a number")
    return replace(
        _fill(Conditions(), rest),
        latency=delays,
        bandwidth=bandwidth,
        churn=None if churn is None else _fill(Churn(1.0), churn),
        failures=tuple(_fill(Failure(0.0), failure) for failure in failures),
        partitions=tuple(_fill(Partition(0.0, 1.0), part) for part in partitions),
    )


def latency(value: Any) -> Uniform | Matrix | Geographic:
    """Return delays as a file says them.

    Args:
        value: "uniform", "geographic", a mapping with `low` and `high`, or a matrix as a list of lists.

    Raises:
        ScenarioError: it is nothing of this.
    """
    match value:
        case "uniform":
            return Uniform()
        case "geographic":
            return Geographic()
        case dict():
            return _fill(Uniform(), value)
        case list() if all(isinstance(row, list) and all(type(delay) in _NUMBERS for delay in row) for row in value):
            return Matrix(tuple(tuple(map(float, row)) for row in value))
        case _:
            raise ScenarioError(
                f"latency is {value!r}: expected uniform, geographic, a table of low and high, or rows of a matrix"
            )


def attack(value: Any) -> Attack | None:
    """Return an attack as a file says it.

    Args:
        value: a name, or a mapping with `name` and `hostile`.

    Raises:
        ScenarioError: it is nothing of this.
    """
    match value:
        case str():
            return attack_named(value)
        case {"name": str(name), "hostile": int(hostile), **rest} if not rest and type(hostile) is int:
            return with_hostile(attack_named(name), hostile)
        case _:
            raise ScenarioError(f"attack is {value!r}: expected a name, or a table of name and hostile")


def _fill(default: _Fields, table: Any) -> _Fields:
    """Return a value with the fields that a table has, each of the default's type."""
    if not isinstance(table, dict):
        raise ScenarioError(f"{table!r}: expected a table")
    types = {known.name: type(getattr(default, known.name)) for known in fields(default)}
    for name, value in table.items():
        kind = types.get(name)
        if kind not in (int, float, bool):
            plain = ", ".join(known for known, of in types.items() if of in (int, float, bool))
            raise ScenarioError(f"there is no {name}: expected {plain}")
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise ScenarioError(f"{name} is {value!r}: expected {_EXPECTED[kind]}")
    return replace(default, **table)


_EXPECTED: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false"}


def _array(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ScenarioError(f"{name} are {value!r}: expected an array of tables")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ScenarioError(f"{name} is {value!r}: expected a text")
    return value


FIGURES = ("delivered", "p50", "p95")
"""What is compared of the outcome of an attack."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the summaries of several seeds, or one figure of what came of an attack.

    Attributes:
        name: of the row.
        median: over the seeds that have it.
        least: of any seed.
        most: of any seed.
        published: to compare it with; None where there is nothing.
    """

    name: str
    median: float
    least: float
    most: float
    published: int | None

    @property
    def deviation(self) -> float | None:
        """Of the median, as a share of what was published; None where that is nothing, or 0."""
        return (self.median - self.published) / self.published if self.published else None


def run_seeds(run: Named, seeds: Sequence[int], processes: int) -> Iterator[dict[str, float]]:
    """Yield the counts of a run with each of the seeds, in their order, and what came of its attack, if there is one.

    Args:
        run: with any seed.
        seeds: to run it with.
        processes: at a time; 1 is this one.
    """
    jobs = [run.with_seed(seed) for seed in seeds]
    if processes == 1:
        yield from map(_counts, jobs)
        return
    # Spawned, because the core's threads do not survive a fork. Ctrl-C is this process's, which ends the others.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap(_counts, jobs)


def compare(found: Sequence[Mapping[str, float]], published: Mapping[str, int]) -> list[Row]:
    """Return the rows of several summaries, in one.

    Args:
        found: the counts of each seed; one at least.
        published: by the names of the rows.
    """
    names = list(dict.fromkeys(name for counts in found for name in counts))
    columns = {name: [counts[name] for counts in found if name in counts] for name in names}
    return [Row(name, median(of), min(of), max(of), published.get(name)) for name, of in columns.items()]


def _counts(run: Named) -> dict[str, float]:
    summary = simulate(run.routers(), run.plan, trace=None).summary()
    outcome = {} if summary.attack is None else {name: getattr(summary.attack, name) for name in FIGURES}
    return summary.counts | {name: figure for name, figure in outcome.items() if figure is not None}


def record(row: Row) -> dict[str, Any]:
    """Return a row, as JSON takes it."""
    fields: dict[str, Any] = {"row": row.name, "median": row.median, "least": row.least, "most": row.most}
    if row.published is not None:
        fields["published"] = row.published
    if row.deviation is not None:
        fields["deviation"] = round(row.deviation, 4)
    return fields
