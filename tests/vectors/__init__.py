"""Reads the vectors beside this file. See README.md for what they are."""

import json
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).parent


def load(name: str) -> Any:
    """What the vector file `name`.json holds."""
    return json.loads((_HERE / f"{name}.json").read_text())


def untag(core: ModuleType, value: Any) -> Any:
    """A payload of `messages.json`, as a value that a core takes."""
    match value:
        case list():
            return [untag(core, item) for item in value]
        case {"$int": digits}:
            return int(digits)
        case {"$float": digits}:
            return struct.unpack(">d", bytes.fromhex(digits))[0]
        case {"$bytes": digits}:
            return bytes.fromhex(digits)
        case {"$cid": text}:
            return core.CID.parse(text)
        case {"$map": pairs}:
            return {key: untag(core, item) for key, item in pairs}
        case _:
            return value
