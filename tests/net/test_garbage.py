"""`gossiplog.net.garbage`."""

from __future__ import annotations

import gc

from gossiplog.net.garbage import THRESHOLDS, collect_rarely


def test_what_there_is_is_exempt_and_thresholds_are_higher() -> None:
    before, thresholds = gc.get_freeze_count(), gc.get_threshold()
    try:
        collect_rarely()
        assert gc.get_freeze_count() > before
        assert gc.get_threshold() == THRESHOLDS > thresholds
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
