"""The mutants: `mutants/*.txt`, read strictly.

    @ pubsub/rpc.py
    # Seed 001, 11: copies prolong an id's time
    - if len(times) > self._limit:
    + if len(times) >= self._limit:

`@` names the source file, under the package. `#` begins a mutant with the line or rule that it breaks, and a name. What
the `-` lines say stands once in the source, and the `+` lines take its place; a line's indentation belongs to its text,
but for the first `-` and the first `+`. `~` says why a mutant cannot be told from the source: it is not run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.citations import Rule, cited

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "python" / "gossiplog"
LISTS = Path(__file__).parent / "mutants"


class CatalogueError(Exception):
    """A list of mutants has a mistake."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one source file that breaks a rule.

    Attributes:
        name: what the change does.
        rule: that it breaks.
        path: of the source, under the package.
        old: text that stands once in the source.
        new: text in its place.
        equivalent: why no test can find it; "" where one has to.
    """

    name: str
    rule: Rule
    path: str
    old: str
    new: str
    equivalent: str = ""

    def __str__(self) -> str:
        document, number = self.rule
        return f"{document}, {number}: {self.name} ({self.path})"

    def apply(self, source: str) -> str:
        """Return the source with the change.

        Raises:
            CatalogueError: the old text is not there exactly once, or what results is no Python.
        """
        count = source.count(self.old)
        if count != 1:
            raise CatalogueError(f"{self}: its old text stands {count} times in the source; expected once")
        changed = source.replace(self.old, self.new)
        try:
            if self.path.endswith(".py"):
                compile(changed, self.path, "exec")
        except SyntaxError as error:
            raise CatalogueError(f"{self}: what results is no Python: {error}") from None
        return changed


@dataclass(slots=True)
class _Entry:
    rule: Rule
    name: str
    texts: dict[str, list[str]] = field(default_factory=lambda: {"-": [], "+": [], "~": []})


def read(folder: Path = LISTS) -> list[Mutant]:
    """Return the mutants of all lists in a folder.

    Raises:
        CatalogueError: a line that is not as the module describes, or two mutants that are the same.
    """
    mutants = [mutant for path in sorted(folder.glob("*.txt")) for mutant in _parse(path)]
    seen: dict[tuple[str, str, str], Mutant] = {}
    for mutant in mutants:
        key = mutant.path, mutant.old, mutant.new
        if key in seen:
            raise CatalogueError(f"{mutant}: the same change as {seen[key]}")
        seen[key] = mutant
    return mutants


def source_of(mutant: Mutant) -> str:
    """Return the text of the source that a mutant changes."""
    return (PACKAGE / mutant.path).read_text("utf-8")


def _parse(path: Path) -> list[Mutant]:
    mutants: list[Mutant] = []
    source = ""
    entry: _Entry | None = None

    def finish() -> None:
        if entry is not None:
            old, new, why = ("\n".join(entry.texts[sign]) for sign in "-+~")
            if not source or not old:
                raise CatalogueError(f"{path.name}: {entry.name}: expected a source and an old text")
            mutants.append(Mutant(entry.name, entry.rule, source, old, new, why))

    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        sign, text = line[:1], line[2:]
        if not line:
            continue
        if line[1:2] not in ("", " ") or sign not in "@#-+~":
            raise CatalogueError(f"{path.name}, line {number}: expected one of @ # - + ~ and a space: {line!r}")
        if sign == "@":
            finish()
            entry, source = None, text
        elif sign == "#":
            finish()
            match = re.fullmatch(r"([^,]+, \d+): (.+)", text)
            rules = cited(match[1]) if match else set()
            if match is None or len(rules) != 1:
                raise CatalogueError(f"{path.name}, line {number}: expected a rule and a name: {text!r}")
            entry = _Entry(next(iter(rules)), match[2])
        elif entry is None:
            raise CatalogueError(f"{path.name}, line {number}: a text without a mutant")
        else:
            entry.texts[sign].append(text)
    finish()
    return mutants
