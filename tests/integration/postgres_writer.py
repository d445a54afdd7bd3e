"""A program that appends to a log in Postgres until it is killed, and prints the id of each message that was stored.

    python postgres_writer.py URL NUMBER

What fails is tried again, as a server restarts; each failure is a line that begins with "failed". It begins at once,
and takes a line of its input for every TURN appends: on a busy machine it would write thousands while others start.
"""

from __future__ import annotations

import sys
import time

import gossiplog

TOPIC = "org.example.test"
_PAUSE = 0.02
TURN = 50


def main(url: str, number: str) -> None:
    signer = gossiplog.Signer(int(number).to_bytes(32, "big"))
    log: gossiplog.Log | None = None
    count = 0
    while True:
        if count % TURN == TURN - 1:
            sys.stdin.readline()
        try:
            log = log or gossiplog.open(url, TOPIC, signer=signer)
            count += 1
            lines = [log.append([number, count]).id]
            if count % 5 == 0:
                lines += [message.id for message in log.append_many([[number, count, n] for n in range(5)])]
        except gossiplog.StorageError as error:
            lines = [f"failed {error}"]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])
