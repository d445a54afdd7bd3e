"""Keys that sign messages, and the files that hold them.

Ed25519 is the only scheme with a verdict; the registry of schemes, by multicodec, is the core's, because it verifies.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from gossiplog import core
from gossiplog.errors import KeyFileError
from gossiplog.files import add_name, explain_denial, open_file, publish

PRIVATE_KEY_LENGTH = 32
"""Bytes of an Ed25519 private key: the seed of RFC 8032, section 5.1.5."""

# Of file systems, and of systems, without O_TMPFILE.
_NO_NAMELESS = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EISDIR, errno.ENOENT, errno.EINVAL})
_DESCRIPTORS = "/proc/self/fd"
_ABANDONED_SECONDS = 60.0

_KEY_FILES = "gossiplog.Signer.load(path) reads a key file, and gossiplog.Signer.generate() makes a new key"


class Signer:
    """An Ed25519 key pair.

    Args:
        private_key: 32 bytes.

    Raises:
        TypeError: text, such as the path of a key file.
        ValueError: a private key of another length.

    Examples:
        >>> bob = gossiplog.Signer.generate()
        >>> bob.save("bob.key")
        >>> gossiplog.Signer.load("bob.key").did == bob.did == log.append("hi", signer=bob).author
        True
    """

    __slots__ = ("_key", "_private_key")

    def __init__(self, private_key: bytes) -> None:
        if isinstance(private_key, str):
            raise TypeError(f"a private key is {PRIVATE_KEY_LENGTH} bytes, not text: {_KEY_FILES}")
        if len(private_key) != PRIVATE_KEY_LENGTH:
            raise ValueError(f"a private key of {len(private_key)} bytes: Ed25519 has {PRIVATE_KEY_LENGTH}")
        self._private_key = bytes(private_key)
        self._key = core.SigningKey(self._private_key)

    @classmethod
    def generate(cls) -> Signer:
        """Return a new key, from the system's source of secrets."""
        return cls(os.urandom(PRIVATE_KEY_LENGTH))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Signer:
        """Read a key file: the private key in hexadecimal.

        Args:
            path: of the file.

        Raises:
            KeyFileError: it is missing, damaged, or open to others than its owner.
        """
        # Enough to see that it is too long.
        content = read_secret(path, "key file", 4 * PRIVATE_KEY_LENGTH)
        try:
            private_key = bytes.fromhex(content.decode("ascii"))
        except ValueError:
            private_key = b""
        if len(private_key) != PRIVATE_KEY_LENGTH:
            raise KeyFileError(
                f"the key file {os.fspath(path)} is damaged: expected {2 * PRIVATE_KEY_LENGTH} hexadecimal digits"
            )
        return cls(private_key)

    @classmethod
    def load_or_create(cls, path: str | os.PathLike[str] | None = None) -> Signer:
        """Read a key file; make it first where there is none.

        Args:
            path: of the key file; None is `default_key_path()`.

        Raises:
            KeyFileError: it cannot be read or made, is damaged, or open to others than its owner.
        """
        file = default_key_path() if path is None else Path(path)
        remove_unpublished(file)
        if not file.exists():
            signer = cls.generate()
            if signer._write(file):
                return signer
        return cls.load(file)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a key file that only its owner can read (mode 0600), with the folders on the way (mode 0700).

        Args:
            path: of the file, which may not be there yet.

        Raises:
            KeyFileError: the file cannot be written, or is there already: a key is never overwritten.
        """
        if not self._write(Path(path)):
            raise KeyFileError(f"{os.fspath(path)} is there already: a key is never overwritten")

    def _write(self, path: Path) -> bool:
        """Return whether the file was made: one that is there already is left as it is."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Linked when complete: a process that finds the file finds a whole key, and of two made at once one stays.
            return publish_secret(path, self._private_key.hex().encode("ascii") + b"\n")
        except OSError as error:
            raise KeyFileError(f"cannot write the key file {path}: {error.strerror}") from error

    @property
    def private_key(self) -> bytes:
        """32 bytes, to be kept secret."""
        return self._private_key

    @property
    def public_key(self) -> bytes:
        """32 bytes."""
        return self._key.public_key

    @property
    def did(self) -> str:
        """The did:key URI that names the author to others."""
        return self._key.did

    def sign(
        self, topic: str, clock: int, parents: Sequence[str], payload: Any, codec: str = "dag-cbor"
    ) -> tuple[bytes, bytes]:
        """Sign a message.

        Args:
            topic: of the log.
            clock: 1 + the largest clock among the parents, 1 without parents.
            parents: ids.
            payload: a value of the IPLD data model.
            codec: "dag-cbor" or "dag-json", of the signed bytes.

        Returns:
            The key and the stored value.

        Raises:
            EncodeError: something that no message can have.
        """
        return self._key.sign(topic, clock, parents, payload, codec)

    def sign_bytes(self, content: bytes) -> bytes:
        """Sign bytes of another protocol, which say what they are for.

        Args:
            content: to sign.

        Returns:
            The signature, 64 bytes.
        """
        return self._key.sign_bytes(content)

    def sign_chain(
        self,
        topic: str,
        parents: Sequence[bytes],
        payloads: Iterable[Any],
        codec: str = "dag-cbor",
        size: int | None = None,
    ) -> core.Batch:
        """Sign messages, the first of which follows the given parents, and each other one the message before it.

        Args:
            topic: of the log.
            parents: keys.
            payloads: values of the IPLD data model.
            codec: "dag-cbor" or "dag-json", of the signed bytes.
            size: bytes of encoded payloads; the one by which they are reached is the last that is signed.

        Returns:
            The messages, all of them fresh.

        Raises:
            EncodeError: something that no message can have.
            DecodeError: a parent that is no key.
        """
        return core.sign_chain(self._key, topic, parents, payloads, codec, size)

    def __repr__(self) -> str:
        return f"Signer({self.did})"


