"""An S3 server of one bucket in memory: what Arrow's client asks of one to list and to read. It checks no signature."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "logs"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    # Of a cloud's machine: it would be waited for.
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What a client needs in its environment."""


class Bucket:
    """The objects of a server.

    Args:
        port: of the server.

    Attributes:
        objects: by their keys.
        requests: the method and the key of each request for an object, as they came.
        before: is called with each of them before it is answered, and may change the objects.
        denied: keys whose content nobody may read.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], object] = lambda method, key: None
        self.denied: set[str] = set()

    def url(self, path: str, scheme: str = "s3") -> str:
        """Return the URL of an object, a folder or a pattern."""
        options = f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{self._port}"
        return f"{scheme}://{BUCKET}/{path}?{options}"


@contextmanager
def serving() -> Iterator[Bucket]:
    """Run a server for a block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        bucket = Bucket(server.server_port)
        server.daemon_threads = True
        vars(server)["bucket"] = bucket
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield bucket
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        bucket: Bucket = vars(self.server)["bucket"]
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if not key:
            self._list(bucket, {name: values[0] for name, values in parse_qs(url.query).items()})
            return
        bucket.requests.append((self.command, key))
        bucket.before(self.command, key)
        content = bucket.objects.get(key)
        if key in bucket.denied:
            self._answer(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
        elif content is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>not there</Message></Error>")
        else:
            first, end = self._range(len(content))
            self._answer(206 if "Range" in self.headers else 200, content[first:end], content)

    do_HEAD = do_GET

    def _range(self, size: int) -> tuple[int, int]:
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        return int(first), min(int(last) + 1, size) if last else size

    def _answer(self, status: int, body: bytes, whole: bytes | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/xml" if whole is None else "application/octet-stream")
        if whole is not None:
            self.send_header("ETag", f'"{hashlib.md5(whole, usedforsecurity=False).hexdigest()}"')
            # The same for all states: nothing but the tag distinguishes those of one length.
            self.send_header("Last-Modified", formatdate(1_750_000_000, usegmt=True))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _list(self, bucket: Bucket, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        most, after = int(query.get("max-keys", "1000")), query.get("continuation-token", "")
        rows: dict[str, str] = {}
        for key, content in sorted(bucket.objects.items()):
            if not key.startswith(prefix):
                continue
            inside, sign, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            if sign:
                folder = f"{prefix}{inside}{sign}"
                rows[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                rows[key] = (
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                )
        waiting = [name for name in sorted(rows) if name > after]
        page, rest = waiting[:most], waiting[most:]
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        body = "".join(rows[name] for name in page)
        self._answer(
            200,
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
            f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{token}{body}"
            "</ListBucketResult>".encode(),
        )

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing on stderr."""
