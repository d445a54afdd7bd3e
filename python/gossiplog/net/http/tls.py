"""TLS of the bundled server: its certificate, when that expires, and reports of handshakes that fail."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from gossiplog.files import check_file
from gossiplog.net.rate_limited_log import CERTIFICATE_KEY
from gossiplog.reprs import counted, short_repr

WARNING_DAYS = 14
"""A certificate that expires earlier is reported once a day."""
CLIENT_NAME: ContextVar[str] = ContextVar("client", default="unknown")
"""The name of the client whose connection is being set up: a TLS object has no address, but asyncio handles each
connection in a copy of the context in which it was accepted."""

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_DAY = 86_400.0
# Tags of DER, as certificates have them: https://www.rfc-editor.org/rfc/rfc5280#section-4.1.
_VERSION, _UTC_TIME = 0xA0, 0x17
# The place of the validity, where there is no version.
_VALIDITY = 3
_REASONS = {
    "HTTP_REQUEST": "it spoke HTTP without TLS: its address has to begin with https:// or wss://",
    "WRONG_VERSION_NUMBER": "it did not speak TLS",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection",
    "UNSUPPORTED_PROTOCOL": "it speaks only versions of TLS that are not spoken here",
    "NO_SHARED_CIPHER": "it offered no cipher that is used here",
}
# How clients say that they do not trust a certificate: https://www.rfc-editor.org/rfc/rfc8446#section-6.2.
_UNTRUSTED = (
    "ALERT_UNKNOWN_CA",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    # rustls, of one whose signature is not that of the authority that it names.
    "ALERT_DECRYPT_ERROR",
)
# What OpenSSL says of a key that is not the certificate's, of the same type or of another.
_KEY_MISMATCH = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")


@short_repr
@dataclass(slots=True)
class TLS:
    """The certificate of a server and its private key, as files.

    Attributes:
        certificate: the chain, in PEM.
        key: the private key, in PEM.

    Examples:
        >>> tls = gossiplog.TLS(certificate="hub.pem", key="hub.key")
        >>> tls.certificate
        'hub.pem'
    """

    certificate: str | os.PathLike[str]
    key: str | os.PathLike[str]
    _latest: ssl.SSLContext | None = field(default=None, init=False, repr=False, compare=False)
    _not_after: float | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def not_after(self) -> float | None:
        """When the certificate that was read last expires, in seconds since the epoch.

        None before `serve` has read it, or where that is not known.
        """
        return self._not_after

    def reload(self) -> None:
        """Read both files again, for the connections that are made from now on.

        Raises:
            OSError: a file cannot be read, or they do not hold a certificate and its key. The former ones stay in use.
        """
        self._read()

    def _server_context(self, report: Callable[[str, str], None]) -> ssl.SSLContext:
        """Return a context for a server, whose handshakes use what was read last, here or by `reload`.

        Args:
            report: called with the name of the client and the reason, as a clause, of each handshake that fails.

        Raises:
            OSError: a file cannot be read, or they do not hold a certificate and its key.
        """
        context = self._read()
        context.sni_callback = self._use_latest
        report_failed_handshakes(context, report)
        return context

    def _read(self) -> ssl.SSLContext:
        """Return a context of the files as they are now, for all handshakes; note when the certificate expires."""
        context = _load_context(self.certificate, self.key)
        self._latest = context
        try:
            self._not_after = expiry_of(Path(self.certificate).read_text(encoding="utf-8", errors="replace"))
        except ValueError:
            # OpenSSL can use what this package cannot read.
            self._not_after = None
        return context

    def _use_latest(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Use the certificate that was read last for a handshake.

        A chain that is loaded into the context itself would stand beside the former one if its key is of another type.
        """
        if self._latest is not None:
            connection.context = self._latest


def certificate_scope(tls: TLS | None) -> dict[str, Any]:
    """Return the entries of a scope about the certificate, for `/metrics`: none without TLS."""
    return {} if tls is None else {CERTIFICATE_KEY: tls.not_after}


