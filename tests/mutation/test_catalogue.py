"""The lists of mutants, and how they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.citations import MACHINES, numbered
from tests.mutation import catalogue
from tests.mutation.catalogue import PACKAGE, CatalogueError, Mutant

CHECKLISTS = Path(__file__).parent.parent / "pubsub" / "checklists"
MUTANTS = catalogue.read()


@pytest.mark.integration
def test_each_mutant_changes_its_source() -> None:
    for mutant in MUTANTS:
        source = catalogue.source_of(mutant)
        assert mutant.apply(source) != source


def test_each_rule_has_mutants() -> None:
    rules = {mutant.rule for mutant in MUTANTS if not mutant.equivalent}
    documents = {f"Seed {path.stem[:3]}": path for path in CHECKLISTS.glob("*.md")}
    documents |= {machine: PACKAGE / path for machine, path in MACHINES.items()}
    for document, path in documents.items():
        numbers = numbered(path.read_text("utf-8").partition("from __future__")[0])
        assert numbers == list(range(1, len(numbers) + 1))
        assert {number for of, number in rules if of == document} == set(numbers)
    assert len(MUTANTS) >= 400


LIST = """@ pubsub/rpc.py
# Seed 001, 11: a name, and more
- first
-     second
+ other
# Broadcast, 3: another
- one
~ why
"""


def test_lists_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LIST)
    assert catalogue.read(tmp_path) == [
        Mutant("a name, and more", ("Seed 001", 11), "pubsub/rpc.py", "first\n    second", "other"),
        Mutant("another", ("Broadcast", 3), "pubsub/rpc.py", "one", "", "why"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("@ a.py\n# a name\n- old\n", "line 2: expected a rule and a name: 'a name'"),
        ("@ a.py\n# Seed 9, 1: name\n- old\n", "expected a rule and a name"),
        ("# Push, 1: name\n- old\n", "name: expected a source and an old text"),
        ("@ a.py\n# Push, 1: name\n+ new\n", "name: expected a source and an old text"),
        ("@ a.py\n- old\n", "line 2: a text without a mutant"),
        ("@ a.py\n# Push, 1: name\n-old\n", "line 3: expected one of"),
        ("@ a.py\n" + 2 * "# Push, 1: name\n- old\n", "the same change as Push, 1: name"),
    ],
)
def test_mistakes_are_named(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(CatalogueError, match=reason):
        catalogue.read(tmp_path)


def test_what_cannot_be_applied() -> None:
    mutant = Mutant("name", ("Push", 1), "a.py", "old", "(")
    for source, reason in (("new", "stands 0 times"), ("old, old", "stands 2 times"), ("old", "no Python")):
        with pytest.raises(CatalogueError, match=reason):
            mutant.apply(source)
