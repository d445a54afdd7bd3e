from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gossiplog import Signer

EXAMPLE = Path(__file__).parent.parent / "examples" / "register.py"


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    specification = importlib.util.spec_from_file_location("register", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "register", module)
    specification.loader.exec_module(module)
    return module


def test_it_runs(register: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    register.main()
    apart, synced = capsys.readouterr().out.split("synced:\n")
    assert len(set(apart.splitlines()[1:])) == 2
    ada, ben, roots = synced.splitlines()
    assert ada == ben
    assert "'size': 'large'" in ada
    assert roots == "equal roots: True"


def test_every_order_of_arrival_gives_the_same_register(register: ModuleType, tmp_path: Path) -> None:
    messages = []
    for author in range(3):
        with register.open_register(str(tmp_path / f"author-{author}.db"), Signer(bytes([author]) * 32)) as log:
            messages += [register.write(log, "x", f"{author} {n}") for n in range(author + 1)]
    winner = max(messages, key=lambda message: message.id)
    chains = {author: [m for m in messages if m.author == author] for author in {m.author for m in messages}}
    for number, order in enumerate(itertools.permutations(chains)):
        path = str(tmp_path / f"{number}.db")
        with register.open_register(path, Signer(bytes(32))) as log:
            for author in order:
                for message in chains[author]:
                    log.insert(message)
        assert register.read(path) == {"x": winner.payload["value"]}


@pytest.mark.parametrize("payload", [None, 1, [], {"name": "x"}, {"name": "x", "value": 7}])
def test_what_is_no_write_is_passed_over(register: ModuleType, tmp_path: Path, payload: object) -> None:
    path = str(tmp_path / "log.db")
    with register.open_register(path, Signer(bytes(32))) as log:
        register.write(log, "x", "before")
        log.append(payload)
        assert len(log) == 2
    assert register.read(path) == {"x": "before"}
