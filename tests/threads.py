"""Several calls at once, for the tests of what may be called from several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


def in_threads(calls: Sequence[Callable[[], object]]) -> None:
    """Runs all at once, and raises what any of them raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        start.wait()
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
