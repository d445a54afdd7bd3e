//! Gossip: what is accepted goes on, what is rejected is held against whoever passed it on.

use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gossiplog_net::{
    Answer, Cause, Config, Error, Event, LARGEST_MESSAGE, Notice, Publication, StreamTable, Validator,
};

use crate::support::{Peer, bytes, config, pair};

/// Three hosts in a line, meshed, of which the one in the middle has settings of its own.
///
/// The ends must not meet: their one other peer is nobody's bootstrap, and tells no address of theirs.
fn chain_of_three(middle: Config) -> (Peer, Peer, Peer) {
    let quiet = || Config { listen: Vec::new(), ..config() };
    let (mut middle, address) = Peer::listening(middle);
    let (mut first, mut third) = (Peer::start(quiet()), Peer::start(quiet()));
    for end in [&mut first, &mut third] {
        end.host.dial(&address).unwrap();
        end.connection(&middle);
    }
    middle.meshed(2);
    first.meshed(1);
    third.meshed(1);
    (first, middle, third)
}

#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn messages_of_every_size_arrive_both_ways() {
    let (mut first, mut second) = pair(config(), config());
    first.meshed(1);
    second.meshed(1);
    for length in [1, 100_000, 3_000_000, LARGEST_MESSAGE] {
        for turn in 0..2 {
            let (from, to) = if turn == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
            let mut data = bytes(length);
            data[0] = turn;
            assert_eq!(from.host.publish(data.clone()), Ok(true));
            let message = to.message(Answer::Accept);
            assert!(message.data == data);
            assert_eq!(message.peer_id, from.host.peer());
            assert_eq!(message.connection, to.connection(from));
        }
    }
    assert!(matches!(first.host.publish(vec![0; LARGEST_MESSAGE + 1]), Err(Error::Invalid(_))));
    first.until("what it answered is counted", |peer| (peer.host.counts().unwrap().gossip_accepted == 4).then_some(()));
    let counts = first.host.counts().unwrap();
    assert_eq!((counts.published, counts.gossip_received, counts.gossip_dropped), (4, 4, 0));
}

#[test]
fn only_what_is_accepted_goes_on() {
    let (first, mut middle, mut third) = chain_of_three(config());
    let answers =
        [(b"good", Answer::Accept), (b"dull", Answer::Ignore), (b"evil", Answer::Reject), (b"fine", Answer::Accept)];
    for (data, answer) in answers {
        assert_eq!(first.host.publish(data.to_vec()), Ok(true));
        assert_eq!(middle.message(answer).data, data);
    }
    // What came last shows that the others do not come.
    assert_eq!(third.message(Answer::Accept).data, b"good");
    assert_eq!(third.message(Answer::Accept).data, b"fine");
    let sender = first.host.peer();
    let score = |peer: &Peer, other: &str| {
        peer.host.peers().unwrap().iter().find(|info| info.peer_id == other).map(|info| info.status.score)
    };
    middle.until("the rejection is held against the sender", |peer| score(peer, &sender).filter(|score| *score < -5.0));
    assert!(score(&third, &middle.host.peer()).is_some_and(|score| score > -1.0));
    let counts = middle.host.counts().unwrap();
    assert_eq!((counts.gossip_accepted, counts.gossip_ignored, counts.gossip_rejected), (2, 1, 1));
}

#[test]
fn a_peer_whose_messages_are_rejected_is_dropped_in_the_end() {
    let (mut first, mut second) = pair(config(), config());
    first.meshed(1);
    second.meshed(1);
    let (offender, victim) = (second.connection(&first), first.connection(&second));
    let mut published = 0;
    let closed = second.until("it is parted from", |peer| {
        for message in std::mem::take(&mut peer.messages) {
            peer.host.validate(&[(message.ticket, Answer::Reject)]).unwrap();
        }
        first.host.publish(format!("nonsense {published}").into_bytes()).unwrap();
        published += 1;
        first.poll();
        peer.events().find_map(|event| match event {
            Event::Connection { connection, closed, .. } if *connection == offender => closed.clone(),
            _ => None,
        })
    });
    assert_eq!(closed.cause, Cause::Violation);
    assert!(closed.reason.contains("score"), "{closed:?}");
    first.closed(victim);
    // The score outlasts the connection.
    let address = second.host.addresses().unwrap()[0].clone();
    let again = first.host.dial(&address).unwrap();
    first.closed(again);
}

