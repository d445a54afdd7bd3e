"""The public names and what their sources say of them, read by griffe without importing the sources."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import griffe

from tests.api.kinds import LOW_LEVEL, MADE_BY_USERS

SOURCES = Path(__file__).parent.parent.parent / "python"
MODULES = ("gossiplog", "gossiplog.types", "gossiplog.errors", "gossiplog.lowlevel")
"""The modules whose names have a page each. A name stands in the first that has it."""
SPARK = "gossiplog.spark"
"""The module whose names have one page together: it needs PySpark, and is provisional."""
# Methods of Python's own, whose meaning is Python's.
_UNSAID = frozenset(
    f"__{name}__"
    for name in ("init", "new", "enter", "exit", "aenter", "aexit", "eq", "hash", "repr", "call", "post_init")
)
# Methods in Rust that the package calls, as docs/stability.md says: there, no underscore marks them.
_OWN = frozenset({"SignedMessage.with_reader"})
_NOTHING: Mapping[str, Any] = {
    "text": "",
    "parameters": (),
    "attributes": (),
    "returns": "",
    "raises": (),
    "example": "",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function or a field of a class: its name with the stars, its type, its default, its meaning."""

    name: str
    type: str
    default: str
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What a page says of a name, or of a member of one.

    Attributes:
        kind: "class", "error", "function", "method", "property", "attribute" or "type".
        signatures: as they are called; of a type, what it stands for.
        text: the docstring before its sections.
        returns, raises: of the docstring's sections.
        example: the docstring's, without its prompt's indentation; "" for none.
        members: of a class, in the order of its source, those of bases last.
    """

    name: str
    kind: str
    signatures: tuple[str, ...] = ()
    text: str = ""
    parameters: tuple[Parameter, ...] = ()
    attributes: tuple[Parameter, ...] = ()
    returns: str = ""
    raises: tuple[tuple[str, str], ...] = ()
    example: str = ""
    bases: tuple[str, ...] = ()
    members: tuple[Entry, ...] = field(default=())


@functools.cache
def module(name: str) -> griffe.Module:
    """A module's source, or its stub where it is compiled."""
    place = SOURCES.joinpath(*name.split("."))
    choices = (place / "__init__.py", place.with_suffix(".py"), place.with_suffix(".pyi"))
    path = next(path for path in choices if path.exists())
    return griffe.visit(name, path, path.read_text(encoding="utf-8"), docstring_parser="google")


def found(path: str) -> griffe.Object:
    """What a dotted path names, wherever it is imported from."""
    name, _, last = path.rpartition(".")
    item = module(name).members[last]
    return found(item.target_path) if isinstance(item, griffe.Alias) else item


def listed(name: str) -> list[str]:
    """The public names of a module, in order."""
    text = (SOURCES.joinpath(*name.split(".")) / "__init__.py", SOURCES.joinpath(*name.split(".")).with_suffix(".py"))
    tree = ast.parse(next(path for path in text if path.exists()).read_text(encoding="utf-8"))
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return sorted(ast.literal_eval(value))
    return sorted(
        key for key, item in module(name).members.items() if isinstance(item, griffe.Class) and not key.startswith("_")
    )


@functools.cache
def public() -> Mapping[str, str]:
    """The public names, as `Log` and `types.Counter`, with the dotted path of each."""
    names: dict[str, str] = {}
    known: set[griffe.Object] = set()
    for package in MODULES:
        prefix = package.removeprefix("gossiplog").lstrip(".")
        for name in listed(package):
            item = found(f"{package}.{name}")
            if item not in known:
                known.add(item)
                names[f"{prefix}.{name}".lstrip(".")] = f"{package}.{name}"
    return names


@functools.cache
def entry(name: str) -> Entry:
    """What the sources say of a public name."""
    return _entry(name, found(public()[name]))


@functools.cache
def spark_entries() -> Mapping[str, Entry]:
    """What the sources say of the names of `gossiplog.spark`: the functions, then the classes, then the constants."""
    entries = [_entry(f"spark.{name}", found(f"{SPARK}.{name}")) for name in listed(SPARK)]
    kinds = ("function", "class", "type")
    return {each.name: each for each in sorted(entries, key=lambda each: kinds.index(each.kind))}


def _entry(name: str, item: griffe.Object) -> Entry:
    short = name.rpartition(".")[2]
    match item:
        case griffe.Class():
            return _class(name, short, item)
        case griffe.Function():
            # What opens a log for coroutines takes what opens one.
            blocking = [found("gossiplog.open")] if name == "open_async" else []
            return _function(short, "function", item, [item, *blocking])
        case griffe.Attribute():
            value = str(item.value)
            # An alias that its module has as text.
            if value[:1] == value[-1:] == "'" and " " in value:
                value = value[1:-1]
            return Entry(short, "type", (f"{short} = {value}",), **_sections(item))
    raise TypeError(f"{name} is a {item.kind}")


