//! The shares of round robin's queues, and the queues that its drops hit.

use crate::twin::Piece;
use nilometer_queue::drr::Drr;
use nilometer_queue::fq_codel::{FqCoDel, FqCoDelOptions};
use nilometer_queue::qsdrr::{Qsdrr, QsdrrOptions};
use nilometer_queue::round_robin::Layout;
use nilometer_queue::tdrr::{Tdrr, TdrrOptions};
use nilometer_queue::{Capacity, Discipline, End, Hashing, Reason, WeightError};
use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

const MTU_BYTES: u32 = 1_500;

fn layout(capacity: Capacity, queues: u32) -> Layout {
    Layout { capacity, queues, hashing: Hashing::Direct, hash_seed: 0, mtu_bytes: MTU_BYTES }
}

/// Queues that never empty: after every departure, what each has sent is within its quantum and a
/// largest packet of its share, and any two differ by less than Shreedhar and Varghese's bound.
/// The packet is the larger by w·n/W where a queue weighs more than the mean.
fn hold_to_shares(weights: &[u32], seed: u64) {
    let mut rng = Rng::new(seed, 15, 0);
    let count = weights.len() as u32;
    let mut drr = Drr::new(&layout(Capacity::Packets(100_000), count), End::Front).unwrap();
    let mut drops = Vec::new();
    let mut size = || 1 + rng.below(u64::from(MTU_BYTES)) as u32;
    for (queue, &weight) in weights.iter().enumerate() {
        drr.set_weight(queue as u32, weight).unwrap();
        for id in 0..4 {
            drr.enqueue(Time::ZERO, Piece::new(id, queue as u32, size()), &mut drops);
        }
    }
    let total_weight = f64::from(weights.iter().sum::<u32>());
    let mut sent = vec![0u64; weights.len()];
    for id in 0..4_000 {
        let left = drr.dequeue(Time::ZERO, &mut drops).expect("queues never empty");
        sent[left.flow as usize] += u64::from(left.bytes);
        drr.enqueue(Time::ZERO, Piece::new(id, left.flow, size()), &mut drops);
        let mtu = f64::from(MTU_BYTES);
        let all = sent.iter().sum::<u64>() as f64;
        for (queue, &weight) in weights.iter().enumerate() {
            let weight = f64::from(weight);
            let share = all * weight / total_weight;
            let packet = mtu * (weight * f64::from(count) / total_weight).max(1.0);
            let off = (sent[queue] as f64 - share).abs();
            assert!(off < weight * mtu + packet, "seed {seed}: queue {queue} is off by {off}");
            for (other, &other_weight) in weights.iter().enumerate() {
                let v = f64::from(other_weight);
                let apart = (sent[queue] as f64 / weight - sent[other] as f64 / v).abs();
                assert!(apart <= mtu * (1.0 + 1.0 / weight + 1.0 / v), "{queue}, {other}: {apart}");
            }
        }
    }
    assert!(drops.is_empty());
    for (queue, &bytes) in sent.iter().enumerate() {
        let state = drr.queue_state(queue as u32).expect("a queue");
        assert_eq!((state.sent_bytes, state.packets, state.is_active), (bytes, 4, true));
        assert_eq!(state.weight, weights[queue]);
        let total: u32 = weights.iter().sum();
        let (own, all) = drr.share(queue as u32);
        assert_eq!(own * u64::from(total), all * u64::from(weights[queue]), "as it was served");
    }
}

#[test]
fn equal_queues_have_equal_shares_to_a_quantum_and_a_packet() {
    for seed in 0..20 {
        hold_to_shares(&[1; 7], seed);
    }
}

#[test]
fn weights_divide_the_link() {
    for seed in 0..20 {
        hold_to_shares(&[1, 2, 3, 5, 1], seed);
        hold_to_shares(&[1, 10], seed);
    }
}

#[test]
fn an_idle_flow_gets_the_share_it_would_have() {
    let mut drr = Drr::new(&layout(Capacity::Packets(9), 4), End::Front).unwrap();
    assert_eq!(drr.share(0), (1_500, 1_500), "alone, it has the link");
    drr.set_weight(1, 2).unwrap();
    for queue in [1, 2] {
        drr.enqueue(Time::ZERO, Piece::new(queue, queue, 100), &mut Vec::new());
    }
    assert_eq!((drr.share(0), drr.share(1)), ((1_500, 6_000), (3_000, 4_500)));
}

