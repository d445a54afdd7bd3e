//! Which messages are ancestors of which: skip links along the clock, answered with few reads.
//!
//! A message at clock c stores a *link set* for each k with 2^k dividing c and 2^k < c: its *frontier* at clock c - 2^k,
//! the maximal elements among its proper ancestors at or before that clock. That is two sets on average, and from any clock to any
//! lower one there are at most 2 log2(c) steps. Messages are known by their arrival sequence; a parent's is always the lower one.
//!
//! Two rules carry everything. Descending: replace each message after the target clock by its link set that goes furthest without
//! passing the target, until none is left; what remains holds the frontier, and perhaps ancestors of it. Testing: x is an ancestor
//! of y when descending from y to the clock of x arrives at x, since no two messages of one clock are related.
//!
//! Asking only whether one message is an ancestor of another is cheaper: [`is_ancestor`] goes down one path first, since in histories
//! whose branches meet nearly every path arrives.
//!
//! Bounds: a descent, or the reduction of a set to its maximal elements, reads and expands no message twice, and only ones with a
//! clock between the highest of the set and the target. Where at most w messages are concurrent and their clocks keep step, it
//! expands O(w log c) of them. Where clocks do not keep step, those that lag behind a set's clock go on in small steps, and in the
//! worst case everything in between is expanded. A stored set is as wide as the history was at its clock.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Error;

/// The largest clock, 2^53 - 1.
const MAX_CLOCK: u64 = (1 << 53) - 1;

// Sequences are the log's own: nobody can choose them so that they collide, and the default hash was a tenth of a record's cost.
type SequenceSet = FxHashSet<u64>;
type SequenceMap<V> = FxHashMap<u64, V>;

/// What reads stored link records: one for each of the sequences, in their order.
pub type Links<'a, E> = dyn FnMut(&[u64]) -> Result<Vec<Vec<u8>>, E> + 'a;

/// What is stored with a message.
///
/// Its bytes: the clock; then for each k the number of sequences in the set (0 for one that was left out), and each of them
/// ascending as the message's own sequence less it; then, where the first set was left out, and so all of them, the parents
/// likewise. All numbers are unsigned LEB128, as short as possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The message's clock, from 1.
    pub clock: u64,
    /// The link sets: for each k with 2^k dividing the clock and below it, the frontier at the clock less 2^k, ascending;
    /// empty where it was left out ([`MAX_SHORTCUT`], [`MAX_LOOKS`]). Where all were, the parents, ascending, are the last.
    pub links: Vec<Vec<u64>>,
}

impl Record {
    /// The bytes of the record of the message with this sequence.
    ///
    /// # Errors
    ///
    /// [`Error::Encode`]: a record that no message can have.
    pub fn encode(&self, sequence: u64) -> Result<Vec<u8>, Error> {
        let data = write(sequence, self.clock, &self.links);
        match Record::decode(sequence, &data) {
            Ok(read) if read == *self => Ok(data),
            Ok(_) => Err(Error::Encode("link sets must ascend below the message's sequence".into())),
            Err(error) => Err(Error::Encode(format!("no message can have this link record: {error}"))),
        }
    }

    /// Reads the record of the message with this sequence. Memory is bounded by a small multiple of the input.
    ///
    /// # Errors
    ///
    /// [`Error::Decode`]: anything that [`Record::encode`] does not write.
    pub fn decode(sequence: u64, data: &[u8]) -> Result<Record, Error> {
        let mut reader = Reader { data, offset: 0 };
        let clock = reader.clock()?;
        let mut links = Vec::new();
        reader.sets(clock, sequence, |set| links.push(set.to_vec()))?;
        reader.end()?;
        Ok(Record { clock, links })
    }
}

/// How many link sets a message at this clock has: the k with 2^k dividing the clock and 2^k < clock.
fn sets(clock: u64) -> u32 {
    if clock.is_power_of_two() { clock.trailing_zeros() } else { clock.trailing_zeros() + 1 }
}

/// A set over more than one step is left out of the record where a search for it arrives at more messages than this, and
/// so are those over longer steps. Without a limit, a chain on top of many concurrent messages would store their whole
/// width again and again, and look through it: an attacker could make that product large.
pub const MAX_SHORTCUT: usize = 256;

