//! Events counted in bins of time, in bounded memory whatever time they span.
//!
//! How long a capture lasts is known when it ends, and how fine its bins can be depends on that. So bins
//! begin narrow, and whenever an event would need more bins than allowed, neighbours are added up in
//! pairs and every bin becomes twice as wide. Bins are numbered from 1970 and not from the first event:
//! the series then does not depend on the order of events, and two parts of one stream add up to the
//! whole, bin by bin.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// The width at which bins begin, ns: a millisecond.
pub const NARROWEST_NS: u64 = 1_000_000;
/// Bins at most: at a millisecond 17 minutes.
pub const BINS_MAX: u64 = 1 << 20;
/// How often bins may double: to 1.024 s, over which [`BINS_MAX`] are 12 days.
const DOUBLINGS_MAX: u32 = 10;

/// The content of one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Events.
    pub events: u64,
    /// Sum of their weights, saturating.
    pub weight: u64,
}

impl Bin {
    fn and(self, other: Bin) -> Bin {
        Bin {
            events: self.events.saturating_add(other.events),
            weight: self.weight.saturating_add(other.weight),
        }
    }
}

/// Why events cannot be counted in bins: they span more than [`BINS_MAX`] bins of 1.024 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFarApart;

/// A series of bins, from that of the earliest event to that of the latest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Binned {
    doublings: u32,
    /// Number of the first bin, counted from 1970.
    first: u64,
    bins: VecDeque<Bin>,
}

/// A series as it is written to files, column by column.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    doublings: u32,
    first: u64,
    events: Vec<u64>,
    weights: Vec<u64>,
}

impl From<Binned> for Written {
    fn from(binned: Binned) -> Written {
        let (doublings, first) = (binned.doublings, binned.first);
        let (events, weights) = binned.bins.iter().map(|bin| (bin.events, bin.weight)).unzip();
        Written { doublings, first, events, weights }
    }
}

impl TryFrom<Written> for Binned {
    type Error = &'static str;

    fn try_from(read: Written) -> Result<Binned, &'static str> {
        let count = read.events.len() as u64;
        let is_sound = read.weights.len() as u64 == count
            && count <= BINS_MAX
            && read.doublings <= DOUBLINGS_MAX
            && read.first.checked_add(count).is_some_and(|end| end <= u64::MAX >> read.doublings);
        if !is_sound {
            return Err("a series of bins that cannot be");
        }
        let bins = read.events.iter().zip(&read.weights);
        let bins = bins.map(|(&events, &weight)| Bin { events, weight }).collect();
        Ok(Binned { doublings: read.doublings, first: read.first, bins })
    }
}

impl Binned {
    /// An empty series.
    pub fn new() -> Binned {
        Binned::default()
    }

    /// How wide a bin is, ns.
    pub fn width_ns(&self) -> u64 {
        NARROWEST_NS << self.doublings
    }

    /// The bins in the order of time; none if nothing was counted.
    pub fn bins(&self) -> impl ExactSizeIterator<Item = &Bin> {
        self.bins.iter()
    }

    /// Counts an event at `at_ns` (since 1970).
    ///
    /// # Errors
    /// When it is so far from the others that bins would be wider than they may be; it is not counted.
    pub fn count(&mut self, at_ns: u64, weight: u64) -> Result<(), TooFarApart> {
        self.add((at_ns / NARROWEST_NS) >> self.doublings, Bin { events: 1, weight })
    }

    /// Adds the bins of another part of the stream.
    ///
    /// # Errors
    /// When both together span more than is allowed; bins added until then stay.
    pub fn merge(&mut self, other: &Binned) -> Result<(), TooFarApart> {
        while self.doublings < other.doublings {
            self.double();
        }
        for (at, bin) in (other.first..).zip(&other.bins) {
            self.add(at >> (self.doublings - other.doublings), *bin)?;
        }
        Ok(())
    }

    /// Bins of twice the width, until bins hold `events_min` events on average, or only one bin is left.
    pub fn widened(mut self, events_min: f64) -> Binned {
        let events: f64 = self.bins.iter().map(|bin| bin.events as f64).sum();
        while self.bins.len() > 1 && events < events_min * self.bins.len() as f64 {
            self.double();
        }
        self
    }

