"""Peers of a mesh as a user runs them: each a process."""

from __future__ import annotations

import json
import re
import signal
import stat
import urllib.request
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from gossiplog.cli.serve.command import serve
from gossiplog.net.routing.kinds import ROUTERS
from tests.cli.support import PATIENCE, Program, Server, following

LISTEN = ("--listen", "/ip4/127.0.0.1/tcp/0/ws")


class Served(Server):
    """A peer."""

    @property
    def address(self) -> str:
        return str(self.ready["listen"][0])


@pytest.mark.integration
def test_two_peers_get_what_the_other_appends(program: Program, log: Path) -> None:
    program("append", log, '"offline"')
    with Served(log, *LISTEN) as one:
        assert one.ready.keys() == {"log", "topic", "peer", "listen"}
        assert one.address.endswith(f"/p2p/{one.ready['peer']}")
        with Served("two.db", "--topic", "notes", "--bootstrap", one.address) as two:
            assert two.ready["listen"] == []
            assert program("read", "two.db", "--follow", "--limit", "1").record["payload"] == "offline"
            assert one.record("connected")["peer"] == two.ready["peer"]
            assert two.record("grafted")["peer"] == one.ready["peer"]
            program("append", "two.db", '"live"')
            found = program("read", log, "--follow", "--limit", "2").records
            assert [record["payload"] for record in found] == ["offline", "live"]
            assert two.stop() == 0
        assert one.record("disconnected")["peer"] == two.ready["peer"]
        assert one.stop() == 0


@pytest.mark.integration
def test_a_peer_that_is_blocked_is_not_let_in(program: Program, log: Path) -> None:
    with Served("two.db", "--topic", "notes", *LISTEN) as two:
        blocked = two.ready["peer"]
    with (
        Served(log, *LISTEN, "--block-peer", blocked, "--metrics-port", "0") as one,
        Served("two.db", "--topic", "notes", "--bootstrap", one.address),
        Served("three.db", "--topic", "notes", "--bootstrap", one.address) as three,
    ):
        assert one.record("connected")["peer"] == three.ready["peer"]
        refused, url = "", one.ready["metrics"].removesuffix("/metrics")
        while not re.search(r'refused_connections_total{reason="peer"} [1-9]', refused):
            with urllib.request.urlopen(one.ready["metrics"]) as answer:
                refused = answer.read().decode()
        assert [record["peer"] for record in program("peers", url).records] == [three.ready["peer"]]


@pytest.mark.integration
def test_the_identity_is_a_file_beside_the_log(program: Program, log: Path, home: Path) -> None:
    with Served(log, *LISTEN) as one:
        before = one.ready["peer"]
    path = home / "notes.db.identity"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Served(log, *LISTEN) as again:
        assert again.ready["peer"] == before
    with Served(log, *LISTEN, "--identity", home / "other") as other:
        assert other.ready["peer"] != before
    path.chmod(0o644)
    result = program("serve", log, *LISTEN)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert f"chmod 600 {path}" in result.err


@pytest.mark.integration
def test_a_hub_in_a_mesh_passes_on_what_comes_from_either_side(program: Program, log: Path) -> None:
    with Served(log, "--hub", "127.0.0.1:0", *LISTEN) as both:
        assert both.ready["hub"].startswith("ws://127.0.0.1:")
        with Served("two.db", "--topic", "notes", "--bootstrap", both.address) as two:
            two.record("grafted")
            program("init", "client.db", "--topic", "notes")
            program("append", "client.db", '"from the client"')
            assert program("sync", "client.db", both.ready["hub"]).record["sent"] == 1
            assert program("read", "two.db", "--follow", "--limit", "1").record["payload"] == "from the client"
            program("append", "two.db", '"from the mesh"')
            assert len(program("read", log, "--follow", "--limit", "2").records) == 2
            assert program("sync", "client.db", both.ready["hub"]).record["inserted"] == 1
        assert both.stop() == 0


@pytest.mark.integration
def test_metrics_and_peers_on_a_port_of_their_own(program: Program, log: Path) -> None:
    program("append", log, "1")
    with Served(log, *LISTEN, "--metrics-port", "0") as one:
        url = one.ready["metrics"].removesuffix("/metrics")
        assert program("peers", url).records == []
        with Served("two.db", "--topic", "notes", "--bootstrap", one.address) as two:
            one.record("grafted")
            record = program("peers", url).record
            assert (record["peer"], record["kind"], record["dialer"]) == (two.ready["peer"], "mesh", False)
            assert record["in_mesh"]
            with urllib.request.urlopen(one.ready["metrics"]) as answer:
                metrics = answer.read().decode()
            assert "\ngossiplog_mesh_peers 1.0\n" in metrics
            assert 'gossiplog_network_total{event="gossip_received"}' in metrics


