from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from gossiplog.net.http.certificates import expiry_of, expiry_warning, watch_certificate
from tests.net.support import EC, TLS_FILES, make_certificate

DAY = 86_400
NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def test_when_a_certificate_expires() -> None:
    text = (TLS_FILES / "localhost.pem").read_text()
    assert expiry_of(text) == datetime(2126, 10, 28, 9, 55, 5, tzinfo=UTC).timestamp()
    # The first one of a chain counts, whatever is written before it.
    assert expiry_of(f"subject=é\n{text}\n{'x' * 99}") == expiry_of(text)


@pytest.mark.parametrize("options", [EC, [*EC, "-days", "20000"]], ids=["UTCTime", "GeneralizedTime"])
def test_openssl_agrees(options: list[str], tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path / "certificate", tmp_path / "key", options)
    context = ssl.create_default_context(cadata=certificate.decode())
    (expected,) = (found for found in context.get_ca_certs() if ("commonName", "localhost") in found["subject"][0])
    assert expiry_of(certificate.decode()) == ssl.cert_time_to_seconds(str(expected["notAfter"]))


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----", "MAAwAA=="])
def test_what_is_no_certificate(text: str) -> None:
    with pytest.raises(ValueError, match="expected a certificate in PEM"):
        expiry_of(text)
    with pytest.raises(ValueError, match="expected a certificate in PEM"):
        expiry_of(f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----")


def test_a_certificate_is_reported_in_its_last_14_days() -> None:
    assert expiry_warning(NOW + 14 * DAY, NOW) == ""
    assert expiry_warning(NOW + 13 * DAY, NOW) == (
        "the certificate expires at 2026-01-14 00:00 UTC, in 13 days: renew it, and send the server SIGHUP"
    )
    assert ", in 1 day: " in expiry_warning(NOW + 1.2 * DAY, NOW)
    assert expiry_warning(NOW, NOW) == (
        "the certificate has expired at 2026-01-01 00:00 UTC, so that clients refuse it: renew it, and send the"
        " server SIGHUP"
    )


@pytest.mark.anyio
async def test_it_is_reported_once_a_day() -> None:
    now, expiry, lines = NOW, NOW + 15 * DAY, list[tuple[float, str]]()

    async def sleep(seconds: float) -> None:
        nonlocal now, expiry
        now += seconds
        if now == NOW + 4 * DAY:
            # It was renewed.
            expiry += 90 * DAY
        if now == NOW + 8 * DAY:
            scope.cancel()
        await anyio.lowlevel.checkpoint()

    with anyio.CancelScope() as scope:
        await watch_certificate(lambda: expiry, lambda text: lines.append((now, text)), clock=lambda: now, sleep=sleep)
    assert [(when - NOW) / DAY for when, _ in lines] == [2, 3]