#[test]
fn weights_out_of_range_are_refused() {
    let mut drr: Drr<Piece> = Drr::new(&layout(Capacity::Packets(9), 3), End::Front).unwrap();
    assert_eq!(drr.set_weight(3, 1), Err(WeightError::NoSuchQueue));
    assert_eq!(drr.set_weight(0, 0), Err(WeightError::OutOfRange));
    assert_eq!(drr.set_weight(0, 65_536), Err(WeightError::OutOfRange));
    assert_eq!(drr.set_weight(2, 65_535), Ok(()));
    assert_eq!(drr.queue_state(2).map(|state| state.weight), Some(65_535));
    assert_eq!(drr.queue_state(3), None);
}

/// A kilobyte each millisecond is 8 Mb/s, once the average has settled.
#[test]
fn a_queue_of_tdrr_reports_its_throughput() {
    let layout = layout(Capacity::Packets(9), 2);
    let mut tdrr = Tdrr::new(&layout, TdrrOptions::PER_DEPARTURE).unwrap();
    let mut drops = Vec::new();
    for id in 0..1_000 {
        let now = Time::ZERO + Span::from_nanos(1_000_000 * u64::from(id));
        tdrr.enqueue(now, Piece::new(id, 1, 1_000), &mut drops);
        assert!(tdrr.dequeue(now, &mut drops).is_some());
    }
    let throughput = |queue| tdrr.queue_state(queue).and_then(|state| state.throughput_bps);
    assert_eq!((throughput(0), throughput(2)), (Some(0.0), None));
    let found = throughput(1).expect("it has sent");
    assert!((found / 8e6 - 1.0).abs() < 1e-9, "{found}");
}

/// The queues that lose packets when queue 1 alone grows, with queues of 10, 6 and 3 in a full buffer.
fn victims(discipline: &mut impl Discipline<Piece>) -> Vec<u32> {
    let mut drops = Vec::new();
    for (queue, length) in [(0, 10), (1, 6), (2, 3)] {
        for id in 0..length {
            discipline.enqueue(Time::ZERO, Piece::new(id, queue, 1_000), &mut drops);
        }
    }
    assert!(drops.is_empty());
    for id in 0..12 {
        discipline.enqueue(Time::ZERO, Piece::new(100 + id, 1, 1_000), &mut drops);
    }
    drops.iter().map(|(_, piece)| piece.flow).collect()
}

/// The longest queue loses 8 packets, from 10 down to 2, although it is no longer the longest after
/// the second; below queue 2 with its 3 it is the smallest, and queue 1 is chosen, now 14 long.
#[test]
fn qsdrr_drops_from_its_victim_until_it_is_the_smallest() {
    let layout = layout(Capacity::Packets(19), 3);
    let mut qsdrr = Qsdrr::new(&layout, QsdrrOptions::default()).unwrap();
    assert_eq!(victims(&mut qsdrr), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(qsdrr.victim(), Some(1));
    // Where as small is small enough, the victim is released one packet sooner.
    let options = QsdrrOptions { strictly_smallest: false, ..QsdrrOptions::default() };
    let mut qsdrr = Qsdrr::new(&layout, options).unwrap();
    assert_eq!(victims(&mut qsdrr), [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
    // Without hysteresis queue 0 gives way twice; from then on queue 1 pays for itself.
    let mut drr = Drr::new(&layout, End::Front).unwrap();
    assert_eq!(victims(&mut drr), [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
}

/// A flow that sends one small packet now and then is next to leave whenever it sends, though
/// twenty others always have packets waiting.
#[test]
fn a_sparse_flow_is_served_first_under_fq_codel() {
    let options =
        FqCoDelOptions { queues: 64, hashing: Hashing::Direct, ..FqCoDelOptions::default() };
    let mut queue = FqCoDel::new(Capacity::Packets(10_000), MTU_BYTES, options, 0).unwrap();
    let (mut now, mut drops) = (Time::ZERO, Vec::new());
    for id in 0..100 {
        queue.enqueue(now, Piece::new(id, id % 20, 1_500), &mut drops);
    }
    for id in 0..3_000 {
        now += Span::from_nanos(100_000);
        if id % 100 == 99 {
            queue.enqueue(now, Piece::new(id, 40, 100), &mut drops);
            let left = queue.dequeue(now, &mut drops).expect("it waits");
            assert_eq!((left.flow, left.id), (40, id));
        } else {
            let left = queue.dequeue(now, &mut drops).expect("others wait");
            assert_ne!(left.flow, 40);
            queue.enqueue(now, Piece::new(id, left.flow, 1_500), &mut drops);
        }
    }
    assert!(drops.iter().all(|(reason, piece)| *reason == Reason::Sojourn && piece.flow != 40));
}