def _bases(item: griffe.Class) -> Iterator[griffe.Class]:
    """The classes of the package that a class derives from, nearest first."""
    for base in item.bases:
        name = base if isinstance(base, str) else base.canonical_path.rpartition(".")[2]
        name = name.partition("[")[0]
        if name in item.module.members:
            parent = found(f"{item.module.path}.{name}") if _is_ours(item.module, name) else None
            if isinstance(parent, griffe.Class):
                yield parent
                yield from _bases(parent)


def _is_ours(place: griffe.Module, name: str) -> bool:
    item = place.members[name]
    return not isinstance(item, griffe.Alias) or item.target_path.startswith("gossiplog.")


def _class(name: str, short: str, item: griffe.Class) -> Entry:
    bases = [*_bases(item)]
    sections = _sections(item)
    own = sections["text"] or (bases and _sections(bases[0])["text"]) or ""
    fields = {member.name: member for base in reversed([item, *bases]) for member in _fields(base)}
    described = {
        attribute.name: attribute for base in reversed([item, *bases]) for attribute in _sections(base)["attributes"]
    }
    constructor = next(
        (base.members[key] for base in [item, *bases] for key in ("__init__", "__new__") if key in base.members), None
    )
    taken = (
        {each.name: each.annotation for each in constructor.parameters if each.annotation is not None}
        if isinstance(constructor, griffe.Function) and short not in MADE_BY_USERS
        else {}
    )
    # A field is described where the class describes it; what it describes besides are attributes that it computes.
    attributes = []
    for key in dict.fromkeys([*fields, *described]):
        known, declared = described.get(key), fields.get(key)
        text = known.text if known else _text(declared)
        if known or text or declared is not None:
            # What a constructor takes by the name is mostly what the attribute is.
            kind = declared.annotation if declared is not None and declared.annotation else known.type if known else ""
            kind = kind or taken.get(key, "")
            default = _default(declared.value, item) if declared is not None and declared.value is not None else ""
            attributes.append(Parameter(key, _type(kind), default, text))
    signatures: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    if short in MADE_BY_USERS:
        if isinstance(constructor, griffe.Function):
            signatures = tuple(_signature(short, each) for each in constructor.overloads or [constructor])
            parameters = _parameters(constructor, [*attributes, *sections["parameters"]])
        else:
            shown = ", ".join(_declared(each) for each in attributes if each.name in fields)
            signatures = (f"{short}({shown})",)
    errors = {"GossipLogError", "Exception", "UserWarning", "RuntimeWarning", "Warning"}
    names = [base.name for base in bases] + [str(base) for base in item.bases]
    kind = "error" if errors & {*names} or short == "GossipLogError" else "class"
    return Entry(
        short,
        kind,
        signatures,
        **sections | {"text": own, "attributes": tuple(attributes), "parameters": parameters},
        bases=tuple(base for base in (str(base).partition("[")[0] for base in item.bases) if _is_shown(base, item)),
        members=() if short in LOW_LEVEL else tuple(_members(item, bases)),
    )


def _declared(parameter: Parameter) -> str:
    return f"{parameter.name}: {parameter.type}" + (f" = {parameter.default}" if parameter.default else "")


def _fields(item: griffe.Class) -> Iterator[griffe.Attribute]:
    """The fields that a class declares: annotated in its body, without a leading underscore."""
    functions = [
        range(each.lineno or 0, (each.endlineno or 0) + 1) for each in item.members.values() if each.is_function
    ]
    for member in item.members.values():
        if isinstance(member, griffe.Attribute) and not member.name.startswith("_"):
            is_declared = member.annotation is not None and not any(member.lineno in lines for lines in functions)
            if is_declared and "property" not in member.labels and "ClassVar" not in str(member.annotation):
                yield member


def _members(item: griffe.Class, bases: Sequence[griffe.Class]) -> Iterator[Entry]:
    """The public methods and properties, and those special ones that have a docstring."""
    seen: set[str] = set()
    for owner in (item, *bases):
        for key, member in owner.members.items():
            special = key.startswith("__") and key not in _UNSAID and member.has_docstring
            if key in seen or (key.startswith("_") and not special) or f"{item.name}.{key}" in _OWN:
                continue
            if isinstance(member, griffe.Function):
                seen.add(key)
                yield _function(key, "method", member, _described([item, *bases], key))
            elif isinstance(member, griffe.Attribute) and "property" in member.labels:
                seen.add(key)
                sections = _merged(_described([item, *bases], key))
                yield Entry(key, "property", (f"{key}: {member.annotation}",), **sections)


def _described(owners: Sequence[griffe.Class], key: str) -> list[griffe.Object]:
    """The members whose docstrings tell of one: its own, those of bases, those of the blocking class."""
    blocking = {"AsyncLog": "Log", "AsyncLogView": "LogView"}.get(owners[0].name)
    others: list[griffe.Class] = []
    if blocking is not None:
        other = found(f"gossiplog.{blocking}")
        assert isinstance(other, griffe.Class)
        others = [other, *_bases(other)]
    names = (key, "__contains__") if key == "contains" else (key,)
    members = [owner.members[name] for owner in (*owners, *others) for name in names if name in owner.members]
    return [member for member in members if isinstance(member, griffe.Object) and member.has_docstring]


