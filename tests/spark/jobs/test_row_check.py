from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gossiplog.errors import CorruptLog
from gossiplog.spark import verify_log
from tests.damage import Damage, make_damage, make_log, parametrized


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / "log.db"
    make_log(path)
    return path


def test_a_sound_log(spark: SparkSession, intact: Path) -> None:
    found = verify_log(spark, str(intact))
    found.report.unpersist()
    assert found.defects == {}


@parametrized
def test_damage_is_named(spark: SparkSession, intact: Path, tmp_path: Path, damage: Damage) -> None:
    """What `Log.verify` finds is found through Spark, too: `tests/log/test_audit.py` has the other half."""
    path = tmp_path / "log.db"
    shutil.copy(intact, path)
    make_damage(path, damage)
    if damage.kinds is None:
        with pytest.raises(CorruptLog):
            verify_log(spark, str(path))
        return
    found = verify_log(spark, str(path))
    found.report.unpersist()
    assert found.defects.keys() & set(damage.kinds), found.defects