    /// Adds to the bin `at`, a number at the present width.
    fn add(&mut self, mut at: u64, bin: Bin) -> Result<(), TooFarApart> {
        let count = self.bins.len() as u64;
        if at.wrapping_sub(self.first) >= count {
            let doublings = self.doublings;
            self.reach(at)?;
            at >>= self.doublings - doublings;
        }
        let place = &mut self.bins[(at - self.first) as usize];
        *place = place.and(bin);
        Ok(())
    }

    /// Makes room for the bin `at`, by adding bins at either end and by doubling.
    fn reach(&mut self, mut at: u64) -> Result<(), TooFarApart> {
        if self.bins.is_empty() {
            self.first = at;
        }
        let end = (self.first + self.bins.len() as u64).max(at + 1);
        let (first, last) = (self.first.min(at), end - 1);
        let over = |more: u32| (last >> more) - (first >> more) >= BINS_MAX;
        let more = (0..).find(|more| !over(*more)).expect("one bin holds everything in the end");
        if self.doublings + more > DOUBLINGS_MAX {
            return Err(TooFarApart);
        }
        for _ in 0..more {
            self.double();
        }
        at >>= more;
        while at < self.first {
            self.bins.push_front(Bin::default());
            self.first -= 1;
        }
        let reach = (at - self.first + 1) as usize;
        self.bins.resize(reach.max(self.bins.len()), Bin::default());
        Ok(())
    }