/// The sets over more than one step are left out of a record, from the one on whose search has looked at this many members of link
/// sets, with those before; and all sets, where which of the parents are ancestors of others is not known after as many looks.
/// Without a limit, a chain whose messages follow a few fresh roots each could only be searched message by message, and each next one
/// would cost as much as the chain is long. Of 32 authors out of step, one message in a thousand costs more; 50 on average.
pub const MAX_LOOKS: u64 = 1 << 12;

fn write(sequence: u64, clock: u64, links: &[Vec<u64>]) -> Vec<u8> {
    let mut data = Vec::with_capacity(4 + links.iter().map(|set| 2 + 2 * set.len()).sum::<usize>());
    write_number(&mut data, clock);
    for set in links {
        write_number(&mut data, set.len() as u64);
        set.iter().for_each(|&link| write_number(&mut data, sequence.wrapping_sub(link)));
    }
    data
}

fn write_number(data: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        data.push(number as u8 | 0x80);
        number >>= 7;
    }
    data.push(number as u8);
}

struct Reader<'a> {
    data: &'a [u8],
    offset: usize,
}

impl Reader<'_> {
    fn fail<T>(&self, reason: &str, offset: usize) -> Result<T, Error> {
        Err(Error::Decode { reason: format!("link record: {reason}"), offset: Some(offset) })
    }

    fn number(&mut self) -> Result<u64, Error> {
        let start = self.offset;
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.data.get(self.offset) else {
                return self.fail("the data ends within a number", self.offset);
            };
            self.offset += 1;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return self.fail("a number is longer than it needs to be", start);
                }
                return Ok(number);
            }
        }
        self.fail("a number is above 2^64 - 1", start)
    }

    fn clock(&mut self) -> Result<u64, Error> {
        match self.number()? {
            clock @ 1..=MAX_CLOCK => Ok(clock),
            clock => self.fail(&format!("the clock is {clock}, expected 1 to 2^53 - 1"), 0),
        }
    }

    /// Reads the sets of a message at this clock, and the parents where there are none.
    fn sets(&mut self, clock: u64, sequence: u64, mut take: impl FnMut(&[u64])) -> Result<(), Error> {
        let (mut set, mut are_left_out) = (Vec::new(), false);
        for k in 0..sets(clock) {
            let start = self.offset;
            set.clear();
            self.set(sequence, &mut set)?;
            are_left_out |= k == 0 && set.is_empty();
            if are_left_out && !set.is_empty() {
                return self.fail("a set after the first was left out", start);
            }
            take(&set);
        }
        if are_left_out {
            let start = self.offset;
            self.set(sequence, &mut set)?;
            if set.is_empty() {
                return self.fail("there are neither sets nor parents", start);
            }
            take(&set);
        }
        Ok(())
    }

    /// Appends the next set; nothing where it was left out.
    fn set(&mut self, sequence: u64, into: &mut Vec<u64>) -> Result<(), Error> {
        let start = self.offset;
        let count = self.number()?;
        if count > (self.data.len() - self.offset) as u64 {
            return self.fail(&format!("a set of {count} sequences, more than the bytes that are left"), start);
        }
        let mut before = sequence;
        for _ in 0..count {
            let start = self.offset;
            let distance = self.number()?;
            if distance == 0 || distance >= before {
                return self.fail("sequences must ascend, between 1 and the message's own", start);
            }
            before = distance;
            into.push(sequence - distance);
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Error> {
        if self.offset < self.data.len() { self.fail("there are bytes after its end", self.offset) } else { Ok(()) }
    }
}

/// A message whose record is at hand; kept as bytes, which are far smaller than the sets.
struct Known {
    clock: u64,
    record: Box<[u8]>,
}

/// The records read so far, and the way to more.
struct Graph<'a, E> {
    load: &'a mut Links<'a, E>,
    known: SequenceMap<Known>,
    /// How many members of link sets were looked at.
    work: u64,
    /// How many may be; a search breaks off beyond.
    most: u64,
}

