"""What to write in the place of values that have no dag-cbor form, for errors to say."""

from __future__ import annotations

import re

_NUMPY = (
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 128)),
    "bool",
    "bool_",
)
# By the name of the type, without its module.
_REPLACEMENTS = {
    **dict.fromkeys(("datetime", "date", "time", "Timestamp"), "value.isoformat()"),
    "timedelta": "value.total_seconds()",
    **dict.fromkeys(("Decimal", "Fraction", "UUID"), "str(value)"),
    **dict.fromkeys(("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"), "str(value)"),
    **dict.fromkeys(("set", "frozenset"), "sorted(value)"),
    **dict.fromkeys(("range", "generator", "deque", "dict_keys", "dict_values", "dict_items", "map"), "list(value)"),
    **dict.fromkeys(("array", "ndarray", "Series"), "value.tolist()"),
    **dict.fromkeys(_NUMPY, "value.item()"),
    "complex": "[value.real, value.imag]",
    "DataFrame": 'value.to_dict("records")',
}
_KEY_REPLACEMENTS = {
    "bytes": "key.hex()",
    "tuple": 'a list of [key, value] for the map, or ",".join(map(str, key)) for the key',
}
# How both cores end what they say of a value. Its place comes before, with keys that may be any text.
_KEY_TYPE = re.compile(r": a map key must be a string, this is of type (\w+)\Z")
_VALUE_TYPE = re.compile(r": a value of type (?:\S+\.)?(\w+) cannot be encoded; use [\w, ]+\Z")
_NO_NUMBER = " is no number that other peers accept"
_NO_INTEGER = ": an integer must be from -2^64 to 2^64 - 1"


def replacement_for(reason: str) -> str:
    """Return what to write in the place of a value that cannot be encoded; "" where nothing is known.

    Args:
        reason: for which it cannot be, as both cores say it.
    """
    if found := _KEY_TYPE.search(reason):
        return _KEY_REPLACEMENTS.get(found[1], "str(key)")
    if found := _VALUE_TYPE.search(reason):
        return _REPLACEMENTS.get(found[1], "")
    if reason.endswith(_NO_NUMBER):
        return "None, or str(value)"
    return "str(value)" if reason.endswith(_NO_INTEGER) else ""
