"""Keys of many authors: a folder of key files.

The key of an author is in the file of that name, with what is no letter, digit or one of `_.-~` percent-encoded
(RFC 3986, section 2.1), and `.key` behind it: `ann.key`, `ann%40example.org.key`. Each is as `gossiplog keygen` writes
it, and refused if others than its owner may read it.

Executors read the files themselves, so the folder must be one that they see, under the same path and the same user.
Keys do not travel through Spark: what is broadcast, Spark writes to its executors' scratch folders as it is, and every
executor would hold the keys of all authors instead of those that it signs for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import quote

from gossiplog.errors import KeyFileError
from gossiplog.signer import Signer

# Bytes, on the file systems of Linux and macOS.
_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A folder of key files. Only its path travels.

    Attributes:
        folder: its absolute path.
    """

    folder: str

    def path(self, author: str) -> str:
        """Of the author's key file, whether or not it is there.

        Raises:
            KeyFileError: a name that no file can have.
        """
        name = f"{quote(author, safe='')}.key"
        if not author or len(name) > _LONGEST_NAME:
            raise KeyFileError(f"an author's name of {len(author)} characters cannot name a key file in {self.folder}")
        return os.path.join(self.folder, name)

    def load(self, author: str) -> Signer:
        """Return the author's signer.

        Raises:
            KeyFileError: the author's key file is missing, damaged or open to others than its owner.
        """
        return Signer.load(self.path(author))