impl<'a, E> Graph<'a, E> {
    fn new(load: &'a mut Links<'a, E>) -> Self {
        Graph { load, known: SequenceMap::default(), work: 0, most: u64::MAX }
    }

    /// Whether a search has broken off: what it found is of no use.
    fn is_exhausted(&self) -> bool {
        self.work > self.most
    }
}

/// Where a descent arrived.
struct Descent {
    /// Ascending.
    arrived: Vec<u64>,
    /// The size of the largest frontier at the target of a single message: its elements are known to be unrelated.
    widest: usize,
}

impl<'a, E: From<Error>> Graph<'a, E> {
    /// Reads the records that are not at hand, in one call.
    fn fetch(&mut self, sequences: &[u64]) -> Result<(), E> {
        let mut missing: Vec<u64> =
            sequences.iter().copied().filter(|sequence| !self.known.contains_key(sequence)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_unstable();
        missing.dedup();
        let records = (self.load)(&missing)?;
        if records.len() != missing.len() {
            let (asked, got) = (missing.len(), records.len());
            let reason = format!("{asked} link records were asked for, {got} returned");
            return Err(Error::Decode { reason, offset: None }.into());
        }
        for (sequence, record) in missing.into_iter().zip(records) {
            let mut reader = Reader { data: &record, offset: 0 };
            let clock = reader.clock()?;
            reader.sets(clock, sequence, |_| ())?;
            reader.end()?;
            self.known.insert(sequence, Known { clock, record: record.into() });
        }
        Ok(())
    }

    /// The clock of a message that was fetched.
    fn clock(&self, sequence: u64) -> Result<u64, Error> {
        match self.known.get(&sequence) {
            Some(known) => Ok(known.clock),
            None => Err(Error::Invalid(format!("the link record of message {sequence} was not read"))),
        }
    }

    /// Reads the link set of a fetched message that goes furthest without passing `target`, which is below its clock: the parents,
    /// where it has none. Returns the clock that they are at or before, and whether they are the frontier there.
    fn follow(&self, sequence: u64, target: u64, into: &mut Vec<u64>) -> Result<(u64, bool), Error> {
        let clock = self.clock(sequence)?;
        let record = self.known.get(&sequence).map_or(&[][..], |known| &known.record);
        // The largest step is the lesser of what divides the clock and what fits into the way, if its set was stored.
        let steps = clock.trailing_zeros().min((clock - target).ilog2());
        let mut reader = Reader { data: record, offset: 0 };
        reader.clock()?;
        let mut step = 0;
        let mut set = Vec::new();
        into.clear();
        for k in 0..=steps {
            set.clear();
            reader.set(sequence, &mut set)?;
            if !set.is_empty() {
                step = k;
                std::mem::swap(into, &mut set);
            }
        }
        if !into.is_empty() {
            return Ok((clock - (1 << step), true));
        }
        for _ in steps + 1..sets(clock) {
            reader.set(sequence, into)?;
        }
        reader.set(sequence, into)?;
        Ok((clock - 1, false))
    }

    /// Replaces the messages after `target` by ancestors at or before it, among which is their frontier there.
    ///
    /// What is arrived at is taken out of `watched`, where given; the descent breaks off when nothing is left in that, and passes
    /// over what arrived before `oldest`: no message from before it descends from any that is watched.
    fn descend(
        &mut self,
        from: &[u64],
        target: u64,
        oldest: u64,
        mut watched: Option<&mut SequenceSet>,
    ) -> Result<Descent, E> {
        let mut descent = Descent { arrived: Vec::new(), widest: 0 };
        let mut seen = SequenceSet::default();
        let mut current = from.to_vec();
        let mut next: Vec<u64> = Vec::new();
        let mut set = Vec::new();
        let mut previous: Vec<u64> = Vec::new();
        'descent: while !current.is_empty() {
            for (index, &sequence) in current.iter().enumerate() {
                if index % READ_AT_ONCE == 0 {
                    self.fetch(&current[index..current.len().min(index + READ_AT_ONCE)])?;
                }
                if self.clock(sequence)? <= target {
                    descent.arrived.push(sequence);
                    continue;
                }
                if sequence < oldest {
                    continue;
                }
                let (landing, is_frontier) = self.follow(sequence, target, &mut set)?;
                self.work += 1 + set.len() as u64;
                if let Some(watched) = watched.as_mut() {
                    for link in &set {
                        watched.remove(link);
                    }
                }
                set.retain(|&link| link >= oldest);
                if landing > target {
                    if seen.is_empty() {
                        seen.extend(from);
                    }
                    next.extend(set.iter().filter(|&&link| seen.insert(link)));
                } else if set != previous {
                    descent.widest = if is_frontier { descent.widest.max(set.len()) } else { descent.widest };
                    descent.arrived.extend_from_slice(&set);
                    std::mem::swap(&mut set, &mut previous);
                }
                if self.is_exhausted() {
                    break 'descent;
                }
            }
            if watched.as_ref().is_some_and(|watched| watched.is_empty()) {
                break;
            }
            current.clear();
            std::mem::swap(&mut current, &mut next);
        }
        descent.arrived.sort_unstable();
        descent.arrived.dedup();
        Ok(descent)
    }

