"""`gossiplog.net.garbage`."""

from __future__ import annotations

import gc

import pytest

from gossiplog.net.garbage import THRESHOLDS, collect_rarely


@pytest.mark.slow
def test_what_there_is_is_exempt_and_thresholds_are_higher() -> None:
    thresholds = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    try:
        collect_rarely()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == THRESHOLDS
    finally:
        # What was imported was exempt before the test.
        gc.set_threshold(*thresholds)
