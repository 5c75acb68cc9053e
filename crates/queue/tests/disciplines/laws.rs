//! The control laws of RED, CoDel and PIE against figures worked out by hand.

use crate::twin::Piece;
use nilometer_queue::blue::{Blue, BlueOptions};
use nilometer_queue::codel::{CoDel, CoDelOptions};
use nilometer_queue::pie::{Delay, Pie, PieOptions};
use nilometer_queue::red::{Red, RedOptions};
use nilometer_queue::{Capacity, Discipline, Reason};
use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span, Time};

const RATE: Rate = Rate::from_megabits(500);

/// Numbers of packets from one drop to the next at a queue that is always `length` long; its
/// average is its length.
fn red_gaps(length: u32, options: RedOptions, draws: u32) -> Vec<u32> {
    let options = RedOptions { weight: 1.0, ..options };
    let mut red = Red::new(Capacity::Packets(1_000), options, RATE, Rng::new(7, 0, 0))
        .expect("sound options");
    let (mut drops, mut gaps, mut gap) = (Vec::new(), Vec::new(), 0);
    for id in 0..length {
        red.enqueue(Time::ZERO, Piece::new(id, 0, 1_500), &mut drops);
    }
    drops.clear();
    while red.backlog().packets < u64::from(length) {
        red.enqueue(Time::ZERO, Piece::new(0, 0, 1_500), &mut drops);
    }
    drops.clear();
    for id in 0..draws {
        gap += 1;
        red.enqueue(Time::ZERO, Piece::new(id, 0, 1_500), &mut drops);
        if drops.pop().is_some() {
            gaps.push(gap);
            gap = 0;
        } else {
            red.dequeue(Time::ZERO, &mut drops);
        }
    }
    gaps
}

/// p = max_p·(avg − min)/(max − min), and gaps uniform over 1 … 1/p − 1: with thresholds of 200 and
/// 1,000 packets and max_p 0.08, an average of 400 makes p 0.02 and a mean gap of 25.
#[test]
fn red_drops_at_the_probability_of_its_formula_evenly_spaced() {
    let options = RedOptions { max_probability: 0.08, ..RedOptions::default() };
    for (length, p) in [(300, 0.01), (400, 0.02), (700, 0.05), (900, 0.07)] {
        let gaps = red_gaps(length, options, 1_000_000);
        let expected = 0.5 / p;
        let mean = gaps.iter().map(|&gap| f64::from(gap)).sum::<f64>() / gaps.len() as f64;
        let error = expected / 3f64.sqrt() / (gaps.len() as f64).sqrt();
        // 1/p is no whole number for 0.07, so the last gap is a shorter step.
        assert!((mean - expected).abs() < 5.0 * error + 0.5, "p {p}: a mean gap of {mean}");
    }
    let gaps = red_gaps(400, options, 1_000_000);
    let mut counts = [0u32; 49];
    gaps.iter().for_each(|&gap| counts[gap as usize - 1] += 1);
    let expected = gaps.len() as f64 / 49.0;
    let square = |&count: &u32| (f64::from(count) - expected).powi(2) / expected;
    let chi_square: f64 = counts.iter().map(square).sum();
    // 48 degrees of freedom: 93 is passed once in 10,000 seeds.
    assert!(chi_square < 93.0, "gaps are not uniform: {chi_square}");
}

#[test]
fn red_drops_nothing_below_its_minimum_and_all_from_its_maximum_on() {
    let options = RedOptions { max_percent: 60.0, ..RedOptions::default() };
    assert_eq!(red_gaps(199, options, 10_000), Vec::<u32>::new());
    let mut red = Red::new(
        Capacity::Packets(1_000),
        RedOptions { weight: 1.0, ..options },
        RATE,
        Rng::new(1, 0, 0),
    )
    .expect("sound options");
    let mut drops = Vec::new();
    for id in 0..2_000 {
        red.enqueue(Time::ZERO, Piece::new(id, 0, 1_500), &mut drops);
    }
    assert_eq!(red.backlog().packets, 600);
    assert!(drops.iter().all(|(reason, _)| *reason == Reason::Early));
}

/// After 10 packet times of idleness the average of a packet-long history has lost (1 − w)^10.
#[test]
fn red_ages_its_average_while_the_link_is_idle() {
    let options = RedOptions { weight: 0.1, min_percent: 90.0, ..RedOptions::default() };
    let mut red = Red::new(Capacity::Packets(100), options, RATE, Rng::new(1, 0, 0)).unwrap();
    let mut drops = Vec::new();
    for id in 0..20 {
        red.enqueue(Time::ZERO, Piece::new(id, 0, 1_500), &mut drops);
    }
    let before = red.average();
    for _ in 0..20 {
        red.dequeue(Time::ZERO, &mut drops);
    }
    // The last packet takes one packet time, 24 µs, to be sent; then the link is idle for ten.
    red.enqueue(Time::from_nanos(11 * 24_000), Piece::new(20, 0, 1_500), &mut drops);
    assert!((red.average() - before * 0.9f64.powi(10)).abs() < 1e-12);
}

