from __future__ import annotations

from collections import defaultdict
from contextlib import AbstractContextManager, ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.net.http.addresses import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    RENEWAL_SECONDS,
    UNIX,
    UNKNOWN,
    USUAL_CONNECTIONS,
    Addresses,
    Rates,
    Refusal,
    is_within,
    limit_of,
    read_networks,
    source_of,
)
from gossiplog.net.rate_limited_log import MOST_REMEMBERED
from tests.strategies import repeatable

HOSTS = ("10.0.0.1", "10.0.0.2")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::1", "::1"),
        (None, UNIX),
        ("unknown", UNKNOWN),
        ("127.0.0.1/8", UNKNOWN),
        ("a Unix socket", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_an_address_counts_as_itself_or_its_network(host: str | None, source: str) -> None:
    assert source_of(host) == source


@pytest.mark.parametrize(
    ("source", "limit", "expected"),
    [
        ("10.0.0.1", None, USUAL_CONNECTIONS),
        ("2001:db8:1:2::/64", None, USUAL_CONNECTIONS),
        ("127.0.0.1", None, None),
        ("127.8.0.1", None, None),
        ("::1", None, None),
        (UNKNOWN, None, USUAL_CONNECTIONS),
        (UNKNOWN, 3, 3),
        (UNIX, None, None),
        (UNIX, 3, None),
        ("127.0.0.1", 3, 3),
        ("10.0.0.1", 3, 3),
    ],
)
def test_loopback_addresses_have_a_limit_only_when_one_is_given(
    source: str, limit: int | None, expected: int | None
) -> None:
    assert limit_of(source, limit) == expected


def test_connections_are_counted_by_address() -> None:
    addresses = Addresses(2, Clock())
    with ExitStack() as stack:
        for _ in range(2):
            assert addresses.refusal("2001:db8::1") is None
            stack.enter_context(addresses.connected("2001:db8::1"))
        refusal = addresses.refusal("2001:db8::2")
        assert refusal is not None
        assert refusal.reason == "2001:db8::/64 has its 2 connections: close one first"
        assert addresses.refusal("2001:db8:0:1::1") is None
    assert addresses.refusal("2001:db8::2") is None
    assert not addresses._counts


@pytest.mark.parametrize(("limit", "most"), [(1, USUAL_CONNECTIONS), (None, USUAL_CONNECTIONS), (50, 50)])
def test_an_address_opens_a_limited_number_of_connections(limit: int | None, most: int) -> None:
    clock = Clock()
    addresses = Addresses(limit, clock)

    def open_and_close(host: str = "10.0.0.1") -> Refusal | None:
        refusal = addresses.refusal(host)
        if refusal is None:
            with addresses.connected(host):
                pass
        return refusal

    assert [open_and_close() for _ in range(most)] == [None] * most
    refusal = open_and_close()
    assert refusal is not None
    assert refusal.reason == (
        f"10.0.0.1 may open {most} connections at once, and then {most} in 10 s: wait {RENEWAL_SECONDS / most:.1f} s"
    )
    assert open_and_close("10.0.0.2") is None
    # Being refused costs no time.
    assert open_and_close() == refusal
    clock.now += refusal.seconds
    assert open_and_close() is None
    assert open_and_close() is not None
    clock.now += RENEWAL_SECONDS
    assert [open_and_close() for _ in range(most)] == [None] * most
    assert open_and_close() is not None


def test_the_first_ten_seconds_have_nearly_twice_as_many_connections_and_the_next_ones_as_many() -> None:
    clock = Clock()
    addresses = Addresses(clock=clock)

    def opened_in_ten_seconds() -> int:
        opened = 0
        for _ in range(1000):
            if addresses.refusal("10.0.0.1") is None:
                opened += 1
                with addresses.connected("10.0.0.1"):
                    pass
            clock.now += RENEWAL_SECONDS / 1000
        return opened

    assert opened_in_ten_seconds() == 2 * USUAL_CONNECTIONS - 1
    assert opened_in_ten_seconds() == USUAL_CONNECTIONS


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", None])
def test_local_programs_open_connections_as_often_as_they_like(host: str | None) -> None:
    addresses = Addresses(clock=Clock())
    for _ in range(10 * USUAL_CONNECTIONS):
        assert addresses.refusal(host) is None
        with addresses.connected(host):
            pass


def test_addresses_that_opened_connections_are_bounded() -> None:
    addresses = Addresses(clock=Clock())
    for number in range(2 * MOST_REMEMBERED):
        with addresses.connected(f"10.0.{number // 256}.{number % 256}"):
            pass
    assert len(addresses._opened._renewals) == MOST_REMEMBERED


@pytest.mark.parametrize(("limit", "most"), [(1, USUAL_CONNECTIONS), (None, USUAL_CONNECTIONS), (50, 50)])
def test_an_address_shows_a_limited_number_of_wrong_tokens(limit: int | None, most: int) -> None:
    clock = Clock()
    addresses = Addresses(limit, clock)
    for _ in range(most):
        assert addresses.token_refusal("10.0.0.1") is None
        addresses.count_wrong_token("10.0.0.1")
    refusal = addresses.token_refusal("10.0.0.1")
    assert refusal is not None
    seconds = RENEWAL_SECONDS / most
    assert refusal == Refusal(
        "rate", f"too many requests of 10.0.0.1 had a wrong token: show one again in {seconds:.1f} s", refusal.seconds
    )
    assert refusal.seconds == pytest.approx(seconds)
    assert addresses.token_refusal("10.0.0.2") is None
    # It is no reason against connections.
    assert addresses.refusal("10.0.0.1") is None
    clock.now += refusal.seconds
    assert addresses.token_refusal("10.0.0.1") is None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", None])
def test_local_programs_show_wrong_tokens_as_often_as_they_like(host: str | None) -> None:
    addresses = Addresses(clock=Clock())
    for _ in range(10 * USUAL_CONNECTIONS):
        addresses.count_wrong_token(host)
        assert addresses.token_refusal(host) is None


def test_addresses_that_showed_wrong_tokens_are_bounded() -> None:
    addresses = Addresses(clock=Clock())
    for number in range(2 * MOST_REMEMBERED):
        addresses.count_wrong_token(f"10.0.{number // 256}.{number % 256}")
    assert len(addresses._wrong_tokens._renewals) == MOST_REMEMBERED


def test_who_broke_a_rule_is_let_in_after_a_pause_that_doubles() -> None:
    clock = Clock()
    addresses = Addresses(clock=clock)
    pauses = []
    for _ in range(8):
        addresses.shun("10.0.0.1")
        refusal = addresses.refusal("10.0.0.1")
        assert refusal is not None
        assert "broke a rule" in refusal.reason
        assert addresses.refusal("10.0.0.2") is None
        pauses.append(refusal.seconds)
        clock.now += refusal.seconds
        assert addresses.refusal("10.0.0.1") is None
    assert pauses == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, LONGEST_PAUSE, LONGEST_PAUSE]
    clock.now += 3600
    addresses.shun("10.0.0.1")
    refusal = addresses.refusal("10.0.0.1")
    assert refusal is not None
    assert refusal.seconds == FIRST_PAUSE


