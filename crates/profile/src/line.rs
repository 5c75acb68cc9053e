//! All packets with the same bytes: those that may still leave, and the one that left last.

use nilometer_wire::{Span, Time};

use crate::entry::Entry;
use crate::ring::Ring;
use crate::usual::Usual;

/// The most entries that one exit is compared with, oldest first.
pub const LOOKS_MAX: usize = 256;

/// A packet that entered: its number and when.
pub type Origin = (u64, Time);

/// The packets with one digest. Unmatched entries are linked in the order in which they entered.
#[derive(Debug, Default)]
pub struct Line {
    ends: Option<(u64, u64)>,
    /// Entries still held, matched or not.
    pub held: u32,
    /// The newest entry that has met an exit.
    pub last_met: Option<Origin>,
    /// The exit that met an entry last.
    pub last_exit: Option<u64>,
}

/// An entry that an exit may have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub origin: Origin,
    /// The one in front of it in the line.
    before: Option<u64>,
    /// No other entry may have been this exit.
    pub is_only: bool,
}

impl Line {
    /// The oldest entry that no exit has met.
    pub fn head(&self) -> Option<u64> {
        self.ends.map(|(head, _)| head)
    }

    /// Whether there is exactly one such entry.
    pub fn is_single(&self) -> bool {
        self.ends.is_some_and(|(head, tail)| head == tail)
    }

    pub fn append(&mut self, number: u64, entries: &mut Ring<Entry>) {
        if let Some((_, tail)) = self.ends {
            entries.get_mut(tail).expect("an entry in line is held").next = Some(number);
        }
        self.ends = Some((self.head().unwrap_or(number), number));
    }

    /// Removes the head; `next` is the one behind it.
    pub fn advance(&mut self, next: Option<u64>) {
        self.ends = self.ends.and_then(|(_, tail)| next.map(|head| (head, tail)));
    }

    /// Removes entries from the head until one is unmatched and its time satisfies `from`.
    pub fn skip(&mut self, from: impl Fn(Time) -> bool, entries: &Ring<Entry>) {
        while let Some(head) = self.head() {
            let entry = entries.get(head).expect("an entry in line is held");
            if entry.is_waiting() && from(entry.at) {
                return;
            }
            self.advance(entry.next);
        }
    }

    /// The entry times of unmatched entries up to `until`, the oldest first.
    pub fn waiting(&self, until: Time, entries: &Ring<Entry>) -> impl Iterator<Item = Time> {
        let entry = |number: Option<u64>| number.and_then(|number| entries.get(number));
        core::iter::successors(entry(self.head()), move |before| entry(before.next))
            .take(LOOKS_MAX)
            .take_while(move |entry| entry.at <= until)
            .filter(|entry| entry.is_waiting())
            .map(|entry| entry.at)
    }

    /// Of the entries that entered no later than `until`, except the first `reserved`, the one whose
    /// delay at `at` is nearest to the usual one; the oldest if several are, or if the usual delay is
    /// not known.
    pub fn nearest(
        &self,
        (at, until): (Time, Time),
        usual: Option<Usual>,
        reserved: usize,
        entries: &Ring<Entry>,
    ) -> Option<Candidate> {
        let mut reserved = reserved;
        let is_free = reserved == 0;
        let mut best: Option<(Candidate, Span)> = None;
        let (mut before, mut cursor) = (None, self.head());
        for _ in 0..LOOKS_MAX {
            let Some(number) = cursor else { break };
            let entry = entries.get(number).expect("an entry in line is held");
            if entry.at > until {
                break;
            }
            let deviation = usual.map_or(Span::ZERO, |usual| usual.deviation(at.since(entry.at)));
            let candidate = Candidate { origin: (number, entry.at), before, is_only: false };
            match &mut best {
                _ if !entry.is_waiting() => {}
                _ if reserved > 0 => reserved -= 1,
                None => best = Some((Candidate { is_only: is_free, ..candidate }, deviation)),
                Some((best, least)) => {
                    best.is_only = false;
                    // (Entries are in order: past the nearest, they are ever farther.)
                    match deviation.cmp(least) {
                        core::cmp::Ordering::Less => (*best, *least) = (candidate, deviation),
                        core::cmp::Ordering::Equal => {}
                        core::cmp::Ordering::Greater => break,
                    }
                }
            }
            (before, cursor) = (Some(number), entry.next);
        }
        best.map(|(candidate, _)| candidate)
    }

    /// Takes a candidate out of the line.
    pub fn take(&mut self, candidate: &Candidate, entries: &mut Ring<Entry>) {
        let number = candidate.origin.0;
        let next = entries.get(number).expect("an entry in line is held").next;
        let Some(before) = candidate.before else { return self.advance(next) };
        entries.get_mut(before).expect("an entry in line is held").next = next;
        if let Some((_, tail)) = &mut self.ends
            && *tail == number
        {
            *tail = before;
        }
    }
}
