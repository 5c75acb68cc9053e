//! The fabric's promises: nothing vanishes, order is kept, links keep their rate and wires their
//! length, and everything may be changed under load.

#[path = "../../wire/tests/recording/mod.rs"]
mod recording;

use std::fmt::Write;

use nilometer_queue::aal5::Framing;
use nilometer_queue::distributed::{SwitchShape, Variant};
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{
    Any, Capacity, DisciplineKind, Packet, Reason, Settings, Sharing, TokenBucket,
};
use nilometer_router::fabric::{BURST, Fabric, FabricPlan, MemoryLimits};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Rate, Span, Time};
use recording::Digest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cargo {
    bytes: u32,
    input: usize,
    output: usize,
    number: u64,
}

impl Packet for Cargo {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u32 {
        self.input as u32
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }
    fn mark(&mut self) {}
}

type Drops = Vec<(Reason, Cargo)>;

const LINK: Rate = Rate::from_megabits(100);
const PORTS: usize = 5;

fn discipline(kind: DisciplineKind, packets: u32) -> Any<Cargo> {
    Any::new(&Settings::new(kind, Capacity::Packets(packets), LINK)).expect("settings")
}

fn dq_plus() -> Variant {
    Variant::DqPlus { minimum_backlog_bytes: 1500, minimum_share: 0.1, deferral_periods: None }
}

fn shape() -> SwitchShape {
    SwitchShape::new(PORTS, 2.0, LINK, Span::from_nanos(500_000)).expect("a shape")
}

fn fabric(variant: Option<Variant>, packets: u64) -> Fabric<Cargo> {
    let sharing = Sharing::default();
    let input = InputLimits { packets, packet_bytes: 1500, sharing, framing: Framing::Whole };
    // The memory counts packets as well, and its count is compared with the packets that are there.
    let memory = Some(MemoryLimits { packets: 100_000, sharing });
    let plan = FabricPlan { shape: shape(), variant, input, memory };
    let outputs = (0..PORTS).map(|_| discipline(DisciplineKind::TailDrop, 50)).collect();
    Fabric::new(plan, outputs).expect("a fabric")
}

fn us(n: u64) -> Time {
    Time::from_nanos(n * 1000)
}

#[test]
fn packets_are_conserved_under_any_change_and_flows_stay_in_order() {
    let mut rng = Rng::new(3, u32::from_be_bytes(*b"fabr"), 0);
    let mut fabric = fabric(Some(dq_plus()), 200);
    let (mut drops, mut got, mut sent) = (Drops::new(), Vec::new(), 0u64);
    for output in 0..PORTS {
        fabric.set_rate(output, Some(LINK));
    }
    for step in 0..40_000 {
        let now = us(step * 20);
        for _ in 0..rng.below(8) {
            let (input, output) = (rng.below(5) as usize, rng.below(5) as usize);
            let bytes = if rng.below(500) == 0 { 1501 } else { 64 + rng.below(1437) as u32 };
            let cargo = Cargo { bytes, input, output, number: sent };
            sent += 1;
            fabric.enqueue(now, (input, output), cargo, &mut drops);
        }
        fabric.advance(now, &mut drops);
        let output = rng.below(5) as usize;
        while let Some(cargo) = fabric.transmit(now, output, &mut drops) {
            if rng.below(10) == 0 {
                fabric.put_back(output, cargo);
                break;
            }
            assert_eq!(cargo.output, output);
            got.push(cargo);
        }
        match rng.below(400) {
            0 => fabric.set_discipline(
                now,
                output,
                discipline(DisciplineKind::TailDrop, 80),
                &mut drops,
            ),
            1 => {
                let variant =
                    [None, Some(Variant::Original), Some(dq_plus())][rng.below(3) as usize];
                fabric.set_queueing(now, shape(), variant, &mut drops).expect("the same ports");
            }
            2 => fabric.set_delay(output, Span::from_nanos(rng.below(2) * 3_000_000)),
            _ => {}
        }
        assert!(fabric.balances(), "after step {step}");
    }
    let inside: u64 = (0..PORTS)
        .map(|port| {
            let (came, went) = (fabric.input_ledger(port), fabric.output_ledger(port));
            came.in_packets
                - came.drops.total_packets()
                - went.out_packets
                - went.drops.total_packets()
        })
        .fold(0, u64::wrapping_add);
    assert_eq!(sent, got.len() as u64 + drops.len() as u64 + inside);
    // All packets that wait at inputs leave when nothing holds them back, and no others.
    let now = us(40_000 * 20);
    let waits = |fabric: &Fabric<Cargo>| -> u64 {
        (0..PORTS).map(|input| fabric.input_backlog(input).packets).sum()
    };
    fabric.set_queueing(now, shape(), Some(dq_plus()), &mut drops).expect("the same ports");
    for number in sent..sent + 50 {
        let cargo = Cargo { bytes: 700, input: 1, output: 2, number };
        fabric.enqueue(now, (1, 2), cargo, &mut drops);
    }
    assert!(waits(&fabric) > 0);
    fabric.set_queueing(now, shape(), None, &mut drops).expect("the same ports");
    assert_eq!(waits(&fabric), 0);
    assert!((0..PORTS).all(|input| fabric.input_backlog_bytes(input) == [0; PORTS]));
    assert!(fabric.balances());
    assert!(got.len() > 30_000 && drops.len() > 1_000, "{} and {}", got.len(), drops.len());
    let mut last = [[None; PORTS]; PORTS];
    for cargo in &got {
        let before = &mut last[cargo.input][cargo.output];
        assert!(before.is_none_or(|before| before < cargo.number), "out of order: {cargo:?}");
        *before = Some(cargo.number);
    }
}

