"""How Java is started by tests."""

from __future__ import annotations

OPTIONS = " ".join(
    [
        # It compiles once and quickly, and collects garbage on one thread.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        # With one compiler it has 48 MB for compiled code. The tests fill these: it sweeps them, and compiles anew.
        "-XX:ReservedCodeCacheSize=240m",
        # It would collect garbage each time that it loaded so many classes: 21 MB of them to begin with.
        "-XX:MetaspaceSize=192m",
        "-Xshare:auto",
        # The classes are those of Spark's release: nothing is found by verifying them.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
        # Its figures for tools that nobody runs.
        "-XX:-UsePerfData",
    ]
)
"""For a process that lives for a few minutes."""
