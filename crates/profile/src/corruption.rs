//! Finds the packet that a damaged one once was.
//!
//! A packet whose content changed on the way leaves two orphans: an entry that no exit matches and
//! an exit that no entry matches. They are joined when they have the same length and direction, the
//! entry came first and no longer than the horizon before, and at least half of their lanes (four
//! of eight) are equal. Of several such entries the one with the most equal lanes is taken (all but
//! one are as good as all: one damaged word changes one of them), of those the one whose delay is
//! nearest to the usual one, or the last that entered where nothing is known to be usual.
//!
//! What this cannot know, said plainly. Which of several look-alikes was hit is a likelihood: pure
//! ACKs of one flow differ in two to four lanes, so that with many orphans of one flow two damaged
//! packets may be given one another's times (their number stays right). A changed length makes two
//! unrelated orphans, one lost and one originated; so does damage to more than four lanes. A
//! packet that the device made itself and that resembles one it lost (a proxy's own ACK) is taken
//! for a damaged copy. A damaged further copy, its original having left unharmed, counts as
//! originated. And orphans of one length beyond [`LOOKS_MAX`] are not looked at.

use alloc::collections::VecDeque;

use hashbrown::HashMap;
use nilometer_wire::{Span, Time};

use crate::entry::Entry;
use crate::fingerprint::Fingerprint;
use crate::keyed::Keyed;
use crate::ring::Ring;
use crate::usual::Usual;

/// The most orphans that are compared with one damaged packet, newest first.
pub const LOOKS_MAX: usize = 1024;

/// A packet that left and that nothing with its bytes had entered as.
#[derive(Clone, Copy, Debug)]
pub struct Damaged<'a> {
    pub print: &'a Fingerprint,
    pub at: Time,
    /// The usual delay when it left.
    pub usual: Option<Usual>,
}

/// Entries that were swept as orphans, by length.
#[derive(Debug, Default)]
pub struct Orphans {
    swept: u64,
    by_bytes: HashMap<u32, VecDeque<u64>, Keyed>,
}

impl Orphans {
    /// Collects the unmatched entries that entered no later than `until`.
    ///
    /// Each entry is looked at once in its life, however often this is called.
    pub fn sweep(&mut self, entries: &Ring<Entry>, until: Time) {
        self.swept = self.swept.max(entries.front());
        while let Some(entry) = entries.get(self.swept).filter(|entry| entry.at <= until) {
            if entry.is_waiting() {
                self.by_bytes.entry(entry.print.bytes).or_default().push_back(self.swept);
            }
            self.swept += 1;
        }
    }

    /// Takes out the swept entry that a damaged packet most likely was.
    pub fn take_origin(
        &mut self,
        entries: &Ring<Entry>,
        &Damaged { print, at, usual }: &Damaged<'_>,
        horizon: Span,
    ) -> Option<u64> {
        let used = print.lanes_used();
        let enough = used.saturating_sub(1).max(1);
        let orphans = self.by_bytes.get_mut(&print.bytes)?;
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
            let shared = entry.print.lanes_shared(print).min(enough);
            let deviation = usual.map_or(Span::ZERO, |usual| usual.deviation(delay));
            let is_nearer = best.is_some() && shared == best_shared && deviation < least;
            if shared > best_shared || is_nearer {
                (best, best_shared, least) = (Some((index, number)), shared, deviation);
            }
            // (Past the usual delay, older ones are ever farther from it.)
            let is_past = usual.is_none_or(|usual| delay >= usual.median && deviation >= least);
            if best_shared == enough && is_past {
                break;
            }
        }
        let (index, number) = best?;
        orphans.remove(index);
        Some(number)
    }

    /// Entry `number` of `bytes` bytes is no longer held, and nothing that entered before it is.
    pub fn forget(&mut self, number: u64, bytes: u32) {
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

    /// How many orphans are held.
    pub fn len(&self) -> usize {
        self.by_bytes.values().map(VecDeque::len).sum()
    }
}
