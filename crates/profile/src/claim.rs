//! Entries reserved for damaged exits: which of several identical entries another exit must not take.
//!
//! Suppose a packet is damaged and leaves, and is then sent again unchanged. The next exit with the
//! original bytes may have been either entry, and by the usual delay it may look like the first.
//! But then only the second entry would be left for the damaged exit, which left before that
//! entered: one packet would count as lost and the other as originated. So an unmatched exit
//! *claims* a packet among those that share all lanes but one with it and had entered when it left:
//! one with the bytes of the entry whose delay would be nearest to the usual one. Another exit that
//! may choose among identical entries leaves to claims those entries that no later one can replace.
//! Where all are claimed, that exit is a copy of one that left before, if there is one; otherwise
//! it is matched with an entry nevertheless.
//!
//! A claim may be mistaken where another packet that differs only in that lane was the damaged one.
//! It then at most exchanges the fates of identical packets: only a claim that is very unlikely to
//! concern another packet may turn an exit into a copy, which would change their sums, or match it
//! with an entry that would have stayed far longer or shorter than usual.
//!
//! Exits with the same bytes make one claim: all but the first are copies of it.

use alloc::collections::VecDeque;

use hashbrown::HashMap;
use nilometer_wire::{Span, Time};

use crate::config::MatcherConfig;
use crate::entry::Entry;
use crate::fingerprint::Fingerprint;
use crate::keyed::Keyed;
use crate::ring::Ring;
use crate::usual::Usual;

/// The most claims of one length that are looked at, newest first.
const CLAIMS_MAX: usize = 256;
/// The most entries that one claim is compared with, newest first.
const LOOKS_MAX: usize = 1024;

/// An unmatched exit that is not judged yet.
#[derive(Debug)]
struct Claim {
    exit: u64,
    at: Time,
    print: Fingerprint,
    /// The usual delay when it left.
    usual: Option<Usual>,
}

/// How many of the entries that another exit may match are left to claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// The first ones, which no other entry can replace.
    pub first: usize,
    /// Of these, the first ones whose claims are very unlikely to concern packets with other bytes.
    pub surely: usize,
    /// As many are claimed as there are.
    pub is_all: bool,
}

/// All claims, by length, in the order in which the exits left.
#[derive(Debug, Default)]
pub struct Claims {
    by_bytes: HashMap<u32, VecDeque<Claim>, Keyed>,
}

impl Claims {
    /// Adds the claim of exit number `exit`, which no entry matches.
    pub fn add(&mut self, exit: u64, at: Time, print: &Fingerprint, usual: Option<Usual>) {
        let claims = self.by_bytes.entry(print.bytes).or_default();
        claims.push_back(Claim { exit, at, print: *print, usual });
    }

    /// The exit of this number and length is judged, and nothing that left before it is held.
    pub fn forget(&mut self, exit: u64, bytes: u32) {
        let Some(claims) = self.by_bytes.get_mut(&bytes) else { return };
        if claims.front().is_some_and(|claim| claim.exit == exit) {
            claims.pop_front();
        }
        if claims.is_empty() {
            self.by_bytes.remove(&bytes);
        }
    }

