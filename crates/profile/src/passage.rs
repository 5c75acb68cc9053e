//! One direction through the device: entries waiting for their exits, exits for their entries.
//!
//! Both are held in the order in which they were stamped. Exits are *decided* in that order, each
//! as soon as all its possible entries are known, which is `early_max` after it left (noise between
//! the clocks of the two sides). It is matched with an entry with the same digest, among the
//! packets that entered at most `horizon` before and are not matched yet; of several, the one whose
//! delay is nearest to the usual one ([`UsualDelay`]). So a packet that is sent again unchanged is
//! not mistaken for the first, which was lost. This only decides which entries are matched: within
//! a [`Line`], matched entries and exits are paired in order, as identical packets that overtake
//! one another cannot be seen. So an exit is *reported* when no older entry of its line may still
//! be matched, at most `horizon` after that entered.
//!
//! An exit that finds no entry is a copy of the one that left before it, if that entered at most
//! `horizon` before; so is one whose own entry would be far less likely ([`Usual::is_unlike`]), or
//! is claimed by a damaged one. Where there is a choice, the entries that only a damaged exit can
//! match are left to it ([`Claims`]). Any other exit is judged only when no exit can match any of
//! its possible entries any more; what is left over on both sides may be a packet and its damaged
//! self. Entries are held long enough to outlive every exit that may match them. Exits are judged
//! in the order in which they left, which makes the verdict on reordering independent of the feed;
//! one that waits therefore holds up those behind it, for the horizon at most.

use alloc::collections::VecDeque;

use hashbrown::HashMap;
use nilometer_wire::{Span, Time};

use crate::claim::Claims;
use crate::config::MatcherConfig;
use crate::corruption::{Damaged, Orphans};
use crate::entry::{Entry, EntryState};
use crate::fingerprint::Fingerprint;
use crate::keyed::Keyed;
use crate::line::{Candidate, Line, Origin};
use crate::order::{FlowOrder, Passed};
use crate::outcome::{Counts, Direction, Fate, PacketOutcome};
use crate::ring::Ring;
use crate::usual::{Usual, UsualDelay};