/// Every discipline, with and without distributed queueing, changing rates and wires: packets handed
/// over and taken in batches leave exactly as one by one, at the same times.
#[test]
fn batches_agree_with_single_packets() {
    for (kind, variant) in
        DisciplineKind::ALL.into_iter().flat_map(|kind| [(kind, None), (kind, Some(dq_plus()))])
    {
        let mut rng = Rng::new(9, u32::from_be_bytes(*b"twin"), kind as u64);
        let (mut one, mut all) = (fabric(variant, 60), fabric(variant, 60));
        let (mut drops_one, mut drops_all) = (Drops::new(), Drops::new());
        for output in 0..PORTS {
            one.set_discipline(us(0), output, discipline(kind, 50), &mut drops_one);
            all.set_discipline(us(0), output, discipline(kind, 50), &mut drops_all);
        }
        let mut number = 0;
        for step in 0..4_000 {
            let (now, input) = (us(step * 20), rng.below(5) as usize);
            let mut packets: Vec<(u16, Cargo)> = Vec::new();
            for _ in 0..rng.below(6) {
                let output = rng.below(5) as usize;
                let bytes = if rng.below(200) == 0 { 1501 } else { 64 + rng.below(1437) as u32 };
                packets.push((output as u16, Cargo { bytes, input, output, number }));
                number += 1;
            }
            for &(output, cargo) in &packets {
                one.enqueue(now, (input, usize::from(output)), cargo, &mut drops_one);
            }
            all.enqueue_all(now, input, &mut packets, &mut drops_all);
            one.advance(now, &mut drops_one);
            all.advance(now, &mut drops_all);
            let (output, most) = (rng.below(5) as usize, rng.below(9) as usize);
            let (mut got_one, mut got_all) = (Vec::new(), Vec::new());
            while got_one.len() < most
                && let Some(cargo) = one.transmit(now, output, &mut drops_one)
            {
                got_one.push(cargo);
            }
            let count =
                all.transmit_all(now, output, most, &mut drops_all, |cargo| got_all.push(cargo));
            assert_eq!((got_one, count), (got_all.clone(), got_all.len()), "{kind:?}, step {step}");
            let (rate, delay) = (rng.below(2) == 0, Span::from_nanos(rng.below(2) * 300_000));
            for fabric in [&mut one, &mut all].into_iter().filter(|_| step % 300 == 0) {
                fabric.set_rate(output, rate.then_some(LINK));
                fabric.set_delay(output, delay);
            }
            if got_all.len() > 1 && step % 7 == 0 {
                one.put_back(output, got_all[got_all.len() - 1]);
                all.put_back(output, got_all[got_all.len() - 1]);
            }
            assert_eq!(one.poll_timeout(), all.poll_timeout());
            assert!(packets.is_empty() && all.balances());
        }
        assert_eq!(drops_one, drops_all, "{kind:?}");
        for port in 0..PORTS {
            assert_eq!(one.input_ledger(port), all.input_ledger(port));
            assert_eq!(one.output_ledger(port), all.output_ledger(port));
        }
    }
}

