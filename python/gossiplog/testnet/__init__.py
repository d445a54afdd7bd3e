"""The network testing environment: real peers on this machine, in chosen topologies, whose events a dashboard shows.

Its layers, each over those before:

    plan                what a network is made of: its members, and who dials whom
    connection_graph    figures of who is connected to whom
    cuts                which members are cut from each other, and what to connect again once they are not
    status              what the coordinator knows of a member
    messages            what the coordinator and its workers say to each other, a line of JSON each
    translation         what peers report, in the words of a dashboard
    member, worker      peers on one event loop, in this process or in one of their own
    links               calls of a worker, wherever it runs
    browsers            one more worker, whose members are pages with canvas-js; page/ has what they load
    lifecycle           starts and stops members, and has them keep to the cuts
    network             the coordinator: runs a network, cuts and heals it, appends, and knows who has what
    schedule            what happens by itself: appends, churn, a partition
    controls            what a dashboard's page may have a network do
"""
