"""The process that tests have their peers in: how its end is reported, and what follows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.integration.javascript import Handle, JavaScriptError, Process, SharedProcess

pytestmark = pytest.mark.integration

# Answers all requests, until one is "crash".
SCRIPT = """
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { request, command } = JSON.parse(line);
  console.error(command);
  if (command === "crash") process.exit(7);
  if (command !== "hang") console.log(JSON.stringify({ reply: request, result: command }));
});
"""


@pytest.fixture
def shared() -> Iterator[SharedProcess]:
    with closing(SharedProcess(lambda: Process("--eval", SCRIPT))) as shared:
        yield shared


def test_a_crash_fails_the_peer_that_used_the_process(shared: SharedProcess) -> None:
    with Handle(shared.get()) as before:
        assert before._call("what is long past") == "what is long past"
    process = shared.get()
    peer = Handle(process)
    with pytest.raises(JavaScriptError, match=r"'crash' was asked of a process that has ended; .* with 7") as failure:
        peer._call("crash")
    assert str(failure.value).endswith("open\ncrash\n")
    with pytest.raises(JavaScriptError, match="with 7"):
        peer.wait_for_event("message")
    with pytest.raises(JavaScriptError, match="with 7"):
        peer.close()
    with Handle(shared.get()) as after:
        assert shared.get() is not process
        assert after._call("work") == "work"


def test_a_process_that_does_not_let_go_of_a_peer_is_replaced(
    shared: SharedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = shared.get()
    peer = Handle(process)
    monkeypatch.setattr("tests.integration.javascript.CLOSING", 0.1)
    call = peer._call
    monkeypatch.setattr(peer, "_call", lambda command, **fields: call("hang", **fields))
    with pytest.raises(JavaScriptError, match="'hang' is not done"):
        peer.close()
    assert shared.get() is not process
