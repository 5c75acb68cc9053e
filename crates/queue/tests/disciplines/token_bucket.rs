//! Token bucket, policer and shaper against a reckoning in whole picoseconds.

use crate::twin::{Piece, SEEDS, Traffic, has_seen, hold};
use nilometer_queue::{
    Backlog, Capacity, Discipline, Drops, Ledger, Policer, Reason, Shaper, TailDrop, TokenBucket,
};
use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span, Time};

/// A policer that remembers every packet it let through. The bucket holds at a moment the least,
/// over all moments since which it may have been full, of depth + gain − what has passed since.
struct NaivePolicer {
    bits_per_second: u128,
    depth_bytes: u32,
    passed: Vec<(Time, u32)>,
    inner: TailDrop<Piece>,
}

impl NaivePolicer {
    /// Whether every span that ends with this packet keeps to rate·t + depth.
    fn conforms(&self, now: Time, bytes: u32) -> bool {
        let unit = 8_000_000_000_000u128;
        let mut sent = u128::from(bytes) * unit;
        let mut keeps = sent <= u128::from(self.depth_bytes) * unit;
        for &(at, bytes) in self.passed.iter().rev() {
            sent += u128::from(bytes) * unit;
            let gained = u128::from(now.since(at).0) * self.bits_per_second;
            keeps &= sent <= u128::from(self.depth_bytes) * unit + gained;
        }
        keeps
    }
}

impl Discipline<Piece> for NaivePolicer {
    fn enqueue(&mut self, now: Time, packet: Piece, drops: &mut impl Drops<Piece>) {
        if !self.conforms(now, packet.bytes) {
            return drops.dropped(Reason::Policed, packet);
        }
        self.passed.push((now, packet.bytes));
        self.inner.enqueue(now, packet, drops);
    }
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<Piece>) -> Option<Piece> {
        self.inner.dequeue(now, drops)
    }
    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }
}

fn draw(rng: &mut Rng) -> (Rate, u32) {
    let rate = Rate::new(1_000_000 + rng.below(2_000_000_000)).expect("not zero");
    (rate, 1_500 + rng.below(20_000) as u32)
}

#[test]
fn conformance_agrees_with_the_bound_over_every_span() {
    let outcomes: Vec<_> = (0..SEEDS)
        .map(|seed| {
            let mut rng = Rng::new(seed, 13, 0);
            let (rate, depth_bytes) = draw(&mut rng);
            let inner = TailDrop::new(Capacity::Packets(30));
            let bucket = TokenBucket::new(rate, depth_bytes).expect("a depth");
            let tested = Policer::new(bucket, inner.clone());
            let bits_per_second = u128::from(rate.bits_per_second());
            let twin = NaivePolicer { bits_per_second, depth_bytes, passed: Vec::new(), inner };
            let mean_gap = Span::from_nanos(1 + rng.below(100_000));
            let traffic =
                Traffic { events: 800, flows: 3, mean_gap, largest_bytes: 1_500, with_ecn: false };
            hold(tested, twin, traffic, &mut rng)
        })
        .collect();
    has_seen(&outcomes, &[Reason::Policed, Reason::Full]);
}

/// A dequeue at the moment that the shaper names gets a packet, one a picosecond before gets none;
/// and what has left by any moment keeps to rate·t + depth.
#[test]
fn a_shaper_states_its_next_departure_to_the_picosecond() {
    let mut too_big = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed, 14, 0);
        let (rate, depth_bytes) = draw(&mut rng);
        let bucket = TokenBucket::new(rate, depth_bytes).expect("a depth");
        let mut shaper = Shaper::new(bucket, TailDrop::new(Capacity::Packets(40)));
        let (mut ledger, mut now, mut sent) = (Ledger::default(), Time::ZERO, 0u128);
        for id in 0..400 {
            let bytes = rng.below(u64::from(depth_bytes) + 200) as u32;
            ledger.in_packets += 1;
            ledger.in_bytes += u64::from(bytes);
            shaper.enqueue(now, Piece::new(id, 0, bytes), &mut ledger.drops);
            assert!(ledger.balances(shaper.backlog()));
            if rng.below(3) == 0 {
                continue;
            }
            let Some(at) = shaper.ready_at(now, &mut ledger.drops) else { continue };
            if at > now {
                let early = Time(at.0 - 1);
                assert_eq!(shaper.dequeue(early, &mut ledger.drops), None);
                assert!(ledger.balances(shaper.backlog()), "held packets wait");
            }
            now = at;
            let left = shaper.dequeue(now, &mut ledger.drops).expect("as it said");
            ledger.out_packets += 1;
            ledger.out_bytes += u64::from(left.bytes);
            sent += u128::from(left.bytes) * 8_000_000_000_000;
            let gained = u128::from(now.0) * u128::from(rate.bits_per_second());
            assert!(sent <= gained + u128::from(depth_bytes) * 8_000_000_000_000);
        }
        assert!(ledger.out_packets > 50, "{ledger:?}");
        too_big += ledger.drops.packets(Reason::TooBig);
    }
    assert!(too_big > 1_000, "{too_big}");
}

#[test]
fn a_bucket_without_depth_is_refused() {
    let refused = TokenBucket::new(Rate::from_megabits(1), 0).expect_err("no depth");
    assert_eq!(refused.to_string(), "token bucket: depth_bytes is zero");
}

/// At 8 Mb/s a byte's tokens take a microsecond; what is short of a byte does not count yet.
#[test]
fn a_bucket_reports_its_level_in_whole_bytes() {
    let mut bucket = TokenBucket::new(Rate::from_megabits(8), 1_000).expect("a depth");
    let at = |nanos| Time::from_nanos(nanos);
    assert_eq!(bucket.level_bytes(at(0)), 1_000);
    assert!(bucket.take(at(0), 600));
    let levels = [0, 999, 1_000, 100_500, 599_999, 600_000, 9_000_000];
    let expected = [400, 400, 401, 500, 999, 1_000, 1_000];
    assert_eq!(levels.map(|nanos| bucket.level_bytes(at(nanos))), expected);
    assert!(!bucket.take(at(9_000_000), 1_001), "more than it is deep");
    assert!(bucket.take(at(9_000_000), 1_000), "all of it");
    assert_eq!(bucket.level_bytes(at(9_000_000)), 0);
    assert_eq!(bucket.ready_at(at(9_000_000), 1_000), Some(at(10_000_000)));
    assert_eq!(bucket.ready_at(at(9_000_000), 1_001), None);
}

/// A ledger balances only if in is out, dropped and waiting together, in packets and in bytes.
#[test]
fn a_ledger_that_lacks_a_packet_or_a_byte_does_not_balance() {
    let mut ledger = Ledger { in_packets: 9, in_bytes: 900, ..Ledger::default() };
    (ledger.out_packets, ledger.out_bytes) = (4, 350);
    for _ in 0..2 {
        ledger.drops.dropped(Reason::Full, Piece::new(0, 0, 100));
    }
    let waiting = Backlog { packets: 3, bytes: 350 };
    assert!(ledger.balances(waiting));
    for (packets, bytes) in [(2, 350), (4, 350), (3, 349), (3, 351)] {
        assert!(!ledger.balances(Backlog { packets, bytes }), "{packets}, {bytes}");
    }
    let counts = (ledger.drops.packets(Reason::Full), ledger.drops.total_packets());
    assert_eq!((counts, ledger.drops.total_bytes()), ((2, 2), 200));
}