@repeatable(100)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("shun"), st.sampled_from(HOSTS)),
            st.tuples(st.just("open"), st.sampled_from(HOSTS)),
            st.tuples(st.just("close"), st.sampled_from(HOSTS)),
            st.tuples(st.just("wait"), st.sampled_from([1, 9, 10, 3600])),
        ),
        max_size=40,
    )
)
def test_an_address_is_let_in_after_its_pause_and_not_before_and_gives_its_places_back(
    steps: list[tuple[str, str | int]],
) -> None:
    clock = Clock()
    addresses = Addresses(3, clock)
    ends, pauses = dict.fromkeys(HOSTS, 0.0), dict.fromkeys(HOSTS, 0.0)
    open_connections: dict[str, list[AbstractContextManager[None]]] = defaultdict(list)
    for step in steps:
        match step:
            case "shun", str(host):
                began = ends[host] - pauses[host]
                repeated = pauses[host] > 0 and clock.now - began < 3600
                pauses[host] = min(2 * pauses[host], LONGEST_PAUSE) if repeated else FIRST_PAUSE
                ends[host] = clock.now + pauses[host]
                addresses.shun(host)
            case "open", str(host):
                if addresses.refusal(host) is None:
                    connection = addresses.connected(host)
                    connection.__enter__()
                    open_connections[host].append(connection)
            case "close", str(host):
                if open_connections[host]:
                    open_connections[host].pop().__exit__(None, None, None)
            case "wait", int(seconds):
                clock.now += seconds
        for host in HOSTS:
            refusal = addresses.refusal(host)
            assert (refusal is not None and refusal.kind == "banned") == (clock.now < ends[host])
            assert len(open_connections[host]) <= 3
            if clock.now >= ends[host] and len(open_connections[host]) == 3:
                assert refusal is not None
                assert refusal.kind == "address"
    for connections in open_connections.values():
        for connection in connections:
            connection.__exit__(None, None, None)
    assert not addresses._counts


