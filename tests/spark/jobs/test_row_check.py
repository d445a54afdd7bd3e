from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gossiplog.errors import CorruptLog
from gossiplog.spark import verify_log
from gossiplog.spark.jobs.verify import VerifyWork
from tests.damage import DAMAGE, Damage, make_damage, make_log
from tests.spark.inline import InlineSession
from tests.spark.jobs.inline_logs import inline


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


def test_a_sound_log(spark: SparkSession, intact: Path) -> None:
    found = verify_log(spark, str(intact))
    found.report.unpersist()
    assert found.defects == {}
    for most in (2**17, 10):
        outcomes, report = inline(VerifyWork(None), [str(intact)], most)
        assert report == []
        assert outcomes[str(intact)].result == (found.messages, found.root)


@pytest.mark.parametrize("damage", DAMAGE, ids=[damage.name for damage in DAMAGE])
def test_damage_is_named(damaged: str, damage: Damage) -> None:
    """By the task that has all of the log, and by those of its parts, which come to the same."""
    expected = {"log"} if damage.kinds is None else {*damage.kinds}
    found: list[set[tuple[str, bytes | None]]] = []
    for most in (2**17, 10):
        outcomes, report = inline(VerifyWork(None), [damaged], most)
        assert {row["kind"] for row in report} == outcomes[damaged].kinds.keys()
        assert outcomes[damaged].kinds.keys() & expected, outcomes
        assert sum(outcomes[damaged].kinds.values()) == len(report)
        found.append({(row["kind"], row["key"]) for row in report if row["key"] is not None})
    assert found[0] == found[1]


@pytest.mark.parametrize("damage", [damage for damage in DAMAGE if damage.kinds is None][:1], ids=str)
def test_a_log_that_does_not_open_is_an_error(damaged: str, damage: Damage) -> None:
    with pytest.raises(CorruptLog):
        verify_log(InlineSession(), damaged)  # type: ignore[arg-type]
