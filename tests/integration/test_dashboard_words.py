"""What the page of a dashboard says in words: of all logs together, of the network, and of what was commanded."""

from __future__ import annotations

import pytest

from gossiplog.dashboard.events import Committed, Connected, Noted, PeerAdded
from tests.integration.dashboards import Open, Page, Shown, becomes_true_state, showing

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("browser")]

VERDICT = "document.getElementById('verdict')"
SPOKEN = "document.getElementById('spoken').textContent"
EMPTY = "e0"


def text(page: Page, name: str) -> str:
    found: str = page.evaluate(f"document.getElementById({name!r}).textContent")
    return found


def says(page: Page, words: str, kind: str) -> None:
    """Wait until the verdict is this."""
    page.until(f"{VERDICT}.textContent === {words!r}")
    assert page.evaluate(f"{VERDICT}.className") == kind


def test_another_network_at_the_address_brings_its_title_its_commands_and_its_time(open_page: Open) -> None:
    with showing(4, title="a mesh") as before:
        page = open_page(before.url)
        becomes_true_state(page, before)
        assert page.evaluate("document.title") == "a mesh – gossiplog"
        before.call(before.publish, PeerAdded(500.0, "late", "late"))
        page.until("dashboard.now() >= 500")
        port = int(before.url.rpartition(":")[2])
    page.until("document.getElementById('connection').textContent !== ''")
    with showing(3, port, title="a ring") as again:
        again.dashboard._controls = None
        page.until("document.title === 'a ring – gossiplog'")
        assert text(page, "title") == "a ring"
        page.until("document.getElementById('controls').hidden")
        page.until("dashboard.now() < 500")
        page._events.clear()
        page.close()


