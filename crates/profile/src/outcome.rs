//! The fate of each packet at the device under test, and the ledger that must balance.
//!
//! `in` entered the device, `out` left it; both are IP packets only. A packet is `lost` because no
//! packet that left matches it, never because of a subtraction, and therefore the equation
//!
//! ```text
//! in + originated + duplicated = out + consumed + lost
//! ```
//!
//! is a check and not a definition: see [`Counts::balance`].

use core::ops::AddAssign;

use nilometer_wire::{Span, Time};

/// The way a packet takes through the device under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Entered on the client side, or left on the server side.
    ClientToServer = 0,
    /// Entered on the server side, or left on the client side.
    ServerToClient = 1,
}

impl Direction {
    /// Both, in the order of their index.
    pub const ALL: [Direction; 2] = [Direction::ClientToServer, Direction::ServerToClient];

    /// The other one.
    #[must_use]
    pub const fn opposite(self) -> Direction {
        match self {
            Direction::ClientToServer => Direction::ServerToClient,
            Direction::ServerToClient => Direction::ClientToServer,
        }
    }

    /// 0 or 1, for arrays by direction.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// Entered and left, its invariant bytes unharmed.
    Forwarded,
    /// Entered and left with other content: matched by what the two still share.
    Corrupted,
    /// Entered, and nothing that left matches it (one-way loss, RFC 7680).
    Lost,
    /// Entered, addressed to the device itself.
    Consumed,
    /// Left, and nothing that entered matches it.
    Originated,
    /// Left as a further copy of a packet that had already left (one-way duplication, RFC 5560).
    Duplicated,
}

/// The fate of one packet, reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketOutcome {
    /// Its way through the device.
    pub direction: Direction,
    /// What became of it.
    pub fate: Fate,
    /// When it entered; for a duplicate when its original did; `None` when originated.
    pub entered_at: Option<Time>,
    /// When it left; `None` when lost or consumed.
    pub left_at: Option<Time>,
    /// Length of the IP packet.
    pub bytes: u32,
    /// Hash of its flow, as it entered where it did (see [`crate::Fingerprint::flow`]).
    pub flow: u32,
    /// A packet of its flow that entered later had left before it (RFC 4737, section 3).
    pub reordered: bool,
}

impl PacketOutcome {
    /// How long the device held the packet, for a forwarded one; zero when, by clock noise, it left
    /// just before it entered.
    ///
    /// A corrupted packet has no delay, since its original is known only with some likelihood (RFC
    /// 7679, section 3.6, counts such a packet as lost for the same reason). Nor has a duplicate.
    pub fn delay(&self) -> Option<Span> {
        match (self.fate, self.entered_at, self.left_at) {
            (Fate::Forwarded, Some(entered_at), Some(left_at)) => Some(left_at.since(entered_at)),
            _ => None,
        }
    }
}

/// Packets of one direction by fate, or the sum of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that entered the device (`in`).
    pub entered: u64,
    /// Packets that left it (`out`).
    pub left: u64,
    /// Packets that entered and left: forwarded or corrupted.
    pub matched: u64,
    /// Packets that entered and that no exit matches.
    pub lost: u64,
    /// Packets that entered and were addressed to the device.
    pub consumed: u64,
    /// Packets that left and that no entry matches.
    pub originated: u64,
    /// Packets that left as further copies.
    pub duplicated: u64,
    /// Those of `matched` that left after a later packet of their flow (Type-P-Reordered, RFC 4737, 3).
    pub reordered: u64,
    /// Those of `matched` whose content had changed.
    pub corrupted: u64,
    /// Those of `matched` that by their timestamps left just before they entered; their delay is
    /// zero.
    pub early: u64,
    /// Packets that had to be decided early because `pending_max` was reached. More than zero makes
    /// every other count suspect.
    pub overflow: u64,
    /// Outcomes that are in these counts and were never reported, because they were not fetched in time.
    pub unreported: u64,
}

/// The two sides of the ledger differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// in + originated + duplicated
    pub debit: u64,
    /// out + consumed + lost
    pub credit: u64,
}

impl core::fmt::Display for Imbalance {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Imbalance { debit, credit } = self;
        write!(f, "in + originated + duplicated is {debit}, out + consumed + lost is {credit}")
    }
}

impl core::error::Error for Imbalance {}

impl Counts {
    /// Packets that entered and whose fate is still open.
    pub fn undecided(&self) -> u64 {
        self.entered - self.matched - self.lost - self.consumed
    }

    /// Checks `in + originated + duplicated = out + consumed + lost`, which holds once every packet
    /// is decided.
    pub fn balance(&self) -> Result<(), Imbalance> {
        let debit = self.entered + self.originated + self.duplicated;
        let credit = self.left + self.consumed + self.lost;
        if debit == credit { Ok(()) } else { Err(Imbalance { debit, credit }) }
    }