#[test]
fn a_link_keeps_its_rate_with_an_irregular_driver() {
    let mut rng = Rng::new(4, u32::from_be_bytes(*b"pace"), 0);
    let mut fabric = fabric(None, 1000);
    fabric.set_rate(2, Some(LINK));
    let (mut drops, mut now, mut bytes) = (Drops::new(), Time::ZERO, 0u64);
    let mut number = 0;
    while now < us(2_000_000) {
        now += Span::from_nanos(1_000 + rng.below(400_000));
        while fabric.output_backlog(2).packets < 40 {
            number += 1;
            let cargo = Cargo { bytes: 1000, input: 1, output: 2, number };
            fabric.enqueue(now, (1, 2), cargo, &mut drops);
        }
        while let Some(cargo) = fabric.transmit(now, 2, &mut drops) {
            bytes += u64::from(cargo.bytes);
        }
    }
    let share = bytes as f64 / LINK.bytes_in(now.since(Time::ZERO));
    assert!((share - 1.0).abs() < 0.001, "{share} of the link");
}

/// A fabric whose output 2 never runs dry, and is served late.
struct Late {
    fabric: Fabric<Cargo>,
    now: Time,
    number: u64,
}

impl Late {
    fn new(burst_bytes: Option<u64>) -> Late {
        let mut fabric = fabric(None, 1000);
        fabric.set_discipline(
            us(0),
            2,
            discipline(DisciplineKind::TailDrop, 2_000),
            &mut Drops::new(),
        );
        fabric.set_rate(2, Some(LINK));
        fabric.set_burst(2, burst_bytes);
        Late { fabric, now: Time::ZERO, number: 0 }
    }

    /// What leaves when it is served after `late`: packets of 1,000 bytes, each of which takes 80 us.
    fn serve(&mut self, late: Span) -> u64 {
        self.now += late;
        let mut drops = Drops::new();
        while self.fabric.output_backlog(2).packets < 1_000 {
            self.number += 1;
            let cargo = Cargo { bytes: 1000, input: 1, output: 2, number: self.number };
            self.fabric.enqueue(self.now, (1, 2), cargo, &mut drops);
        }
        let mut left = 0;
        while self.fabric.transmit(self.now, 2, &mut drops).is_some() {
            left += 1;
        }
        left
    }
}

#[test]
fn a_link_served_late_keeps_its_rate_as_far_as_its_burst() {
    let mut rng = Rng::new(6, u32::from_be_bytes(*b"late"), 0);
    let mut late = || Span::from_nanos(1_000 + rng.below(49_000_000));
    // All lag within the usual burst is made up for.
    let mut link = Late::new(None);
    assert_eq!(link.serve(Span::from_nanos(1_000)), 1);
    let (began, left) = (link.now, (0..400).map(|_| link.serve(late())).sum::<u64>());
    let share = left as f64 * 1_000.0 / LINK.bytes_in(link.now.since(began));
    assert!((share - 1.0).abs() < 1e-4, "{share} of the link");
    // With 12,500 bytes, which take 1 ms, no more of each wait than that, and the packet that starts.
    for (burst, most) in [(12_500, 13), (500, 1), (0, 1)] {
        let mut link = Late::new(Some(burst));
        let mut bucket = TokenBucket::new(LINK, burst as u32 + 1_000).expect("a bucket");
        assert_eq!(link.serve(Span::from_nanos(1_000)), 1, "it stood idle");
        for _ in 0..400 {
            let late = late() + BURST;
            let left = link.serve(late);
            assert_eq!(left, most, "after {late:?} with {burst} bytes");
            // RFC 2697's bucket, as deep as the burst and one packet, finds nothing too much.
            assert!((0..left).all(|_| bucket.take(link.now, 1_000)), "{burst}");
        }
        for late in [79, 1, 79, 1, 300, 20, 40, 500].map(|us| Span::from_nanos(us * 1_000)) {
            let left = link.serve(late);
            assert!((0..left).all(|_| bucket.take(link.now, 1_000)), "{burst}, {late:?}");
        }
    }
}

#[test]
fn a_link_served_in_time_behaves_alike_with_any_burst() {
    let moments = |burst_bytes: Option<u64>| {
        let mut link = Late::new(burst_bytes);
        link.serve(Span::from_nanos(1_000));
        let next = |link: &mut Late| {
            let due = link.fabric.poll_timeout().expect("packets wait");
            (due, link.serve(due.since(link.now)))
        };
        (0..1_000).map(|_| next(&mut link)).collect::<Vec<_>>()
    };
    let (usual, none) = (moments(None), moments(Some(0)));
    assert!(usual.iter().all(|(_, left)| *left == 1) && usual == none);
    assert_eq!(usual, moments(Some(1 << 30)));
}

