"""Reports of TLS handshakes that fail at the bundled server; asyncio drops them silently."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

CLIENT: ContextVar[str] = ContextVar("client", default="unknown")
"""The name of the client whose connection is being set up: a TLS object has no address, but asyncio handles each
connection in a copy of the context in which it was accepted."""

_REASONS = {
    "HTTP_REQUEST": "it spoke HTTP without TLS: its address has to begin with https:// or wss://",
    "WRONG_VERSION_NUMBER": "it did not speak TLS",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection",
    "UNSUPPORTED_PROTOCOL": "it speaks only versions of TLS that are not spoken here",
    "NO_SHARED_CIPHER": "it offered no cipher that is used here",
}
# How clients say that they do not trust a certificate: https://www.rfc-editor.org/rfc/rfc8446#section-6.2.
_UNTRUSTED = ("ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE_UNKNOWN", "ALERT_UNSUPPORTED_CERTIFICATE")


def watch_handshakes(context: ssl.SSLContext, report: Callable[[str, str], None]) -> None:
    """Report each TLS handshake that fails.

    Args:
        context: of the server.
        report: called with the name of the client and the reason, as a clause.
    """

    class Watched(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                report(CLIENT.get(), reason_of(error))
                raise

        def read(self, *arguments: Any) -> Any:
            try:
                return super().read(*arguments)
            except ssl.SSLError as error:
                # In TLS 1.3 the server's handshake ends before the client checks the certificate.
                if "_ALERT_" in (error.reason or ""):
                    report(CLIENT.get(), reason_of(error))
                raise

    context.sslobject_class = Watched


def reason_of(error: ssl.SSLError) -> str:
    """Return the reason of a failed handshake as a clause."""
    reason = error.reason or "NO_REASON"
    if reason.endswith(_UNTRUSTED):
        return "it does not trust the certificate that it was shown"
    return _REASONS.get(reason, reason.lower().replace("_", " "))
