"""The page of a dashboard in Chromium: what it shows is the network's state, and what it commands is done.

The network is a script (`tests/dashboard/scripted.py`), but for one test with real peers.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.abc
import pytest
from anyio.from_thread import start_blocking_portal

from gossiplog.dashboard.events import Connected, Noted, PeerAdded, Refused
from gossiplog.dashboard.recording import Recorder, read
from gossiplog.dashboard.state import NetworkState
from gossiplog.dashboard.stream import Dashboard, player
from gossiplog.net.http import event_stream
from gossiplog.net.http.server import serve
from gossiplog.testnet.controls import NetworkControls
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.plan import NetworkPlan
from gossiplog.testnet.schedule import AutoAppend
from tests.dashboard.scripted import ScriptedNetwork
from tests.integration.dashboards import (
    RESTS,
    ROWS,
    Open,
    Shown,
    becomes_true_state,
    click_where_it_is,
    drawn_colour,
    neutral,
    place,
    point,
    showing,
)
from tests.integration.javascript import SharedProcess
from tests.integration.pages import Page

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("browser")]

HOSTILE = '<script>document.title="taken"</script><img src=x onerror=alert(1)>'


def test_rows_are_in_order_whoever_was_heard_of_first(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    for label in ("110", "109", "x"):
        shown.call(shown.publish, PeerAdded(50.0, f"late-{label}", label))
    # Of this one something else is heard first.
    shown.call(shown.publish, Connected(50.0, "12D3KooWlast", "late-x"))
    shown.call(shown.publish, PeerAdded(51.0, "12D3KooWlast", "108"))
    page.until("dashboard.state.now >= 51 && dashboard.isShown")
    page.until("document.querySelectorAll('#rows tr').length === dashboard.state.peers.size")
    labels = [row["texts"][0] for row in page.evaluate(ROWS)]
    assert labels[0] == "boot"
    assert labels[-4:] == ["108", "109", "110", "x"]
    assert [int(label) for label in labels[1:-1]] == sorted(int(label) for label in labels[1:-1])


def test_what_is_shown_is_the_state(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    becomes_true_state(page, shown)
    assert page.evaluate("document.title") == "a network – gossiplog"
    page.until("document.getElementById('verdict').textContent === 'all logs are equal'")
    rows = {row["peer"]: row for row in page.evaluate(ROWS)}
    boot, first, *_ = shown.roots()
    assert drawn_colour(page, boot) == "#000000"
    assert drawn_colour(page, first) == rows[first]["colour"]
    # Edges in the picture are those of the state.
    ends = page.evaluate("dashboard.layout.links.map(({source, target}) => [source.name, target.name])")
    assert {frozenset(pair) for pair in ends} == {frozenset(edge["peers"]) for edge in shown.snapshot()["edges"]}


def test_a_click_appends(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    becomes_true_state(page, shown)
    peer = list(shown.roots())[3]
    before = shown.roots()[peer]
    page.click_at(*place(page, peer))
    page.until(f"dashboard.state.peers.get({peer!r}).messages === 1")
    becomes_true_state(page, shown)
    assert shown.roots()[peer] != before
    logs = {root for root in shown.roots().values() if root}
    assert len(logs) == 1


def test_a_shift_click_stops_and_starts(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    becomes_true_state(page, shown)
    peer = list(shown.roots())[3]
    page.click_at(*place(page, peer), key="Shift")
    page.until(f"!dashboard.state.peers.get({peer!r}).running")
    becomes_true_state(page, shown)
    page.click_at(*place(page, peer), key="Shift")
    page.until(f"dashboard.state.peers.get({peer!r}).running")
    becomes_true_state(page, shown)
    assert shown.snapshot()["peers"][peer]["messages"] == 0


def test_a_click_on_an_edge_cuts_it(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    becomes_true_state(page, shown)
    page.until(RESTS)
    # One that no peer covers and no other edge crosses where it is clicked.
    middles = """(({layout, drawing}) => layout.links.map((link) => ({
        link, x: (link.source.x + link.target.x) / 2, y: (link.source.y + link.target.y) / 2,
    })).find(({link, x, y}) => layout.find(x, y, drawing.distance(24)) === undefined && [-3, 0, 3].every((aside) =>
        layout.findLink(x + aside, y + aside, drawing.distance(12)) === link)))(dashboard)"""
    peers = page.evaluate(f"{middles}.link.edge.peers")
    page.click_at(*point(page, middles))
    page.until(f"![...dashboard.state.edges.values()].some(({{peers}}) => peers.join() === {','.join(peers)!r})")
    becomes_true_state(page, shown)
    assert frozenset(peers) not in shown.network.edges


def test_a_partition_shows_two_colours_and_then_one(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    becomes_true_state(page, shown)
    page.click("#partition")
    page.until("dashboard.state.groups !== null")
    for peer in (list(shown.roots())[1], list(shown.roots())[-1]):
        shown.call(shown.network.append, peer)
    page.until("document.getElementById('verdict').textContent === '2 different logs'")
    becomes_true_state(page, shown)
    one, other = list(shown.roots())[1], list(shown.roots())[-1]
    assert drawn_colour(page, one) != drawn_colour(page, other)
    page.click("#heal")
    page.until("document.getElementById('verdict').textContent === 'all logs are equal'")
    becomes_true_state(page, shown)
    assert drawn_colour(page, one) == drawn_colour(page, other)


def test_a_late_page_and_one_beside_it(shown: Shown, open_page: Open) -> None:
    first = open_page(shown.url)
    for peer in list(shown.roots())[1:4]:
        shown.call(shown.network.append, peer)
    shown.call(shown.network.stop, list(shown.roots())[5])
    late = open_page(shown.url)
    for page in (first, late):
        becomes_true_state(page, shown)
    # Its log of events has what came before it.
    late.until("document.getElementById('log').textContent.includes('appends message 1')")


def test_a_page_goes_on_when_the_program_is_started_anew(open_page: Open) -> None:
    with showing(4) as before:
        page = open_page(before.url)
        becomes_true_state(page, before)
        port = int(before.url.rpartition(":")[2])
    page.until("document.getElementById('connection').textContent !== ''")
    with showing(6, port) as again:
        page.until("document.getElementById('connection').textContent === ''")
        page.until("dashboard.state.peers.size === 7")
        becomes_true_state(page, again)
        # What the browser says of the connection that ended.
        assert all("ERR_" in text for text in page.complaints)
        page._events.clear()
        page.close()


def test_why_there_is_no_stream_is_said(shown: Shown, browser: SharedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_READERS", 0)
    with Page(browser.get(), shown.url) as page:
        page.until("document.getElementById('connection').textContent.includes('0 pages are open already: close one')")
        monkeypatch.setattr(event_stream, "MOST_READERS", 1)
        page.until("document.getElementById('connection').textContent === ''")
        page.until("dashboard.state.peers.size === 9")
        assert all("status of 503" in each for each in page.complaints)


def test_names_and_texts_of_others_are_text(open_page: Open) -> None:
    with showing(3, label=HOSTILE + "{}") as shown:
        page = open_page(shown.url)
        becomes_true_state(page, shown)
        peer = list(shown.roots())[1]
        shown.call(shown.publish, Noted(1.0, HOSTILE, peer))
        shown.call(shown.publish, Refused(1.0, peer, HOSTILE, HOSTILE, HOSTILE))
        page.until("document.getElementById('log').textContent.split('onerror').length > 4")
        page.move(*place(page, peer))
        page.until("document.getElementById('tooltip').textContent.includes('<script>')")
        assert page.evaluate("document.querySelectorAll('#rows script, #log script, #tooltip script, img').length") == 0
        assert page.evaluate("document.title") == "a network – gossiplog"
        page.close()


def test_the_tooltip_says_what_a_peer_has(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    peer = list(shown.roots())[2]
    shown.call(shown.network.append, peer)
    becomes_true_state(page, shown)
    page.move(*place(page, peer))
    text = page.until("!document.getElementById('tooltip').hidden && document.getElementById('tooltip').textContent")
    state = shown.snapshot()["peers"][peer]
    for said in (peer, state["root"], state["heads"][0], "messages1", "next clock2"):
        assert said in text


def test_by_keyboard_alone(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    becomes_true_state(page, shown)
    page.until(RESTS)
    focused = "document.activeElement.id || document.activeElement.dataset.peer || document.activeElement.tagName"
    seen = []
    while (found := page.evaluate(focused)) != "log":
        seen.append(found)
        page.press("Tab")
        assert len(seen) < 30
    first, *_ = shown.roots()
    assert [each for each in seen if each in ("network", "rate", "partition", "heal", "add_peer", first)] == [
        "network",
        "rate",
        "partition",
        "heal",
        "add_peer",
        first,
    ]
    # In the table: down to another peer, append, stop, start.
    page.evaluate("document.querySelector('#rows tr').focus()")
    page.press("ArrowDown", "ArrowDown", "Enter")
    peer = list(shown.roots())[2]
    page.until(f"dashboard.state.peers.get({peer!r}).messages === 1")
    page.press("Shift+Enter")
    page.until(f"!dashboard.state.peers.get({peer!r}).running")
    page.press("Shift+Enter")
    page.until(f"dashboard.state.peers.get({peer!r}).running")
    # In the picture: the first peer, whose edges follow each other, and the cut.
    page.evaluate("document.getElementById('network').focus()")
    page.press("Escape", "ArrowRight", "n")
    other = page.until("dashboard.drawing.chosen.other")
    page.press("x")
    page.until(f"dashboard.state.link({first!r}, {other!r}) === 'none'")
    page.until(f"!dashboard.state.others.get({first!r}).has({other!r})")
    page.press("ArrowRight", "ArrowDown", "Enter")
    page.until("document.getElementById('spoken').textContent !== ''")
    # By the controls: a rate, and a peer more.
    page.evaluate("document.getElementById('rate').focus()")
    page.press("ArrowRight")
    page.until("dashboard.state.rate === 0.5")
    page.press("Tab", "Tab", "Tab", "Enter")
    page.until("dashboard.state.peers.size === 10")
    becomes_true_state(page, shown)


def test_what_the_network_refuses_is_said(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    peer = list(shown.roots())[2]
    shown.call(shown.network.stop, peer)
    becomes_true_state(page, shown)
    page.click_at(*place(page, peer))
    assert "has stopped: start it first" in page.until("document.getElementById('notice').textContent")
    assert all("409" in text for text in page.complaints)
    page._events.clear()


def test_the_log_is_filtered(shown: Shown, open_page: Open) -> None:
    page = open_page(shown.url)
    for peer in list(shown.roots())[1:4]:
        shown.call(shown.network.append, peer)
    becomes_true_state(page, shown)
    page.until("document.getElementById('log').textContent.includes('message 3')")
    page.evaluate("document.getElementById('log-text').focus()")
    page.type("message 2")
    page.until("document.querySelectorAll('#log li').length === 1")
    assert "appends message 2" in page.evaluate("document.getElementById('log').textContent")


def test_on_a_phone(shown: Shown, open_page: Open, tmp_path: Path) -> None:
    page = open_page(shown.url, size=(390, 844), dark=True)
    becomes_true_state(page, shown)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    peer = list(shown.roots())[4]
    page.click_at(*place(page, peer))
    page.until(f"dashboard.state.peers.get({peer!r}).messages === 1")
    becomes_true_state(page, shown)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 27)"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A partition and its end, a second between two steps."""
    path = tmp_path / "run.jsonl"
    now = 0.0
    with Recorder(path, "a <b>run</b>") as recorder:
        network = ScriptedNetwork(lambda event: recorder.write([event]), lambda: now)

        async def happen() -> None:
            nonlocal now
            network.begin(6)
            names = list(network.peers)
            for step in (
                lambda: network.append(names[0]),
                network.partition,
                lambda: network.append(names[0]),
                lambda: network.append(names[-1]),
                network.heal,
                lambda: network.stop(names[1]),
            ):
                now += 1
                await step()

        anyio.run(happen)
    return path


