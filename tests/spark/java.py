"""How Java is started by tests."""

from __future__ import annotations

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""For a process that lives for a few minutes: it compiles once and quickly, and collects garbage on one thread."""