    /// Adds neighbours up in pairs, each even number with the odd one behind it.
    fn double(&mut self) {
        let odd = (self.first % 2) as usize;
        let count = (self.bins.len() + odd).div_ceil(2);
        for at in 0..count {
            let right = 2 * at + 1 - odd;
            let left = right.checked_sub(1).map(|left| self.bins[left]).unwrap_or_default();
            let right = self.bins.get(right).copied().unwrap_or_default();
            self.bins[at] = left.and(right);
        }
        self.bins.truncate(count);
        self.first /= 2;
        self.doublings += 1;
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use super::*;
    use crate::Rng;

    const DAY_NS: u64 = 86_400_000_000_000;

    /// The naive twin: bins of a width, counted in a map.
    fn mapped(events: &[(u64, u64)], width_ns: u64) -> BTreeMap<u64, Bin> {
        let mut bins: BTreeMap<u64, Bin> = BTreeMap::new();
        for &(at_ns, weight) in events {
            let bin = bins.entry(at_ns / width_ns).or_default();
            *bin = bin.and(Bin { events: 1, weight });
        }
        bins
    }

    fn binned(events: &[(u64, u64)]) -> Binned {
        let mut binned = Binned::new();
        for &(at_ns, weight) in events {
            binned.count(at_ns, weight).expect("near enough");
        }
        binned
    }

    #[test]
    fn bins_agree_with_a_map_in_any_order_and_partition() {
        let mut rng = Rng::new(2, 0x6269_6e73, 0);
        let span_s = [0.0001, 0.01, 20.0, 1_000.0, 1_100.0, 9_000.0, 400_000.0, 1e6];
        for (round, span_s) in span_s.into_iter().enumerate() {
            let at = |rng: &mut Rng| 1_700_000_000_123_456_789 + (rng.unit() * span_s * 1e9) as u64;
            let mut events: Vec<(u64, u64)> =
                (0..300).map(|weight| (at(&mut rng), weight)).collect();
            let whole = binned(&events);
            assert!(whole.bins().len() as u64 <= BINS_MAX, "{round}");
            let expected = mapped(&events, whole.width_ns());
            let there = (whole.first..).zip(whole.bins()).filter(|(_, bin)| bin.events > 0);
            assert!(there.map(|(at, bin)| (at, *bin)).eq(expected), "{round}");
            let (first, last) = (whole.bins().next(), whole.bins().last());
            let filled = |bin: Option<&Bin>| bin.is_some_and(|bin| bin.events > 0);
            assert!(filled(first) && filled(last), "{round}: from event to event");
            let mut parts = Binned::new();
            let (one, two) = events.split_at(150);
            parts.merge(&binned(one)).expect("near enough");
            parts.merge(&binned(two)).expect("near enough");
            assert_eq!(parts, whole, "{round}");
            events.reverse();
            assert_eq!(binned(&events), whole, "{round}");
        }
    }

    #[test]
    fn bins_double_when_there_are_too_many_and_no_further_than_they_may() {
        let widest = NARROWEST_NS << DOUBLINGS_MAX;
        for (apart_ns, width_ns) in [
            (0, NARROWEST_NS),
            ((BINS_MAX - 1) * NARROWEST_NS, NARROWEST_NS),
            (BINS_MAX * NARROWEST_NS, 2 * NARROWEST_NS),
            (12 * DAY_NS, widest),
        ] {
            for order in [[0, apart_ns], [apart_ns, 0]] {
                let found = binned(&order.map(|at| (20_000 * DAY_NS + at, 1)));
                assert_eq!(found.width_ns(), width_ns, "{apart_ns}");
                assert_eq!(found.bins().map(|bin| bin.events).sum::<u64>(), 2);
            }
        }
        let mut found = binned(&[(20_000 * DAY_NS, 7)]);
        let before = found.clone();
        for far in [0, 20_013 * DAY_NS, u64::MAX] {
            assert_eq!(found.count(far, 1), Err(TooFarApart));
        }
        assert_eq!(found, before, "what is too far changes nothing");
    }

    #[test]
    fn sparse_series_are_widened_until_bins_hold_something() {
        let sparse: Vec<(u64, u64)> = (0..100).map(|at| (at * 37_000_000, 40)).collect();
        let dense: Vec<(u64, u64)> = (0..1_000).map(|at| (at * 500_000, 40)).collect();
        assert_eq!(binned(&dense).widened(1.0).width_ns(), NARROWEST_NS);
        let widened = binned(&sparse).widened(1.0);
        assert_eq!(widened.width_ns(), 64 * NARROWEST_NS);
        assert_eq!(widened.bins().map(|bin| bin.weight).sum::<u64>(), 4_000);
        assert_eq!(Binned::new().widened(1.0).bins().len(), 0);
    }

    #[test]
    fn series_round_trip_through_their_written_form() {
        for count in [0, 1, 700] {
            let events: Vec<(u64, u64)> =
                (0..count).map(|at| (17_000 * DAY_NS + at * at * 900_000, at)).collect();
            let series = binned(&events);
            assert_eq!(Binned::try_from(Written::from(series.clone())), Ok(series));
        }
        let read = Written {
            doublings: 3,
            first: 8,
            events: alloc::vec![2, 0],
            weights: alloc::vec![90, 0],
        };
        let series = Binned::try_from(read).expect("sound");
        assert_eq!((series.width_ns(), series.first), (8_000_000, 8));
        let bins: Vec<(u64, u64)> = series.bins().map(|bin| (bin.events, bin.weight)).collect();
        assert_eq!(bins, [(2, 90), (0, 0)]);
    }

    /// Values on both sides of each limit of a series that is read.
    #[test]
    fn an_invalid_series_is_refused() {
        let read = |doublings: u32, first: u64, events: u64, weights: u64| {
            let of = |count: u64| alloc::vec![1; count as usize];
            let written = Written { doublings, first, events: of(events), weights: of(weights) };
            Binned::try_from(written).map(|series| (series.doublings, series.bins.len() as u64))
        };
        const REFUSED: Result<(u32, u64), &str> = Err("a series of bins that cannot be");
        assert_eq!(read(0, 0, 0, 0), Ok((0, 0)));
        assert_eq!(read(0, 5, 3, 3), Ok((0, 3)));
        assert_eq!(read(0, 5, 3, 2), REFUSED);
        assert_eq!(read(0, 5, 2, 3), REFUSED);
        assert_eq!(read(10, 5, 3, 3), Ok((10, 3)));
        assert_eq!(read(11, 5, 3, 3), REFUSED);
        assert_eq!(read(0, 0, BINS_MAX, BINS_MAX), Ok((0, BINS_MAX)));
        assert_eq!(read(0, 0, BINS_MAX + 1, BINS_MAX + 1), REFUSED);
        assert_eq!(read(0, u64::MAX - 3, 3, 3), Ok((0, 3)));
        assert_eq!(read(0, u64::MAX - 2, 3, 3), REFUSED);
        let end = u64::MAX >> 4;
        assert_eq!(read(4, end - 3, 3, 3), Ok((4, 3)));
        assert_eq!(read(4, end - 2, 3, 3), REFUSED);
    }
}