@pytest.mark.integration
def test_a_log_is_synced_with_a_peer(program: Program, log: Path) -> None:
    program("append", log, "1", "2")
    program("init", "copy.db", "--topic", "notes")
    program("append", "copy.db", '"mine"')
    with Served(log, *LISTEN) as served:
        result = program("sync", "copy.db", served.address)
        assert (result.code, result.err) == (0, "")
        assert (result.record["inserted"], result.record["messages"]) == (2, 3)
        assert program("info", log).record["root"] == result.record["root"]
        made = program("sync", "new.db", served.address, "--topic", "notes")
        assert made.record["messages"] == 3
        with following("copy.db", served.address) as follower:
            assert json.loads(follower.stdout.readline())["messages"] == 3
            program("append", log, '"later"')
            assert len(program("read", "copy.db", "--follow", "--limit", "4").records) == 4
            follower.send_signal(signal.SIGINT)
            follower.communicate(timeout=PATIENCE)
            assert follower.returncode == 130


@pytest.mark.integration
def test_a_peer_that_cannot_be_reached_is_named(program: Program, log: Path) -> None:
    result = program("sync", log, "/ip4/127.0.0.1/tcp/1/ws")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)


@pytest.mark.integration
def test_a_peer_of_another_topic_is_said(program: Program, log: Path) -> None:
    with Served(log, *LISTEN) as served:
        for options in ([], ["--follow"]):
            result = program("sync", "other.db", served.address, "--topic", "elsewhere", *options)
            assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
            assert f"{served.address} serves the topic 'notes'; this log's is 'elsewhere'" in result.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["serve", "notes.db", "--identity", "key"], "are for a mesh"),
        (["serve", "notes.db", *LISTEN, "--write-token", "token"], "are for a hub's clients: give --hub, too"),
        (["serve", "notes.db", *LISTEN, "--access-log"], "are for a hub's clients: give --hub, too"),
        (["serve", "notes.db", *LISTEN, "--dashboard"], "are for a hub's clients: give --hub, too"),
        (
            ["serve", "notes.db", *LISTEN, "--allow-host", "a"],
            "--allow-host is for a hub's clients, or for --metrics-host",
        ),
        (["serve", "notes.db", "--announce", "/ip4/192.0.2.1/tcp/1/ws"], "are for a mesh"),
        (["serve", "notes.db", "--allow-peer", "12D3"], "are for a mesh"),
        (["serve", "notes.db", "--block-peer", "12D3"], "are for a mesh"),
        (["serve", "notes.db", *LISTEN, "--block-peer", "me"], '--block-peer: "me" is no peer id'),
        (["serve", "notes.db", "--metrics-port", "65536"], "--metrics-port"),
        (["serve", "notes.db", "--gossip", "d=8"], "are for a mesh"),
        (["serve", "notes.db", "--router", "episub"], "are for a mesh"),
        (["serve", "notes.db", *LISTEN, "--router", "episub", "--gossip", "d=8"], "--router episub does not have"),
        (["serve", "notes.db", *LISTEN, "--router", "simsub"], "episub"),
        (["serve", "notes.db", *LISTEN, "--gossip", "degree=8"], "expected one of d, d_low,"),
        (["serve", "notes.db", *LISTEN, "--gossip", "d=many"], "d is 'many'; expected a whole number"),
        (["serve", "notes.db", *LISTEN, "--gossip", "d=2"], "expected 0 <= d_low <= d <= d_high"),
        (["sync", "notes.db", "/ip4/127.0.0.1/tcp/1", "--token-file", "token"], "are for hubs"),
        (["peers", "ftp://127.0.0.1"], "is no address of a server"),
    ],
)
def test_wrong_options_are_refused(program: Program, log: Path, arguments: list[str], reason: str) -> None:
    result = program(*arguments)
    assert result.code == 2
    assert reason in result.err


def test_tokens_beside_a_mesh_are_warned_about(program: Program, log: Path) -> None:
    token = log.with_name("token")
    token.touch(0o600)
    token.write_text("not-to-be-guessed-0123456789\n")
    # The listener ends it: no address of this machine.
    options = ("--hub", "127.0.0.1:0", "--listen", "/ip4/192.0.2.1/tcp/9000", "--read-token", str(token))
    result = program("serve", log, *options)
    assert "WARNING the tokens hold for the hub alone" in result.err
    peer = "12D3KooWQYV9dGMFoRzNStwpXztXaBUjtPqi6aU76ZgUriHhKust"
    assert "WARNING" not in program("serve", log, *options, "--allow-peer", peer).err
    assert "WARNING" not in program("serve", log, *options[:4]).err
    assert '"me" is no peer id' in program("serve", log, *LISTEN, "--allow-peer", "me").err


def test_an_address_that_is_none_is_refused(program: Program, log: Path) -> None:
    result = program("serve", log, "--listen", "nonsense")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "nonsense" in result.err


def test_the_option_has_all_routers() -> None:
    hint = get_type_hints(serve, include_extras=True)["router"]
    assert get_args(get_args(hint)[0]) == ROUTERS


@pytest.mark.integration
@pytest.mark.parametrize("router", ["gossipsub", "floodsub", "episub"])
def test_peers_with_another_router_get_what_the_other_appends(program: Program, log: Path, router: str) -> None:
    with (
        Served(log, *LISTEN, "--router", router) as one,
        Served("two.db", "--topic", "notes", "--bootstrap", one.address, "--router", router) as two,
    ):
        assert two.record("grafted")["peer"] == one.ready["peer"]
        assert one.record("grafted")["peer"] == two.ready["peer"]
        program("append", "two.db", '"live"')
        found = program("read", log, "--follow", "--limit", "1").records
        assert [record["payload"] for record in found] == ["live"]