    pub(crate) fn book(&mut self, outcome: &PacketOutcome) {
        match outcome.fate {
            Fate::Forwarded => self.matched += 1,
            Fate::Corrupted => {
                self.matched += 1;
                self.corrupted += 1;
            }
            Fate::Lost => self.lost += 1,
            Fate::Consumed => self.consumed += 1,
            Fate::Originated => self.originated += 1,
            Fate::Duplicated => self.duplicated += 1,
        }
        self.reordered += u64::from(outcome.reordered);
        let both = matches!(outcome.fate, Fate::Forwarded | Fate::Corrupted);
        self.early += u64::from(both && outcome.left_at < outcome.entered_at);
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.entered += other.entered;
        self.left += other.left;
        self.matched += other.matched;
        self.lost += other.lost;
        self.consumed += other.consumed;
        self.originated += other.originated;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.corrupted += other.corrupted;
        self.early += other.early;
        self.overflow += other.overflow;
        self.unreported += other.unreported;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_imbalance_states_both_sums() {
        let mut counts =
            Counts { entered: 10, originated: 1, left: 9, lost: 2, ..Counts::default() };
        assert_eq!(counts.balance(), Ok(()));
        counts.left += 1;
        let imbalance = counts.balance().unwrap_err();
        assert_eq!(
            imbalance.to_string(),
            "in + originated + duplicated is 11, out + consumed + lost is 12"
        );
    }

    #[test]
    fn clock_noise_gives_no_delay_and_is_counted() {
        let outcome = PacketOutcome {
            direction: Direction::ClientToServer,
            fate: Fate::Forwarded,
            entered_at: Some(Time::from_nanos(1_000)),
            left_at: Some(Time::from_nanos(990)),
            bytes: 60,
            flow: 1,
            reordered: false,
        };
        let mut counts = Counts::default();
        counts.book(&outcome);
        assert_eq!((outcome.delay(), counts.early, counts.matched), (Some(Span::ZERO), 1, 1));
    }

    /// Every field is a sum, and each fate is counted in its own.
    #[test]
    fn both_directions_together_are_their_sums() {
        let counts = |first: u64| Counts {
            entered: first,
            left: first + 1,
            matched: first + 2,
            lost: first + 3,
            consumed: first + 4,
            originated: first + 5,
            duplicated: first + 6,
            reordered: first + 7,
            corrupted: first + 8,
            early: first + 9,
            overflow: first + 10,
            unreported: first + 11,
        };
        let mut sum = counts(100);
        sum += counts(1_000);
        let Counts { entered, left, matched, lost, consumed, originated, .. } = sum;
        assert_eq!(
            [entered, left, matched, lost, consumed, originated],
            [1_100, 1_102, 1_104, 1_106, 1_108, 1_110]
        );
        let Counts { duplicated, reordered, corrupted, early, overflow, unreported, .. } = sum;
        assert_eq!(
            [duplicated, reordered, corrupted, early, overflow, unreported],
            [1_112, 1_114, 1_116, 1_118, 1_120, 1_122]
        );
        let open = Counts { entered: 100, matched: 50, lost: 20, consumed: 7, ..Counts::default() };
        assert_eq!(open.undecided(), 23);
        let balanced = Counts {
            entered: 100,
            originated: 30,
            duplicated: 5,
            left: 80,
            consumed: 15,
            lost: 40,
            ..Counts::default()
        };
        assert_eq!(balanced.balance(), Ok(()));
        let off = Counts { duplicated: 6, ..balanced };
        assert_eq!(off.balance(), Err(Imbalance { debit: 136, credit: 135 }));
        assert_eq!(Direction::ALL.map(Direction::index), [0, 1]);
    }

    #[test]
    fn a_verdict_is_booked_under_its_fate() {
        let outcome = |fate, left_ns, reordered| PacketOutcome {
            direction: Direction::ServerToClient,
            fate,
            entered_at: Some(Time::from_nanos(1_000)),
            left_at: Some(Time::from_nanos(left_ns)),
            bytes: 60,
            flow: 1,
            reordered,
        };
        let mut counts = Counts::default();
        for (times, fate) in [
            Fate::Forwarded,
            Fate::Corrupted,
            Fate::Lost,
            Fate::Consumed,
            Fate::Originated,
            Fate::Duplicated,
        ]
        .into_iter()
        .enumerate()
        {
            for turn in 0..=times {
                counts.book(&outcome(fate, 900 + 100 * turn as u64, turn == 0));
            }
            let is_measured = fate == Fate::Forwarded;
            assert_eq!(outcome(fate, 1_250, false).delay().is_some(), is_measured, "{fate:?}");
        }
        let expected = Counts {
            matched: 1 + 2,
            corrupted: 2,
            lost: 3,
            consumed: 4,
            originated: 5,
            duplicated: 6,
            reordered: 6,
            // One forwarded and one corrupted packet left 100 ns before they entered.
            early: 2,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
        assert_eq!(outcome(Fate::Forwarded, 1_250, false).delay(), Some(Span::from_nanos(250)));
    }
}