    /// The candidates that are ancestors of no other. Those in `sure`, ascending, are known to be such, and those outside
    /// `later` to be no descendants of any. The sequence of the first child is known of some.
    fn maximal(
        &mut self,
        candidates: Vec<u64>,
        sure: &[u64],
        later: &[u64],
        first_children: &SequenceMap<u64>,
    ) -> Result<Vec<u64>, E> {
        if candidates.len() < 2 || later.is_empty() {
            return Ok(candidates);
        }
        self.work += candidates.len() as u64;
        self.fetch(later)?;
        let mut waiting = BTreeSet::new();
        for &sequence in later {
            waiting.insert((self.clock(sequence)?, sequence));
        }
        let highest = waiting.last().map_or(0, |&(clock, _)| clock);
        if highest == 1 {
            return Ok(candidates);
        }
        self.fetch(&candidates)?;
        let mut tests: Vec<(u64, u64)> = Vec::new();
        for &sequence in candidates.iter().filter(|sequence| sure.binary_search(sequence).is_err()) {
            tests.extend(Some((self.clock(sequence)?, sequence)).filter(|&(clock, _)| clock < highest));
        }
        tests.sort_unstable_by(|left, right| right.cmp(left));
        let mut undecided: SequenceSet = tests.iter().map(|&(_, sequence)| sequence).collect();
        let mut kept = SequenceSet::default();
        let mut arrived: Vec<u64> = Vec::new();
        // Of each test and those after it what arrived first, the message or its first child: none from before it descends from
        // any of them.
        let mut oldest: Vec<u64> =
            tests.iter().map(|(_, sequence)| first_children.get(sequence).copied().unwrap_or(*sequence)).collect();
        for index in (1..oldest.len()).rev() {
            oldest[index - 1] = oldest[index - 1].min(oldest[index]);
        }
        let mut next = 0;
        for level in tests.chunk_by(|left, right| left.0 == right.0) {
            let first = next;
            next += level.len();
            if self.is_exhausted() || undecided.is_empty() {
                break;
            }
            if level.iter().any(|(_, sequence)| undecided.contains(sequence)) {
                self.fetch(&arrived)?;
                for sequence in arrived {
                    waiting.insert((self.clock(sequence)?, sequence));
                }
                let target = level[0].0;
                let above: Vec<u64> =
                    waiting.split_off(&(target + 1, 0)).into_iter().map(|(_, sequence)| sequence).collect();
                arrived = self.descend(&above, target, oldest[first], Some(&mut undecided))?.arrived;
                kept.extend(level.iter().map(|&(_, sequence)| sequence).filter(|sequence| undecided.remove(sequence)));
            }
        }
        let tested: SequenceSet = tests.into_iter().map(|(_, sequence)| sequence).collect();
        let stays = |sequence: &u64| !tested.contains(sequence) || kept.contains(sequence);
        Ok(candidates.into_iter().filter(stays).collect())
    }

