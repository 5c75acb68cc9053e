//! One direction through the device: entries waiting for their exits, exits for their entries.
//!
//! Both are held in the order in which they were stamped. All packets with one digest form a
//! [`Line`]: unmatched entries queue for exits or unmatched exits for entries, never both, and they
//! meet first come, first served. An entry and an exit may meet when the exit is at most `horizon`
//! later, and at most `early_max` earlier (noise between the clocks of the two sides). Since both
//! bounds move with time, whom a packet meets depends on the stamps alone, and not on which side
//! was fed first.
//!
//! An exit without partner is judged only `horizon` (and `early_max`) after it left: by then, every
//! entry that could still be claimed by another exit has been, and what is left over on both sides
//! may be a packet and its damaged self. Entries stay twice as long, so that they outlive every
//! exit that may ask for them. Exits are judged in the order in which they left, which makes the
//! verdict on reordering independent of the feed as well; one exit without partner therefore holds
//! up those behind it, for the horizon at most.

use alloc::collections::VecDeque;

use hashbrown::HashMap;
use nilometer_wire::{Span, Time};

use crate::config::MatcherConfig;
use crate::corruption::Orphans;
use crate::entry::{Entry, EntryState};
use crate::fingerprint::Fingerprint;
use crate::keyed::Keyed;
use crate::order::{FlowOrder, Passed};
use crate::ring::Ring;
use crate::verdict::{Counts, Direction, Fate, Verdict};

/// A packet that left.
#[derive(Debug)]
struct Exit {
    at: Time,
    print: Fingerprint,
    next: Option<u64>,
    state: ExitState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExitState {
    /// In line for an entry.
    Waiting,
    /// Out of line: every entry of its digest from here on is too late. The last that met an exit
    /// before is the one it may be a copy of.
    Passed { copy_of: Option<(u64, Time)> },
    /// Met the entry of this number, which entered at this time.
    Met((u64, Time)),
}

impl Exit {
    fn has_met(&self) -> bool {
        matches!(self.state, ExitState::Met(_))
    }
}

/// A first-in first-out list threaded through the entries, or the exits, of one digest.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    ends: Option<(u64, u64)>,
}

impl Queue {
    fn head(&self) -> Option<u64> {
        self.ends.map(|(head, _)| head)
    }

    /// Appends `number`; returns the old tail, whose `next` it has become.
    fn append(&mut self, number: u64) -> Option<u64> {
        let tail = self.ends.map(|(_, tail)| tail);
        self.ends = Some((self.head().unwrap_or(number), number));
        tail
    }

    /// Takes the head off, `next` being the one behind it.
    fn advance(&mut self, next: Option<u64>) {
        self.ends = self.ends.and_then(|(_, tail)| next.map(|head| (head, tail)));
    }
}

/// All that is known of the packets with one digest.
#[derive(Debug, Default)]
struct Line {
    entries: Queue,
    exits: Queue,
    /// Entries still held, in the queue or out of it.
    held: u32,
    /// The entry that met an exit last, and when it entered.
    last_met: Option<(u64, Time)>,
}

impl Line {
    fn is_over(&self) -> bool {
        self.held == 0 && self.exits.ends.is_none()
    }
}

/// One direction through the device.
#[derive(Debug)]
pub struct Passage {
    direction: Direction,
    config: MatcherConfig,
    entries: Ring<Entry>,
    exits: Ring<Exit>,
    lines: HashMap<u64, Line, Keyed>,
    order: FlowOrder,
    orphans: Orphans,
    ready: VecDeque<Verdict>,
    pub counts: Counts,
}

