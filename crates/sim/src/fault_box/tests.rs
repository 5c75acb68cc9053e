//! Each fault at its configured rate, each from its own stream, and each packet accounted for.

use super::*;
use nilometer_wire::Rate;

use crate::fault::GilbertElliott;
use crate::packet::Route;

/// Sends `packets` through a box, one each microsecond, and gives the sequence numbers that came
/// out, in their order.
fn pass(faults: Faults, packets: u32) -> (alloc::vec::Vec<u32>, FaultCounts) {
    let mut fault_box: FaultBox = FaultBox::new(faults, 11, 0);
    let mut out = alloc::vec::Vec::new();
    let mut now = Time::ZERO;
    for sequence in 0..packets + 1000 {
        if sequence < packets {
            let mut packet = Packet { route: Route::out(0), bytes: 100, ..Packet::default() };
            packet.segment.sequence = sequence;
            fault_box.receive(now, Port(0), &packet, &mut ());
        }
        let mut passed = Packet::default();
        while let Some(port) = fault_box.poll_transmit(now, &mut passed, &mut ()) {
            assert_eq!(port, Port(1));
            out.push(passed.segment.sequence);
        }
        assert!(fault_box.balances());
        now += Span::from_nanos(1000);
    }
    (out, fault_box.counts())
}

#[test]
fn nothing_happens_without_faults() {
    let (out, counts) = pass(Faults::default(), 1000);
    assert!(out.iter().copied().eq(0..1000));
    assert_eq!((counts.sent, counts.lost), (1000, 0));
}

#[test]
fn each_fault_occurs_at_its_configured_rate() {
    const PACKETS: u32 = 200_000;
    let near = |count: u64, share: f64| {
        let expected = share * f64::from(PACKETS);
        assert!((count as f64 - expected).abs() < 5.0 * libm::sqrt(expected), "{count}");
    };
    near(pass(Faults { loss: 0.01, ..Faults::default() }, PACKETS).1.lost, 0.01);
    near(pass(Faults { corrupt: 0.02, ..Faults::default() }, PACKETS).1.corrupted, 0.02);
    near(pass(Faults { duplicate: 0.03, ..Faults::default() }, PACKETS).1.duplicated, 0.03);
    let (_, counts) = pass(Faults { loss_period: 100, ..Faults::default() }, PACKETS);
    assert_eq!(counts.lost, 2000);
}

#[test]
fn bursts_have_the_loss_and_the_length_that_the_chain_has() {
    let channel = GilbertElliott { worsens: 0.01, recovers: 0.25, loss_good: 0.0, loss_bad: 1.0 };
    let (out, counts) = pass(Faults { bursts: Some(channel), ..Faults::default() }, 400_000);
    let share = counts.lost as f64 / 400_000.0;
    assert!((share / channel.mean_loss() - 1.0).abs() < 0.05, "{share}");
    let gaps = out.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
    let mean_burst = counts.lost as f64 / gaps as f64;
    assert!((mean_burst - 4.0).abs() < 0.2, "{mean_burst}");
}

#[test]
fn those_held_back_are_overtaken() {
    let faults = Faults { reorder: 0.1, reorder_by: Span::from_nanos(2500), ..Faults::default() };
    let (mut out, counts) = pass(faults, 10_000);
    assert!(
        out.windows(2)
            .any(|pair| pair[0] == pair[1] + 2 || pair[0] == pair[1] + 3 || pair[1] < pair[0])
    );
    assert!(counts.reordered > 900);
    out.sort_unstable();
    assert!(out.into_iter().eq(0..10_000));
}

