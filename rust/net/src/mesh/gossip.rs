//! How gossip is configured.
//!
//! Nobody signs (StrictNoSign), and a message's id is the SHA-256 of its data: what canvas-js does. Peers that speak
//! floodsub alone get every message. All else is the caller's choice ([`GossipConfig`]) or gossipsub 1.1's, but for
//! bounds on what a peer can make this side do.

use std::collections::HashMap;
use std::time::Duration;

use libp2p::gossipsub::{
    Behaviour, ConfigBuilder, IdentTopic, IdentityTransform, MaxCountSubscriptionFilter, MessageAuthenticity,
    MessageId, PeerScoreParams, PeerScoreThresholds, TopicScoreParams, ValidationMode, WhitelistSubscriptionFilter,
    score_parameter_decay,
};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::mesh::config::{GossipConfig, LARGEST_FRAME};

/// Gossip on one topic.
pub type Gossip = Behaviour<IdentityTransform, MaxCountSubscriptionFilter<WhitelistSubscriptionFilter>>;

/// Subscriptions in one message of a peer. Those to other topics are passed over, but each costs a look.
const MOST_SUBSCRIPTIONS: usize = 1024;

/// Bytes of ids and topics in one message of a peer: canvas-js announces up to 5,000 ids of 32 bytes at a time.
const MOST_CONTROL: usize = 512 << 10;

/// Announcements that are taken from a peer in one heartbeat.
const MOST_ANNOUNCEMENTS: usize = 10;

/// Peers of the mesh that this side dialled itself, at least, where it has so many: gossipsub 1.1's D_out.
const MOST_OUTBOUND: usize = 2;

/// Messages in one frame of a peer.
const MOST_MESSAGES: usize = 4096;

/// How long a message may wait to be sent to a peer. gossipsub drops what it forwards after a second otherwise, and what
/// is published after five; but in a burst that keeps this machine busy all messages wait for longer than one, and what
/// is dropped comes by sync, seconds later. What waits is bounded in bytes ([`crate::mesh::outbox`]).
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What the square of the number of rejected messages is multiplied with: after three, announcements neither go to a
/// peer nor are taken from it; after five, it gets messages only as a member of the mesh; after seven, it is dropped.
const PENALTY: f64 = -10.0;

/// How long it takes until a rejected message is forgiven.
const FORGIVENESS: Duration = Duration::from_secs(600);

/// Below it gossipsub ignores a peer, and the host drops it.
pub const MIN_SCORE: f64 = -400.0;

/// What a peer loses while it is suspended because it is slow, which is no fault: it is in nobody's mesh, and
/// gets and announces nothing by gossip, but what it sends is taken. Below what [`thresholds`] has for publishing.
pub const SUSPENDED_SCORE: f64 = -200.0;

fn failure(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::system("gossip cannot be started", error)
}

/// Create gossipsub, subscribed to `topic`.
pub fn gossip(topic: &IdentTopic, parameters: &GossipConfig) -> Result<Gossip, Error> {
    let mut config = ConfigBuilder::default();
    config
        .validation_mode(ValidationMode::Anonymous)
        .validate_messages()
        .message_id_fn(|message| MessageId::new(&Sha256::digest(&message.data)))
        .max_transmit_size(LARGEST_FRAME)
        .max_control_message_size(MOST_CONTROL)
        .max_ihave_messages_heartbeat(MOST_ANNOUNCEMENTS)
        .max_publish_messages(MOST_MESSAGES)
        .publish_queue_duration(LONGEST_WAIT)
        .forward_queue_duration(LONGEST_WAIT)
        // Of the peers that another names when it leaves the mesh, none are dialled: Kademlia finds enough.
        .prune_peers(0)
        .support_floodsub()
        .mesh_n(parameters.d)
        .mesh_n_low(parameters.d_low)
        .mesh_n_high(parameters.d_high)
        .mesh_outbound_min(MOST_OUTBOUND.min(parameters.d_low).min(parameters.d / 2))
        .gossip_lazy(parameters.d_lazy)
        .fanout_ttl(parameters.fanout_ttl)
        .history_length(parameters.mcache_len)
        .history_gossip(parameters.mcache_gossip)
        .duplicate_cache_time(parameters.seen_ttl)
        .heartbeat_interval(parameters.heartbeat_interval)
        .heartbeat_initial_delay(parameters.heartbeat_interval);
    let config = config.build().map_err(failure)?;
    let filter = MaxCountSubscriptionFilter {
        filter: WhitelistSubscriptionFilter([topic.hash()].into()),
        max_subscribed_topics: 1,
        max_subscriptions_per_request: MOST_SUBSCRIPTIONS,
    };
    let mut gossip =
        Gossip::new_with_subscription_filter(MessageAuthenticity::Anonymous, config, filter).map_err(failure)?;
    gossip.with_peer_score(scores(topic), thresholds()).map_err(failure)?;
    gossip.subscribe(topic).map_err(failure)?;
    Ok(gossip)
}

