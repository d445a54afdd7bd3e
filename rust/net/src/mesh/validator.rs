//! Who decides about messages of gossip, and what they decide.

use std::fmt::Debug;
use std::time::Duration;

use libp2p::gossipsub::MessageAcceptance;

use crate::inbox::Handle;

/// What the caller makes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is good, and is forwarded.
    Accept,
    /// It is not forwarded, and held against nobody.
    Ignore,
    /// It is not forwarded, and held against the peer that passed it on.
    Reject,
}

impl Answer {
    /// Parse the name of an answer.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "accept" => Some(Self::Accept),
            "ignore" => Some(Self::Ignore),
            "reject" => Some(Self::Reject),
            _ => None,
        }
    }
}

impl From<Answer> for MessageAcceptance {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Accept => Self::Accept,
            Answer::Ignore => Self::Ignore,
            Answer::Reject => Self::Reject,
        }
    }
}

/// A message that came by gossip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The connection to the peer that passed it on; 0 if that one is gone.
    pub source: Handle,
    /// What was published.
    pub data: Vec<u8>,
}

/// Decides about messages of gossip.
pub trait Validator: Debug + Send + Sync {
    /// Take messages with their tickets; return those that are decided, among them some of earlier calls, and whether
    /// each is accepted. Those that are not wait for the caller.
    fn validate(&self, messages: Vec<(u64, Publication)>) -> Vec<(u64, Publication, bool)>;

    /// Return how long until it is to be called again where nothing else comes. None: not before it wakes.
    fn due(&self) -> Option<Duration>;

    /// Have `wake` called when something that waits can be decided. It may be called from any thread, and too often.
    fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>);

    /// Return whether it has accepted something that the caller is to take from it.
    fn has_accepted(&self) -> bool;

    /// Return whether it lacks something that the caller is to look up for it.
    fn asks(&self) -> bool;
}