def test_a_page_is_paused_and_not_the_address_of_its_visitor() -> None:
    addresses = Addresses(clock=Clock())
    addresses.shun("10.0.0.1", "https://a.example")
    refusal = addresses.refusal("10.0.0.1", "https://a.example")
    assert refusal is not None
    assert refusal.reason == "10.0.0.1 is let in again in 10 s: this page there broke a rule"
    for host, page in (("10.0.0.1", ""), ("10.0.0.1", "https://b.example"), ("10.0.0.2", "https://a.example")):
        assert addresses.refusal(host, page) is None
    # Who is no browser may claim to be a page.
    addresses.shun("10.0.0.2")
    assert addresses.refusal("10.0.0.2", "https://a.example") is not None
    addresses.shun("127.0.0.1", "https://a.example")
    assert addresses.refusal("127.0.0.1", "https://a.example") is None


def test_pages_that_somebody_claims_to_be_take_no_place_from_paused_addresses() -> None:
    addresses = Addresses(clock=Clock())
    addresses.shun("10.0.0.1")
    for number in range(MOST_REMEMBERED + 1):
        addresses.shun("10.0.0.2", f"https://{number}.example")
    assert len(addresses._page_pauses) == MOST_REMEMBERED
    assert addresses.refusal("10.0.0.1") is not None


@pytest.mark.parametrize("limit", [None, 5])
def test_a_local_client_is_never_paused(limit: int | None) -> None:
    """It may be a proxy that nobody has named, with all clients behind it."""
    addresses = Addresses(limit, Clock())
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", None):
        addresses.shun(host)
        assert addresses.refusal(host) is None


def test_clients_of_unknown_addresses_share_what_one_address_has() -> None:
    addresses = Addresses(2, Clock())
    with addresses.connected("unknown"), addresses.connected("_hidden"):
        refusal = addresses.refusal("unknown, 10.0.0.1")
        assert refusal is not None
        assert refusal.reason == f"{UNKNOWN} has its 2 connections: close one first"
    addresses.shun("unknown")
    assert addresses.refusal("_hidden") is not None


def test_pauses_are_bounded() -> None:
    addresses = Addresses(clock=Clock())
    for number in range(MOST_REMEMBERED + 1):
        addresses.shun(f"10.0.{number // 256}.{number % 256}")
    assert len(addresses._pauses) == MOST_REMEMBERED
    assert addresses.refusal("10.0.0.0") is None
    assert addresses.refusal("10.0.0.1") is not None


def test_networks_of_proxies() -> None:
    networks = read_networks(["10.0.0.0/8", "192.168.1.7", "2001:db8::/32"])
    within = ["10.2.3.4", "192.168.1.7", "2001:db8:5::1"]
    assert all(is_within(host, networks) for host in within)
    assert not any(is_within(host, networks) for host in ("11.0.0.1", "192.168.1.8", "unknown"))
    with pytest.raises(ValueError, match="nonsense"):
        read_networks(["nonsense"])


def test_rates_of_amounts() -> None:
    """As much as the burst at once, then so much of it in so much of RENEWAL_SECONDS."""
    clock = Clock()
    rates = Rates(clock)
    rates.count("a", 100, 60)
    assert rates.wait("a", 100) == 0
    rates.count("a", 100, 60)
    assert rates.wait("a", 100) == pytest.approx(RENEWAL_SECONDS * (0.2 + 0.01))
    clock.now = 1.2 * RENEWAL_SECONDS
    assert rates.wait("a", 100) == 0
    assert rates.wait("b", 100) == 0
