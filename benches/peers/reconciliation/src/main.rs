//! Reconciles two sets of ids with negentropy, and prints rounds, bytes and the milliseconds of both sides.
//!
//! Usage: `peers-reconciliation IDS [DIFFERENCES]`. The second set has all ids, the first lacks some: those at random
//! places, then those at the end. Only ids travel; the values would have to follow.

use std::time::Instant;

use negentropy::{Error, Id, Negentropy, NegentropyStorageVector};

/// SplitMix64: the same ids everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn id(&mut self) -> Id {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        Id::from_byte_array(bytes)
    }
}

/// What a reconciliation cost.
#[derive(Default)]
struct Cost {
    rounds: usize,
    up: usize,
    down: usize,
    found: usize,
}

/// Both sets; `differs` says of each position whether the first set lacks the id there.
fn sets(ids: u64, differs: impl Fn(u64) -> bool) -> Result<(NegentropyStorageVector, NegentropyStorageVector), Error> {
    let mut random = Random(ids);
    let (mut lacking, mut all) = (NegentropyStorageVector::new(), NegentropyStorageVector::new());
    for position in 0..ids {
        let id = random.id();
        all.insert(position, id)?;
        if !differs(position) {
            lacking.insert(position, id)?;
        }
    }
    lacking.seal()?;
    all.seal()?;
    Ok((lacking, all))
}

fn reconcile(lacking: &NegentropyStorageVector, all: &NegentropyStorageVector) -> Result<Cost, Error> {
    let mut client = Negentropy::borrowed(lacking, 0)?;
    let mut server = Negentropy::borrowed(all, 0)?;
    let (mut have, mut need) = (Vec::new(), Vec::new());
    let mut cost = Cost::default();
    let mut next = Some(client.initiate()?);
    while let Some(request) = next {
        let answer = server.reconcile(&request)?;
        cost.rounds += 1;
        cost.up += request.len();
        cost.down += answer.len();
        next = client.reconcile_with_ids(&answer, &mut have, &mut need)?;
    }
    cost.found = need.len();
    Ok(cost)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let ids: u64 = arguments.next().ok_or("usage: peers-reconciliation IDS [DIFFERENCES]")?.parse()?;
    let differences: u64 = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let step = ids / differences.max(1);
    for (place, at_the_end) in [("scattered", false), ("at the end", true)] {
        let (lacking, all) = sets(ids, |position| {
            if at_the_end {
                position >= ids - differences
            } else {
                position % step == 0 && position / step < differences
            }
        })?;
        let start = Instant::now();
        let Cost { rounds, up, down, found } = reconcile(&lacking, &all)?;
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        println!("{found} of {ids} ids {place}: {milliseconds:.1} ms, {rounds} rounds, {up} bytes up, {down} down");
    }
    Ok(())
}