#[test]
fn changes_of_mesh_and_subscriptions_are_reported() {
    let (mut first, mut second) = pair(config(), config());
    let other = second.host.peer();
    for kind in ["subscribe", "graft"] {
        first.until(kind, |peer| {
            let told = |notice: &Notice| matches!(notice, Notice::Mesh { peer_id, kind: told } if *peer_id == other && *told == kind);
            peer.notices.iter().any(told).then_some(())
        });
    }
    second.meshed(1);
    assert_eq!(second.host.publish(b"hello".to_vec()), Ok(true));
    first.message(Answer::Accept);
    second.host.stop().unwrap();
    for kind in ["unsubscribe", "prune"] {
        first.until(kind, |peer| {
            let told = |notice: &Notice| matches!(notice, Notice::Mesh { peer_id, kind: told } if *peer_id == other && *told == kind);
            peer.notices.iter().any(told).then_some(())
        });
    }
    first.until("nobody subscribes", |peer| (peer.host.publish(b"anybody?".to_vec()) == Ok(false)).then_some(()));
}

#[test]
fn what_was_published_before_goes_nowhere() {
    let (mut first, mut second) = pair(config(), config());
    first.meshed(1);
    second.meshed(1);
    for data in [&b"once"[..], b"once", b"last"] {
        first.host.publish(data.to_vec()).unwrap();
    }
    assert_eq!(second.message(Answer::Accept).data, b"once");
    assert_eq!(second.message(Answer::Accept).data, b"last");
    assert_eq!(first.host.counts().unwrap().published, 2);
}

/// Accepts what begins with a `g`, panics at a `p`, has what begins with a `w` wait for what it accepts next, or until it
/// is called with nothing, and leaves the rest.
#[derive(Default)]
struct ByFirstByte {
    accepted: Mutex<Vec<Publication>>,
    waiting: Mutex<Vec<(u64, Publication)>>,
    wake: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    longest: Option<Duration>,
}

impl Debug for ByFirstByte {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ByFirstByte").finish_non_exhaustive()
    }
}

impl Validator for ByFirstByte {
    fn validate(&self, messages: Vec<(u64, Publication)>) -> Vec<(u64, Publication, bool)> {
        let mut waiting = self.waiting.lock().unwrap();
        let mut decided = Vec::new();
        if messages.is_empty() {
            decided.extend(waiting.drain(..).map(|(ticket, message)| (ticket, message, true)));
        }
        for (ticket, message) in messages {
            match message.data[0] {
                b'p' => panic!("a test's fault"),
                b'w' => waiting.push((ticket, message)),
                b'g' => {
                    for (ticket, message) in waiting.drain(..).chain([(ticket, message)]) {
                        self.accepted.lock().unwrap().push(message.clone());
                        decided.push((ticket, message, true));
                    }
                }
                _ => decided.push((ticket, message, false)),
            }
        }
        decided
    }

    fn due(&self) -> Option<Duration> {
        if self.waiting.lock().unwrap().is_empty() { None } else { self.longest }
    }

    fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        *self.wake.lock().unwrap() = Some(wake);
    }

    fn asks(&self) -> bool {
        self.waiting.lock().is_ok_and(|waiting| !waiting.is_empty())
    }

    fn has_accepted(&self) -> bool {
        !self.accepted.lock().unwrap().is_empty()
    }
}