def test_stopped_peers_with_another_log_are_named(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    says(page, "all logs are equal", "equal")
    names = list(shown.roots())
    shown.call(shown.network.stop, names[2])
    page.until(f"!dashboard.state.peers.get({names[2]!r}).running")
    # It has the log that all have.
    page.until("dashboard.isShown")
    says(page, "all logs are equal", "equal")
    shown.call(shown.network.append, names[1])
    says(page, "all running logs are equal (1 stopped differs)", "equal")
    shown.call(shown.network.stop, names[3])
    shown.call(shown.network.append, names[1])
    says(page, "all running logs are equal (2 stopped differ)", "equal")


def test_empty_logs_are_not_equal_before_their_peers_are_connected(open_page: Open) -> None:
    with showing(0) as shown:
        page = open_page(shown.url)
        page.until("dashboard.state.peers.size === 1")
        assert text(page, "verdict") == ""
        for name in "abcd":
            shown.call(shown.publish, PeerAdded(1.0, name, name))
            # The bootstrap, to which all are connected first, holds no log.
            shown.call(shown.publish, Connected(1.0, name, "12D3KooW0000"))
        says(page, "0 of 4 have reported · 0 of 4 connected", "")
        for name in "abcd":
            shown.call(shown.publish, Committed(2.0, name, 0, EMPTY))
        says(page, "0 of 4 connected", "")
        shown.call(shown.publish, Connected(3.0, "a", "b"))
        says(page, "2 of 4 connected", "")
        for name in "abc":
            shown.call(shown.publish, Committed(4.0, name, 1, "f1"))
        says(page, "2 different logs · 2 of 4 connected", "different")
        shown.call(shown.publish, Connected(5.0, "d", "c"))
        shown.call(shown.publish, Committed(5.0, "d", 1, "f1"))
        says(page, "all logs are equal", "equal")
        page.close()


def test_a_network_that_reports_nothing_is_not_called_equal(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    says(page, "all logs are equal", "equal")
    # As if so much time had passed since the last report.
    page.evaluate("((read) => { performance.now = () => read() + 21_000; })(performance.now.bind(performance))")
    says(page, "all logs are equal · no report for 20 s", "")
    shown.call(shown.network.append, list(shown.roots())[1])
    says(page, "all logs are equal", "equal")


def test_peers_with_a_log_are_counted_alone(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    page.until("document.getElementById('figure-peers').textContent === '8'")
    shown.call(shown.network.add)
    page.until("document.getElementById('figure-peers').textContent === '9'")
    shown.call(shown.network.stop, list(shown.roots())[2])
    page.until("document.getElementById('figure-peers').textContent === '8 of 9'")


def test_what_became_of_a_key_is_spoken(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    becomes_true_state(page, shown)

    def presses(key: str, words: str) -> None:
        page.press(key)
        page.until(f"{SPOKEN} === {words!r}")

    page.evaluate("document.getElementById('network').focus()")
    presses("Enter", "no peer chosen: arrow keys choose one")
    page.press("ArrowRight")
    presses("x", "no edge chosen: N chooses the next one of the peer")
    presses("n", "edge of boot and 1: X cuts it")
    presses("x", "edge of boot and 1: cut")
    page.until("dashboard.drawing.chosen.other === null")
    presses("Shift+Enter", "boot: stopped")
    page.until("![...dashboard.state.peers.values()][0].running")
    presses("Shift+Enter", "boot: started")
    page.click("#heal")
    page.until(f"{SPOKEN} === 'network healed'")
    page.click("#add_peer")
    page.until(f"{SPOKEN} === 'peer added'")
    # In the table, too.
    page.evaluate("document.querySelectorAll('#rows tr')[2].focus()")
    presses("Enter", "message appended at 2")
    presses("Shift+Enter", "2: stopped")
    page.until("!dashboard.state.peers.get(document.activeElement.dataset.peer).running")
    # What was refused is not spoken of as done.
    page.press("Enter")
    page.until("!document.getElementById('notice').hidden")
    assert page.evaluate(SPOKEN) == ""
    page._events.clear()


def test_what_is_said_of_a_choice_by_keys_covers_neither_it_nor_its_edge(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    becomes_true_state(page, shown)
    page.until("dashboard.isResting")
    covered = """(() => {
        const { drawing: { chosen }, drawing, layout } = dashboard;
        const ends = [chosen.peer, chosen.other ?? chosen.peer].map((name) => layout.nodes.get(name));
        const [[x, y], [toX, toY]] = ends.map((node) => drawing.toCanvas(node.x, node.y));
        const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = document.getElementById("tooltip");
        return d3.range(0, 1.01, 0.05).some((part) => {
            const [atX, atY] = [x + (toX - x) * part - offsetLeft, y + (toY - y) * part - offsetTop];
            return atX > 0 && atX < offsetWidth && atY > 0 && atY < offsetHeight;
        });
    })()"""
    page.evaluate("document.getElementById('network').focus()")
    page.press("ArrowRight")
    for key in ("n", "n", "ArrowDown", "n", "ArrowLeft", "n", "ArrowUp", "n", "n"):
        page.press(key)
        assert not page.evaluate("document.getElementById('tooltip').hidden")
        assert not page.evaluate(covered), key
        box, stage = (
            page.evaluate(f"document.getElementById({name!r}).getBoundingClientRect().toJSON()")
            for name in ("tooltip", "stage")
        )
        # It touches the sides of a corner.
        assert min(box["left"] - stage["left"], stage["right"] - box["right"]) < 5
        assert min(box["top"] - stage["top"], stage["bottom"] - box["bottom"]) < 5


def test_events_are_in_the_order_of_their_times(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    becomes_true_state(page, shown)
    for at, words in ((60.8, "second"), (60.7, "first"), (60.9, "third")):
        shown.call(shown.publish, Noted(at, words))
        page.until(f"document.getElementById('log').textContent.includes({words!r})")
    found = page.evaluate("[...document.querySelectorAll('#log li')].slice(0, 3).map((each) => each.textContent)")
    assert found == ["1:00.9third", "1:00.8second", "1:00.7first"]