    /// How many of the packets like `print`, which entered at these times, in order, an exit that
    /// left at `at` must leave to claims.
    pub fn reserved(
        &self,
        (print, at): (&Fingerprint, Time),
        entered: impl Iterator<Item = Time>,
        config: MatcherConfig,
        entries: &Ring<Entry>,
    ) -> Reserved {
        let Some(claims) = self.by_bytes.get(&print.bytes) else { return Reserved::default() };
        let looks = claims.len().min(CLAIMS_MAX);
        let recent = || {
            let newest = claims.range(claims.len() - looks..);
            newest.filter(move |claim| at.since(claim.at) <= config.horizon)
        };
        let is_first = |claim: &&Claim| {
            let same = |other: &&Claim| other.print.digest == claim.print.digest;
            recent().find(same).is_some_and(|first| first.exit == claim.exit)
        };
        let mut entered = entered.peekable();
        let Some(&oldest) = entered.peek() else { return Reserved::default() };
        let mut claims = recent()
            .filter(|claim| claim.at + config.early_max >= oldest)
            .filter(|claim| claim.print.lanes_shared(print) >= print.lanes_enough())
            .filter(is_first)
            .filter_map(|claim| claim.on((print.digest, at), config, entries))
            .peekable();
        let (mut first, mut surely) = (0, 0);
        let (mut count, mut met, mut certain) = (0, 0, 0);
        for (number, at) in entered.enumerate() {
            // These exits left too early to have been this entry: they get entries before it.
            while let Some(right) = claims.next_if(|right| right.until < at) {
                met = count.min(met + 1);
                certain = count.min(certain + usize::from(right.is_only));
            }
            if count > 0 && met == count {
                first = number;
            }
            if count > 0 && certain == count {
                surely = number;
            }
            // (An entry from long before is not claimed: it was lost.)
            let is_claimed = |right: &Right| right.at.since(at) <= right.longest;
            count += usize::from(met > 0 || claims.peek().is_some_and(is_claimed));
        }
        certain += claims.filter(|right| right.is_only).count();
        Reserved { first, surely, is_all: count > 0 && certain >= count }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_bytes.values().map(VecDeque::len).sum()
    }
}

/// A claim on packets with certain bytes.
#[derive(Clone, Copy, Debug)]
struct Right {
    /// When it left.
    at: Time,
    /// It may match entries up to this moment that took at most this long.
    until: Time,
    longest: Span,
    /// It is very unlikely to have been a packet with other bytes.
    is_only: bool,
}

