//! Every discipline by its name: made from settings, repeatable, losing nothing.

use crate::twin::{Piece, Traffic, any_capacity, hold};
use nilometer_queue::{
    Any, Capacity, Discipline, DisciplineKind, Hashing, Reason, Settings, SettingsError,
};
use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span, Time};

const RATE: Rate = Rate::from_megabits(100);

#[test]
fn kinds_have_names_of_their_own() {
    for kind in DisciplineKind::ALL {
        assert_eq!(DisciplineKind::from_name(kind.name()), Some(kind));
        let settings = Settings::new(kind, Capacity::Packets(10), RATE);
        assert_eq!(Any::<Piece>::new(&settings).expect("defaults").kind(), kind);
    }
    assert_eq!(DisciplineKind::from_name("fifo"), None);
}

/// For every kind and both ways of hashing, equal settings lead to equal decisions, the account
/// balances after every event, and a clone continues as its original does.
#[test]
fn every_kind_repeats_itself_and_loses_nothing() {
    for kind in DisciplineKind::ALL {
        let mut dropped = 0;
        for seed in 0..30 {
            let mut rng = Rng::new(seed, 16, 0);
            let mut settings = Settings::new(kind, any_capacity(&mut rng), RATE);
            settings.hashing = if seed % 2 == 0 { Hashing::Mixed } else { Hashing::Direct };
            settings.queues = 1 + rng.below(20) as u32;
            settings.seed = seed;
            settings.red.weight = 0.1;
            settings.red.max_percent = 60.0;
            let [one, other] = [(); 2].map(|()| Any::<Piece>::new(&settings).expect("in range"));
            let mean_gap = Span::from_nanos(1 + rng.below(1_000_000));
            let traffic = Traffic {
                events: 2_000,
                flows: 50,
                mean_gap,
                largest_bytes: 1_600,
                with_ecn: true,
            };
            let outcome = hold(one, other.clone(), traffic, &mut rng);
            dropped += outcome.ledger.drops.total_packets();
            assert!(outcome.ledger.drops.packets(Reason::TooBig) > 0);
        }
        assert!(dropped > 3_000, "{}: {dropped}", kind.name());
    }
}

/// Enqueueing and dequeueing packets in batches gives the same result as one by one at the same moments:
/// for every kind, at every capacity, through phases in which more arrives than leaves and the other way
/// round. The final state of each queue is the same, too.
#[test]
fn batches_agree_with_single_packets() {
    for kind in DisciplineKind::ALL {
        let mut left = 0;
        for seed in 0..60 {
            let mut rng = Rng::new(seed, 17, 0);
            let mut settings = Settings::new(kind, any_capacity(&mut rng), RATE);
            settings.hashing = if seed % 2 == 0 { Hashing::Mixed } else { Hashing::Direct };
            settings.queues = 1 + rng.below(20) as u32;
            settings.qsdrr.release_below_percent = (seed % 3 == 0).then_some(30);
            settings.seed = seed;
            let [mut all, mut one] =
                [(); 2].map(|()| Any::<Piece>::new(&settings).expect("in range"));
            let mut now = Time::ZERO;
            for event in 0..600 {
                now += Span::from_nanos(rng.below(4_000_000));
                let (mut drops_all, mut drops_one) = (Vec::new(), Vec::new());
                let (arrivals, departures) = [(70, 50), (20, 50), (9, 9)][event as usize / 50 % 3];
                let pieces: Vec<Piece> = (0..rng.below(arrivals))
                    .map(|at| {
                        let largest = if rng.below(300) == 0 { 1_600 } else { 1_500 };
                        let id = (event * 100 + at) as u32;
                        Piece::new(id, rng.below(50) as u32, rng.below(largest + 1) as u32)
                    })
                    .collect();
                all.enqueue_all(now, &pieces, &mut drops_all);
                pieces.iter().for_each(|piece| one.enqueue(now, *piece, &mut drops_one));
                let most = 1 + rng.below(departures) as usize;
                let (mut got_all, mut got_one) = (Vec::new(), Vec::new());
                let wants_more = all.dequeue_while(now, &mut drops_all, |piece| {
                    got_all.push(piece);
                    got_all.len() < most
                });
                while got_one.len() < most
                    && let Some(piece) = one.dequeue(now, &mut drops_one)
                {
                    got_one.push(piece);
                }
                assert_eq!(got_all, got_one, "{} of seed {seed}, {event}", kind.name());
                assert_eq!(wants_more, got_one.len() == most);
                assert_eq!(drops_all, drops_one);
                assert_eq!(all.backlog(), one.backlog());
                left += got_all.len();
            }
            for queue in 0..settings.queues {
                assert_eq!(all.queue_state(queue), one.queue_state(queue));
            }
        }
        assert!(left > 200_000, "{}: {left}", kind.name());
    }
}

#[test]
fn packets_above_the_mtu_are_too_big_for_every_discipline() {
    for kind in DisciplineKind::ALL {
        let mut settings = Settings::new(kind, Capacity::Packets(10), RATE);
        settings.mtu_bytes = 1_000;
        let mut queue = Any::new(&settings).expect("in range");
        let mut drops = Vec::new();
        queue.enqueue(Time::ZERO, Piece::new(0, 0, 1_001), &mut drops);
        queue.enqueue(Time::ZERO, Piece::new(1, 0, 1_000), &mut drops);
        assert_eq!(drops, [(Reason::TooBig, Piece::new(0, 0, 1_001))], "{}", kind.name());
        assert_eq!(queue.dequeue(Time::ZERO, &mut drops).map(|piece| piece.id), Some(1));
    }
}

#[test]
fn settings_out_of_range_are_refused_in_words() {
    let refused = |kind: DisciplineKind, change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings::new(kind, Capacity::Packets(10), RATE);
        change(&mut settings);
        Any::<Piece>::new(&settings).expect_err("out of range").to_string()
    };
    for kind in DisciplineKind::ALL {
        let words = refused(kind, &|settings| settings.capacity = Capacity::Bytes(0));
        assert_eq!(words, SettingsError::NoCapacity.to_string());
        let words = refused(kind, &|settings| settings.mtu_bytes = 65_536);
        assert_eq!(words, "mtu_bytes: 65536 is not 1 to 65535");
    }
    for kind in [DisciplineKind::Drr, DisciplineKind::Tdrr, DisciplineKind::Qsdrr] {
        let words = refused(kind, &|settings| settings.queues = 0);
        assert_eq!(words, "queues: 0 is not 1 to 1048576");
    }
    let words = refused(DisciplineKind::Red, &|settings| settings.red.weight = f64::NAN);
    assert_eq!(words, "red: weight is not in (0, 1]");
    let words = refused(DisciplineKind::Blue, &|settings| settings.blue.freeze = Span::ZERO);
    assert_eq!(words, "blue: freeze is zero");
    let words = refused(DisciplineKind::Qsdrr, &|settings| {
        settings.qsdrr.release_below_percent = Some(101);
    });
    assert_eq!(words, "qsdrr: release_below_percent is not 1 to 100");
    let words = refused(DisciplineKind::CoDel, &|settings| settings.codel.interval = Span(1));
    assert_eq!(words, "codel: interval is below target");
    let words = refused(DisciplineKind::FqCoDel, &|settings| settings.fq_codel.quantum_bytes = 255);
    assert_eq!(words, "fq_codel: quantum_bytes is not 256 to 65535");
    let words = refused(DisciplineKind::Pie, &|settings| settings.pie.mark_below = Some(-0.1));
    assert_eq!(words, "pie: mark_below is not in [0, 1]");
}
