"""The reference pages, as Markdown: one for each public name, an index by task, and the signatures in one file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.api import names
from tests.api.examples import PREAMBLE
from tests.api.names import Entry, Parameter

FOLDER = Path(__file__).parent.parent.parent / "docs" / "reference"
SIGNATURES = FOLDER / "signatures.txt"
TASKS = (
    (
        "Write",
        "open open_async Signer default_key_path Log AsyncLog AsyncLogOpening SignedMessage CID Node Location"
        " Storage SQLiteStorage MemoryStorage Synchronous Progress InsertResult",
    ),
    (
        "Read",
        "Log LogView AsyncLog AsyncLogView Subscription AsyncSubscription Arrivals LogInfo AuthorTotals Fork"
        " VerifyResult",
    ),
    ("Keep tables", "Apply Setup ApplyTransaction Rows types."),
    (
        "Replicate",
        "connect Client Peer PullResult PeerInfo Identity RouterName BroadcastConfig GossipConfig SyncServerConfig"
        " SyncStatistics NetworkCounters Latency",
    ),
    ("Serve", "Hub serve Address Access Token Tokens TLS Limits"),
    ("Watch", "Event EventStream EventsDropped event:"),
    ("Repair", "repair RepairResult recover RecoverResult rebase RebaseResult RebasedMessage RebaseOutcome"),
    ("Handle errors", "error: errors."),
    ("Build on the parts", "lowlevel."),
)
"""The index: what somebody wants to do, and the names for it. "types." means all names that begin so, "error:" all
errors of `gossiplog`, and "event:" all events."""
_LINKED = re.compile(
    r"`(?:gossiplog\.)?((?:types\.|errors\.|lowlevel\.)?[A-Za-z_]\w*)((?:\.\w+)?(?:\([^`]*\))?)`(?!\])"
)
_FLAT = re.compile(r"\s*\n\s*")


def title(name: str) -> str:
    return f"gossiplog.{name}"


def _page(name: str) -> str:
    return f"{name}.md"


def _named(text: str, own: str) -> str | None:
    """The public name that a text means on the page of another; None for none, and for itself."""
    if own.startswith("spark.") and text in names.spark_entries():
        # On the same page. Others may be called alike.
        return None
    prefix = own.rpartition(".")[0]
    for candidate in (f"{prefix}.{text}".lstrip("."), text):
        if candidate in names.public():
            return None if candidate == own else candidate
    others = [name for name in names.public() if name.rpartition(".")[2] == text and text[0].isupper()]
    return others[0] if len(others) == 1 and others[0] != own else None


def linked(text: str, own: str) -> str:
    """Return prose in which names in backquotes are links."""

    def link(match: re.Match[str]) -> str:
        found = _named(match[1], own)
        if found is None:
            return match[0]
        member = re.match(r"\.(\w+)", match[2])
        has_member = member is not None and any(each.name == member[1] for each in names.entry(found).members)
        return f"[{match[0]}]({_page(found)}{f'#{member[1].lower()}' if member and has_member else ''})"

    return _LINKED.sub(link, text)


def _type(text: str, own: str) -> str:
    """Return a type as code whose names are links; Markdown has no links within code, so that it is in parts."""
    parts = re.split(r"(\b[A-Z]\w+)", text)
    shown = []
    for part in parts:
        found = _named(part, own) if part[:1].isupper() else None
        if found is not None:
            shown.append(f"[`{part}`]({_page(found)})")
        elif part:
            escaped = part.replace("|", "\\|")
            # Spaces at the ends of code are not shown.
            shown.append(
                "".join(f"`{each}`" if each.strip() else each for each in re.split(r"^( +)|( +)$", escaped) if each)
            )
    return "".join(shown).replace("``", "")


def _cell(text: str, own: str) -> str:
    return linked(_FLAT.sub(" ", text), own).replace("|", "\\|")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _rows(parameters: Sequence[Parameter], own: str) -> list[list[str]]:
    return [
        [
            f"`{each.name}`",
            _type(each.type, own),
            f"`{each.default}`".replace("|", "\\|") if each.default else "",
            _cell(each.text, own),
        ]
        for each in parameters
    ]


def _body(entry: Entry, own: str, level: str) -> Iterator[str]:
    if entry.signatures:
        yield "```text"
        yield from entry.signatures
        yield "```"
        yield ""
    if entry.text:
        yield linked(entry.text, own)
        yield ""
    if entry.parameters:
        yield from _table(("parameter", "type", "default", "meaning"), _rows(entry.parameters, own))
    if entry.attributes:
        yield from _table(("attribute", "type", "default", "meaning"), _rows(entry.attributes, own))
    if entry.returns:
        yield f"**Returns** {_cell(entry.returns, own)}"
        yield ""
    if entry.raises:
        rows = [
            [", ".join(_type(kind, own) for kind in kinds.split(", ")), _cell(text, own)]
            for kinds, text in entry.raises
        ]
        yield from _table(("raises", "when"), rows)
    if entry.example:
        yield f"{level} Example"
        yield ""
        yield "```pycon"
        yield entry.example
        yield "```"
        yield ""


def page(name: str, since: str) -> str:
    """Return the page of a public name."""
    entry = names.entry(name)
    lines = [f"# {title(name)}", ""]
    bases = ", ".join(_type(base, name) for base in entry.bases)
    note = " · provisional: [stability](../stability.md)" if name.startswith("lowlevel.") else ""
    article = f"{entry.kind}, derived from {bases}" if bases else entry.kind
    lines += [f"{article} · since {since}{note} · [all names](README.md)", ""]
    lines += _body(entry, name, "##")
    members = entry.members
    if members:
        lines += ["## Members", "", " · ".join(f"[`{each.name}`](#{each.name.lower()})" for each in members), ""]
    for member in members:
        lines += [f"### `{member.name}`", "", *_body(member, name, "####")]
    if name in ("Log", "AsyncLog"):
        lines += ["[docs/applications.md](../applications.md) shows them in a program.", ""]
    return "\n".join(lines).rstrip() + "\n"


def spark_page() -> str:
    """Return the page of all names of `gossiplog.spark`."""
    entries = names.spark_entries()
    lines = [
        f"# {names.SPARK}",
        "",
        "Jobs on Apache Spark · provisional: [stability](../stability.md) · [all names](README.md)",
        "",
        "[docs/pipeline.md](../pipeline.md#in-python) has a program that calls them. `from gossiplog import spark`"
        " needs `pip install 'gossiplog[spark]'`.",
        "",
    ]
    rows = [
        [f"[`{name}`](#{name.lower()})", _cell(_first(each.text), f"spark.{name}")] for name, each in entries.items()
    ]
    lines += _table(("name", ""), rows)
    for name, each in entries.items():
        lines += [f"## `{name}`", "", *_body(each, f"spark.{name}", "###")]
    return "\n".join(lines).rstrip() + "\n"


def groups() -> Iterator[tuple[str, list[str]]]:
    """The tasks of the index, each with its names."""
    for task, text in TASKS:
        found: list[str] = []
        for word in text.split():
            if word.endswith("."):
                found += [name for name in names.public() if name.startswith(word)]
            elif word == "error:":
                found += [name for name in names.public() if "." not in name and names.entry(name).kind == "error"]
            elif word == "event:":
                declared = names.entry("Event").signatures[0].partition("=")[2]
                found += [name for name in re.findall(r"\w+", declared) if name not in found]
            else:
                found.append(word)
        yield task, found


def index() -> str:
    """Return the page that lists all names by what they are for."""
    lines = [
        "# Reference",
        "",
        "A page for each public name, written from the docstrings by `make reference`."
        " [stability.md](../stability.md) says what is promised of them;"
        " [signatures.txt](signatures.txt) has the signatures of all in one file.",
        "",
        "Each example runs, in an empty folder, after these lines:",
        "",
        "```python",
        PREAMBLE.rstrip(),
        "```",
        "",
    ]
    for task, found in groups():
        lines += [f"## {task}", ""]
        rows = [[f"[`{title(name)}`]({_page(name)})", _cell(_first(names.entry(name).text), "")] for name in found]
        lines += _table(("name", ""), rows)
    lines += ["## Run jobs on Spark", "", f"[`gossiplog.spark`]({_page('spark')}) has one page."]
    return "\n".join(lines).rstrip() + "\n"


def _first(text: str) -> str:
    """Return the first sentence of a docstring: its first line, which ends in a period."""
    return _FLAT.sub(" ", text.partition("\n\n")[0])


def signatures() -> list[str]:
    """The public signatures, a line for each name and each member."""
    lines = []
    for name in names.public():
        entry = names.entry(name)
        bases = f" ({', '.join(entry.bases)})" if entry.bases else ""
        lines += [_FLAT.sub(" ", each.replace(entry.name, title(name), 1)) for each in entry.signatures] or [
            f"{title(name)}{bases}"
        ]
        lines += [f"{title(name)}.{each.name}: {each.type or 'Any'}" for each in entry.attributes]
        for member in entry.members:
            lines += [f"{title(name)} {_FLAT.sub(' ', each)}" for each in member.signatures]
    return lines


def present_version() -> str:
    """The version that the sources have, without the number of the patch."""
    manifest = tomllib.loads((FOLDER.parent.parent / "Cargo.toml").read_text(encoding="utf-8"))
    found: str = manifest["workspace"]["package"]["version"]
    return ".".join(found.split(".")[:2])


def since() -> dict[str, str]:
    """Since which version each public name is there, as the written signatures say; new ones, the present one."""
    known: dict[str, str] = {}
    if SIGNATURES.exists():
        for line in SIGNATURES.read_text(encoding="utf-8").splitlines():
            version, _, rest = line.partition("  ")
            if match := re.match(r"(?:await )?gossiplog\.((?:types\.|errors\.|lowlevel\.)?\w+)", rest):
                known.setdefault(match[1], version)
    return {name: known.get(name, present_version()) for name in names.public()}


def written() -> dict[str, str]:
    """The files of docs/reference, by their names."""
    versions = since()
    lines = []
    for line in signatures():
        match = re.match(r"(?:await )?gossiplog\.((?:types\.|errors\.|lowlevel\.)?\w+)", line)
        assert match is not None, line
        lines.append(f"{versions[match[1]]}  {line}")
    pages = {_page(name): page(name, versions[name]) for name in names.public()}
    return {**pages, "README.md": index(), _page("spark"): spark_page(), SIGNATURES.name: "\n".join(lines) + "\n"}
