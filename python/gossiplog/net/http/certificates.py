"""When the certificate of a server expires, and warnings before that."""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime

import anyio

WARNING_DAYS = 14
"""A certificate that expires earlier is reported once a day."""

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_DAY = 86_400.0
# Tags of DER, as certificates have them: https://www.rfc-editor.org/rfc/rfc5280#section-4.1.
_VERSION, _UTC_TIME = 0xA0, 0x17
# The place of the validity, where there is no version.
_VALIDITY = 3


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
    rounded = f"{days:.0f} day" + ("" if round(days) == 1 else "s")
    when = datetime.fromtimestamp(expiry, UTC).strftime("%Y-%m-%d %H:%M UTC")
    advice = "renew it, and send the server SIGHUP"
    if days <= 0:
        return f"the certificate has expired at {when}, so that clients refuse it: {advice}"
    return f"the certificate expires at {when}, in {rounded}: {advice}"


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
