//! What the data thread reads: every next hop as of one moment, in arrays that never change.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::fib::NextHop;

/// Why a packet is turned back to its sender (RFC 792, RFC 4443 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejection {
    /// Host or network unreachable.
    Unreachable,
    /// Communication administratively prohibited.
    Prohibited,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// It leaves by a port, to a gateway, or to its own destination where there is none (on-link).
    Via {
        /// The port's number in this router.
        port: u16,
        /// Whose link-layer address it is sent to; may be of the other family (RFC 8950).
        gateway: Option<IpAddr>,
    },
    /// It is for the router itself.
    Local,
    /// It leaves by a link that is no port: the kernel beside the forwarding plane has it.
    KernelLink,
    /// It is dropped without a word.
    Blackhole,
    /// It is dropped, and the sender gets an ICMP error.
    Reject(Rejection),
    /// It goes to a group, which another table keeps.
    Multicast,
    /// It had ways, and all of them are down.
    Failed,
}

impl Hop {
    fn to_words(self, words: &mut Vec<u64>) {
        match self {
            Hop::Via { port, gateway: None } => words.extend([0, u64::from(port)]),
            Hop::Via { port, gateway: Some(IpAddr::V4(gateway)) } => {
                words.extend([1, u64::from(port), u64::from(u32::from(gateway))]);
            }
            Hop::Via { port, gateway: Some(IpAddr::V6(gateway)) } => {
                let gateway = u128::from(gateway);
                words.extend([2, u64::from(port), (gateway >> 64) as u64, gateway as u64]);
            }
            Hop::Local => words.push(3),
            Hop::KernelLink => words.push(4),
            Hop::Blackhole => words.push(5),
            Hop::Reject(Rejection::Unreachable) => words.push(6),
            Hop::Reject(Rejection::Prohibited) => words.push(7),
            Hop::Multicast => words.push(8),
            Hop::Failed => words.push(9),
        }
    }

    fn from_words(next: &mut impl FnMut() -> Option<u64>) -> Option<Hop> {
        let kind = next()?;
        if kind <= 2 {
            let port = u16::try_from(next()?).ok()?;
            let gateway = match kind {
                0 => None,
                1 => Some(IpAddr::from(u32::try_from(next()?).ok()?.to_be_bytes())),
                _ => {
                    let (high, low) = (next()?, next()?);
                    Some(IpAddr::from((u128::from(high) << 64 | u128::from(low)).to_be_bytes()))
                }
            };
            return Some(Hop::Via { port, gateway });
        }
        Some(match kind {
            3 => Hop::Local,
            4 => Hop::KernelLink,
            5 => Hop::Blackhole,
            6 => Hop::Reject(Rejection::Unreachable),
            7 => Hop::Reject(Rejection::Prohibited),
            8 => Hop::Multicast,
            9 => Hop::Failed,
            _ => return None,
        })
    }
}

/// Where a number's buckets stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// The first; [`Range::NONE`] if the number stands for nothing.
    pub(super) first: u32,
    /// One less than how many, which is a power of two.
    pub(super) mask: u32,
}

impl Range {
    pub(super) const NONE: Range = Range { first: u32::MAX, mask: 0 };

    pub(super) fn places(self) -> core::ops::Range<usize> {
        self.first as usize..(self.first + self.mask) as usize + 1
    }
}

/// All next hops as they were when it was taken.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(super) version: u64,
    pub(super) ranges: Vec<Range>,
    pub(super) buckets: Vec<u16>,
    pub(super) hops: Vec<Hop>,
}

impl Snapshot {
    /// What `next` stands for, for the flow whose hash is `flow_hash` (its low bits choose among the
    /// ways of a group, so they must be as good as the others). Nothing for a number that is newer
    /// than this snapshot: take the latest snapshot and resolve again.
    #[inline]
    pub fn resolve(&self, next: NextHop, flow_hash: u32) -> Option<&Hop> {
        self.resolve_numbered(next, flow_hash).map(|(_, hop)| hop)
    }

    /// As [`Snapshot::resolve`], with the hop's number in [`Snapshot::hops`], by which more can be
    /// kept beside it.
    #[inline]
    pub fn resolve_numbered(&self, next: NextHop, flow_hash: u32) -> Option<(u16, &Hop)> {
        let bucket = self.number(next, flow_hash)?;
        self.hops.get(usize::from(bucket)).map(|hop| (bucket, hop))
    }

    /// A number that stands for `hop` alone, whatever the flow, if there is one.
    pub fn alone(&self, hop: &Hop) -> Option<NextHop> {
        let numbers = 0..self.ranges.len() as u32;
        let mut numbers = numbers.filter_map(|number| u16::try_from(number).ok()).map(NextHop);
        numbers.find(|next| {
            let range = self.ranges[usize::from(next.0)];
            range.first != u32::MAX && range.mask == 0 && self.resolve(*next, 0) == Some(hop)
        })
    }

    /// The number alone.
    #[inline(always)]
    pub(crate) fn number(&self, next: NextHop, flow_hash: u32) -> Option<u16> {
        let range = self.ranges.get(usize::from(next.0))?;
        if range.first == u32::MAX {
            return None;
        }
        self.buckets.get((range.first + (flow_hash & range.mask)) as usize).copied()
    }

    /// All hops, by number.
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// All of it as numbers, for a recording.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = Vec::from([self.version, self.ranges.len() as u64]);
        words.extend(self.ranges.iter().map(|it| u64::from(it.first) << 32 | u64::from(it.mask)));
        words.push(self.buckets.len() as u64);
        words.extend(self.buckets.iter().map(|&bucket| u64::from(bucket)));
        words.push(self.hops.len() as u64);
        self.hops.iter().for_each(|hop| hop.to_words(&mut words));
        words
    }

    /// What [`Snapshot::to_words`] made these numbers of; nothing if they are of nothing.
    pub fn from_words(words: &[u64]) -> Option<Snapshot> {
        let mut words = words.iter().copied();
        let mut next = || words.next();
        let version = next()?;
        let ranges = (0..next()?).map(|_| {
            let word = next()?;
            Some(Range { first: (word >> 32) as u32, mask: word as u32 })
        });
        let ranges = ranges.collect::<Option<Vec<_>>>()?;
        let buckets = (0..next()?).map(|_| u16::try_from(next()?).ok());
        let buckets = buckets.collect::<Option<Vec<_>>>()?;
        let hops = (0..next()?).map(|_| Hop::from_words(&mut next));
        let hops = hops.collect::<Option<Vec<_>>>()?;
        let ends =
            |range: &Range| u64::from(range.first) + u64::from(range.mask) < buckets.len() as u64;
        let are_there = ranges.iter().all(|range| *range == Range::NONE || ends(range))
            && buckets.iter().all(|&bucket| usize::from(bucket) < hops.len());
        are_there.then_some(Snapshot { version, ranges, buckets, hops })
    }

    /// The ports by which `next` leaves, each once.
    pub fn ports_of(&self, next: NextHop) -> Vec<u16> {
        let range = self.ranges.get(usize::from(next.0)).filter(|range| range.first != u32::MAX);
        let buckets = range.and_then(|range| self.buckets.get(range.places()));
        let hop = |bucket: &u16| match self.hops.get(usize::from(*bucket)) {
            Some(Hop::Via { port, .. }) => Some(*port),
            _ => None,
        };
        let mut ports: Vec<u16> = buckets.unwrap_or_default().iter().filter_map(hop).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// How many changes had been made when it was taken.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.ranges[..]) + size_of_val(&self.buckets[..]) + size_of_val(&self.hops[..])
    }
}