/// Return the parameters of scores. Peers lose by messages that are rejected, and by nothing else but
/// [`SUSPENDED_SCORE`]: the host drops those that lose too much, so only what is proven counts. Quiet peers lose
/// nothing: a log may be quiet for days. Addresses do not count: hosts share them, behind NAT and on one machine.
fn scores(topic: &IdentTopic) -> PeerScoreParams {
    let scores = TopicScoreParams {
        topic_weight: 1.0,
        time_in_mesh_weight: 0.01,
        time_in_mesh_quantum: Duration::from_secs(1),
        time_in_mesh_cap: 300.0,
        first_message_deliveries_weight: 0.1,
        first_message_deliveries_cap: 100.0,
        mesh_message_deliveries_weight: 0.0,
        mesh_failure_penalty_weight: 0.0,
        invalid_message_deliveries_weight: PENALTY,
        invalid_message_deliveries_decay: score_parameter_decay(FORGIVENESS),
        ..TopicScoreParams::default()
    };
    PeerScoreParams {
        topics: HashMap::from([(topic.hash(), scores)]),
        app_specific_weight: 1.0,
        ip_colocation_factor_weight: 0.0,
        // Messages that wait too long for their turn to be sent: it may be the network that is slow.
        slow_peer_weight: 0.0,
        // Mostly messages that were asked for and did not come within three seconds, each of up to 5,000 by itself: the
        // network again. Requests to join the mesh that come too early count here, too; the allowance bounds those.
        behaviour_penalty_weight: 0.0,
        ..PeerScoreParams::default()
    }
}

fn thresholds() -> PeerScoreThresholds {
    PeerScoreThresholds {
        gossip_threshold: -40.0,
        publish_threshold: -160.0,
        graylist_threshold: MIN_SCORE,
        opportunistic_graft_threshold: 1.0,
        ..PeerScoreThresholds::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_blamed_for_rejected_messages_alone() {
        let topic = IdentTopic::new("com.example.test");
        let scores = scores(&topic);
        scores.validate().unwrap();
        let for_network =
            [scores.slow_peer_weight, scores.behaviour_penalty_weight, scores.ip_colocation_factor_weight];
        assert_eq!(for_network, [0.0; 3]);
        let scores = &scores.topics[&topic.hash()];
        assert_eq!([scores.mesh_message_deliveries_weight, scores.mesh_failure_penalty_weight], [0.0; 2]);
        let seven = 7.0 * 7.0 * scores.invalid_message_deliveries_weight;
        assert!(seven + scores.time_in_mesh_weight * scores.time_in_mesh_cap < MIN_SCORE);
        let best = scores.time_in_mesh_weight * scores.time_in_mesh_cap
            + scores.first_message_deliveries_weight * scores.first_message_deliveries_cap;
        let thresholds = thresholds();
        assert!(MIN_SCORE < SUSPENDED_SCORE && SUSPENDED_SCORE + best < thresholds.publish_threshold);
    }
}