def read_secret(path: str | os.PathLike[str], what: str, limit: int) -> bytes:
    """Read the start of a file with a secret, unless its mode lets other users read or write it.

    A file of the caller's own must be open to its owner alone. A file of root's may be readable by its group, which
    root chose (like PostgreSQL's keys: https://www.postgresql.org/docs/current/ssl-tcp.html). On a file system that is
    mounted read-only, as Kubernetes and Docker mount secrets, it may be readable by all: the caller cannot change the
    mode, and the mount decides who sees the file. Symbolic links are followed.

    Args:
        path: of the file.
        what: it is called in errors.
        limit: bytes; what comes after them is left.

    Raises:
        KeyFileError: it is missing or no file, or its mode is not accepted.
    """
    try:
        with open_file(path) as file:
            command = _closing_command(file.fileno(), os.fspath(path)) if os.name == "posix" else ""
            content = file.read(limit)
    except OSError as error:
        reason = explain_denial(path, "read") if isinstance(error, PermissionError) else error.strerror
        raise KeyFileError(f"cannot read the {what} {os.fspath(path)}: {reason}") from error
    if command:
        raise KeyFileError(f"the {what} {os.fspath(path)} is open to other users: run {command}")
    return content


def check_signer(signer: object) -> None:
    """Refuse what is no Signer, such as the path of a key file.

    Raises:
        TypeError: it is no Signer.
    """
    if not isinstance(signer, Signer):
        raise TypeError(f"a signer is a gossiplog.Signer, not {type(signer).__name__}: {_KEY_FILES}")


def _closing_command(descriptor: int, path: str) -> str:
    """Return the command that closes a file to other users; "" if the mode is accepted."""
    status = os.fstat(descriptor)
    open_to = status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    is_given = status.st_uid == 0 != os.geteuid()
    if os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        open_to &= ~(stat.S_IRGRP | stat.S_IROTH)
    elif is_given:
        open_to &= ~stat.S_IRGRP
    if not open_to:
        return ""
    if is_given:
        return f"chmod 640 {path}"
    # Its group may be a service's, which could then not read it.
    is_for_group = status.st_uid == 0 and open_to == stat.S_IRGRP
    hint = (
        "; if a service of its group reads it, run this command as the service's user instead" if is_for_group else ""
    )
    return f"chmod 600 {path}{hint}"


def default_key_path() -> Path:
    """Return the path of the user's own key: `key` in the system's folder for the configuration of gossiplog.

    A key that earlier versions made, on every system in the folder of the XDG Base Directory Specification, stays where
    it is.

    Examples:
        >>> gossiplog.default_key_path().name
        'key'
    """
    # Here, because only those who sign with their own key need it.
    import platformdirs

    configured = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification: a relative path is invalid, and passed over.
    folder = Path(configured) if os.path.isabs(configured) else Path.home() / ".config"
    earlier = folder / "gossiplog" / "key"
    found = platformdirs.user_config_path("gossiplog", appauthor=False) / "key"
    return earlier if os.path.lexists(earlier) or not found.is_absolute() else found


def publish_secret(path: Path, content: bytes) -> bool:
    """Write a file that only its owner can read, whole or not at all, unless there is one; when this returns it stays.

    Where the system has files without names, one that was not published is gone with the process. Elsewhere it has a
    name until then, and `remove_unpublished` removes what a process left that was killed.

    Args:
        path: of the file, in a folder that exists.
        content: of the file.

    Returns:
        Whether it was made.

    Raises:
        OSError: it cannot be written.
    """
    try:
        if not _publish_nameless(path, content):
            _publish_named(path, content)
    except FileExistsError:
        return False
    return True


def _publish_nameless(path: Path, content: bytes) -> bool:
    """Write a file without a name, and publish it; return False where the system or the file system has none."""
    # Absent from systems that lack it, and refused by file systems that do.
    nameless = getattr(os, "O_TMPFILE", 0)
    if not (nameless and os.path.isdir(_DESCRIPTORS)):
        return False
    try:
        descriptor = os.open(path.parent, nameless | os.O_WRONLY, 0o600)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
        return False
    with os.fdopen(descriptor, "wb") as file:
        _write(file, content)
        return add_name(f"{_DESCRIPTORS}/{descriptor}", path)


def _publish_named(path: Path, content: bytes) -> None:
    # Imported here: it brings many modules, and most file systems do without it.
    import tempfile

    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_unpublished(path), delete=False) as file:
        try:
            _write(file, content)
            publish(file.name, path)
        finally:
            Path(file.name).unlink(missing_ok=True)


def remove_unpublished(path: Path) -> None:
    """Remove what processes that were killed have left of a file of `publish_secret`, a minute ago or earlier.

    What cannot be removed stays.
    """
    for left in path.parent.glob(f"{glob.escape(_unpublished(path))}*"):
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()


def _unpublished(path: Path) -> str:
    return f".{path.name}.gossiplog-unpublished-"


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())