/// Arrivals one packet time apart at an empty queue, all dropped until the average is below the
/// maximum: each ages it by that time and not by all since the queue ran empty.
#[test]
fn red_counts_idle_time_once_although_arrivals_are_dropped() {
    let options = RedOptions {
        max_probability: 1e-9,
        max_percent: 50.0,
        typical_bytes: 1_500,
        ..RedOptions::default()
    };
    let mut red = Red::new(Capacity::Packets(100), options, RATE, Rng::new(1, 0, 0)).unwrap();
    let mut drops = Vec::new();
    while red.average() < 56.5 {
        red.enqueue(Time::ZERO, Piece::new(0, 0, 1_500), &mut drops);
    }
    while red.dequeue(Time::ZERO, &mut drops).is_some() {}
    let expected = ((50.0 / red.average()).ln() / 0.999f64.ln()).ceil() as u64;
    assert_eq!(expected, 123);
    let passes = (1..).find(|packet_times| {
        let now = Time::from_nanos(24_000 * (1 + packet_times));
        red.enqueue(now, Piece::new(0, 0, 1_500), &mut drops);
        red.backlog().packets > 0
    });
    assert_eq!(passes, Some(expected));
}

/// Losses 60 ms apart raise p at every second one; 1 s of idleness lowers it ten times.
#[test]
fn blue_changes_once_per_freeze_time() {
    let mut blue =
        Blue::new(Capacity::Packets(1), BlueOptions::STUDY, RATE, Rng::new(1, 0, 0)).unwrap();
    let mut drops = Vec::new();
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    blue.enqueue(at(0), Piece::new(0, 0, 1_500), &mut drops);
    for (id, millis) in [(1, 60), (2, 120), (3, 180), (4, 240), (5, 300)] {
        blue.enqueue(at(millis), Piece::new(id, 0, 1_500), &mut drops);
    }
    assert!(drops.iter().all(|(reason, _)| *reason == Reason::Full));
    assert!((blue.probability() - 0.06).abs() < 1e-9, "changed at 60, 180 and 300 ms");
    blue.dequeue(at(400), &mut drops);
    blue.enqueue(at(1_400), Piece::new(6, 0, 1_500), &mut drops);
    assert!((blue.probability() - 0.04).abs() < 1e-9, "{}", blue.probability());
}

/// With a freeze time of ten picoseconds p may change every eleven: while the link is idle it has
/// fallen by as many steps as have begun, whether or not it is read in between.
#[test]
fn blue_lowers_p_once_for_each_freeze_time_that_began_in_idleness() {
    let options = BlueOptions {
        increment: 0.5,
        decrement: 0.015_625,
        freeze: Span(10),
        ..BlueOptions::STUDY
    };
    let mut blue = Blue::new(Capacity::Packets(1), options, RATE, Rng::new(1, 0, 0)).unwrap();
    let mut drops = Vec::new();
    for id in 0..2 {
        blue.enqueue(Time::ZERO, Piece::new(id, 0, 0), &mut drops);
    }
    assert_eq!(blue.probability(), 0.5);
    blue.dequeue(Time::ZERO, &mut drops).expect("it waits");
    let mut polled = blue.clone();
    for now in 0..600u64 {
        // The change at 0 lasts through 11; from then on a step each 11 ps, the first at once.
        let steps = now.saturating_sub(11).div_ceil(11).min(32);
        let mut fresh = blue.clone();
        for blue in [&mut fresh, &mut polled] {
            blue.enqueue(Time(now), Piece::new(2, 0, 0), &mut drops);
            assert_eq!(blue.probability(), 0.5 - 0.015_625 * steps as f64, "{now} ps");
            blue.dequeue(Time(now), &mut drops);
        }
    }
}

/// An average of the very minimum is between the thresholds (Floyd and Jacobson, 1993, fig. 2): its
/// arrivals pass, but are counted, so that the next above it may be due.
#[test]
fn red_counts_arrivals_at_its_minimum_and_not_below() {
    for (length, is_due) in [(19, false), (20, true)] {
        let options = RedOptions {
            weight: 1.0,
            min_percent: 20.0,
            max_percent: 100.0,
            max_probability: 0.01,
            ..RedOptions::default()
        };
        let mut red = Red::new(Capacity::Packets(100), options, RATE, Rng::new(1, 0, 0)).unwrap();
        let mut drops = Vec::new();
        for id in 0..length {
            red.enqueue(Time::ZERO, Piece::new(id, 0, 1_500), &mut drops);
        }
        for id in 0..9_000 {
            red.enqueue(Time::ZERO, Piece::new(id, 0, 1_500), &mut drops);
            red.dequeue(Time::ZERO, &mut drops);
        }
        assert!(drops.is_empty(), "at {length} nothing is dropped");
        for id in 0..21 - length {
            red.enqueue(Time::ZERO, Piece::new(id, 0, 1_500), &mut drops);
        }
        // Of 21 the probability is 1/8,000: after 9,000 arrivals a drop is due.
        red.enqueue(Time::ZERO, Piece::new(0, 0, 1_500), &mut drops);
        assert_eq!(!drops.is_empty(), is_due, "at {length}");
    }
}

