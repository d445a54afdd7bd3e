"""Spans for OpenTelemetry, where its API is installed (`pip install 'gossiplog[telemetry]'`); otherwise nothing.

An application that has set a tracer provider up gets "gossiplog.sync" for each sync with a peer, and "gossiplog.store"
for each batch of messages that peers sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

Describe: TypeAlias = Callable[[Mapping[str, str | int | bool]], object]
"""Adds attributes to a span."""

try:
    from opentelemetry import trace
except ImportError:
    _tracer = None
else:
    _tracer = trace.get_tracer("gossiplog")


@contextmanager
def span(name: str) -> Iterator[Describe]:
    """Trace the block as a span, within the current one."""
    if _tracer is None:
        yield _nothing
    else:
        with _tracer.start_as_current_span(f"gossiplog.{name}") as found:
            yield found.set_attributes


def _nothing(attributes: Mapping[str, str | int | bool]) -> None:
    """There is no span."""
