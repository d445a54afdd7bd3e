"""The start of Spark's Java process, which can be interrupted at any moment and leaves no process behind.

PySpark waits for a file with which Java says where it listens, in a folder that it removes however the wait ends. Where
it ends before Java has written, Java fails there, after it has started a thread that runs for ever: nobody ends it.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark import SparkContext, java_gateway

# How long Java has to end by itself, with what it does as it ends.
_ENDING_SECONDS = 5.0


def start() -> None:
    """Start the Java process, where this process has none yet.

    Raises:
        PySparkRuntimeError: it ended at once; what it said is on stderr.
        KeyboardInterrupt: the wait was interrupted; Java is ended.
    """
    try:
        # Whichever property is asked for: PySpark's one public way to start Java without a session.
        launched(lambda: SparkContext.getSystemProperty("java.version"))
    except BaseException:
        # It may have answered before it was ended.
        SparkContext._gateway = SparkContext._jvm = None
        raise


def launched(call: Callable[[], object]) -> None:
    """Make a call that starts Java through PySpark, and end that process if the wait for it is interrupted.

    Args:
        call: is made on another thread, where no signal interrupts it: what it does to clean up is done.

    Raises:
        Exception: what the call raises.
        KeyboardInterrupt: the wait was interrupted.
    """
    launch = _Launch(call)
    try:
        threading.Thread(target=launch.run, name="gossiplog-java", daemon=True).start()
        launch.wait()
    except BaseException:
        launch.abandon()
        raise
    if launch.error is not None:
        raise launch.error


class _Launch:
    """A call that starts Java, and its process."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_begun = self._is_over = self._is_abandoned = False
        # Python 3.11 takes a thread for ended if a signal interrupts its `join`.
        self._running = threading.Lock()
        self._running.acquire()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Make the call, and note what it raises."""
        with self._lock:
            if self._is_abandoned:
                return
            self._has_begun = True
        # PySpark keeps the process to itself until it has answered.
        names: dict[str, Any] = vars(java_gateway)
        popen = names.get("Popen", subprocess.Popen)

        def opened(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
            process: subprocess.Popen[bytes] = popen(*args, **options)
            with self._lock:
                self._process = process
                is_abandoned = self._is_abandoned
            if is_abandoned:
                _end(process)
            return process

        names["Popen"] = opened
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self.error = error
        finally:
            names["Popen"] = popen
            with self._lock:
                self._is_over = True
            self._running.release()

    def wait(self) -> None:
        """Wait for the end of the call."""
        with self._running:
            pass

    def abandon(self) -> None:
        """End Java, unless the call is over, and wait for the end of the call."""
        with self._lock:
            if self._is_over or not self._has_begun:
                self._is_abandoned = not self._is_over
                return
            self._is_abandoned = True
            process = self._process
        if process is not None:
            _end(process)
        self.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING_SECONDS)
        return
    process.kill()
    process.wait()