#[test]
fn a_rate_for_a_link_that_had_none_begins_without_a_burst() {
    let mut link = Late::new(None);
    link.fabric.set_rate(2, None);
    assert_eq!(link.serve(Span::from_nanos(7_000_000)), 1_000);
    link.fabric.set_rate(2, Some(LINK));
    assert_eq!(link.serve(Span::from_nanos(80_000)), 1);
    assert_eq!(link.serve(Span::from_nanos(80_000)), 1);
}

#[test]
fn an_idle_link_saves_nothing_up() {
    let mut fabric = fabric(None, 1000);
    fabric.set_rate(0, Some(LINK));
    let mut drops = Drops::new();
    assert!(fabric.transmit(us(10), 0, &mut drops).is_none());
    for number in 0..20 {
        let cargo = Cargo { bytes: 1250, input: 0, output: 0, number };
        fabric.enqueue(us(10_000), (0, 0), cargo, &mut drops);
    }
    // 1250 bytes take 100 µs.
    for pass in 0..20 {
        assert!(fabric.transmit(us(10_000 + pass * 100), 0, &mut drops).is_some(), "{pass}");
        assert!(fabric.transmit(us(10_000 + pass * 100 + 99), 0, &mut drops).is_none(), "{pass}");
        assert_eq!(fabric.poll_timeout().is_some(), pass < 19);
    }
}

#[test]
fn a_wire_is_as_long_as_it_is_set() {
    let mut fabric = fabric(None, 1000);
    fabric.set_rate(0, Some(LINK));
    fabric.set_delay(0, Span::from_nanos(5_000_000));
    let mut drops = Drops::new();
    for number in 0..3 {
        let cargo = Cargo { bytes: 1250, input: 0, output: 0, number };
        fabric.enqueue(us(1_000), (0, 0), cargo, &mut drops);
    }
    assert!(fabric.transmit(us(1_000), 0, &mut drops).is_none());
    let mut out = Vec::new();
    while let Some(due) = fabric.poll_timeout() {
        while let Some(cargo) = fabric.transmit(due, 0, &mut drops) {
            out.push((due, cargo.number));
        }
    }
    assert_eq!(out, [(us(6_100), 0), (us(6_200), 1), (us(6_300), 2)]);
    assert!(fabric.balances());
}

#[test]
fn a_row_spends_its_grant_and_at_most_one_packet_of_saved_credit() {
    let mut fabric = fabric(Some(dq_plus()), 100_000);
    let (mut drops, mut number) = (Drops::new(), 0);
    // For 100 periods nothing comes; then more than the fabric can carry, for one output.
    for period in 0..140 {
        if period >= 100 {
            for _ in 0..40 {
                number += 1;
                let cargo = Cargo { bytes: 1000, input: 1, output: 3, number };
                fabric.enqueue(us(period * 500), (1, 3), cargo, &mut drops);
            }
        }
        let before = fabric.input_ledger(1).out_bytes;
        fabric.advance(us(period * 500), &mut drops);
        let crossed = fabric.input_ledger(1).out_bytes - before;
        // S·L·D = 12,500 bytes.
        assert!(crossed <= 12_500 + 1_500, "{crossed} bytes crossed in one period");
        while fabric.transmit(us(period * 500), 3, &mut drops).is_some() {}
    }
    let most = 40.0 * 12_500.0;
    let crossed = fabric.input_ledger(1).out_bytes as f64;
    assert!(crossed > 0.7 * most && crossed <= most + 1_500.0, "{crossed} of {most}");
}

#[test]
fn mismatched_plans_and_shapes_are_refused() {
    let plan = *fabric(None, 10).plan();
    assert!(Fabric::new(plan, vec![discipline(DisciplineKind::TailDrop, 5)]).is_err());
    let mut fabric = fabric(None, 10);
    let other = SwitchShape::new(PORTS + 1, 2.0, LINK, Span::from_nanos(500_000)).expect("a shape");
    assert!(fabric.set_queueing(us(0), other, None, &mut Drops::new()).is_err());
    let wrong = Variant::Reserved { minimum_backlog_bytes: 0, minimum_share: 0.1 };
    assert!(fabric.set_queueing(us(0), shape(), Some(wrong), &mut Drops::new()).is_err());
    assert_eq!(fabric.variant(), None);
}