def _merged(sources: Sequence[griffe.Object]) -> dict[str, Any]:
    """The sections of the first docstring, with those that only later ones have."""
    later = {key: value for source in reversed(sources) for key, value in _sections(source).items() if value}
    return {**_NOTHING, **later}


def _function(name: str, kind: str, function: griffe.Function, sources: Sequence[griffe.Object]) -> Entry:
    """Return what docstrings say, with the signature of the function."""
    sections = _merged(sources)
    signatures = tuple(_signature(name, each) for each in function.overloads or [function])
    return Entry(name, kind, signatures, **sections | {"parameters": _parameters(function, sections["parameters"])})


def _parameters(function: griffe.Function, described: Sequence[Parameter]) -> tuple[Parameter, ...]:
    texts = {parameter.name.lstrip("*"): parameter.text for parameter in described}
    shown = []
    for parameter in function.parameters:
        if parameter.name not in ("self", "cls"):
            stars = {"variadic positional": "*", "variadic keyword": "**"}.get(
                parameter.kind.value if parameter.kind else "", ""
            )
            default = "" if stars or parameter.default is None else _default(parameter.default, function)
            kind = _type(parameter.annotation) if parameter.annotation is not None else ""
            shown.append(Parameter(f"{stars}{parameter.name}", kind, default, texts.get(parameter.name, "")))
    return tuple(shown)


def _signature(name: str, function: griffe.Function) -> str:
    parts = []
    keyword_only = False
    for parameter in function.parameters:
        kind = parameter.kind.value if parameter.kind else ""
        if parameter.name in ("self", "cls"):
            continue
        if kind == "variadic positional":
            keyword_only = True
        elif kind == "keyword-only" and not keyword_only:
            keyword_only = True
            parts.append("*")
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        text = f"{stars}{parameter.name}" + (f": {parameter.annotation}" if parameter.annotation is not None else "")
        if parameter.default is not None and not stars:
            text += (
                f" = {_default(parameter.default, function)}"
                if ":" in text
                else f"={_default(parameter.default, function)}"
            )
        parts.append(text)
    result = f" -> {function.returns}" if function.returns is not None and name != function.parent.name else ""  # type: ignore[union-attr]
    result = "" if function.name in ("__init__", "__new__") else result
    prefix = "await " if "async" in function.labels else ""
    line = f"{prefix}{name}({', '.join(parts)}){result}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{prefix}{name}(", *(f"    {part}," for part in parts), f"){result}"])


def _default(value: object, owner: griffe.Object) -> str:
    """Return a default as readers know it: the value of a constant, and no long expression."""
    text = str(value)
    match = re.fullmatch(r"(\w+)\.([A-Z][A-Z_]+)", text)
    source = owner.module.members.get(match[1]) if match else None
    if match and isinstance(source, griffe.Alias) and source.target_path.startswith("gossiplog."):
        constant = found(f"{source.target_path}.{match[2]}")
        assert isinstance(constant, griffe.Attribute)
        text = str(constant.value)
    elif re.fullmatch(r"_?[A-Z][A-Z_]+", text) and text in owner.module.members:
        item = owner.module.members[text]
        constant = found(item.target_path) if isinstance(item, griffe.Alias) else item
        assert isinstance(constant, griffe.Attribute)
        text = str(constant.value)
    return "…" if text.startswith("field(") or len(text) > 60 else text


def _type(annotation: object) -> str:
    """Return a type without what only a type checker has to know."""
    text = str(annotation)
    return match[1] if (match := re.fullmatch(r"Final\[(.*)\]", text)) else text


def _is_shown(base: str, item: griffe.Class) -> bool:
    """Return whether readers know a base: one that is public, or not of this package."""
    if base in ("ABC", "Enum", "Generic", "Protocol"):
        return False
    return (
        base not in item.module.members
        or not _is_ours(item.module, base)
        or any(name.rpartition(".")[2] == base for name in public())
    )


def _text(item: griffe.Object | None) -> str:
    return "" if item is None or item.docstring is None else item.docstring.value.strip()


def _sections(item: griffe.Object) -> dict[str, Any]:
    """The sections of a docstring."""
    text: list[str] = []
    found: dict[str, Any] = dict(_NOTHING)
    if item.docstring is None:
        return found
    for section in item.docstring.parse("google", warnings=False):
        match section.kind.value:
            case "text":
                text.append(section.value.strip())
            case "parameters" | "attributes" as key:
                found[key] = tuple(
                    Parameter(each.name, str(each.annotation or ""), "", each.description.strip())
                    for each in section.value
                )
            case "returns" | "yields":
                found["returns"] = " ".join(each.description.strip() for each in section.value)
            case "raises":
                found["raises"] = tuple((str(each.annotation), each.description.strip()) for each in section.value)
            case "examples":
                found["example"] = "\n".join(value for _, value in section.value)
            case "admonition":
                text.append(f"**{section.title}.** {section.value.description}")
    return found | {"text": "\n\n".join(text)}
