"""`gossiplog.cli.options`: what several commands read alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest
import typer

from gossiplog.cli.network.command import network
from gossiplog.cli.options import read_address
from gossiplog.cli.serve.command import serve
from gossiplog.net.routing.kinds import ROUTERS


@pytest.mark.parametrize("command", [serve, network])
def test_all_routers_can_be_chosen(command: Callable[..., Any]) -> None:
    assert get_args(get_type_hints(command)["router"]) == ROUTERS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:8080", ("::1", 8080)),
        ("hub.example.org:65535", ("hub.example.org", 65535)),
        # Without a host others are not let in.
        (":8080", ("127.0.0.1", 8080)),
    ],
)
def test_addresses_to_listen_on(text: str, expected: tuple[str, int]) -> None:
    assert read_address("--listen", text, "127.0.0.1:0") == expected


@pytest.mark.parametrize(
    "text", ["", "8080", "localhost:", "localhost:http", "localhost:65536", "localhost:-1", "x:" + "9" * 5000, "x:٣"]
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(
        typer.BadParameter, match=r"--hub: .* expected HOST:PORT, the port up to 65535, as 127\.0\.0\.1:0"
    ):
        read_address("--hub", text, "127.0.0.1:0")