impl Claim {
    /// Its claim on packets with this digest, against an exit that left at `at`: `None` if, among the
    /// unmatched entries that it may have been, one with other bytes is far more likely. (Entries from
    /// more than a horizon before that exit may already be judged.)
    fn on(
        &self,
        (digest, at): (u64, Time),
        config: MatcherConfig,
        entries: &Ring<Entry>,
    ) -> Option<Right> {
        let until = self.at + config.early_max;
        let newest = entries.find_end(|entry| entry.at <= until);
        let usual = self.usual.unwrap_or(Usual::UNKNOWN);
        // How far the nearest entry with this digest, and the nearest other, is from the usual delay.
        let mut least: [Option<Span>; 2] = [None; 2];
        for number in (entries.front()..newest).rev().take(LOOKS_MAX) {
            let entry = entries.get(number).expect("it is held");
            let delay = self.at.since(entry.at);
            let deviation = usual.deviation(delay);
            let is_far = least[0].is_some_and(|least| usual.is_far(deviation, least));
            if at.since(entry.at) > config.horizon || (is_far && delay > usual.median) {
                break;
            }
            if entry.is_waiting()
                && entry.print.lanes_shared(&self.print) >= self.print.lanes_enough()
            {
                let least = &mut least[usize::from(entry.print.digest != digest)];
                *least = Some(least.map_or(deviation, |least| least.min(deviation)));
            }
        }
        let [Some(least), others] = least else { return None };
        let is_only = others.is_none_or(|others| usual.is_far(others, least));
        if others.is_some_and(|others| usual.is_far(least, others)) {
            return None;
        }
        let longest = usual.median + usual.farthest(least);
        Some(Right { at: self.at, until, longest, is_only })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryState;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000_000;
    const CONFIG: MatcherConfig =
        MatcherConfig { horizon: Span(400 * MS), early_max: Span(2 * MS), pending_max: 9 };

    /// The packet, or another that differs from it in this many lanes.
    fn print(other_lanes: usize) -> Fingerprint {
        let digest = other_lanes as u64;
        let mut print = Fingerprint { digest, bytes: 100, flow: 1, lanes: [7; 8] };
        print.lanes.iter_mut().take(other_lanes).for_each(|lane| *lane += 1);
        print
    }

    fn entries(prints: &[(u64, Fingerprint)]) -> Ring<Entry> {
        let mut entries = Ring::new();
        for (at, print) in prints {
            let (at, print) = (Time(at * MS), *print);
            entries.push(Entry { at, print, next: None, state: EntryState::Waiting });
        }
        entries
    }

    /// How many packets that entered at these times are left to claims made at those, by an exit at
    /// 100; the usual delay is 10 ms.
    fn reserved(claims: &[(u64, u64)], others: &[(u64, Fingerprint)], entered: &[u64]) -> Reserved {
        let usual = Usual { median: Span(10 * MS), spread: Span(MS) };
        let mut all = Claims::default();
        for (number, (at, digest)) in (0..).zip(claims) {
            let print = Fingerprint { digest: 100 + digest, ..print(1) };
            all.add(number, Time(at * MS), &print, Some(usual));
        }
        let same = entered.iter().map(|at| (*at, print(0)));
        let mut held: Vec<(u64, Fingerprint)> = same.chain(others.iter().copied()).collect();
        held.sort_by_key(|(at, _)| *at);
        let entered = entered.iter().map(|at| Time(at * MS));
        all.reserved((&print(0), Time(100 * MS)), entered, CONFIG, &entries(&held))
    }

    fn first(claims: &[(u64, u64)], entered: &[u64]) -> usize {
        reserved(claims, &[], entered).first
    }

    #[test]
    fn an_exit_before_the_second_entry_is_the_first_packet() {
        assert_eq!(first(&[(60, 1)], &[50, 70]), 1);
        assert_eq!(first(&[(67, 1)], &[50, 70]), 1);
        assert_eq!(first(&[(68, 1)], &[50, 70]), 0, "within noise it may have been either");
        assert_eq!(first(&[(47, 1)], &[50, 70]), 0, "it left before any entered");
        assert_eq!(first(&[], &[50, 70]), 0);
        assert!(!reserved(&[(60, 1)], &[], &[50, 70]).is_all);
    }

    #[test]
    fn as_many_packets_are_reserved_as_are_claimed() {
        assert_eq!(first(&[(66, 1)], &[55, 60, 70]), 0, "one of two");
        assert_eq!(first(&[(66, 1), (67, 2)], &[55, 60, 70]), 2);
        assert_eq!(first(&[(66, 1), (67, 1)], &[55, 60, 70]), 0, "one and its copy");
        assert_eq!(first(&[(57, 1), (66, 2)], &[55, 60, 70]), 2);
        assert_eq!(first(&[(57, 1), (57, 2)], &[55, 60, 70]), 1, "one of them is another's");
        assert!(reserved(&[(66, 1), (67, 2)], &[], &[55, 60]).is_all);
        assert!(!reserved(&[(66, 1), (67, 1)], &[], &[55, 60]).is_all);
    }

    /// A lost one of long ago is not what was damaged: it is left with the others.
    #[test]
    fn packets_that_entered_long_before_are_not_claimed() {
        assert_eq!(first(&[(60, 1)], &[5, 50, 70]), 2);
        assert_eq!(first(&[(60, 1)], &[47, 50, 70]), 0, "this may have been it");
    }

    #[test]
    fn an_ambiguous_packet_is_claimed_and_makes_no_copy() {
        // (One lane differs from the claim's: the damaged one.)
        let other = Fingerprint { digest: 9, ..print(1) };
        let claim = [(60, 1)];
        let all = |others: &[(u64, Fingerprint)]| {
            let it = reserved(&claim, others, &[50]);
            let two = reserved(&claim, others, &[50, 70]);
            (it.is_all, two.first, two.surely)
        };
        assert_eq!(all(&[]), (true, 1, 1));
        assert_eq!(all(&[(51, other)]), (false, 1, 0));
        assert_eq!(all(&[(51, print(3))]), (true, 1, 1), "too different");
        assert_eq!(all(&[(20, other)]), (true, 1, 1), "it would have taken far too long");
        // Delays of 25 ms and of 10 ms.
        assert_eq!(reserved(&claim, &[(50, other)], &[35, 70]), Reserved::default());
    }

    #[test]
    fn a_claim_is_held_until_it_is_judged() {
        let mut claims = Claims::default();
        let of_length = |bytes| Fingerprint { bytes, ..print(0) };
        for (number, bytes) in [(3, 100), (5, 101), (7, 100)] {
            claims.add(number, Time(20), &of_length(bytes), None);
        }
        claims.forget(7, 100);
        claims.forget(3, 99);
        assert_eq!(claims.len(), 3, "they are judged in order");
        claims.forget(3, 100);
        claims.forget(5, 101);
        claims.forget(7, 100);
        assert_eq!((claims.len(), claims.by_bytes.len()), (0, 0));
    }
}
