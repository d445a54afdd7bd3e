//! Deciding about messages of gossip without the caller, on a thread of its own: libp2p's task never waits for it.

use std::sync::Arc;

use libp2p::PeerId;
use tokio::sync::mpsc::UnboundedSender;

use crate::mesh::driver::Command;
use crate::mesh::pending::{Answer, Publication, Validator};
use crate::mesh::shared::Shared;

/// Validator messages as they come, until the host ends.
pub fn run(shared: &Shared, validator: &Arc<dyn Validator>, commands: &UnboundedSender<Command>) {
    while let Some(taken) = shared.pending.take_unvalidated() {
        let publication = |(ticket, source, data): (u64, PeerId, Vec<u8>)| {
            let source = shared.peer_table.peer(&source).map_or(0, |peer| peer.handle);
            (ticket, Publication { source, data })
        };
        let (tickets, messages): (Vec<_>, Vec<_>) = taken.into_iter().map(publication).unzip();
        let accepted = validator.validate(&messages);
        let validated = || tickets.iter().zip(&accepted);
        let answers: Vec<_> =
            validated().filter(|(_, accepted)| **accepted).map(|(ticket, _)| (*ticket, Answer::Accept)).collect();
        let answered = shared.pending.answer(&answers);
        if !answered.is_empty() {
            // Refused only by a task that has just panicked, which is reported.
            let _ = commands.send(Command::Answer(answered));
        }
        let left = validated().zip(messages).filter(|((_, accepted), _)| !**accepted);
        shared.pending.defer(left.map(|((ticket, _), message)| (*ticket, message.data)));
        if shared.pending.has_unread() || validator.has_accepted() {
            shared.notify();
        }
    }
}