    /// The frontier at `target` of messages, ascending, none of which is an ancestor of another; none where the search for
    /// it arrives at more than `most` messages, or breaks off.
    fn frontier(
        &mut self,
        from: &[u64],
        target: u64,
        most: usize,
        first_children: &SequenceMap<u64>,
    ) -> Result<Option<Vec<u64>>, E> {
        self.fetch(from)?;
        let mut stays = Vec::new();
        let mut above = Vec::new();
        for &sequence in from {
            if self.clock(sequence)? <= target { stays.push(sequence) } else { above.push(sequence) }
        }
        let Descent { mut arrived, widest } = self.descend(&above, target, 0, None)?;
        // A set that holds all the others' elements as well is a frontier of one message: nothing in it is related.
        let is_frontier = arrived.len() == widest;
        arrived.extend_from_slice(&stays);
        arrived.sort_unstable();
        arrived.dedup();
        if arrived.len() > most || self.is_exhausted() {
            return Ok(None);
        }
        if arrived.len() == widest {
            return Ok(Some(arrived));
        }
        let later = if is_frontier { stays.clone() } else { arrived.clone() };
        let found = self.maximal(arrived, &stays, &later, first_children)?;
        Ok(if self.is_exhausted() { None } else { Some(found) })
    }
}

/// Makes the link records of a batch of messages, given in causal order.
///
/// What it reads or makes is kept for the batch, as bytes. On histories that do not widen, adding costs O(1) amortised.
pub struct Linker<'a, E> {
    graph: Graph<'a, E>,
    /// Messages that no other names as a parent: none of them is an ancestor of another.
    heads: SequenceSet,
    /// The first child of messages that were heads when it came.
    first_children: SequenceMap<u64>,
    /// The parents and the sets of the last message: concurrent ones often share them.
    last: Option<(Vec<u64>, Vec<Vec<u64>>)>,
}

impl<'a, E: From<Error>> Linker<'a, E> {
    /// A linker that reads the records of messages stored before through `load`.
    ///
    /// Some of these may be known to be `heads`, which no other names as a parent. Then none is looked for among the
    /// ancestors of the others: what follows many of them costs no more than their number.
    pub fn new(heads: impl IntoIterator<Item = u64>, load: &'a mut Links<'a, E>) -> Self {
        let heads = heads.into_iter().collect();
        Linker { graph: Graph::new(load), heads, first_children: SequenceMap::default(), last: None }
    }

    /// The same, where the first child of some messages is known, by their sequences: nothing that arrived before it descends from
    /// the message. So what two authors write at once on the same heads is not searched far.
    #[must_use]
    pub fn with_first_children(self, first_children: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Linker { first_children: first_children.into_iter().collect(), ..self }
    }

    /// How many members of link sets were looked at so far: what the records cost.
    pub fn work(&self) -> u64 {
        self.graph.work
    }

    /// The record of a message with these parents, which come in any order.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: a parent that does not come before the message, a sequence that was added before, or a clock that is not
    /// 1 + the parents' largest; [`Error::Decode`] for a stored record that is damaged; the loader's own.
    pub fn add(&mut self, sequence: u64, clock: u64, parents: &[u64]) -> Result<Vec<u8>, E> {
        let mut parents = parents.to_vec();
        parents.sort_unstable();
        parents.dedup();
        let ordered =
            parents.first().is_none_or(|&first| first > 0) && parents.last().is_none_or(|&last| last < sequence);
        if sequence == 0 || !ordered || self.graph.known.contains_key(&sequence) {
            let reason = "its parents must come before it, and it may come only once";
            return Err(Error::Invalid(format!("message {sequence} cannot be linked: {reason}")).into());
        }
        self.graph.fetch(&parents)?;
        let mut expected = 1;
        for &parent in &parents {
            expected = expected.max(1 + self.graph.clock(parent)?);
        }
        if clock != expected || clock > MAX_CLOCK {
            return Err(
                Error::Invalid(format!("message {sequence} has clock {clock}, its parents give {expected}")).into()
            );
        }
        let links = match self.last.take() {
            Some((same, links)) if same == parents => links,
            _ => self.sets(clock, &parents)?,
        };
        let record = write(sequence, clock, &links);
        for parent in &parents {
            if self.heads.remove(parent) {
                self.first_children.insert(*parent, sequence);
            }
        }
        self.heads.insert(sequence);
        self.graph.known.insert(sequence, Known { clock, record: record.as_slice().into() });
        self.last = Some((parents, links));
        Ok(record)
    }

