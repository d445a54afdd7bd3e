"""gossipsub 1.0, as `router` describes it.

Imports go from the top of this list: config, events, message_cache, peering; outbox; router.
"""

from gossiplog.pubsub.gossipsub.config import Config, GossipConfig
from gossiplog.pubsub.gossipsub.events import Heartbeat, Unsent
from gossiplog.pubsub.gossipsub.peering import Peering
from gossiplog.pubsub.gossipsub.router import GossipSub

__all__ = ["Config", "GossipConfig", "GossipSub", "Heartbeat", "Peering", "Unsent"]