/// The rule once more: which packets are lost by chance, in turn and in bursts, from the same numbers.
#[test]
fn losses_are_those_of_the_rule() {
    let channel = GilbertElliott { worsens: 0.2, recovers: 0.4, loss_good: 0.1, loss_bad: 0.8 };
    for (loss, loss_period, bursts) in [
        (0.0, 0, Some(channel)),
        (0.3, 0, Some(channel)),
        (0.3, 7, None),
        (0.0, 7, Some(channel)),
        (0.0, 1, None),
        (0.0, 0, None),
        (1.0, 0, None),
    ] {
        let faults = Faults { loss, loss_period, bursts, ..Faults::default() };
        let (out, counts) = pass(faults, 2_000);
        let mut twin = Way::new(faults, Timetable::default(), 11, 0);
        let mut is_bad = false;
        let kept = |sequence: &u32| {
            let by_chance = loss > 0.0 && twin.loss.unit() < loss;
            let in_turn = loss_period > 0 && u64::from(sequence + 1) % loss_period == 0;
            let in_burst = bursts.is_some_and(|channel| {
                is_bad = match is_bad {
                    true => twin.state.unit() >= channel.recovers,
                    false => twin.state.unit() < channel.worsens,
                };
                twin.loss.unit() < if is_bad { channel.loss_bad } else { channel.loss_good }
            });
            !(by_chance || in_turn || in_burst)
        };
        let expected: alloc::vec::Vec<u32> = (0..2_000).filter(kept).collect();
        assert_eq!(out, expected, "{faults:?}");
        assert_eq!(counts.lost, 2_000 - expected.len() as u64);
    }
    let mean = GilbertElliott { worsens: 0.1, recovers: 0.3, loss_good: 0.2, loss_bad: 1.0 };
    assert!((mean.mean_loss() - 0.4).abs() < 1e-12);
}

/// A packet that is held back is due later, and its copy with it; a fault that is off draws nothing.
#[test]
fn each_fault_draws_its_own_numbers() {
    let by = Span::from_nanos(50_000);
    let faults =
        Faults { corrupt: 0.1, duplicate: 0.2, reorder: 0.3, reorder_by: by, ..Faults::default() };
    let mut fault_box = FaultBox::new(faults, 5, 2);
    let mut twin = Way::new(faults, Timetable::default(), 5, 2);
    let mut wanted = FaultCounts::default();
    for number in 0..3_000u64 {
        let now = Time(number);
        let held = fault_box.held.len();
        fault_box.receive(now, Port(6), &Packet { bytes: 100, ..Packet::default() }, &mut ());
        wanted.received += 1;
        let mut added = 0;
        let mut is_late = false;
        if twin.corrupt.unit() < 0.1 {
            wanted.corrupted += 1;
            wanted.discarded += 1;
        } else {
            is_late = twin.reorder.unit() < 0.3;
            let is_twice = twin.duplicate.unit() < 0.2;
            wanted.reordered += u64::from(is_late);
            wanted.duplicated += u64::from(is_twice);
            added = 1 + usize::from(is_twice);
        }
        assert_eq!(fault_box.held.len(), held + added);
        let due = if is_late { now + by } else { now };
        let held: alloc::vec::Vec<&Held<Packet>> = fault_box.held.iter().collect();
        let newest = held.iter().filter(|held| held.due == due && held.name.port == Port(6));
        assert!(newest.count() >= added);
        assert_eq!(fault_box.counts(), wanted);
        assert!(fault_box.balances());
    }
    let one = |due: u64, order: u64| Held {
        due: Time(due),
        order,
        name: Name { port: Port(0), number: 0, path: 0, link_bytes: 0 },
        is_copy: false,
        frame: Packet::default(),
    };
    assert!(one(3, 1) > one(4, 0) && one(3, 1) > one(3, 2));
    assert!(one(3, 1) == one(3, 1) && one(3, 1) != one(3, 2) && one(3, 1) != one(2, 1));
}

/// Packets of 125 bytes, one each 50 us, by a link of 10 Mb/s, on which each takes 100 us.
fn by_link(faults: Faults, packets: u64) -> (Vec<(u64, u64)>, FaultCounts) {
    let rate = Some(Rate::from_megabits(10));
    let mut fault_box = FaultBox::new(Faults { rate, ..faults }, 3, 0);
    fault_box.keep_events();
    let (mut now, mut left) = (Time::ZERO, Vec::new());
    let mut sent = 0;
    while sent < packets || fault_box.inside() > 0 {
        if sent < packets && now.as_nanos() == sent * 50_000 {
            fault_box.receive(now, Port(0), &Packet { bytes: 125, ..Packet::default() }, &mut ());
            sent += 1;
        }
        let mut frame = Packet::default();
        while fault_box.poll_transmit(now, &mut frame, &mut ()).is_some() {}
        for event in fault_box.take_events() {
            if event.what == What::Left {
                assert_eq!(event.at, now);
                left.push((event.number, now.as_nanos()));
            }
        }
        assert!(fault_box.balances());
        let next = (sent < packets).then(|| Time::from_nanos(sent * 50_000));
        now = next.into_iter().chain(fault_box.due()).min().unwrap_or(now);
    }
    (left, fault_box.counts())
}

