//! The distributed-queueing switch as a node: moments worked by hand, and laws on random traffic.

use nilometer_queue::aal5::Framing;
use nilometer_queue::broadcast::DqError;
use nilometer_queue::distributed::{SwitchShape, Variant};
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{Alpha, Capacity, Packet, Sharing, TailDrop};
use nilometer_sim::switch::{OutputOf, Switch, SwitchPlan};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Node, Port, Rate, Span, Time};

const PURPOSE: u32 = 0x5317;
const LINK: Rate = Rate::from_megabits(70);
const PERIOD: Span = Span::from_nanos(500_000);
/// 520 bytes at 70 Mb/s and at 140 Mb/s, picoseconds, rounded down.
const LINK_TIME: u64 = 59_428_571;
const FABRIC_TIME: u64 = 29_714_285;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parcel {
    from: u32,
    to: u32,
    number: u32,
    bytes: u32,
}

impl Packet for Parcel {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u32 {
        self.from
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }
    fn mark(&mut self) {}
}

fn reserved(ports: usize) -> Variant {
    Variant::Reserved { minimum_backlog_bytes: 520, minimum_share: Variant::minimum_share(ports) }
}

fn plan(ports: usize, variant: Variant) -> SwitchPlan {
    SwitchPlan {
        fabric: SwitchShape::new(ports, 2.0, LINK, PERIOD).unwrap(),
        variant,
        input: InputLimits {
            packets: 1000,
            packet_bytes: 1500,
            sharing: Sharing::default(),
            framing: Framing::Whole,
        },
        broadcast_delay: Span::ZERO,
    }
}

type Route = fn(&Parcel) -> Option<Port>;

fn switch(plan: SwitchPlan, packets: u32) -> Switch<Parcel, TailDrop<Parcel>, Route> {
    let outputs =
        (0..plan.fabric.ports()).map(|_| TailDrop::new(Capacity::Packets(packets))).collect();
    let route: Route = |parcel| (parcel.to < 100).then_some(Port(parcel.to));
    Switch::new(plan, outputs, route).unwrap()
}

/// Drives a switch as a node is driven: alarms when they are due and before what arrives at the
/// same moment, then everything that leaves. Gives the departures in their order.
fn play<R: OutputOf<Parcel>>(
    switch: &mut Switch<Parcel, TailDrop<Parcel>, R>,
    arrivals: &[(Time, Parcel)],
    end: Time,
) -> Vec<(Time, Port, Parcel)> {
    let mut left = Vec::new();
    let mut coming = arrivals.iter().peekable();
    loop {
        let alarm = switch.poll_timeout().expect("the next broadcast");
        let now = match coming.peek() {
            Some((moment, parcel)) if *moment < alarm => {
                switch.receive(*moment, Port(parcel.from), parcel, &mut ());
                coming.next();
                *moment
            }
            _ if alarm > end => return left,
            _ => {
                switch.handle_timeout(alarm, &mut ());
                alarm
            }
        };
        let mut parcel = Parcel::default();
        while let Some(port) = switch.poll_transmit(now, &mut parcel, &mut ()) {
            left.push((now, port, parcel));
        }
        assert!(switch.balances(), "at {now:?}");
    }
}

fn parcel(from: u32, to: u32, number: u32) -> Parcel {
    Parcel { from, to, number, bytes: 520 }
}

fn departures(plan: SwitchPlan, arrivals: &[(Time, Parcel)]) -> Vec<(u64, u32)> {
    let left = play(&mut switch(plan, 1000), arrivals, Time::from_nanos(5_000_000));
    left.iter().map(|(moment, port, _)| (moment.0, port.0)).collect()
}

