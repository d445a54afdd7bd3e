"""canvas-js in a page: what it writes is read outside, what is written outside is read there, and it resumes."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Start
from tests.integration.javascript import JavaScriptPeer
from tests.integration.replica import Hub

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("browser")]


@pytest.fixture(params=["javascript", "trio"])
def hub(request: pytest.FixtureRequest, start: Start) -> Hub:
    server: Hub = start(request.param)
    return server


def test_page_is_loaded_anew(hub: Hub, start: Start) -> None:
    page = start("browser")
    url = hub.listen()
    page.connect(url)
    page.wait_for_message(hub.append("from the hub"))
    assert hub.wait_for_message(page.append("from the page")) == "push"
    assert page.wait_for_message(hub.append("and back")) == "push"
    before = page.state()

    page.reload()
    assert page.state() == before == hub.state()
    page.append("in the page, before it connects")
    if not isinstance(hub, JavaScriptPeer):
        # Where two peers of canvas-js sync with each other at once, one sync may fail, and none follows.
        hub.append("in the hub, meanwhile")
    page.connect(url)
    count = len({*hub.ids(), *page.ids()})
    assert page.wait(count=count) == hub.wait(count=count)
    assert hub.wait_for_message(page.append("after it resumed")) == "push"


def test_two_pages(hub: Hub, start: Start) -> None:
    one, other = start("browser"), start("browser")
    assert one.origin != other.origin
    url = hub.listen()
    one.connect(url)
    other.connect(url)
    first = hub.append("first")
    for page in (one, other):
        page.wait_for_message(first)
    other.wait_for_message(one.append("from one page to the other"))
    assert one.state() == other.wait(count=2)
