"""Write docs/reference anew from the docstrings: `make reference`."""

from __future__ import annotations

from tests.api.pages import FOLDER, written

FOLDER.mkdir(exist_ok=True)
files = written()
for path in FOLDER.iterdir():
    if path.name not in files:
        path.unlink()
for name, text in files.items():
    (FOLDER / name).write_text(text, encoding="utf-8")