#[test]
fn a_lone_packet_waits_for_the_next_broadcast_unless_something_is_reserved() {
    let arrivals = [(Time::from_nanos(100_000), parcel(0, 1, 0))];
    // Nothing is granted before the broadcast at 500 µs.
    let at = 500_000_000 + FABRIC_TIME + LINK_TIME;
    assert_eq!(departures(plan(2, Variant::Original), &arrivals), [(at, 1)]);
    // The reserve of an idle queue, half of 140 Mb/s for a period, was granted at time zero.
    let at = 100_000_000 + FABRIC_TIME + LINK_TIME;
    assert_eq!(departures(plan(2, reserved(2)), &arrivals), [(at, 1)]);
    // Broadcasts that take 200 µs to be heard.
    let broadcast_delay = Span::from_nanos(200_000);
    let slow = SwitchPlan { broadcast_delay, ..plan(2, Variant::Original) };
    let at = 700_000_000 + FABRIC_TIME + LINK_TIME;
    assert_eq!(departures(slow, &arrivals), [(at, 1)]);
    // And a whole period: what was announced at 500 µs counts from 1000 µs on.
    let slow = SwitchPlan { broadcast_delay: PERIOD, ..slow };
    let at = 1_000_000_000 + FABRIC_TIME + LINK_TIME;
    assert_eq!(departures(slow, &arrivals), [(at, 1)]);
    // Eleven cells of 53 bytes: 583 bytes at 140 Mb/s are 33.314285 µs.
    let mut cells = plan(2, Variant::Original);
    cells.input.framing = Framing::Cells;
    let at = 500_000_000 + 33_314_285 + LINK_TIME;
    assert_eq!(departures(cells, &arrivals), [(at, 1)]);
}

#[test]
fn two_inputs_share_the_links_to_and_from_an_output() {
    let start = Time::from_nanos(100_000);
    let arrivals = [(start, parcel(0, 1, 0)), (start, parcel(1, 1, 1))];
    let first = 500_000_000 + FABRIC_TIME + LINK_TIME;
    let want = [(first, 1), (first + LINK_TIME, 1)];
    assert_eq!(departures(plan(2, Variant::Original), &arrivals), want);
    // For different outputs neither waits for the other.
    let arrivals = [(start, parcel(0, 1, 0)), (start, parcel(1, 0, 1))];
    let want = [(first, 0), (first, 1)];
    assert_eq!(departures(plan(2, Variant::Original), &arrivals), want);
    // One input's packets for both outputs follow each other into the fabric: 70 Mb/s each, so
    // equal deadlines, and input 0 begins with output 0.
    let arrivals = [(start, parcel(0, 1, 0)), (start, parcel(0, 0, 1))];
    let want = [(first, 0), (first + FABRIC_TIME, 1)];
    assert_eq!(departures(plan(2, Variant::Original), &arrivals), want);
}

#[test]
fn unroutable_packets_are_counted_and_dropped() {
    let mut switch = switch(plan(2, Variant::Original), 10);
    switch.receive(Time(1), Port(0), &parcel(0, 200, 0), &mut ());
    switch.receive(Time(2), Port(0), &parcel(0, 2, 1), &mut ());
    switch.receive(Time(3), Port(7), &parcel(7, 1, 2), &mut ());
    assert_eq!((switch.strays().packets, switch.strays().bytes), (3, 1560));
    assert_eq!(switch.inside().packets, 0);
    assert!(switch.balances());
    let outputs = vec![TailDrop::new(Capacity::Packets(1))];
    let one = Switch::<Parcel, _, Route>::new(plan(2, Variant::Original), outputs, |_| None);
    assert_eq!(one.unwrap_err(), DqError::Ports(1));
    let broadcast_delay = PERIOD + Span(1);
    let late = SwitchPlan { broadcast_delay, ..plan(1, Variant::Original) };
    let late =
        Switch::<Parcel, _, Route>::new(late, vec![TailDrop::new(Capacity::Packets(1))], |_| None);
    assert_eq!(late.unwrap_err(), DqError::Delay);
}

/// Packets of all sizes, from every input no faster than its link, for outputs that change.
fn traffic(rng: &mut Rng, ports: u64, end: Time) -> Vec<(Time, Parcel)> {
    let mut arrivals = Vec::new();
    for from in 0..ports as u32 {
        let (mut now, mut to, mut number) = (Time(rng.below(1_000_000)), rng.below(ports), 0);
        while now < end {
            if rng.below(20) == 0 {
                to = rng.below(ports);
                now += Span::from_nanos(rng.below(2_000_000));
            }
            let bytes = 40 + rng.below(1461) as u32;
            now += LINK.span_of(u64::from(bytes));
            arrivals.push((now, Parcel { from, to: to as u32, number, bytes }));
            number += 1;
        }
    }
    arrivals.sort_by_key(|(moment, parcel)| (*moment, parcel.from));
    arrivals
}

