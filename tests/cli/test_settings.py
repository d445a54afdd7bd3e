"""Options of `gossiplog serve` from the command line, the environment and a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from gossiplog.cli.main import build
from gossiplog.cli.settings import MAX_FILE_BYTES, key, misspelt, variable
from tests.cli.support import Program, Result

Show = Callable[..., dict[str, Any]]

ABOUT = {"config", "show_config", "help"}
COMMAND = typer.main.get_group(build(["serve"])).commands["serve"]
OPTIONS = {option.name: option for option in COMMAND.params if option.name not in {*ABOUT, "path"}}


@pytest.fixture
def show(program: Program, log: Path) -> Show:
    """The options as they would be used, with where each comes from."""

    def run(*arguments: str | Path) -> dict[str, Any]:
        result = program("serve", log, *arguments, "--show-config", "--json")
        assert (result.code, result.err) == (0, "")
        found: dict[str, Any] = result.record
        return {name: (entry["value"], entry["from"]) for name, entry in found.items()}

    return run


def test_the_order_of_precedence(show: Show, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert show()["connections"] == (1024, "default")
    (home / "a.toml").write_text('connections = 1\nallow-host = ["file.example.org"]\nlog-level = "info"\n')
    assert show("--config", "a.toml")["connections"] == (1, "connections in a.toml")
    monkeypatch.setenv("GOSSIPLOG_CONNECTIONS", "2")
    monkeypatch.setenv("GOSSIPLOG_ALLOW_HOST", "a.example.org  b.example.org")
    found = show("--config", "a.toml")
    assert found["connections"] == (2, "GOSSIPLOG_CONNECTIONS")
    assert found["allow-host"] == (["a.example.org", "b.example.org"], "GOSSIPLOG_ALLOW_HOST")
    assert found["log-level"] == ("info", "log-level in a.toml")
    found = show("--config", "a.toml", "--connections", "3", "--allow-host", "c.example.org")
    assert found["connections"] == (3, "--connections")
    assert found["allow-host"] == (["c.example.org"], "--allow-host")
    monkeypatch.setenv("GOSSIPLOG_CONFIG", "a.toml")
    assert show()["log-level"] == ("info", "log-level in a.toml")
    # An empty variable is none.
    monkeypatch.setenv("GOSSIPLOG_CONNECTIONS", "")
    assert show()["connections"] == (1, "connections in a.toml")


_PEER = "12D3KooWQYV9dGMFoRzNStwpXztXaBUjtPqi6aU76ZgUriHhKust"
# One that differs from the default of each option, as it is written in a file, and in the environment.
VALUES: dict[str, tuple[Any, str]] = {
    "hub": ("127.0.0.1:0", "127.0.0.1:0"),
    "listen": (["/ip4/127.0.0.1/tcp/0/ws"], "/ip4/127.0.0.1/tcp/0/ws"),
    "bootstrap": (["/ip4/127.0.0.1/tcp/1"], "/ip4/127.0.0.1/tcp/1"),
    "allow_peer": (
        ["12D3KooWQYV9dGMFoRzNStwpXztXaBUjtPqi6aU76ZgUriHhKust"],
        "12D3KooWQYV9dGMFoRzNStwpXztXaBUjtPqi6aU76ZgUriHhKust",
    ),
    "block_peer": ([_PEER], _PEER),
    "announce": (["/ip4/192.0.2.1/tcp/1"], "/ip4/192.0.2.1/tcp/1"),
    "mdns": (True, "true"),
    "identity": ("an identity", "an identity"),
    "gossip": (["d=8", "d_low=6"], "d=8 d_low=6"),
    "router": ("gossipsub", "gossipsub"),
    "metrics_port": (9100, "9100"),
    "metrics_host": ("0.0.0.0", "0.0.0.0"),
    "topic": ('"quoted"\t\x7fé', '"quoted"\t\x7fé'),
    "allow_host": (["hub.example.org"], "hub.example.org"),
    "allow_origin": (["https://example.org"], "https://example.org"),
    "read_token": ("reading", "reading"),
    "write_token": ("writing", "writing"),
    "certificate": ("chain.pem", "chain.pem"),
    "private_key": ("key.pem", "key.pem"),
    "connections": (7, "7"),
    "connections_per_address": (5, "5"),
    "trusted_proxy": (["192.0.2.0/24"], "192.0.2.0/24"),
    "streams": (9, "9"),
    "peer_bytes": (9_000_000, "9000000"),
    "total_bytes": (100_000_000, "100000000"),
    "log_level": ("error", "error"),
    "log_format": ("json", "json"),
    "events": (False, "false"),
    "access_log": (True, "1"),
    "dashboard": (True, "true"),
    "json": (True, "yes"),
}


@pytest.fixture
def secrets(home: Path) -> None:
    for name in ("reading", "writing"):
        (home / name).touch()


def test_every_option_has_a_value_here() -> None:
    assert VALUES.keys() == OPTIONS.keys()


@pytest.mark.usefixtures("secrets")
def test_every_option_can_be_set_in_a_file_and_is_shown_as_one(program: Program, log: Path, home: Path) -> None:
    lines = [f"{key(name)} = {json.dumps(value)}" for name, (value, _) in VALUES.items()]
    (home / "all.toml").write_text("\n".join(lines).replace("\x7f", "\\u007f"))
    shown = program("serve", log, "--config", "all.toml", "--show-config", "--no-mdns")
    # JSON is asked for in the file, too.
    found = {name: entry["value"] for name, entry in shown.record.items()}
    assert found == {key(name): value for name, (value, _) in VALUES.items()} | {"mdns": False}
    without = [line for line in lines if not line.startswith("json")]
    (home / "all.toml").write_text("\n".join(without).replace("\x7f", "\\u007f"))
    text = program("serve", log, "--config", "all.toml", "--show-config").out
    (home / "shown.toml").write_text(text)
    again = program("serve", log, "--config", "shown.toml", "--show-config").out
    assert tomllib.loads(again) == tomllib.loads(text) == {**found, "mdns": True, "json": False}


@pytest.mark.usefixtures("secrets")
def test_every_option_can_be_set_by_a_variable(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (_, value) in VALUES.items():
        monkeypatch.setenv(variable(name), value)
    assert show() == {
        key(name): (value, variable(name) if name != "json" else "--json") for name, (value, _) in VALUES.items()
    }


def test_parameters_of_gossip_may_be_a_table(show: Show, home: Path) -> None:
    (home / "a.toml").write_text('listen = ["/ip4/127.0.0.1/tcp/0/ws"]\n[gossip]\nd = 8\nheartbeat_interval = 0.5\n')
    assert show("--config", "a.toml")["gossip"][0] == ["d=8", "heartbeat_interval=0.5"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("conections = 1", "a.toml sets 'conections', which is not an option: did you mean connections?"),
        ("read_token = 'a'", "a.toml sets 'read_token', which is not an option: did you mean read-token?"),
        ("colour = 1", "a.toml sets 'colour', which is not an option: expected one of access-log, allow-host,"),
        ("config = 'b.toml'", "a.toml sets 'config', which is not an option"),
        ("'odd\\u001bkey' = 1", "a.toml sets 'odd\\\\u001bkey', which is not an option"),
        (
            "connections = '1'",
            "a.toml: the value of connections is a string; expected a whole number, such as connections = 1",
        ),
        ("connections = true", "the value of connections is true or false; expected a whole number"),
        ("connections = 1.5", "the value of connections is a number; expected a whole number"),
        ("mdns = 'yes'", "the value of mdns is a string; expected true or false"),
        (
            "allow-host = 'a'",
            'the value of allow-host is a string; expected a list of strings, such as allow-host = ["…"]',
        ),
        ("allow-host = [1]", "the value of allow-host is a list; expected a list of strings"),
        ("allow-host = {a = 1}", "the value of allow-host is a table; expected a list of strings"),
        ("hub = 8000", 'the value of hub is a number; expected a string, such as hub = "…"'),
        ("read-token = 2026-01-01", "the value of read-token is a date or a time; expected a string"),
        ("metrics-port = 70000", "metrics-port in a.toml: expected 65535 or less"),
        ("log-level = 'loud'", "log-level in a.toml: "),
        (
            "connections = 0",
            "a limit of 0 connections: expected 1 or more (options that are not on the command line: conn",
        ),
        ("hub", "a.toml is not TOML: "),
        ("# \udcff", "a.toml is not TOML: "),
        ("hub = " + "[" * 5000, "a.toml cannot be used: its lists and tables are nested too deeply"),
        ("#" * (MAX_FILE_BYTES + 1), "a.toml has more than 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(program: Program, log: Path, home: Path, text: str, reason: str) -> None:
    (home / "a.toml").write_text(text, encoding="utf-8", errors="surrogateescape")
    result = program("serve", log, "--config", "a.toml")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert reason in result.err


def test_a_file_that_is_not_there_is_named(program: Program, log: Path) -> None:
    result = program("serve", log, "--config", "missing.toml")
    assert (result.code, "cannot read missing.toml: No such file" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("many", "Invalid value for GOSSIPLOG_METRICS_PORT: "),
        (
            "tcp://10.0.0.1:9100",
            "Kubernetes sets this variable for a service of that name: set enableServiceLinks: false",
        ),
    ],
)
def test_what_is_wrong_in_a_variable_is_named(
    program: Program, log: Path, monkeypatch: pytest.MonkeyPatch, value: str, reason: str
) -> None:
    monkeypatch.setenv("GOSSIPLOG_METRICS_PORT", value)
    result = program("serve", log)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert reason in result.err


SECRET = "not-to-be-guessed-0123456789"


@pytest.mark.parametrize("secret", [SECRET, f"/{SECRET}", f"not/there/{SECRET}"])
@pytest.mark.parametrize("name", ["read_token", "write_token"])
def test_a_token_where_its_file_should_be_is_not_shown(
    program: Program, log: Path, home: Path, name: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "a.toml").write_text(f'{key(name)} = "{secret}"\n')
    results: list[Result] = [
        program("serve", log, *arguments, *show)
        for show in ([], ["--show-config"], ["--show-config", "--json"])
        for arguments in (["--config", "a.toml"], [f"--{key(name)}", secret])
    ]
    monkeypatch.setenv(variable(name), secret)
    results.append(program("serve", log))
    for result in results:
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert f"names no file (its {len(secret)} characters are not shown" in result.err
        assert SECRET not in result.out + result.err
    assert f"{key(name)} in a.toml names no file" in results[0].err
    assert f"{variable(name)} names no file" in results[-1].err


def test_the_name_of_a_file_of_a_token_is_shown(show: Show, program: Program, log: Path, home: Path) -> None:
    (home / "folder").mkdir()
    missing = home / "folder" / "token"
    assert show("--read-token", missing)["read-token"] == (str(missing), "--read-token")
    result = program("serve", log, "--read-token", missing)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert f"cannot read the token file {missing}: No such file" in result.err


def test_variables_that_are_misspelt_are_found() -> None:
    context = typer.Context(COMMAND)
    environment = {
        "GOSSIPLOG_CONECTIONS": "1",
        "GOSSIPLOG_CONNECTIONS": "1",
        "GOSSIPLOG_CONFIG": "a.toml",
        "GOSSIPLOG_CORE": "rust",
        # Kubernetes has them for a service that is called gossiplog.
        "GOSSIPLOG_SERVICE_HOST": "10.0.0.1",
        "GOSSIPLOG_SERVICE_PORT": "80",
        "GOSSIPLOG_PORT": "tcp://10.0.0.1:80",
        "GOSSIPLOG_PORT_80_TCP_ADDR": "10.0.0.1",
        "CONECTIONS": "1",
    }
    assert misspelt(context, environment) == [
        "the variable 'GOSSIPLOG_CONECTIONS' sets no option: did you mean GOSSIPLOG_CONNECTIONS?"
    ]


@pytest.mark.parametrize("more", [[], ["--show-config"]])
def test_a_token_that_is_too_long_for_a_path_is_not_shown(
    program: Program, log: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.setenv("GOSSIPLOG_WRITE_TOKEN", "secret" * 50)
    result = program("serve", log, *more)
    assert "300 characters" in result.out + result.err
    assert "secret" not in result.out + result.err