def _load_context(certificate: str | os.PathLike[str], key: str | os.PathLike[str]) -> ssl.SSLContext:
    """Return a context with the certificate.

    Raises:
        OSError: a file cannot be read, or they do not hold a certificate and its key. Its text names the file.
    """
    for path in (certificate, key):
        # OpenSSL does not say which file it cannot read, and would wait for a pipe.
        check_file(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        certificate, key = os.fspath(certificate), os.fspath(key)
        if error.reason in _KEY_MISMATCH:
            raise OSError(f"the key in {key} is not that of the certificate in {certificate}") from error
        raise OSError(
            f"{certificate} and {key} cannot be used for TLS: expected a chain of certificates and an unencrypted key,"
            f" each in PEM ({error.reason or error})"
        ) from error
    return context


def expiry_of(chain: str) -> float:
    """Return when a certificate expires, in seconds since the epoch.

    Args:
        chain: in PEM; the first certificate counts, which is the server's own.

    Raises:
        ValueError: a text without a certificate.
    """
    # Text or a key may stand before it.
    body = chain[max(chain.find(_BEGIN), 0) :].partition(_END)[0]
    try:
        ((_, certificate),) = _elements(ssl.PEM_cert_to_DER_cert(body + _END))
        _, signed = next(_elements(certificate))
        fields = [element for element in _elements(signed) if element[0] != _VERSION]
        _, (tag, time_of_end) = _elements(fields[_VALIDITY][1])
        text = time_of_end.decode("ascii")
        if tag == _UTC_TIME:
            text = ("20" if text < "50" else "19") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except (IndexError, StopIteration, ValueError) as error:
        raise ValueError("expected a certificate in PEM") from error


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the content of each element of DER in turn."""
    while data:
        tag, length, start = data[0], data[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(data[2:start])
        yield tag, data[start : start + length]
        data = data[start + length :]


def expiry_warning(expiry: float, now: float) -> str:
    """Return what to say about a certificate that expires within WARNING_DAYS; "" if it does not.

    Args:
        expiry: when it expires, in seconds since the epoch.
        now: likewise.
    """
    days = (expiry - now) / _DAY
    if days >= WARNING_DAYS:
        return ""
    when = datetime.fromtimestamp(expiry, UTC).strftime("%Y-%m-%d %H:%M UTC")
    advice = "renew it, and send the server SIGHUP"
    if days <= 0:
        return f"the certificate has expired at {when}, so that clients refuse it: {advice}"
    return f"the certificate expires at {when}, in {counted(round(days), 'day')}: {advice}"


async def watch_certificate(
    expiry: Callable[[], float | None],
    warn: Callable[[str], object],
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
) -> None:
    """Warn now and once a day while the certificate is about to expire, until cancelled.

    Args:
        expiry: gives when it expires, in seconds since the epoch; None where that cannot be read.
        warn: called with a line for the log.
        clock: gives the time, in seconds since the epoch.
        sleep: waits for some seconds.
    """
    while True:
        found = expiry()
        if found is not None and (text := expiry_warning(found, clock())):
            warn(text)
        await sleep(_DAY)


def report_failed_handshakes(context: ssl.SSLContext, report: Callable[[str, str], None]) -> None:
    """Report each TLS handshake that fails, which asyncio would drop silently.

    Args:
        context: of the server.
        report: called with the name of the client and the reason, as a clause.
    """

    class ReportedHandshake(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                report(CLIENT_NAME.get(), reason_of(error))
                raise

        def read(self, *arguments: Any) -> Any:
            try:
                return super().read(*arguments)
            except ssl.SSLError as error:
                # In TLS 1.3 the server's handshake ends before the client checks the certificate.
                if "_ALERT_" in (error.reason or ""):
                    report(CLIENT_NAME.get(), reason_of(error))
                raise

    context.sslobject_class = ReportedHandshake


def reason_of(error: ssl.SSLError) -> str:
    """Return the reason of a failed handshake as a clause."""
    reason = error.reason or "NO_REASON"
    if reason.endswith(_UNTRUSTED):
        return "it does not trust the certificate that it was shown"
    return _REASONS.get(reason, reason.lower().replace("_", " "))
