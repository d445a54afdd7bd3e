from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from gossiplog.errors import CorruptLog
from gossiplog.spark import verify_log
from gossiplog.spark.jobs.log_metadata import log_metadata
from gossiplog.spark.jobs.row_check import check_rows
from gossiplog.spark.jobs.verify import check_partition
from gossiplog.spark.source.options import BATCH_OPTIONS, SCHEMA, read_options
from gossiplog.spark.source.reader import LogReader
from tests.damage import DAMAGE, Damage, make_damage, make_log
from tests.spark.inline import InlineSession

# What only the joins over all partitions find, or what compares all of them with what the log says of itself.
_JOINED = {"head", "count", "root"}
_FIRST = [*{str(damage.kinds): damage for damage in reversed(DAMAGE)}.values()]
# One of each kind is looked for through Spark, the others by what its tasks run.
THROUGH_SPARK = [damage for damage in DAMAGE if damage.kinds and (damage in _FIRST or _JOINED & {*damage.kinds})]
OTHERS = [damage for damage in DAMAGE if damage not in THROUGH_SPARK]


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / "log.db"
    make_log(path)
    return path


@pytest.fixture
def damaged(intact: Path, tmp_path: Path, damage: Damage) -> str:
    path = tmp_path / "log.db"
    shutil.copy(intact, path)
    make_damage(path, damage)
    return str(path)


def found_here(location: str) -> Iterator[str]:
    """Yield the kinds of defects that the tasks of `verify_log` find."""
    own = log_metadata(location)
    if own.problem is not None:
        yield "index"
    for problem in (*own.stray, *check_rows(InlineSession(), location, own)):  # type: ignore[arg-type]
        yield problem.kind
    options = read_options({"path": location, "partitions": "2"}, BATCH_OPTIONS)
    reader = LogReader(options, StructType([field for field in SCHEMA if field.name in ("seq", "key", "value")]))
    for part in reader.partitions():
        for batch in check_partition(own.topic, own.count, reader.read(part)):
            yield from batch.column("kind").to_pylist()


def test_a_sound_log(spark: SparkSession, intact: Path) -> None:
    found = verify_log(spark, str(intact))
    found.report.unpersist()
    assert found.defects == {}
    assert {*found_here(str(intact))} == {"fragment", "outer", "childless"}


@pytest.mark.parametrize("damage", THROUGH_SPARK, ids=[damage.name for damage in THROUGH_SPARK])
def test_damage_is_named_through_spark(spark: SparkSession, damaged: str, damage: Damage) -> None:
    """What `Log.verify` finds is found through Spark, too: `tests/log/test_audit.py` has the other half."""
    assert damage.kinds is not None
    found = verify_log(spark, damaged)
    found.report.unpersist()
    assert found.defects.keys() & {*damage.kinds}, found.defects


@pytest.mark.parametrize("damage", OTHERS, ids=[damage.name for damage in OTHERS])
def test_damage_is_named(damaged: str, damage: Damage) -> None:
    if damage.kinds is None:
        with pytest.raises(CorruptLog):
            verify_log(InlineSession(), damaged)  # type: ignore[arg-type]
    else:
        assert {*found_here(damaged)} & {*damage.kinds}
