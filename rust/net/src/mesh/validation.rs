//! Deciding about messages of gossip without the caller, on a thread of its own: libp2p's task never waits for it.

use std::sync::Arc;

use libp2p::PeerId;
use tokio::sync::mpsc::UnboundedSender;

use crate::mesh::driver::Command;
use crate::mesh::shared::Shared;
use crate::mesh::validator::{Answer, Publication, Validator};

/// Validate messages as they come, until the host ends.
pub fn run(shared: &Shared, validator: &Arc<dyn Validator>, commands: &UnboundedSender<Command>) {
    let pending = Arc::downgrade(&shared.pending);
    validator.wake_by(Box::new(move || {
        if let Some(pending) = pending.upgrade() {
            pending.wake();
        }
    }));
    while let Some(taken) = shared.pending.take_unvalidated(validator.due()) {
        let publication = |(ticket, source, data): (u64, PeerId, Vec<u8>)| {
            let source = shared.peer_table.peer(&source).map_or(0, |peer| peer.handle);
            (ticket, Publication { source, data })
        };
        let validated = validator.validate(taken.into_iter().map(publication).collect());
        let is_decided = !validated.is_empty();
        let (accepted, deferred): (Vec<_>, Vec<_>) = validated.into_iter().partition(|(.., accepted)| *accepted);
        let answers: Vec<_> = accepted.into_iter().map(|(ticket, ..)| (ticket, Answer::Accept)).collect();
        let answered = shared.pending.answer(&answers);
        if !answered.is_empty() {
            // Refused only by a task that has just panicked, which is reported.
            let _ = commands.send(Command::Answer(answered));
        }
        shared.pending.defer(deferred.into_iter().map(|(ticket, message, _)| (ticket, message.data)));
        if (is_decided && (shared.pending.has_unread() || validator.has_accepted())) || validator.asks() {
            shared.notify();
        }
    }
}
