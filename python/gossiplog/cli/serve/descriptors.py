"""The file descriptors of a server, of which each connection takes one."""

from __future__ import annotations

from gossiplog.net.http.connections import REQUEST_CONNECTIONS

try:
    import resource
except ImportError:  # Windows has no such limit.
    resource = None  # type: ignore[assignment]

# The database, the event loop, certificates, a mesh's sockets, and room for what a library opens.
_OTHERS = 64
# More than any limit of connections, and accepted where the hard limit is infinite.
_MOST = 2**20


def raise_descriptor_limit() -> int | None:
    """Raise the limit of this process as far as it may, and return it; None where the system has no such limit."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            # macOS refuses more than the kernel's own limit, whatever it says of the hard one.
            return soft
        return wanted
    return None if soft == resource.RLIM_INFINITY else soft


def descriptor_warning(limit: int | None, connections: int, services: int) -> str:
    """Return a warning if the limit of descriptors is too low for that of connections; else "".

    Args:
        limit: of descriptors; None for any number.
        connections: that each service lets in.
        services: a hub, a peer of a mesh, or both.
    """
    needed = services * (connections + REQUEST_CONNECTIONS) + _OTHERS
    if limit is None or needed <= limit:
        return ""
    return (
        f"--connections {connections} needs about {needed} file descriptors, and this process may have {limit}:"
        " connections beyond are dropped. Raise the hard limit (LimitNOFILE= of systemd, ulimit -Hn), or lower"
        " --connections"
    )
