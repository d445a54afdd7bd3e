"""Logs to read through Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog import Signer
from gossiplog.spark import ReconcileResult, reconcile
from tests.spark.histories import braided, insert, shuffled, with_alternatives

TOPIC = "org.example.spark"
ADA, BEN, EVE = (Signer(bytes([number]) * 32) for number in (1, 2, 3))

MakeLog = Callable[..., Path]


@pytest.fixture
def make_log(tmp_path: Path) -> MakeLog:
    """Makes logs: `make_log("a.db", 100, author=3)`, messages one behind the other."""

    def make(name: str = "log.db", messages: int = 10, *, author: int = 1, topic: str = TOPIC) -> Path:
        path = tmp_path / name
        with gossiplog.open(path, topic, synchronous="off") as log:
            log.append_many(({"number": number} for number in range(messages)), signer=Signer(bytes([author]) * 32))
        return path

    return make


@pytest.fixture
def two_orders(tmp_path: Path) -> tuple[Path, Path]:
    """Two replicas: r, a, b of sequences 1 to 3, and r, x, b, a, with b of the same sequence after another message."""
    r, a, x, b = (Signer(bytes([number]) * 32) for number in range(1, 5))
    (root,) = r.sign_chain(TOPIC, [], [{"number": 1}])
    a, x, b = (signer.sign_chain(TOPIC, [root.key], [{"number": 1}])[0] for signer in (a, x, b))
    paths = tmp_path / "one.db", tmp_path / "other.db"
    for path, messages in zip(paths, ((root, a, b), (root, x, b, a)), strict=True):
        insert(path, TOPIC, messages)
    return paths


@pytest.fixture
def several(shared_several: tuple[Path, list[int]], tmp_path: Path) -> tuple[Path, list[int]]:
    """The log of `shared_several`, which the test may change."""
    path, first = shared_several
    return Path(shutil.copytree(path.parent, tmp_path / "several") / path.name), first


@pytest.fixture(scope="session")
def shared_several(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A log of messages in several encodings, and the sequences of those that arrived first; to be read only."""
    arriving = shuffled(1, with_alternatives(1, braided(1, 100, TOPIC)))
    path = tmp_path_factory.mktemp("several") / "several.db"
    insert(path, TOPIC, arriving)
    first: dict[str, int] = {}
    for sequence, message in enumerate(arriving, 1):
        first.setdefault(message.content_id, sequence)
    assert len(first) == 100 < len(arriving)
    assert any(not arriving[sequence - 1].canonical for sequence in first.values())
    return path, [*first.values()]


@pytest.fixture
def replicas_of_encodings(tmp_path: Path) -> tuple[Path, Path]:
    """Two logs of the same messages, of which they have different encodings, in different orders."""
    messages = braided(3, 150, TOPIC)
    paths = tmp_path / "one.db", tmp_path / "other.db"
    for seed, path in enumerate(paths):
        insert(path, TOPIC, shuffled(seed, with_alternatives(seed, messages)))
    return paths


@pytest.fixture
def replicas(tmp_path: Path) -> list[Path]:
    """The logs of `make_replicas`, which the test may change."""
    return make_replicas(tmp_path)


@pytest.fixture(scope="session")
def shared_replicas(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The logs of `make_replicas`, to be read only."""
    return make_replicas(tmp_path_factory.mktemp("replicas"))


@pytest.fixture(scope="session")
def compared(spark: SparkSession, shared_replicas: list[Path]) -> ReconcileResult:
    """The comparison of `shared_replicas`."""
    return reconcile(spark, *map(str, shared_replicas))


def make_replicas(folder: Path, common: int = 400) -> list[Path]:
    """Three logs that have messages in common. The first has 30 of its own, the second 5, the third none; 7 more are in
    the first two alone.
    """
    paths = [folder / f"{name}.db" for name in ("one", "two", "three")]
    one, two, three = (gossiplog.open(path, TOPIC, synchronous="off") for path in paths)
    with one, two, three:
        one.append_many(range(common), signer=ADA)
        two.pull(one)
        three.pull(one)
        one.append_many(range(7), signer=BEN)
        two.pull(one)
        one.append_many(range(30), signer=ADA)
        two.append_many(range(5), signer=EVE)
    return paths