#[test]
fn a_link_serialises_packets_and_drops_those_that_find_its_queue_full() {
    let wide = Faults { queue_bytes: 1 << 20, ..Faults::default() };
    let (left, counts) = by_link(wide, 100);
    let expected: Vec<(u64, u64)> = (0..100).map(|n| (n, (n + 1) * 100_000)).collect();
    assert_eq!((left, counts.discarded), (expected, 0));
    // Room for four: half of what comes later is dropped, and the others wait as long as four take.
    let (left, counts) = by_link(Faults { queue_bytes: 500, ..wide }, 1_000);
    assert!(counts.discarded.abs_diff(500) <= 4, "{counts:?}");
    let waits: Vec<u64> = left.iter().map(|(number, at)| at - number * 50_000).collect();
    assert!(waits[20..].iter().all(|&wait| (300_000..=400_000).contains(&wait)), "{waits:?}");
}

#[test]
fn delay_is_constant_and_jitter_keeps_the_order() {
    let wide =
        Faults { queue_bytes: 1 << 20, delay: Span::from_nanos(7_000_000), ..Faults::default() };
    let (left, _) = by_link(wide, 50);
    assert!(left.iter().all(|(number, at)| *at == (number + 1) * 100_000 + 7_000_000));
    let jitter = Span::from_nanos(1_000_000);
    let (left, _) = by_link(Faults { jitter, ..wide }, 2_000);
    assert!(left.iter().map(|one| one.0).eq(0..2_000), "in order");
    let delays = left.iter().map(|(number, at)| at - (number + 1) * 100_000);
    let [mut low, mut high] = [u64::MAX, 0];
    delays.for_each(|delay| (low, high) = (low.min(delay), high.max(delay)));
    assert!(
        (6_000_000..6_500_000).contains(&low) && (7_900_000..8_000_000).contains(&high),
        "{low} {high}"
    );
}

#[test]
fn each_direction_has_faults_of_its_own() {
    let lossy = Faults { loss: 0.5, ..Faults::default() };
    let mut fault_box: FaultBox = FaultBox::of_ways([lossy, Faults::default()], 3, 0);
    let mut same: FaultBox = FaultBox::of_ways([lossy, lossy], 3, 0);
    let mut left = [0; 2];
    let mut both = [Vec::new(), Vec::new()];
    for number in 0..2_000u64 {
        let now = Time::from_nanos(number);
        for port in [Port(0), Port(1)] {
            fault_box.receive(now, port, &Packet::default(), &mut ());
            same.receive(now, port, &Packet::default(), &mut ());
            let mut frame = Packet::default();
            while let Some(out) = fault_box.poll_transmit(now, &mut frame, &mut ()) {
                left[out.0 as usize] += 1;
            }
            both[port.0 as usize].push(same.poll_transmit(now, &mut frame, &mut ()).is_some());
        }
    }
    assert_eq!(left[0], 2_000, "nothing is lost on the way back");
    assert!((900..1_100).contains(&left[1]), "{left:?}");
    assert_ne!(both[0], both[1], "each direction has a stream of its own");
}

/// One packet each millisecond, and when each left; `None` if it was lost.
fn by_timetable(timetable: Timetable, faults: Faults, packets: u64) -> Vec<Option<u64>> {
    let plain = (Faults::default(), Timetable::default());
    let mut fault_box: FaultBox = FaultBox::of_paths([[(faults, timetable), plain]], 9, 0);
    // The traffic begins with the eleventh.
    fault_box.begins_at(None);
    fault_box.keep_events();
    let mut left = alloc::vec![None; packets as usize];
    for number in 0..packets {
        let now = Time::from_nanos(number * 1_000_000);
        if number == 10 {
            fault_box.begins_at(Some(now));
        }
        fault_box.receive(now, Port(0), &Packet::default(), &mut ());
        let next = Time::from_nanos((number + 1) * 1_000_000);
        let mut frame = Packet::default();
        while let Some(due) = fault_box.due().filter(|due| *due < next || number + 1 == packets) {
            fault_box.poll_transmit(due, &mut frame, &mut ());
        }
        for event in fault_box.take_events() {
            if event.what == What::Left {
                left[event.number as usize] = Some(event.at.as_nanos());
            }
        }
        assert!(fault_box.balances());
    }
    left
}

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Span {
    Span::from_nanos(ms * MS)
}