#[test]
fn random_traffic_obeys_the_laws_of_links_and_queues() {
    let mut dropped = 0;
    for case in 0..60 {
        let mut rng = Rng::new(1, PURPOSE, case);
        let ports = 2 + rng.below(7);
        let minimum_share = Variant::minimum_share(ports as usize);
        let variant = match rng.below(3) {
            0 => Variant::Original,
            1 => reserved(ports as usize),
            _ => Variant::DqPlus {
                minimum_backlog_bytes: 1500,
                minimum_share,
                deferral_periods: (rng.below(2) == 0).then_some(4),
            },
        };
        let mut plan = plan(ports as usize, variant);
        plan.broadcast_delay = Span::from_nanos(rng.below(3) * 250_000);
        plan.input.packets = [30, 1000][rng.below(2) as usize];
        let mut switch = switch(plan, [20, 1000][rng.below(2) as usize]);
        let arrivals = traffic(&mut rng, ports, Time::from_nanos(30_000_000));
        let left = play(&mut switch, &arrivals, Time::from_nanos(400_000_000));
        let ledger = *switch.ledger();
        dropped += ledger.drops.total_packets();
        assert_eq!(ledger.in_packets, arrivals.len() as u64);
        assert_eq!(ledger.out_packets, left.len() as u64);
        assert_eq!(switch.inside().packets, 0, "case {case}: drained at last");
        // The right output, the order of each input, and no faster than the link.
        let mut wire_free = vec![Time::ZERO; ports as usize];
        let mut next = vec![0; (ports * ports) as usize];
        for (moment, port, parcel) in left {
            assert_eq!(port.0, parcel.to);
            let pair = &mut next[(parcel.from * ports as u32 + parcel.to) as usize];
            assert!(parcel.number >= *pair, "case {case}: {parcel:?} was overtaken");
            *pair = parcel.number + 1;
            let began = Time(moment.0 - LINK.span_of(u64::from(parcel.bytes)).0);
            let free = &mut wire_free[parcel.to as usize];
            assert!(began >= *free, "case {case}: two on the wire");
            *free = moment;
        }
        // Per output the fabric is granted no more than a period's worth, and one packet kept by
        // each input.
        let granted = plan.fabric.capacity().bytes_in(PERIOD) as u64 + ports * 1500;
        let most = switch.crossing_most_bytes();
        assert!(most <= granted, "case {case}: {most} bytes in the fabric, {granted} granted");
    }
    assert!(dropped > 100, "only {dropped} drops: the test says little of them");
}

#[test]
fn a_run_repeats_itself() {
    let run = || {
        let mut rng = Rng::new(2, PURPOSE, 0);
        let arrivals = traffic(&mut rng, 5, Time::from_nanos(20_000_000));
        play(&mut switch(plan(5, reserved(5)), 50), &arrivals, Time::from_nanos(200_000_000))
    };
    let first = run();
    assert!(first.len() > 500);
    assert_eq!(first, run());
}

/// One of the three sets of equations.
fn equations(rng: &mut Rng, ports: usize) -> Variant {
    let minimum_share = Variant::minimum_share(ports);
    match rng.below(3) {
        0 => Variant::Original,
        1 => reserved(ports),
        _ => Variant::DqPlus { minimum_backlog_bytes: 1500, minimum_share, deferral_periods: None },
    }
}

/// Packets for `output` by a token bucket of `burst` packets that is filled at `rate`, from any input and
/// in any clumps.
fn within(
    rng: &mut Rng,
    (ports, output): (u32, u32),
    rate: f64,
    burst: f64,
) -> Vec<(Time, Parcel)> {
    let (mut tokens, mut now, mut arrivals) = (burst, 0, Vec::new());
    let mut numbers = vec![0; ports as usize];
    let patience = 1 + rng.below(20);
    while now < LOADED.as_nanos() {
        let pause = 1_000 + rng.below(80_000);
        now += pause;
        tokens = (tokens + rate * pause as f64 / 8e9 / 520.0).min(burst);
        let from = rng.below(u64::from(ports)) as u32;
        while tokens >= 1.0 && rng.below(patience) != 1 {
            let number = numbers[from as usize];
            numbers[from as usize] += 1;
            arrivals.push((Time::from_nanos(now), parcel(from, output, number)));
            tokens -= 1.0;
        }
    }
    arrivals
}