def test_a_recording_is_played(recording: Path, open_page: Open) -> None:
    events = list(read(recording))
    with start_blocking_portal() as portal:
        future, address = portal.start_task(
            lambda *, task_status: serve(player(recording, "a run"), task_status=task_status)
        )
        try:
            page = open_page(address.url("http"))
            assert page.evaluate("document.getElementById('controls').hidden")
            page.click("#play")
            for time in (4.5, 0.5, 3.0, 6.0, 2.999):
                page.evaluate(
                    "((slider) => { slider.value = TIME; slider.dispatchEvent(new Event('input')); })"
                    "(document.getElementById('position'))".replace("TIME", str(time))
                )
                state = NetworkState()
                for event in events:
                    if event.at <= time:
                        state.apply(event)
                found = page.evaluate("dashboard.state.snapshot()")
                assert neutral(found) == neutral(state.snapshot())
                assert found["totals"] == state.totals
            # It stands still until it is told to go on, faster, to the end.
            assert page.evaluate("dashboard.player.time") == 2.999
            page.evaluate(
                "((speed) => { speed.value = '20'; speed.dispatchEvent(new Event('input')); })"
                "(document.getElementById('speed'))"
            )
            page.evaluate("document.getElementById('network').focus()")
            page.press("Space")
            page.until("dashboard.player.time === 6")
            page.until("document.getElementById('play').textContent === 'Play'")
            assert page.evaluate("dashboard.state.peers.size") == 6
            assert page.evaluate("[...dashboard.state.peers.values()].filter((peer) => !peer.running).length") == 1
            page.close()
        finally:
            future.cancel()


