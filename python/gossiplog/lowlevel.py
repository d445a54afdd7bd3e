"""What programs import that build on the parts of this package, and not on its logs, hubs and peers alone.

These names are those of its own networks, jobs and commands. They may change in any version, and the changelog says
how; those of `gossiplog` stay.

- `replica_of(log)`, a Replica: a log as one replica among others, with what verifies and inserts whole batches;
  `replica_of(log).snapshot()`, a Snapshot, is what sync servers and clients read
- Driver: what keeps a log in step with its peers, over any connections; `driver_of(peer)` is one
- what `Access` decides of a request, which is in its scope under SCOPE_KEY: Decision, which is Allowed or Denied
- what `serve` may be given beside its settings: Listener, a socket that it listens on, and RateLimitedLog, where it
  counts and logs
- PostgresURL: a URL of a log in Postgres that was read, which `Location` takes as it takes the text

`gossiplog.core` has values, ids, messages and trees, and `gossiplog.protocol` the protocols as machines without I/O.
"""

from __future__ import annotations

from gossiplog.log.log import replica_of
from gossiplog.log.replica import Replica
from gossiplog.log.state import Snapshot
from gossiplog.net.http.access import SCOPE_KEY, Allowed, Decision, Denied
from gossiplog.net.http.listener import Listener
from gossiplog.net.peer import driver_of
from gossiplog.net.rate_limited_log import RateLimitedLog
from gossiplog.net.replicator.driver import Driver
from gossiplog.storage.postgres.url import PostgresURL

__all__ = [
    "SCOPE_KEY",
    "Allowed",
    "Decision",
    "Denied",
    "Driver",
    "Listener",
    "PostgresURL",
    "RateLimitedLog",
    "Replica",
    "Snapshot",
    "driver_of",
    "replica_of",
]
