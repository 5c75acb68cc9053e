//! Finds the original of a damaged packet.
//!
//! A packet whose content changed on the way leaves two orphans: an entry that no exit matches and
//! an exit that no entry matches. They are joined when they have the same length and direction, the
//! entry came first and no longer than the horizon before, and at least half of their lanes (four
//! of eight) are equal. Of several such entries the one with the most equal lanes is taken (all but
//! one count as all, since one damaged word changes one of them), among those the one whose delay
//! is nearest to the usual one, or the last that entered if the usual delay is not known.
//!
//! Limits. Which of several look-alikes was damaged is a matter of likelihood: pure ACKs of one
//! flow differ in two to four lanes, so that with many orphans of one flow two damaged packets may
//! get each other's times (their number stays right). A changed length makes two unrelated orphans,
//! one lost and one originated; so does damage to more than four lanes. A packet that the device
//! made itself and that resembles one it lost (a proxy's own ACK) is taken as a damaged copy. A
//! further copy of a damaged packet has its bytes, and is a duplicate; a damaged copy of an
//! original that left unharmed counts as originated. Where a device copies and damages identical
//! packets, a matched exit is reported as soon as it is decided, though a damaged one that leaves
//! later may show that it was a copy. Orphans of one length beyond [`LOOKS_MAX`] are not examined.

use alloc::collections::VecDeque;

use hashbrown::HashMap;
use nilometer_wire::{Span, Time};

use crate::entry::{Entry, EntryState};
use crate::fingerprint::Fingerprint;
use crate::keyed::Keyed;
use crate::line::Origin;
use crate::outcome::Fate;
use crate::ring::Ring;
use crate::usual::Usual;

/// The most orphans that are compared with one damaged packet, newest first.
pub const LOOKS_MAX: usize = 1024;

/// A packet that left without an entry with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Damaged<'a> {
    pub print: &'a Fingerprint,
    pub at: Time,
    /// The usual delay when it left.
    pub usual: Option<Usual>,
}

/// Entries that were swept as orphans, by length, and those that were found to have been damaged.
#[derive(Debug, Default)]
pub struct Orphans {
    swept: u64,
    by_bytes: HashMap<u32, VecDeque<u64>, Keyed>,
    /// By the digest of their damaged selves, the last of each.
    found: HashMap<u64, Origin, Keyed>,
}

impl Orphans {
    /// Collects the unmatched entries that entered no later than `until`.
    ///
    /// Each entry is examined only once, however often this is called.
    pub fn sweep(&mut self, entries: &Ring<Entry>, until: Time) {
        self.swept = self.swept.max(entries.front());
        while let Some(entry) = entries.get(self.swept).filter(|entry| entry.at <= until) {
            if entry.is_waiting() {
                self.by_bytes.entry(entry.print.bytes).or_default().push_back(self.swept);
            }
            self.swept += 1;
        }
    }

    /// Determines what a damaged packet most likely was: a swept entry, which is taken out, or a copy
    /// of one that was found before.
    pub fn trace(
        &mut self,
        entries: &mut Ring<Entry>,
        damaged: &Damaged<'_>,
        horizon: Span,
    ) -> (Fate, Option<Origin>) {
        let found = self.found.get(&damaged.print.digest).copied();
        let found = found.filter(|(_, entered)| damaged.at.since(*entered) <= horizon);
        let Some(number) = self.take_origin(entries, damaged, found, horizon) else {
            return (found.map_or(Fate::Originated, |_| Fate::Duplicated), found);
        };
        let entry = entries.get_mut(number).expect("an orphan is held");
        entry.state = EntryState::Damaged(damaged.print.digest);
        let origin = (number, entry.at);
        self.found.insert(damaged.print.digest, origin);
        (Fate::Corrupted, Some(origin))
    }

    /// Takes out the swept entry that a damaged packet was. If one with the same damage was `found`
    /// before, only entries with the bytes of that one are considered.
    fn take_origin(
        &mut self,
        entries: &Ring<Entry>,
        &Damaged { print, at, usual }: &Damaged<'_>,
        found: Option<Origin>,
        horizon: Span,
    ) -> Option<u64> {
        let used = print.lanes_used();
        let enough = print.lanes_enough();
        let orphans = self.by_bytes.get_mut(&print.bytes)?;
        let like = found.and_then(|(number, _)| entries.get(number)).map(|it| it.print.digest);
        let mut best = None;
        let (mut best_shared, mut least) = (used.div_ceil(2).max(1) - 1, Span::ZERO);
        for (index, &number) in orphans.iter().enumerate().rev().take(LOOKS_MAX) {
            let Some(entry) = entries.get(number).filter(|entry| entry.is_waiting()) else {
                continue;
            };
            let delay = at.since(entry.at);
            if delay > horizon {
                break;
            }
            if like.is_some_and(|digest| digest != entry.print.digest) {
                continue;
            }
            let shared = entry.print.lanes_shared(print).min(enough);
            let deviation = usual.map_or(Span::ZERO, |usual| usual.deviation(delay));
            let is_nearer = best.is_some() && shared == best_shared && deviation < least;
            if shared > best_shared || is_nearer {
                (best, best_shared, least) = (Some((index, number, delay)), shared, deviation);
            }
            // (Past the usual delay, older ones are ever farther from it.)
            let is_past = usual.is_none_or(|usual| delay >= usual.median && deviation >= least);
            if best_shared == enough && is_past {
                break;
            }
        }
        let (index, number, delay) = best?;
        let is_copy = usual
            .zip(found)
            .is_some_and(|(usual, (_, entered))| usual.is_unlike(delay, at.since(entered)));
        if is_copy {
            return None;
        }
        orphans.remove(index);
        Some(number)
    }

    /// This entry of this number is no longer held, nor is any that entered before it.
    pub fn forget(&mut self, number: u64, entry: &Entry) {
        let bytes = entry.print.bytes;
        if let EntryState::Damaged(digest) = entry.state
            && self.found.get(&digest).is_some_and(|(found, _)| *found == number)
        {
            self.found.remove(&digest);
        }
        if number >= self.swept {
            return;
        }
        if let Some(orphans) = self.by_bytes.get_mut(&bytes) {
            if orphans.front() == Some(&number) {
                orphans.pop_front();
            }
            if orphans.is_empty() {
                self.by_bytes.remove(&bytes);
            }
        }
    }

    /// How many orphans are held, and packets that were found to have been damaged.
    pub fn len(&self) -> usize {
        self.by_bytes.values().map(VecDeque::len).sum::<usize>() + self.found.len()
    }
}
