"""Secrets in URLs. Spark shows paths and options in plans and on its pages, and keeps both in its history.

So no path, pattern or URL that this package is given may have a secret, whatever it is the name of: it is refused, by
an error that does not repeat it. What Spark itself says of a URL is shown without its secrets.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from gossiplog.errors import OptionError

# Where a URL begins: with slashes after its scheme, or without them, as those of files and, by mistake, of Postgres.
_BEGIN = re.compile(r"(?:[a-z][a-z0-9+.\-]*:/|(?:file|postgres(?:ql)?):)/*", re.IGNORECASE)
_OUTSIDE = re.compile(r"(?:\.{0,2}/|file:[^?#]*$)", re.IGNORECASE)
_FILE = re.compile(r"file:", re.IGNORECASE)
_AUTHORITY = re.compile(r"[^/?#]*")
# Hosts with ports, as they stand behind a user.
_HOSTS = re.compile(r"(?:(?:\[[^\]\[]*\]|[^:,\[\]@]*)(?::[0-9]+)?(?:,|$))*")
_PARAMETER = re.compile(r"[?&;#]([^=&;#?]*)=([^&;#\s]*)")
_SECRET_NAME = re.compile(
    r"secret|passw|pwd|passphrase|token|key|sas|sig|cred|auth(?!ority)|jwt|bearer|session", re.IGNORECASE
)
# Where a URL ends amid words.
_WORD = re.compile(r"[^\s'\"<>`]+")


def check_no_secret(location: str) -> None:
    """Refuse a path, a pattern or a URL that has a password, a key or another secret.

    Raises:
        OptionError: it has one. The message does not repeat it.
    """
    if not has_secret(location):
        return
    url = _BEGIN.search(location)
    assert url is not None, "where there is no URL, there is no secret"
    raise OptionError(
        f"the URL {_shown(url[0], location[url.end() :])} has a key or a password, which Spark would show in plans and"
        " on its pages: leave it out, and give it to the driver and the executors in the way that the file system has"
        " for it, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def has_secret(location: str) -> bool:
    """Return whether a path, a pattern or a URL has a secret. What is a path from its beginning has no URL in it."""
    if _OUTSIDE.match(location.lstrip()):
        return False
    return any(
        _names_secret(location[found.end() :]) or (not _FILE.match(found[0]) and _has_password(location[found.end() :]))
        for found in _BEGIN.finditer(location)
    )


def redacted(text: str) -> str:
    """Return a text in which URLs with secrets have "…" in their place.

    Args:
        text: of others, as Spark's, with URLs amid words.
    """
    return _WORD.sub(_redact, text)


def _redact(word: re.Match[str]) -> str:
    url = _BEGIN.search(word[0])
    if url is None or not has_secret(word[0][url.start() :]):
        return word[0]
    return word[0][: url.start()] + _shown(url[0], word[0][url.end() :])


def _shown(begin: str, rest: str) -> str:
    """Return what may be shown of a URL with a secret, as the core shows such URLs."""
    if _has_password(rest) and not _FILE.match(begin):
        return f"{begin}…"
    return f"{begin}{re.split('[?#;]', rest, maxsplit=1)[0]}?…"


def _has_password(rest: str) -> bool:
    """Return whether what follows a scheme has a password before an "@". One with a slash in it looks like a path."""
    authority = _AUTHORITY.match(rest)
    assert authority is not None, "it may be empty"
    user, _, hosts = authority[0].rpartition("@")
    return ":" in user or ("@" in rest and _HOSTS.fullmatch(hosts) is None)


def _names_secret(rest: str) -> bool:
    return any(_SECRET_NAME.search(unquote(name)) for name, _ in _PARAMETER.findall(rest))