/// A thousand packets arrive at once and one leaves per millisecond from 10 ms on. Waiting times are
/// above 5 ms from the first; so 100 ms later one is dropped, and then whenever 100 ms/√n more have
/// passed: at 110, 210, 280.7, 338.4, 388.4, 433.2, 474.0, 511.8 ms, each at the departure that
/// comes next.
#[test]
fn codel_drops_by_the_inverse_square_root_law() {
    let mut codel =
        CoDel::new(Capacity::Packets(1_000), 1_500, CoDelOptions::default()).expect("defaults");
    let mut drops = Vec::new();
    for id in 0..1_000 {
        codel.enqueue(Time::ZERO, Piece::new(id, 0, 1_500), &mut drops);
    }
    let mut times = Vec::new();
    for millis in 10..520 {
        codel.dequeue(Time::from_nanos(millis * 1_000_000), &mut drops).expect("it waits");
        for (reason, _) in drops.drain(..) {
            assert_eq!(reason, Reason::Sojourn);
            times.push(millis);
        }
    }
    assert_eq!(times, [110, 210, 281, 339, 389, 434, 474, 512]);
}

/// One packet leaves after 40 ms, and nothing more happens: at 45 ms the step is
/// (0.125·25 ms + 1.25·40 ms)/2048, from then on 0.125·25 ms over 128, and over 32 from 10⁻⁴ on.
#[test]
fn pie_steps_its_probability_by_its_control_law() {
    let options =
        PieOptions { delay: Delay::Timestamp, burst: Span::ZERO, ..PieOptions::default() };
    let mut pie =
        Pie::new(Capacity::Packets(1_000), 1_500, options, Rng::new(1, 0, 0)).expect("defaults");
    let mut drops = Vec::new();
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    for id in 0..100 {
        pie.enqueue(Time::ZERO, Piece::new(id, 0, 1_000), &mut drops);
    }
    pie.dequeue(at(40), &mut drops).expect("it waits");
    let expected = [
        (44, 0.0),
        (45, 2.593_994e-5),
        (60, 5.035_400e-5),
        (75, 7.476_807e-5),
        (90, 9.918_213e-5),
        (105, 1.235_962e-4),
        (120, 2.212_524e-4),
        (135, 3.189_087e-4),
    ];
    for (millis, probability) in expected {
        pie.enqueue(at(millis), Piece::new(200, 0, 0), &mut drops);
        let off = (pie.probability() - probability).abs();
        assert!(off < 1e-10, "{millis} ms: {} for {probability}", pie.probability());
    }
}

/// With p at 0.3 and spaced drops the third arrival after a drop is the first that may be dropped.
/// Where every third one finds the buffer full, that is the drop.
#[test]
fn pie_spaces_its_drops_from_those_of_a_full_buffer_too() {
    let options = PieOptions {
        delay: Delay::Timestamp,
        burst: Span::ZERO,
        derandomise: true,
        alpha: 0.3 * 2_048.0 / 0.025,
        beta: 0.0,
        ..PieOptions::default()
    };
    let mut pie =
        Pie::new(Capacity::Packets(10), 1_500, options, Rng::new(1, 0, 0)).expect("sound options");
    let mut drops = Vec::new();
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    for id in 0..10 {
        pie.enqueue(Time::ZERO, Piece::new(id, 0, 1_500), &mut drops);
    }
    pie.dequeue(at(40), &mut drops).expect("it waits");
    pie.enqueue(at(46), Piece::new(10, 0, 1_500), &mut drops);
    assert!((pie.probability() - 0.3).abs() < 1e-9, "{}", pie.probability());
    for id in 11..1_000 {
        pie.enqueue(at(46), Piece::new(id, 0, 1_500), &mut drops);
        if id % 3 == 2 {
            pie.dequeue(at(46), &mut drops);
            pie.dequeue(at(46), &mut drops);
        }
    }
    assert_eq!(drops.len(), 330);
    assert!(drops.iter().all(|(reason, _)| *reason == Reason::Full));
}

/// Of updates that change nothing an hour's are passed over in one step.
#[test]
fn pie_sleeps_through_an_idle_day() {
    let mut pie =
        Pie::new(Capacity::Packets(100), 1_500, PieOptions::default(), Rng::new(1, 0, 0)).unwrap();
    let mut drops = Vec::new();
    for day in 1..100 {
        let now = Time::from_nanos(day * 86_400 * 1_000_000_000);
        pie.enqueue(now, Piece::new(0, 0, 1_500), &mut drops);
        assert!(pie.dequeue(now, &mut drops).is_some());
        assert_eq!(pie.probability(), 0.0);
    }
    pie.enqueue(Time(u64::MAX), Piece::new(0, 0, 1_500), &mut drops);
    assert!(drops.is_empty());
}
