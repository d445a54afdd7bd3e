"""The network: logs in step between machines, over WebSockets and libp2p.

Its layers, each over those before:

    transport       connections, and streams by protocol name on them; nothing about logs
    events          what applications are notified of
    host_service    a libp2p host for the time of a context
    bootstrap       a node without a log
    routing         routers of `gossiplog.pubsub` on connections
    replicator      drives the machines of `gossiplog.protocol` for one log over connections
    http            what a server offers by HTTP: who may use it, the API, metrics; and the server itself
    log_page        the page of a log that a browser is shown
    client, peer    a log kept in step with a hub, or in a mesh
    hub             the server that clients join
"""
