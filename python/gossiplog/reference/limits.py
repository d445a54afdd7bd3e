"""The figures that both cores share. Their meaning: docs/wire-format.md and docs/design/core.md."""

from typing import Final

#: The largest clock, and the largest integer that JavaScript keeps apart from its neighbours.
MAX_CLOCK: Final = 2**53 - 1
#: Lists and maps that may be open at once in bytes from others. canvas-js stops between 2,000 and 2,500.
MAX_DEPTH: Final = 2200
#: Lists and maps that may be open at once in a value that is encoded or signed here.
MAX_OWN_DEPTH: Final = 500
#: Bytes that all maps of a message together may pass for.
MAX_PASSING_BYTES: Final = 2**22
#: Bytes in a message key.
KEY_LENGTH: Final = 20
#: Bytes in the hash of a tree node.
HASH_LENGTH: Final = 16
