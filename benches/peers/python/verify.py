"""How many Ed25519 signatures a second PyNaCl and cryptography verify, one by one: 250 bytes by a hundred keys."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nacl.signing import SigningKey

AUTHORS = 100
LENGTH = 250
ROUNDS = 3


def main(count: int) -> None:
    keys = [SigningKey(os.urandom(32)) for _ in range(AUTHORS)]
    messages = [os.urandom(LENGTH) for _ in range(count)]
    signatures = [keys[number % AUTHORS].sign(message).signature for number, message in enumerate(messages)]
    own = [key.verify_key for key in keys]
    others = [Ed25519PublicKey.from_public_bytes(bytes(key)) for key in own]

    def nacl() -> None:
        for number, message in enumerate(messages):
            own[number % AUTHORS].verify(message, signatures[number])

    def openssl() -> None:
        for number, message in enumerate(messages):
            others[number % AUTHORS].verify(signatures[number], message)

    works: dict[str, Callable[[], None]] = {"PyNaCl": nacl, "cryptography": openssl}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    for name, times in seconds.items():
        print(f"{name}: {count / statistics.median(times):,.0f} signatures verified a second")


if __name__ == "__main__":
    main(int(sys.argv[1]))