impl Passage {
    pub fn new(direction: Direction, config: MatcherConfig) -> Passage {
        Passage {
            direction,
            config,
            entries: Ring::new(),
            exits: Ring::new(),
            lines: HashMap::with_hasher(Keyed),
            order: FlowOrder::default(),
            orphans: Orphans::default(),
            ready: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    pub fn entered(&mut self, at: Time, print: &Fingerprint, consumed: bool) {
        if self.entries.len() >= self.config.pending_max {
            self.counts.overflow += 1;
            if let Some(verdict) = self.release_entry() {
                self.keep(verdict);
            }
        }
        self.counts.entered += 1;
        let state = if consumed { EntryState::Consumed } else { EntryState::Waiting };
        let number = self.entries.push(Entry { at, print: *print, next: None, state });
        if !consumed {
            self.meet_exit(number, at, print.digest);
        }
    }

    pub fn left(&mut self, at: Time, print: &Fingerprint) {
        if self.exits.len() >= self.config.pending_max {
            let open = self.exits.oldest().is_some_and(|exit| !exit.has_met());
            self.counts.overflow += u64::from(open);
            if let Some(verdict) = self.judge_exit() {
                self.keep(verdict);
            }
        }
        self.counts.left += 1;
        let exit = Exit { at, print: *print, next: None, state: ExitState::Waiting };
        let number = self.exits.push(exit);
        self.meet_entry(number, at, print.digest);
    }

    /// Hands out what is decided at `now`, or everything when `now` is `None`.
    pub fn expire(&mut self, now: Option<Time>, out: &mut impl FnMut(Verdict)) {
        self.ready.drain(..).for_each(&mut *out);
        let MatcherConfig { horizon, early_max, .. } = self.config;
        let patience = horizon + early_max;
        let due = |at: Time, wait: Span| now.is_none_or(|now| at + wait < now);
        while self.exits.oldest().is_some_and(|exit| exit.has_met() || due(exit.at, patience)) {
            self.judge_exit().into_iter().for_each(&mut *out);
        }
        while self.entries.oldest().is_some_and(|entry| due(entry.at, patience * 2)) {
            self.release_entry().into_iter().for_each(&mut *out);
        }
        if now.is_none() {
            assert!(self.lines.is_empty() && self.order.len() + self.orphans.len() == 0);
        }
    }

    /// Packets held: entries and exits, each with its place in a line.
    pub fn held(&self) -> usize {
        self.entries.len() + self.exits.len()
    }

    fn meet_exit(&mut self, number: u64, at: Time, digest: u64) {
        let MatcherConfig { horizon, early_max, .. } = self.config;
        let line = self.lines.entry(digest).or_default();
        line.held += 1;
        while let Some(head) = line.exits.head() {
            let exit = self.exits.get_mut(head).expect("a queued exit is held");
            if exit.at.since(at) > horizon {
                return;
            }
            line.exits.advance(exit.next);
            if exit.at + early_max >= at {
                exit.state = ExitState::Met((number, at));
                line.last_met = Some((number, at));
                self.entries.get_mut(number).expect("just entered").state = EntryState::Met;
                return;
            }
            exit.state = ExitState::Passed { copy_of: line.last_met };
        }
        if let Some(tail) = line.entries.append(number) {
            self.entries.get_mut(tail).expect("a queued entry is held").next = Some(number);
        }
    }

    fn meet_entry(&mut self, number: u64, at: Time, digest: u64) {
        let MatcherConfig { horizon, early_max, .. } = self.config;
        let line = self.lines.entry(digest).or_default();
        while let Some(head) = line.entries.head() {
            let entry = self.entries.get_mut(head).expect("a queued entry is held");
            let exit = self.exits.get_mut(number).expect("just left");
            if entry.at > at + early_max {
                exit.state = ExitState::Passed { copy_of: line.last_met };
                return;
            }
            line.entries.advance(entry.next);
            if entry.is_waiting() && at.since(entry.at) <= horizon {
                entry.state = EntryState::Met;
                line.last_met = Some((head, entry.at));
                exit.state = ExitState::Met((head, entry.at));
                return;
            }
        }
        if let Some(tail) = line.exits.append(number) {
            self.exits.get_mut(tail).expect("a queued exit is held").next = Some(number);
        }
    }

    /// Takes the oldest exit out and says what it was.
    fn judge_exit(&mut self) -> Option<Verdict> {
        let (number, exit) = self.exits.pop()?;
        let (fate, entry) = self.trace(number, &exit);
        let mut verdict = Verdict {
            direction: self.direction,
            fate,
            entered_at: entry.map(|(_, entered_at)| entered_at),
            left_at: Some(exit.at),
            bytes: exit.print.bytes,
            flow: exit.print.flow,
            reordered: false,
        };
        if let (Some((number, entered_at)), Fate::Forwarded | Fate::Corrupted) = (entry, fate) {
            verdict.flow = self.entries.get(number).map_or(verdict.flow, |entry| entry.print.flow);
            let passed = Passed { entered_at, number, left_at: exit.at };
            verdict.reordered = self.order.left(verdict.flow, passed, self.entries.front());
        }
        self.counts.book(&verdict);
        Some(verdict)
    }

    /// Where an exit came from: the entry it was, or a copy of, by number and time.
    fn trace(&mut self, number: u64, exit: &Exit) -> (Fate, Option<(u64, Time)>) {
        let MatcherConfig { horizon, early_max, .. } = self.config;
        let copy_of = match exit.state {
            ExitState::Met(entry) => return (Fate::Forwarded, Some(entry)),
            ExitState::Passed { copy_of } => copy_of,
            ExitState::Waiting => self.leave_line(number, exit),
        };
        if let Some(original) = copy_of.filter(|(_, at)| exit.at.since(*at) <= horizon) {
            return (Fate::Duplicated, Some(original));
        }
        self.orphans.sweep(&self.entries, exit.at + early_max);
        match self.orphans.take_origin(&self.entries, &exit.print, exit.at, horizon) {
            Some(origin) => {
                let entry = self.entries.get_mut(origin).expect("an orphan is held");
                entry.state = EntryState::Met;
                (Fate::Corrupted, Some((origin, entry.at)))
            }
            None => (Fate::Originated, None),
        }
    }

    /// Takes the oldest exit, which waits, out of its line; returns the entry it may be a copy of.
    fn leave_line(&mut self, number: u64, exit: &Exit) -> Option<(u64, Time)> {
        let line = self.lines.get_mut(&exit.print.digest).expect("a waiting exit has a line");
        assert_eq!(line.exits.head(), Some(number), "the oldest exit heads its line");
        line.exits.advance(exit.next);
        let last_met = line.last_met;
        if line.is_over() {
            self.lines.remove(&exit.print.digest);
        }
        last_met
    }

    /// Takes the oldest entry out, and says its fate if that was still open.
    fn release_entry(&mut self) -> Option<Verdict> {
        let (number, entry) = self.entries.pop()?;
        self.order.forget(entry.print.flow, number);
        self.orphans.forget(number, entry.print.bytes);
        let fate = match entry.state {
            EntryState::Consumed => Some(Fate::Consumed),
            EntryState::Waiting => Some(Fate::Lost),
            EntryState::Met => None,
        };
        if entry.state != EntryState::Consumed {
            let line = self.lines.get_mut(&entry.print.digest).expect("a held entry has a line");
            line.held -= 1;
            if line.entries.head() == Some(number) {
                line.entries.advance(entry.next);
            }
            if line.is_over() {
                self.lines.remove(&entry.print.digest);
            }
        }
        let verdict = Verdict {
            direction: self.direction,
            fate: fate?,
            entered_at: Some(entry.at),
            left_at: None,
            bytes: entry.print.bytes,
            flow: entry.print.flow,
            reordered: false,
        };
        self.counts.book(&verdict);
        Some(verdict)
    }

    /// Keeps a verdict that fell between two calls of `expire`.
    fn keep(&mut self, verdict: Verdict) {
        if self.ready.len() < self.config.pending_max {
            self.ready.push_back(verdict);
        } else {
            self.counts.unreported += 1;
        }
    }
}