#[test]
fn losses_by_place_and_cuts_lose_the_stated_packets_only() {
    let timetable = Timetable {
        losses: alloc::vec![[3, 3], [7, 8]],
        cuts: alloc::vec![[ms(5), ms(8)], [ms(20), ms(21)]],
        ..Timetable::default()
    };
    let left = by_timetable(timetable, Faults::default(), 50);
    let lost: Vec<usize> = (0..50).filter(|&number| left[number].is_none()).collect();
    // By place: from the first packet; by time: since the traffic began, which was at 10 ms.
    assert_eq!(lost, [3, 7, 8, 15, 16, 17, 30]);
}

#[test]
fn a_trace_of_delays_is_followed_in_order() {
    let timetable = Timetable {
        delays: alloc::vec![(ms(0), ms(4)), (ms(10), ms(9)), (ms(20), ms(2))],
        ..Timetable::default()
    };
    let faults = Faults { delay: ms(1), ..Faults::default() };
    let left = by_timetable(timetable, faults, 40);
    let delays: Vec<u64> =
        (0..40).zip(&left).map(|(number, at)| (at.unwrap() - number * MS) / MS).collect();
    assert_eq!(delays[..10], [1; 10], "before the traffic");
    assert_eq!(delays[10..20], [4; 10]);
    assert_eq!(delays[20..30], [9; 10]);
    // Those that come after the delay has fallen do not overtake.
    assert_eq!(delays[30..37], [8, 7, 6, 5, 4, 3, 2]);
}

#[test]
fn jitter_has_the_mean_and_deviation_of_its_law() {
    let (delay, jitter) = (ms(50), ms(5));
    let wanted = [
        (JitterLaw::Uniform, 50.0, 5.0 / libm::sqrt(3.0)),
        (JitterLaw::Normal, 50.0, 5.0),
        (JitterLaw::Exponential, 55.0, 5.0),
    ];
    for (jitter_law, mean, deviation) in wanted {
        let faults = Faults { delay, jitter, jitter_law, ..Faults::default() };
        let mut way = Way::new(faults, Timetable::default(), 1, 0);
        let drawn: Vec<f64> =
            (0..20_000).map(|_| way.varied(delay).as_nanos() as f64 / MS as f64).collect();
        let count = drawn.len() as f64;
        let found = drawn.iter().sum::<f64>() / count;
        let squares: f64 = drawn.iter().map(|one| (one - found) * (one - found)).sum();
        let spread = libm::sqrt(squares / count);
        assert!((found - mean).abs() < 0.15, "{jitter_law:?}: {found}");
        assert!((spread / deviation - 1.0).abs() < 0.03, "{jitter_law:?}: {spread}");
        let most = jitter_law.most(jitter).as_nanos() as f64 / MS as f64;
        assert!(drawn.iter().all(|one| (one - 50.0).abs() <= most), "{jitter_law:?}");
    }
}

#[test]
fn each_path_has_a_link_and_a_delay_of_its_own() {
    let plain = (Faults::default(), Timetable::default());
    let slow = Faults {
        rate: Some(Rate::from_megabits(1)),
        queue_bytes: 1 << 20,
        delay: ms(30),
        ..Faults::default()
    };
    let paths = [[plain.clone(), plain.clone()], [(slow, Timetable::default()), plain]];
    let mut fault_box: FaultBox = FaultBox::of_paths(paths, 1, 0);
    fault_box.keep_events();
    let packet = Packet { bytes: 1_250, ..Packet::default() };
    for _ in 0..3 {
        fault_box.receive_on(1, Time::ZERO, Port(0), &packet, &mut ());
        fault_box.receive_on(0, Time::ZERO, Port(0), &packet, &mut ());
    }
    let mut frame = Packet::default();
    while let Some(due) = fault_box.due() {
        fault_box.poll_transmit(due, &mut frame, &mut ());
    }
    let left = fault_box.take_events().into_iter().filter(|event| event.what == What::Left);
    let left: Vec<_> =
        left.map(|event| (event.path, event.number, event.at.as_nanos() / MS)).collect();
    // (A packet of 1,250 bytes takes 10 ms at 1 Mb/s.)
    assert_eq!(left, [(0, 1, 0), (0, 3, 0), (0, 5, 0), (1, 0, 40), (1, 2, 50), (1, 4, 60)]);
}
