"""The files of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

import gossiplog.dashboard
from tests.page_files import check_document, check_readme, check_script, scripts

FOLDER = Path(gossiplog.dashboard.__file__).parent / "page"


def test_every_file_is_named_in_the_readme() -> None:
    check_readme(FOLDER)


@pytest.mark.parametrize("path", scripts(FOLDER), ids=lambda path: path.name)
def test_scripts_set_text_alone_and_load_nothing_from_elsewhere(path: Path) -> None:
    check_script(path)


def test_the_page_runs_no_script_of_its_own() -> None:
    check_document(FOLDER / "index.html")
