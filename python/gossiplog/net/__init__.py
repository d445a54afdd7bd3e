# Imports go one way: stream, then streams.
"""The network: streams over WebSockets and pipes."""