/// Packets for all outputs but one, at 1 to 100 times the rate of a link from each input.
fn overload(rng: &mut Rng, (ports, quiet): (u32, u32)) -> Vec<(Time, Parcel)> {
    let mut arrivals = Vec::new();
    for from in 0..ports {
        let factor = 10f64.powf(2.0 * rng.unit());
        let pause = 520.0 * 8e9 / (LINK.bits_per_second() as f64 * factor);
        let favourite = rng.below(u64::from(ports)) as u32;
        let (mut now, mut number) = (0.0, 0);
        while now < LOADED.as_nanos() as f64 {
            now += 2.0 * pause * rng.unit();
            let to = if rng.below(3) == 0 { rng.below(u64::from(ports)) as u32 } else { favourite };
            if to != quiet {
                arrivals.push((Time::from_nanos(now as u64), parcel(from, to, number)));
                number += 1;
            }
        }
    }
    arrivals
}

const LOADED: Span = Span::from_nanos(15_000_000);

/// The promise of `queue::voq`: it holds whatever the others get.
#[test]
fn an_output_within_its_share_loses_nothing_under_any_load_of_others() {
    let (mut sent, mut dropped) = (0, 0);
    for case in 0..150 {
        let mut rng = Rng::new(3, PURPOSE, case);
        let ports = 2 + rng.below(5) as u32;
        let quiet = rng.below(u64::from(ports)) as u32;
        let mut plan = plan(ports as usize, equations(&mut rng, ports as usize));
        let speedup = [1.0, 1.5, 2.0][rng.below(3) as usize];
        plan.fabric = SwitchShape::new(ports as usize, speedup, LINK, PERIOD).unwrap();
        let fair = plan.fabric.capacity().bits_per_second() as f64 / f64::from(ports);
        let burst = (1 + rng.below(40)) as f64;
        let carried = 3.0 * fair * PERIOD.as_secs_f64() / 8.0 / 520.0;
        let reserve = (burst + carried).ceil() as u64 + 1;
        let alpha = Alpha::of_exponent(rng.below(15) as i8 - 7).unwrap();
        plan.input.sharing = Sharing { reserve_packets: Some(reserve), alpha };
        plan.input.packets = reserve * u64::from(ports) + rng.below(400);
        let rate = fair * [0.2, 0.7, 1.0][rng.below(3) as usize];
        let mut arrivals = within(&mut rng, (ports, quiet), rate, burst);
        let offered = arrivals.len();
        arrivals.extend(overload(&mut rng, (ports, quiet)));
        arrivals.sort_by_key(|(moment, parcel)| (*moment, parcel.from));
        let mut switch = switch(plan, 5_000);
        let left = play(&mut switch, &arrivals, Time::from_nanos(60_000_000));
        let came = left.iter().filter(|(_, port, _)| port.0 == quiet).count();
        assert_eq!(came, offered, "case {case}: {plan:?}, output {quiet}");
        sent += offered;
        dropped += switch.ledger().drops.total_packets();
    }
    assert!(sent > 10_000 && dropped > 100_000, "{sent} sent, {dropped} dropped");
}

#[test]
fn an_output_that_is_busy_alone_has_its_link() {
    for case in 0..30 {
        let mut rng = Rng::new(4, PURPOSE, case);
        let ports = 2 + rng.below(5) as u32;
        let busy = rng.below(u64::from(ports)) as u32;
        let mut plan = plan(ports as usize, equations(&mut rng, ports as usize));
        plan.input.packets = 50 * u64::from(ports) + rng.below(100);
        let inputs = 1 + rng.below(u64::from(ports)) as u32;
        let factor = 1.2 + 30.0 * rng.unit();
        let pause = 520.0 * 8e9 / (LINK.bits_per_second() as f64 * factor);
        let mut arrivals = Vec::new();
        for number in 0..(30e6 / pause) as u32 {
            let moment = Time::from_nanos((f64::from(number) * pause) as u64);
            arrivals.push((moment, parcel(number % inputs, busy, number / inputs)));
        }
        let mut switch = switch(plan, 5_000);
        let left = play(&mut switch, &arrivals, Time::from_nanos(30_000_000));
        // From the second broadcast on: these packets were not announced before.
        let began = Time::from_nanos(1_000_000);
        let left = left.iter().filter(|(moment, ..)| *moment > began).count();
        let share = left as f64 * f64::from(520 * 8) / (29e-3 * LINK.bits_per_second() as f64);
        assert!(share >= 0.9, "case {case}: {share} of the link with {plan:?}");
        assert!(factor < 3.0 || switch.ledger().drops.total_packets() > 0, "case {case}");
    }
}