def test_real_peers(open_page: Open) -> None:
    """The page stands for a mesh: a click appends, and a partition shows two colours and then one."""

    async def run(*, task_status: anyio.abc.TaskStatus[tuple[LocalNetwork, Dashboard, str]]) -> None:
        network = LocalNetwork(NetworkPlan(peers=5, processes=1), lambda event: dashboard.publish(event))
        auto_append = AutoAppend(network.append_anywhere, 0.0)
        dashboard = Dashboard("real peers", NetworkControls(network, auto_append), clock=network.now)
        async with anyio.create_task_group() as tasks:
            address = await tasks.start(dashboard.serve)
            async with network:
                task_status.started((network, dashboard, address.url("http")))
                await anyio.sleep_forever()

    with start_blocking_portal() as portal:
        future, (network, dashboard, url) = portal.start_task(run)
        try:
            page = open_page(url)
            page.until(
                "dashboard.state.peers.size === 6 && [...dashboard.state.others.values()].every((each) => each.size)"
            )
            names = [name for name, peer in portal.call(dashboard.snapshot)["peers"].items() if peer["kind"] == "peer"]
            click_where_it_is(page, names[0])
            page.until(f"{names}.every((name) => dashboard.state.peers.get(name).messages === 1)")
            page.until("dashboard.isShown && document.getElementById('verdict').textContent === 'all logs are equal'")
            rows = {row["peer"]: row for row in page.evaluate(ROWS)}
            (root,) = portal.call(lambda: network.roots)
            assert {rows[name]["root"] for name in names} == {root}
            assert len({rows[name]["colour"] for name in names}) == 1

            page.click("#partition")
            groups = page.until("dashboard.state.groups")
            apart = [next(name for name in group if name in names) for group in groups]
            for name in apart:
                click_where_it_is(page, name)
            page.until("document.getElementById('verdict').textContent === '2 different logs'")
            page.click("#heal")
            page.until(f"{names}.every((name) => dashboard.state.peers.get(name).messages === 3)")
            page.until("document.getElementById('verdict').textContent === 'all logs are equal'")
            assert len(portal.call(lambda: network.roots)) == 1
            page.close()
        finally:
            future.cancel()
