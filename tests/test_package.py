"""The names of the package itself (`gossiplog/__init__.py`)."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import typing
from importlib import metadata

import pytest

import gossiplog
from gossiplog import _core
from gossiplog.net import events

PLACES = {
    "Access": "gossiplog.net.http.access",
    "Apply": "gossiplog.log.applying",
    "ApplyTransaction": "gossiplog.storage.base",
    "BroadcastConfig": "gossiplog.protocol.broadcast.config",
    "Client": "gossiplog.net.client",
    "Event": "gossiplog.net.events",
    "GossipConfig": "gossiplog.pubsub.gossipsub.config",
    "Hub": "gossiplog.net.hub",
    "Limits": "gossiplog.net.transport.limits",
    "Peer": "gossiplog.net.peer",
    "PeerInfo": "gossiplog.net.events",
    "Setup": "gossiplog.log.applying",
    "SyncServerConfig": "gossiplog.protocol.sync.server",
    "connect": "gossiplog.net.client",
    "serve": "gossiplog.net.http.server",
} | {kind.__name__: events.__name__ for kind in typing.get_args(events.Event)}


def test_the_version_is_the_installed_one() -> None:
    assert gossiplog.__version__ == metadata.version("gossiplog") == _core.__version__


@pytest.mark.parametrize("name", sorted(PLACES))
def test_names_of_the_network_and_of_types_can_be_imported_from_the_package(name: str) -> None:
    assert getattr(gossiplog, name) is getattr(importlib.import_module(PLACES[name]), name)
    assert name in gossiplog.__all__


def test_every_name_is_there_and_listed() -> None:
    assert {name for name in gossiplog.__all__ if not hasattr(gossiplog, name)} == set()
    assert {name for name in dir(gossiplog) if not name.startswith("__")} == set(gossiplog.__all__)
    assert "__version__" in dir(gossiplog)


def test_the_help_of_the_package_begins_with_its_names() -> None:
    listed = set(re.findall(r"\w+", (gossiplog.__doc__ or "").partition("- a log:")[2]))
    assert {name for name in gossiplog.__all__ if name not in listed} == set()


def test_importing_the_package_loads_no_network() -> None:
    """Nor what only some methods of a log need."""
    program = (
        "import sys, gossiplog; signer = gossiplog.Signer.generate();"
        "log = gossiplog.open(':memory:', 'org.example.test', signer=signer);"
        "log.append(1); gossiplog.Apply, gossiplog.ApplyTransaction;"
        "print([name for name in ('anyio', 'starlette', 'uvicorn', 'pydantic', 'google.protobuf', 'gossiplog.net',"
        " 'psycopg', 'gossiplog.dashboard',"
        " 'gossiplog.reference', 'gossiplog.log.insertion', 'gossiplog.log.recovery', 'concurrent.futures', 'logging',"
        " 'secrets', 'tempfile', 'traceback', 'typing_extensions', 'importlib.metadata') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
