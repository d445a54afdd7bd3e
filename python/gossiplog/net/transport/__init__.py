"""Connections, and streams by protocol name on them: over WebSockets, pipes and libp2p, on asyncio and on trio."""
