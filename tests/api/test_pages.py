"""docs/reference is what the docstrings say, and says all that a reader needs."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import gossiplog
from tests.readme import DOCS

FOLDER = DOCS / "reference"


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    try:
        from tests.api import pages as found
    except ImportError as error:
        pytest.fail(f"{error}: `make setup` installs it (griffelib of requirements.txt)")
    return found


def test_each_public_name_has_a_page() -> None:
    missing = [name for name in gossiplog.__all__ if not (FOLDER / f"{name}.md").exists()]
    assert missing == []


@pytest.mark.slow
def test_the_pages_are_those_of_the_docstrings(pages: ModuleType) -> None:
    """And so are the signatures: a change of a public one shows in signatures.txt."""
    expected = pages.written()
    stored = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert stored.keys() == expected.keys(), "run: make reference"
    assert [name for name in expected if stored[name] != expected[name]] == [], "run: make reference"


@pytest.mark.slow
def test_everything_is_described(pages: ModuleType) -> None:
    wrong = []
    for name in pages.names.public():
        entry = pages.names.entry(name)
        if not entry.text or not entry.example:
            wrong.append(name)
        for part in (entry, *entry.members):
            wrong += [f"{name} {part.name}"] if not part.text else []
            wrong += [f"{name} {part.name}({each.name})" for each in part.parameters if not each.text]
        wrong += [f"{name}.{each.name}" for each in entry.attributes if not each.text]
    assert wrong == []


def test_attributes_have_types(pages: ModuleType) -> None:
    """A payload may be anything; of no other attribute do the sources leave a reader to guess."""
    lines = pages.SIGNATURES.read_text(encoding="utf-8").splitlines()
    assert [line.split()[1] for line in lines if line.endswith(": Any")] == ["gossiplog.SignedMessage.raw_payload:"]


@pytest.mark.slow
def test_everything_of_the_jobs_on_spark_is_described(pages: ModuleType) -> None:
    entries = pages.names.spark_entries()
    wrong = [name for name, entry in entries.items() if not entry.text]
    for name, entry in entries.items():
        wrong += [f"{name}({each.name})" for each in entry.parameters if not each.text]
        wrong += [f"{name}.{each.name}" for each in entry.attributes if not each.text]
    assert wrong == []
    assert {"verify_fleet", "fleet_roots", "reconcile_fleet", "analyze_fleet"} <= entries.keys()


@pytest.mark.slow
def test_jobs_over_fleets_are_called_alike(pages: ModuleType) -> None:
    """A program that has the paths of a fleet gives them to any of them."""
    shape = ["session", "*paths", "topic", "recursive", "name_filter"]
    for name, entry in pages.names.spark_entries().items():
        parameters = [each.name for each in entry.parameters]
        if "fleet" in name and not name.startswith("write") and entry.kind == "function":
            assert parameters == shape, name
        # A job's first parameter is called so wherever it is a session.
        assert "spark" not in parameters, name


@pytest.mark.slow
def test_the_index_has_every_name(pages: ModuleType) -> None:
    listed = {name for _, names in pages.groups() for name in names}
    assert listed == set(pages.names.public())


def test_no_two_pages_have_one_name_where_case_does_not_count() -> None:
    stored = [path.name.lower() for path in FOLDER.iterdir()]
    assert len(stored) == len({*stored}) > 130


def anchors(text: str) -> set[str]:
    """What GitHub calls the sections of a page."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    wrong = []
    count = 0
    for path in FOLDER.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
            if not target.startswith("https://"):
                count += 1
                file, _, anchor = target.partition("#")
                other = (path.parent / file).resolve() if file else path
                if not other.exists() or (anchor and anchor not in anchors(other.read_text(encoding="utf-8"))):
                    wrong.append(f"{path.name}: {target}")
    assert wrong == []
    assert count > 500


@pytest.mark.slow
def test_names_keep_the_version_since_which_they_are_there(
    pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signatures = tmp_path / "signatures.txt"
    signatures.write_text("0.0  gossiplog.Log\n0.0  await gossiplog.serve()\n0.0  gossiplog.types.Set(name: str)\n")
    monkeypatch.setattr(pages, "SIGNATURES", signatures)
    versions = pages.since()
    assert {name for name, version in versions.items() if version == "0.0"} == {"Log", "serve", "types.Set"}
    assert {*versions.values()} == {"0.0", pages.present_version()}
    assert gossiplog.__version__.startswith(f"{pages.present_version()}.")


@pytest.mark.slow
def test_names_in_prose_are_links_but_on_their_own_pages(pages: ModuleType) -> None:
    text = "as `Log.at`, `gossiplog.open(...)`, `Set`, `limit` and `types.Counter`"
    md = ".md"
    assert pages.linked(text, "Hub") == (
        f"as [`Log.at`](Log{md}#at), [`gossiplog.open(...)`](open{md}), [`Set`](types.Set{md}), `limit` and"
        f" [`types.Counter`](types.Counter{md})"
    )
    assert pages.linked("`Log` and `Log.at`", "Log") == "`Log` and `Log.at`"