    fn sets(&mut self, clock: u64, parents: &[u64]) -> Result<Vec<Vec<u64>>, E> {
        let mut links: Vec<Vec<u64>> = Vec::new();
        if !parents.is_empty() {
            let heads: Vec<u64> = parents.iter().copied().filter(|parent| self.heads.contains(parent)).collect();
            self.graph.most = self.graph.work + parents.len() as u64 + MAX_LOOKS;
            let own = self.graph.maximal(parents.to_vec(), &heads, parents, &self.first_children)?;
            let is_frontier = !self.graph.is_exhausted();
            // Not from the message on, but from here: what its parents cost depends on which of them are known to be heads.
            self.graph.most = self.graph.work + MAX_LOOKS;
            links.extend(is_frontier.then_some(own));
            while let Some(above) = links.last().filter(|_| links.len() < sets(clock) as usize) {
                let target = clock - (1 << links.len());
                let Some(set) = self.graph.frontier(above, target, MAX_SHORTCUT, &self.first_children)? else { break };
                links.push(set);
            }
            self.graph.most = u64::MAX;
            links.resize(sets(clock) as usize, Vec::new());
            links.extend((!is_frontier).then(|| parents.to_vec()));
        }
        Ok(links)
    }
}

/// How many messages of a search are expanded at once: reading several records costs little more than reading one.
const AT_ONCE: usize = 8;

/// How many records of a descent are read at once: each may be as long as its message has parents.
const READ_AT_ONCE: usize = 64;

/// Whether the message `ancestor` is a proper ancestor of `sequence`.
///
/// The search follows those messages first that are nearest to the ancestor's clock, so that where it is an ancestor along most
/// paths, as after branches have met, about 2 log2(c) steps down one of them find it. Messages that arrived before the ancestor are
/// passed over: none of them can descend from it.
///
/// # Errors
///
/// [`Error::Decode`] for a stored record that is damaged; the loader's own.
pub fn is_ancestor<'a, E: From<Error>>(ancestor: u64, sequence: u64, load: &'a mut Links<'a, E>) -> Result<bool, E> {
    if sequence <= ancestor {
        return Ok(false);
    }
    let mut graph = Graph::new(load);
    graph.fetch(&[ancestor, sequence])?;
    let target = graph.clock(ancestor)?;
    let mut open = BTreeSet::new();
    let mut seen = SequenceSet::from_iter([sequence]);
    open.extend(Some((graph.clock(sequence)?, sequence)).filter(|&(clock, _)| clock > target));
    let mut set = Vec::new();
    while !open.is_empty() {
        let mut found = Vec::new();
        for _ in 0..AT_ONCE {
            let Some((_, nearest)) = open.pop_first() else { break };
            let _ = graph.follow(nearest, target, &mut set)?;
            found.extend(set.iter().filter(|&&link| link >= ancestor && seen.insert(link)));
        }
        if found.contains(&ancestor) {
            return Ok(true);
        }
        graph.fetch(&found)?;
        for link in found {
            let clock = graph.clock(link)?;
            if clock > target {
                open.insert((clock, link));
            }
        }
    }
    Ok(false)
}

/// The sequences, ascending, of the maximal proper ancestors at or before `clock` of the message `sequence`.
///
/// # Errors
///
/// [`Error::Decode`] for a stored record that is damaged; the loader's own.
pub fn frontier<'a, E: From<Error>>(sequence: u64, clock: u64, load: &'a mut Links<'a, E>) -> Result<Vec<u64>, E> {
    let mut graph = Graph::new(load);
    graph.fetch(&[sequence])?;
    let target = clock.min(graph.clock(sequence)? - 1);
    if target == 0 {
        return Ok(Vec::new());
    }
    Ok(graph.frontier(&[sequence], target, usize::MAX, &SequenceMap::default())?.unwrap_or_default())
}