/// A packet that overtakes others, at an output or at its device, is not as if there were no fabric.
#[test]
fn a_fabric_in_which_something_waits_is_not_transparent() {
    let (mut fabric, mut drops) = (fabric(None, 200), Drops::new());
    (0..PORTS).for_each(|output| fabric.set_usual(output, true));
    assert!(fabric.is_transparent(1));
    let cargo = Cargo { bytes: 500, input: 0, output: 1, number: 0 };
    fabric.enqueue(us(1), (0, 1), cargo, &mut drops);
    assert!(!fabric.is_transparent(1) && fabric.is_transparent(2), "it waits for its turn");
    let given = fabric.transmit(us(2), 1, &mut drops).expect("the link is free");
    assert!(fabric.is_transparent(1));
    fabric.put_back(1, given);
    assert!(!fabric.is_transparent(1), "the device had no room");
    let regulated = self::fabric(Some(dq_plus()), 200);
    assert!(!regulated.is_transparent(1));
}

/// A recording (see `recording/mod.rs`): five times as much as a fabric carries to one output, and what
/// it carries to the others, for all ways of sharing it.
#[test]
fn fabric_departures_agree_with_the_recording() {
    let reserved = Variant::Reserved { minimum_backlog_bytes: 3_000, minimum_share: 0.1 };
    let deferring = Variant::DqPlus {
        minimum_backlog_bytes: 1_500,
        minimum_share: Variant::minimum_share(PORTS),
        deferral_periods: Some(2),
    };
    let variants =
        [None, Some(Variant::Original), Some(reserved), Some(dq_plus()), Some(deferring)];
    let framings = [Framing::Whole, Framing::Cells];
    let memory = MemoryLimits { packets: 300, sharing: Sharing::default() };
    let mut table = String::new();
    for (variant, framing) in variants.into_iter().flat_map(|one| framings.map(|two| (one, two))) {
        let mut plan = *fabric(variant, 120).plan();
        plan.input.framing = framing;
        plan.memory = (framing == Framing::Cells).then_some(memory);
        let outputs = (0..PORTS).map(|_| discipline(DisciplineKind::Qsdrr, 60)).collect();
        let mut fabric = Fabric::new(plan, outputs).expect("a plan");
        fabric.set_rate(1, Some(LINK));
        fabric.set_burst(1, Some(4_000));
        fabric.set_delay(2, Span::from_nanos(250_000));
        let mut rng = Rng::new(4, u32::from_be_bytes(*b"fabr"), 0);
        let (mut drops, mut digest, mut now) = (Drops::new(), Digest::new(), Time::ZERO);
        let name = variant.map_or("none", |variant| variant.name());
        writeln!(table, "{name} {framing:?}").expect("text");
        for number in 1..=6_000 {
            let output = [0, 0, 0, 1, 2, 3, 4][rng.below(7) as usize];
            let input = rng.below(PORTS as u64) as usize;
            let bytes = 40 + rng.below(1_461) as u32;
            fabric.enqueue(
                now,
                (input, output),
                Cargo { bytes, input, output, number },
                &mut drops,
            );
            now += Span::from_nanos(1 + rng.below(24_000));
            if rng.below(3) == 0 {
                fabric.advance(now, &mut drops);
            }
            let output = rng.below(PORTS as u64) as usize;
            for _ in 0..rng.below(4) {
                let Some(cargo) = fabric.transmit(now, output, &mut drops) else { break };
                digest.say((cargo.number, now));
            }
            fabric.set_sending(output, rng.below(3) as u32);
            digest.say((fabric.poll_timeout(), fabric.made_up(), fabric.waiting(output)));
            if number % 1_000 == 0 {
                let carried = |port| fabric.input_ledger(port).out_packets;
                let sent = |port| fabric.output_ledger(port).out_packets;
                writeln!(
                    table,
                    "  crossed {:?} sent {:?} dropped {} updates {}; {:016x}",
                    (0..PORTS).map(carried).collect::<Vec<_>>(),
                    (0..PORTS).map(sent).collect::<Vec<_>>(),
                    fabric.dropped_packets(),
                    fabric.updates(),
                    digest.0
                )
                .expect("text");
            }
            assert!(fabric.balances());
        }
    }
    recording::compare(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fabric.txt"), &table);
}