/// A packet that left.
#[derive(Debug)]
struct Exit {
    at: Time,
    print: Fingerprint,
    state: ExitState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExitState {
    Undecided,
    /// Matched with this entry; `before` is the previous matched exit with the same digest.
    Met {
        origin: Origin,
        before: Option<u64>,
    },
    /// Left as a copy of the exit matched with this entry.
    Copy(Origin),
    /// No entry with its digest can match it.
    Unmatched(Option<Usual>),
}

/// One direction through the device.
#[derive(Debug)]
pub struct Passage {
    direction: Direction,
    config: MatcherConfig,
    entries: Ring<Entry>,
    exits: Ring<Exit>,
    /// The first exit that is not decided yet.
    undecided: u64,
    lines: HashMap<u64, Line, Keyed>,
    usual: UsualDelay,
    order: FlowOrder,
    orphans: Orphans,
    claims: Claims,
    ready: VecDeque<PacketOutcome>,
    pub counts: Counts,
}

impl Passage {
    pub fn new(direction: Direction, config: MatcherConfig) -> Passage {
        Passage {
            direction,
            config,
            entries: Ring::new(),
            exits: Ring::new(),
            undecided: 0,
            lines: HashMap::with_hasher(Keyed),
            usual: UsualDelay::new(),
            order: FlowOrder::default(),
            orphans: Orphans::default(),
            claims: Claims::default(),
            ready: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    pub fn entered(&mut self, at: Time, print: &Fingerprint, consumed: bool) {
        if self.entries.len() >= self.config.pending_max {
            self.counts.overflow += 1;
            if let Some(outcome) = self.release_entry() {
                self.keep(outcome);
            }
        }
        self.counts.entered += 1;
        let state = if consumed { EntryState::Consumed } else { EntryState::Waiting };
        let number = self.entries.push(Entry { at, print: *print, next: None, state });
        if !consumed {
            let line = self.lines.entry(print.digest).or_default();
            line.held += 1;
            line.append(number, &mut self.entries);
        }
    }

    pub fn left(&mut self, at: Time, print: &Fingerprint) {
        if self.exits.len() >= self.config.pending_max {
            if self.undecided <= self.exits.front() {
                self.decide(self.exits.front());
            }
            let is_open = self
                .exits
                .oldest()
                .is_some_and(|exit| !matches!(exit.state, ExitState::Met { .. }));
            self.counts.overflow += u64::from(is_open);
            if let Some(outcome) = self.judge_exit() {
                self.keep(outcome);
            }
        }
        self.counts.left += 1;
        self.exits.push(Exit { at, print: *print, state: ExitState::Undecided });
    }

    /// Reports what is decided at `now`, or everything when `now` is `None`.
    pub fn expire(&mut self, now: Option<Time>, out: &mut impl FnMut(PacketOutcome)) {
        self.ready.drain(..).for_each(&mut *out);
        let MatcherConfig { horizon, early_max, .. } = self.config;
        // Ages from which on an entry can no longer be matched, and an exit can no longer match.
        let (claimable, patience) = (horizon + early_max, horizon + early_max * 2);
        let due = |at: Time, wait: Span| now.is_none_or(|now| at + wait < now);
        self.undecided = self.undecided.max(self.exits.front());
        while self.exits.get(self.undecided).is_some_and(|exit| due(exit.at, early_max)) {
            self.decide(self.undecided);
        }
        while self.exits.oldest().is_some_and(|exit| match exit.state {
            ExitState::Undecided => false,
            ExitState::Copy(_) => true,
            ExitState::Unmatched(_) => due(exit.at, patience),
            ExitState::Met { origin: (number, _), .. } => {
                let line = self.lines.get_mut(&exit.print.digest);
                line.is_none_or(|line| {
                    line.skip(|at| !due(at, claimable), &self.entries);
                    line.head().is_none_or(|head| head > number)
                })
            }
        }) {
            self.judge_exit().into_iter().for_each(&mut *out);
        }
        while self.entries.oldest().is_some_and(|entry| due(entry.at, claimable * 2)) {
            self.release_entry().into_iter().for_each(&mut *out);
        }
        if now.is_none() {
            let rest = self.order.len() + self.orphans.len() + self.claims.len();
            assert!(self.lines.is_empty() && rest == 0);
        }
    }

    /// Packets held: entries and exits, each with its place in a line.
    pub fn held(&self) -> usize {
        self.entries.len() + self.exits.len()
    }

    /// Decides what the exit of this number is: a packet, a copy, or neither.
    fn decide(&mut self, number: u64) {
        let horizon = self.config.horizon;
        self.undecided = number + 1;
        let exit = self.exits.get(number).expect("an exit that is not decided is held");
        let at = exit.at;
        let Some(line) = self.lines.get_mut(&exit.print.digest) else {
            return self.leave_unmatched(number);
        };
        line.skip(|entered| at.since(entered) <= horizon, &self.entries);
        let last = line.last_met.filter(|(_, entered)| at.since(*entered) <= horizon);
        // (There is almost never a choice, and then the usual delay is not needed.)
        let has_choice = last.is_some() || !line.is_single();
        let choice = Choice {
            line,
            last,
            usual: if has_choice { self.usual.now() } else { None },
            claims: if has_choice { Some(&self.claims) } else { None },
            entries: &self.entries,
        };
        let found = choice.of(&exit.print, at, self.config);
        let Some(found) = found else {
            return match last {
                Some(last) => self.set_state(number, ExitState::Copy(last)),
                None => self.leave_unmatched(number),
            };
        };
        line.take(&found, &mut self.entries);
        let before = line.last_exit.replace(number);
        line.last_met = line.last_met.max(Some(found.origin));
        if found.is_only && last.is_none() {
            self.usual.note(at.since(found.origin.1));
        }
        self.entries.get_mut(found.origin.0).expect("a candidate is held").state = EntryState::Met;
        self.set_state(number, ExitState::Met { origin: found.origin, before });
        self.keep_order(number);
    }

    fn leave_unmatched(&mut self, number: u64) {
        let usual = self.usual.now();
        self.set_state(number, ExitState::Unmatched(usual));
        let exit = self.exits.get(number).expect("an exit that is decided is held");
        self.claims.add(number, exit.at, &exit.print, usual);
    }

    fn set_state(&mut self, number: u64, state: ExitState) {
        self.exits.get_mut(number).expect("an exit that is decided is held").state = state;
    }

    /// Exchanges the entry of this exit, the last of its line, for those of the exits before it
    /// until they are in order.
    fn keep_order(&mut self, mut number: u64) {
        let state_of = |exits: &Ring<Exit>, number| match exits.get(number).map(|exit| exit.state) {
            Some(ExitState::Met { origin, before }) => Some((origin, before)),
            _ => None,
        };
        while let Some((origin, Some(before))) = state_of(&self.exits, number)
            && let Some((theirs, further)) = state_of(&self.exits, before)
            && theirs.0 > origin.0
        {
            self.set_state(number, ExitState::Met { origin: theirs, before: Some(before) });
            self.set_state(before, ExitState::Met { origin, before: further });
            number = before;
        }
    }

    /// Takes the oldest exit out and returns its outcome.
    fn judge_exit(&mut self) -> Option<PacketOutcome> {
        let (number, exit) = self.exits.pop()?;
        self.claims.forget(number, exit.print.bytes);
        let (fate, entry) = self.trace(&exit);
        let mut outcome = PacketOutcome {
            direction: self.direction,
            fate,
            entered_at: entry.map(|(_, entered_at)| entered_at),
            left_at: Some(exit.at),
            bytes: exit.print.bytes,
            flow: exit.print.flow,
            reordered: false,
        };
        if let (Some((number, entered_at)), Fate::Forwarded | Fate::Corrupted) = (entry, fate) {
            outcome.flow = self.entries.get(number).map_or(outcome.flow, |entry| entry.print.flow);
            let passed = Passed { entered_at, number, left_at: exit.at };
            outcome.reordered = self.order.left(outcome.flow, passed, self.entries.front());
        }
        self.counts.book(&outcome);
        Some(outcome)
    }

    /// The origin of an exit: the entry that it was, or was a copy of, by number and time.
    fn trace(&mut self, exit: &Exit) -> (Fate, Option<Origin>) {
        let MatcherConfig { horizon, early_max, .. } = self.config;
        let usual = match exit.state {
            ExitState::Met { origin, .. } => return (Fate::Forwarded, Some(origin)),
            ExitState::Copy(origin) => return (Fate::Duplicated, Some(origin)),
            ExitState::Unmatched(usual) => usual,
            ExitState::Undecided => None,
        };
        self.orphans.sweep(&self.entries, exit.at + early_max);
        let damaged = Damaged { print: &exit.print, at: exit.at, usual };
        self.orphans.trace(&mut self.entries, &damaged, horizon)
    }

    /// Takes the oldest entry out, and returns its fate if that was still open.
    fn release_entry(&mut self) -> Option<PacketOutcome> {
        let (number, entry) = self.entries.pop()?;
        self.order.forget(entry.print.flow, number);
        self.orphans.forget(number, &entry);
        let fate = match entry.state {
            EntryState::Consumed => Some(Fate::Consumed),
            EntryState::Waiting => Some(Fate::Lost),
            EntryState::Met | EntryState::Damaged(_) => None,
        };
        if entry.state != EntryState::Consumed {
            let line = self.lines.get_mut(&entry.print.digest).expect("a held entry has a line");
            line.held -= 1;
            if line.head() == Some(number) {
                line.advance(entry.next);
            }
            if line.held == 0 {
                self.lines.remove(&entry.print.digest);
            }
        }
        let outcome = PacketOutcome {
            direction: self.direction,
            fate: fate?,
            entered_at: Some(entry.at),
            left_at: None,
            bytes: entry.print.bytes,
            flow: entry.print.flow,
            reordered: false,
        };
        self.counts.book(&outcome);
        Some(outcome)
    }

    /// Keeps an outcome that fell between two calls of `expire`.
    fn keep(&mut self, outcome: PacketOutcome) {
        if self.ready.len() < self.config.pending_max {
            self.ready.push_back(outcome);
        } else {
            self.counts.unreported += 1;
        }
    }
}

/// The choice of an exit's match among the entries with its bytes.
struct Choice<'a> {
    line: &'a Line,
    /// The newest of them that is already matched.
    last: Option<Origin>,
    usual: Option<Usual>,
    /// None where there is no choice.
    claims: Option<&'a Claims>,
    entries: &'a Ring<Entry>,
}

impl Choice<'_> {
    /// The entry whose delay is nearest to the usual one, among those not left to claims; `None` if
    /// a copy is likelier.
    fn of(&self, print: &Fingerprint, at: Time, config: MatcherConfig) -> Option<Candidate> {
        let &Choice { line, last, usual, claims, entries } = self;
        let until = at + config.early_max;
        let waiting = || line.waiting(until, entries);
        let reserved = claims.map(|it| it.reserved((print, at), waiting(), config, entries));
        let reserved = reserved.unwrap_or_default();
        let nearest = |from| line.nearest((at, until), usual, from, entries);
        let found = nearest(reserved.first)?;
        let Some(usual) = usual else { return Some(found) };
        let delay_of = |origin: Origin| at.since(origin.1);
        let is_far = |one, other| usual.is_unlike(delay_of(one), delay_of(other));
        // (A far less likely entry is chosen only because of a sure claim.)
        let is_sure = reserved.surely == reserved.first;
        let likely = if is_sure { found } else { nearest(reserved.surely)? };
        let found = if is_far(found.origin, likely.origin) { likely } else { found };
        let is_copy = last.is_some_and(|last| {
            is_far(found.origin, last) || (reserved.is_all && !is_far(last, found.origin))
        });
        if is_copy { None } else { Some(found) }
    }
}
