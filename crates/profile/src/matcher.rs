//! Matches every packet that entered the device under test with the packet that left it.
//!
//! The matcher is fed the packets of both sides with their timestamps, and reports the fate of each
//! once it is certain. What "certain" means follows from one bound, the *horizon*: no packet stays
//! in the device longer (two seconds by default). So an exit is judged at most a horizon after it
//! left and an entry two horizons after it entered; nothing is held longer, and memory is bounded
//! by rate times horizon, and by `pending_max` in any case.
//!
//! * **The same packet** is one with the same [`Fingerprint::digest`]. Several may be identical: a
//!   retransmission within one timestamp tick, pure ACKs over IPv6, which has no identification
//!   field. An exit is then matched with the entry whose delay is nearest to the usual one, the
//!   median delay of the latest packets with an unambiguous match; so if a lost packet was sent
//!   again, it is the first that counts as lost. Identical packets are assumed to leave in the order
//!   in which they entered, since no outside observer can see them overtake one another. Limits:
//!   where identical packets are in the device together and their distance is within the device's
//!   jitter, it is a guess which of them was lost; likewise where more than 256 identical ones are
//!   open at once. How many of them were lost or damaged is right in any case: an entry is left over
//!   for each damaged exit (`claim.rs`).
//! * **Duplicated** is an exit whose digest is that of an entry already matched, where no other entry
//!   is left, or only entries that would have stayed far longer or shorter than usual or that a damaged
//!   exit claims. Where one of two identical packets was lost it is a guess, within the jitter, whether
//!   the second exit was a copy of the first packet.
//! * **Corrupted** is an exit that is joined to an entry by what they still share; `corruption.rs`
//!   describes how, and the limits.
//! * **Reordered** follows RFC 4737 within each flow, and never includes duplicates.
//! * **Early**: the stamps of both sides come from clocks that may differ by a little noise. An
//!   exit up to `early_max` *before* its entry is matched, its delay taken as zero, and counted as
//!   early; one earlier than that is no match.
//!
//! The two sides may be fed in any interleaving, each in the order of its own stamps; a stamp that
//! runs backwards within one side is taken as it stands, and delays the judgment of those behind
//! it.

use nilometer_wire::Time;

use crate::fingerprint::Fingerprint;
use crate::outcome::{Counts, Direction, PacketOutcome};
use crate::passage::Passage;

pub use crate::config::MatcherConfig;

/// Matches entries and exits of both directions, and keeps the ledger.
#[derive(Debug)]
pub struct Matcher {
    passages: [Passage; 2],
}

impl Matcher {
    /// A matcher that has seen nothing.
    ///
    /// # Panics
    /// When `config.pending_max` is zero.
    pub fn new(config: MatcherConfig) -> Matcher {
        assert!(config.pending_max > 0, "a matcher that may hold no packet matches none");
        Matcher { passages: Direction::ALL.map(|direction| Passage::new(direction, config)) }
    }

    /// A packet entered the device at `at`; `consumed`: it was addressed to the device.
    pub fn entered(&mut self, direction: Direction, at: Time, print: &Fingerprint, consumed: bool) {
        self.passages[direction.index()].entered(at, print, consumed);
    }

    /// A packet left the device at `at`.
    pub fn left(&mut self, direction: Direction, at: Time, print: &Fingerprint) {
        self.passages[direction.index()].left(at, print);
    }

    /// Passes to `out` what has become certain, given that both sides have been fed everything
    /// stamped before `now`. Each packet is reported once. Within a direction, packets that left
    /// are reported in the order in which they left, and those that did not in the order in which
    /// they entered.
    pub fn expire(&mut self, now: Time, out: &mut impl FnMut(PacketOutcome)) {
        for passage in &mut self.passages {
            passage.expire(Some(now), out);
        }
    }

    /// Passes the rest to `out`: nothing more will enter or leave. Counts stay, and the matcher may
    /// be fed another run, which is added to them.
    ///
    /// # Panics
    /// When the ledger does not balance, which would be a mistake in the matcher itself.
    pub fn finish(&mut self, out: &mut impl FnMut(PacketOutcome)) {
        for passage in &mut self.passages {
            passage.expire(None, out);
            if let Err(imbalance) = passage.counts.balance() {
                panic!("the ledger of the device does not balance: {imbalance}");
            }
        }
    }

    /// The ledger of one direction; `entered` and `left` run ahead of the rest until `finish`.
    pub fn counts(&self, direction: Direction) -> Counts {
        self.passages[direction.index()].counts
    }

    /// The ledger of both directions together.
    pub fn total(&self) -> Counts {
        let [mut total, other] = Direction::ALL.map(|direction| self.counts(direction));
        total += other;
        total
    }

    /// How many packets are held at the moment, on both sides of both directions.
    pub fn held(&self) -> usize {
        self.passages.iter().map(Passage::held).sum()
    }
}