#[test]
fn what_a_validator_accepts_goes_on_without_the_caller() {
    let validator = Arc::<ByFirstByte>::default();
    let (first, mut middle, mut third) =
        chain_of_three(Config { validator: Some(Arc::clone(&validator) as _), ..config() });
    for data in [&b"bad"[..], b"waits", b"good", b"fine"] {
        assert_eq!(first.host.publish(data.to_vec()), Ok(true));
    }
    // The caller of the host in the middle has not looked at anything yet.
    assert_eq!(third.message(Answer::Accept).data, b"waits");
    assert_eq!(third.message(Answer::Accept).data, b"good");
    middle.until("the caller learns of what was accepted", |peer| {
        peer.notices.iter().any(|notice| matches!(notice, Notice::Host { accepted: true, .. })).then_some(())
    });
    let source = middle.connection(&first);
    let accepted = [b"waits".to_vec(), b"good".to_vec()].map(|data| Publication { source, data });
    assert_eq!(*validator.accepted.lock().unwrap(), accepted);
    assert_eq!(middle.message(Answer::Reject).data, b"bad");
    assert_eq!(middle.message(Answer::Accept).data, b"fine");
    assert_eq!(third.message(Answer::Accept).data, b"fine");
    let counts = middle.host.counts().unwrap();
    assert_eq!((counts.gossip_received, counts.gossip_accepted, counts.gossip_dropped), (4, 3, 0));
    middle.host.stop().unwrap();
}

#[test]
fn what_waits_is_decided_once_the_validator_wakes_without_traffic() {
    let validator = Arc::<ByFirstByte>::default();
    let (first, mut middle, mut third) =
        chain_of_three(Config { validator: Some(Arc::clone(&validator) as _), ..config() });
    assert_eq!(first.host.publish(b"waits".to_vec()), Ok(true));
    middle.until("the caller is asked", |peer| {
        peer.notices.iter().any(|notice| matches!(notice, Notice::Host { asked: true, .. })).then_some(())
    });
    assert_eq!(validator.waiting.lock().unwrap().len(), 1);
    let wake = validator.wake.lock().unwrap();
    let wake = wake.as_ref().unwrap();
    wake();
    wake();
    assert_eq!(third.message(Answer::Accept).data, b"waits");
    middle.host.stop().unwrap();
    // Nothing is left to wake.
    wake();
}

#[test]
fn what_waits_is_decided_once_it_is_due_without_traffic() {
    let validator = ByFirstByte { longest: Some(Duration::from_millis(1)), ..ByFirstByte::default() };
    let (first, middle, mut third) = chain_of_three(Config { validator: Some(Arc::new(validator)), ..config() });
    assert_eq!(first.host.publish(b"waits".to_vec()), Ok(true));
    assert_eq!(third.message(Answer::Accept).data, b"waits");
    middle.host.stop().unwrap();
}

#[test]
fn a_host_whose_validator_panics_reports_it() {
    let (mut first, address) = Peer::listening(config());
    let mut second = Peer::start(Config { validator: Some(Arc::<ByFirstByte>::default()), ..config() });
    second.host.dial(&address).unwrap();
    first.connection(&second);
    first.meshed(1);
    second.meshed(1);
    assert_eq!(first.host.publish(b"panic".to_vec()), Ok(true));
    let start = std::time::Instant::now();
    let error = loop {
        match second.host.poll() {
            Err(error) => break error,
            Ok(_) => assert!(start.elapsed().as_secs() < 120, "waited in vain"),
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    assert_eq!(error, Error::Stopped("a defect of gossiplog-net: the validator of gossip panicked"));
    second.host.stop().unwrap();
}

#[test]
fn a_caller_speaks_gossip_where_the_host_does_not() {
    const GOSSIP: &str = "/meshsub/1.0.0";
    let quiet = || Config { gossips: false, protocols: vec![GOSSIP.to_owned()], ..config() };
    let (mut first, mut second) = pair(quiet(), quiet());
    let handle = second.connection(&first);
    assert!(!second.host.publish(b"to nobody".to_vec()).unwrap());
    let ours = second.host.open(handle, GOSSIP).unwrap();
    let (theirs, protocol) = first.inbound();
    assert_eq!(protocol, GOSSIP);
    second.until("the stream is open", |peer| {
        let open = |event: &Event| matches!(event, Event::Stream { stream, protocol: Some(_), .. } if *stream == ours);
        peer.events().any(open).then_some(())
    });
    // Half of a frame, which gossipsub would wait for.
    second.write(ours, &[200, 1, 18]);
    assert_eq!(first.read(theirs), Ok(vec![200, 1, 18]));
    assert_eq!(first.host.held(), Ok(0));
    assert!(first.host.peers().unwrap().iter().all(|info| !info.status.subscribed && !info.status.in_mesh));
    let counts = first.host.counts().unwrap();
    assert_eq!((counts.gossip_received, counts.published), (0, 0));
}
