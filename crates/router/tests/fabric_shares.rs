//! The shares of the fabric's queues: an output within its fair share loses nothing, whatever the others
//! get, at inputs and in the shared memory; and an output that is busy alone gets its whole link.

use nilometer_queue::aal5::Framing;
use nilometer_queue::distributed::{SwitchShape, Variant};
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{Alpha, Any, Capacity, DisciplineKind, Packet, Reason, Settings, Sharing};
use nilometer_router::fabric::{Fabric, FabricPlan, MemoryLimits};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Rate, Span, Time};

const PURPOSE: u32 = u32::from_be_bytes(*b"fsha");
const LINK: Rate = Rate::from_megabits(100);
const PERIOD: Span = Span::from_nanos(500_000);
const BYTES: u32 = 500;
/// Time between two turns of the driver.
const TURN_NS: u64 = 20_000;
const TURNS: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cargo {
    output: usize,
    bytes: u32,
}

impl Packet for Cargo {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u32 {
        self.output as u32
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }
    fn mark(&mut self) {}
}

type Drops = Vec<(Reason, Cargo)>;

fn equations(rng: &mut Rng, ports: usize) -> Variant {
    let (minimum_backlog_bytes, minimum_share) = (1_500, Variant::minimum_share(ports));
    match rng.below(3) {
        0 => Variant::Original,
        1 => Variant::Reserved { minimum_backlog_bytes, minimum_share },
        _ => Variant::DqPlus { minimum_backlog_bytes, minimum_share, deferral_periods: None },
    }
}

fn alpha(rng: &mut Rng) -> Alpha {
    Alpha::of_exponent(rng.below(15) as i8 - 7).expect("-7 to 7")
}

/// A fabric with tail drop; each output has the rate of a link.
fn fabric(plan: FabricPlan, output_packets: u32) -> Fabric<Cargo> {
    let ports = plan.shape.ports();
    let discipline = || {
        let settings =
            Settings::new(DisciplineKind::TailDrop, Capacity::Packets(output_packets), LINK);
        Any::new(&settings).expect("settings")
    };
    let mut fabric =
        Fabric::new(plan, (0..ports).map(|_| discipline()).collect()).expect("a fabric");
    (0..ports).for_each(|output| fabric.set_rate(output, Some(LINK)));
    fabric
}

/// What leaves by each output at `now`.
fn leave(fabric: &mut Fabric<Cargo>, now: Time, drops: &mut Drops, left: &mut [u64]) {
    for (output, left) in left.iter_mut().enumerate() {
        while fabric.transmit(now, output, drops).is_some() {
            *left += 1;
        }
    }
}

/// A turn: packets for the outputs but `quiet`, from every input, at up to a hundred times a link's rate.
struct Overload {
    /// Packets of each input in a turn, on the average.
    each: Vec<f64>,
    favourite: Vec<usize>,
    is_on: bool,
}

impl Overload {
    fn new(rng: &mut Rng, ports: usize) -> Overload {
        let once = LINK.bytes_in(Span::from_nanos(TURN_NS)) / f64::from(BYTES);
        Overload {
            each: (0..ports).map(|_| once * 10f64.powf(2.0 * rng.unit())).collect(),
            favourite: (0..ports).map(|_| rng.below(ports as u64) as usize).collect(),
            is_on: true,
        }
    }

    fn turn(&mut self, rng: &mut Rng, input: usize, quiet: usize) -> Vec<(u16, Cargo)> {
        self.is_on ^= rng.below(200) == 0;
        let most = if self.is_on { (2.0 * self.each[input] * rng.unit()) as usize } else { 0 };
        let ports = self.each.len() as u64;
        let mut some = Vec::new();
        for _ in 0..most {
            let any = rng.below(ports) as usize;
            let output = if rng.below(3) == 0 { any } else { self.favourite[input] };
            if output != quiet {
                let bytes = 64 + rng.below(1_400) as u32;
                some.push((output as u16, Cargo { output, bytes }));
            }
        }
        some
    }
}

/// Packets for one output by a token bucket, in clumps.
struct Bucket {
    tokens: f64,
    rate: f64,
    burst: f64,
    patience: u64,
}

impl Bucket {
    fn turn(&mut self, rng: &mut Rng) -> usize {
        let bytes = self.rate / 8.0 * TURN_NS as f64 / 1e9;
        self.tokens = (self.tokens + bytes / f64::from(BYTES)).min(self.burst);
        let count = if rng.below(self.patience) == 0 { self.tokens as usize } else { 0 };
        self.tokens -= count as f64;
        count
    }
}

/// Plays a case; the packets for the quiet output, and those that others lost.
fn quiet_among_busy(rng: &mut Rng, has_memory: bool) -> (u64, u64) {
    let ports = 2 + rng.below(6) as usize;
    let speedup = [1.0, 1.5, 2.0][rng.below(3) as usize];
    let shape = SwitchShape::new(ports, speedup, LINK, PERIOD).expect("a shape");
    let fair = shape.capacity().bits_per_second() as f64 / ports as f64;
    let burst = (1 + rng.below(40)) as f64;
    let carried = 2.0 * fair / 8.0 * PERIOD.as_secs_f64() / f64::from(BYTES);
    let reserve = (burst + carried).ceil() as u64 + 1;
    let sharing = Sharing { reserve_packets: Some(reserve), alpha: alpha(rng) };
    let packets = reserve * ports as u64 + rng.below(2_000);
    let input = InputLimits { packets, packet_bytes: 1_500, sharing, framing: Framing::Whole };
    let variant = Some(equations(rng, ports)).filter(|_| !has_memory || rng.below(4) > 0);
    let limits = |rng: &mut Rng| MemoryLimits {
        // Room for the reserve of an output and a packet at each input, wherever they are, and little
        // besides.
        packets: (reserve + ports as u64) * ports as u64 + rng.below(300),
        sharing: Sharing { reserve_packets: Some(reserve + ports as u64), alpha: alpha(rng) },
    };
    let memory = has_memory.then(|| limits(rng));
    let plan = FabricPlan { shape, variant, input, memory };
    let mut fabric = fabric(plan, if has_memory { 100_000 } else { 2_000 });
    let quiet = rng.below(ports as u64) as usize;
    let rate = fair * [0.2, 0.7, 1.0][rng.below(3) as usize];
    let patience = 1 + rng.below(40);
    let mut bucket = Bucket { tokens: burst, rate, burst, patience };
    let mut overload = Overload::new(rng, ports);
    let (mut drops, mut left, mut offered) = (Drops::new(), vec![0; ports], 0);
    let mut sent = vec![0; ports];
    for turn in 0..TURNS {
        let now = Time::from_nanos(turn * TURN_NS);
        let from = rng.below(ports as u64) as usize;
        for input in 0..ports {
            let mut some = overload.turn(rng, input, quiet);
            let count = if input == from { bucket.turn(rng) } else { 0 };
            let before = rng.below(some.len() as u64 + 1) as usize;
            let ours = (quiet as u16, Cargo { output: quiet, bytes: BYTES });
            some.splice(before..before, std::iter::repeat_n(ours, count));
            offered += count as u64;
            fabric.enqueue_all(now, input, &mut some, &mut drops);
        }
        fabric.advance(now, &mut drops);
        leave(&mut fabric, now, &mut drops, &mut left);
        // Devices keep some of the packets that they were given, except the quiet output's: still to be
        // sent.
        let mut sending = 0;
        for output in (0..ports).filter(|output| has_memory && *output != quiet) {
            sent[output] += rng.below(left[output] - sent[output] + 1);
            sending += left[output] - sent[output];
            fabric.set_sending(output, (left[output] - sent[output]) as u32);
        }
        assert!(fabric.balances(), "turn {turn}");
        let waiting: u64 = (0..ports).map(|port| fabric.waiting(port).packets).sum();
        let inside = waiting + sending;
        assert!(memory.is_none_or(|memory| inside <= memory.packets), "turn {turn}: {inside}");
        let lost = drops.iter().find(|(_, cargo)| cargo.output == quiet);
        assert_eq!(lost, None, "turn {turn}: {plan:?}, output {quiet}, a burst of {burst}");
    }
    for turn in TURNS..TURNS + 1_000 {
        let now = Time::from_nanos(turn * TURN_NS);
        fabric.advance(now, &mut drops);
        leave(&mut fabric, now, &mut drops, &mut left);
    }
    assert_eq!(left[quiet], offered, "{plan:?}");
    (offered, drops.len() as u64)
}

/// The guarantee of `queue::voq`.
#[test]
fn an_output_within_its_share_loses_nothing_under_any_load_of_others() {
    let (mut offered, mut lost) = (0, 0);
    for case in 0..100 {
        let mut rng = Rng::new(1, PURPOSE, case);
        let (ours, theirs) = quiet_among_busy(&mut rng, false);
        (offered, lost) = (offered + ours, lost + theirs);
    }
    assert!(offered > 10_000 && lost > 100_000, "{offered} sent, {lost} of the others lost");
}

/// Shares hold where the memory is as small as its reserves and outputs would take all of it.
#[test]
fn the_memory_of_all_has_shares_as_well() {
    let (mut offered, mut lost) = (0, 0);
    for case in 0..100 {
        let mut rng = Rng::new(2, PURPOSE, case);
        let (ours, theirs) = quiet_among_busy(&mut rng, true);
        (offered, lost) = (offered + ours, lost + theirs);
    }
    assert!(offered > 10_000 && lost > 100_000, "{offered} sent, {lost} of the others lost");
}

#[test]
fn an_output_that_is_busy_alone_has_its_link() {
    for case in 0..60 {
        let mut rng = Rng::new(3, PURPOSE, case);
        let ports = 2 + rng.below(6) as usize;
        let shape = SwitchShape::new(ports, 2.0, LINK, PERIOD).expect("a shape");
        // A period's worth of a link is 12.5 packets.
        let packets = 60 * ports as u64;
        let sharing = Sharing::default();
        let input = InputLimits { packets, packet_bytes: 1_500, sharing, framing: Framing::Whole };
        let memory = (rng.below(2) == 0).then_some(MemoryLimits { packets: 2 * packets, sharing });
        let variant = Some(equations(&mut rng, ports)).filter(|_| rng.below(4) > 0);
        let mut fabric = fabric(FabricPlan { shape, variant, input, memory }, 400);
        let busy = rng.below(ports as u64) as usize;
        let inputs = 1 + rng.below(ports as u64);
        let factor = 1.2 + 50.0 * rng.unit();
        let each = factor * LINK.bytes_in(Span::from_nanos(TURN_NS)) / f64::from(BYTES);
        let (mut drops, mut left, mut due) = (Drops::new(), vec![0; ports], 0.0);
        for turn in 0..2_000 {
            let now = Time::from_nanos(turn * TURN_NS);
            due += each;
            while due >= 1.0 {
                due -= 1.0;
                let input = rng.below(inputs) as usize;
                let cargo = Cargo { output: busy, bytes: BYTES };
                fabric.enqueue(now, (input, busy), cargo, &mut drops);
            }
            fabric.advance(now, &mut drops);
            leave(&mut fabric, now, &mut drops, &mut left);
        }
        // These packets are not announced before the second broadcast.
        let seconds = 2_000.0 * TURN_NS as f64 / 1e9 - 2.0 * PERIOD.as_secs_f64();
        let share =
            left[busy] as f64 * f64::from(BYTES * 8) / (seconds * LINK.bits_per_second() as f64);
        assert!(share >= 0.9, "case {case}: {share} of the link, {:?}", fabric.plan());
        assert!(factor < 3.0 || !drops.is_empty(), "case {case}: nothing was too much");
    }
}

#[test]
fn reserves_that_do_not_fit_are_refused() {
    let shape = SwitchShape::new(4, 2.0, LINK, PERIOD).expect("a shape");
    let of = |reserve| Sharing { reserve_packets: Some(reserve), alpha: Alpha::TWO };
    let plan = |reserve, memory| FabricPlan {
        shape,
        variant: None,
        input: InputLimits {
            packets: 100,
            packet_bytes: 1_500,
            sharing: of(reserve),
            framing: Framing::Whole,
        },
        memory,
    };
    let made = |plan: FabricPlan| {
        let settings = Settings::new(DisciplineKind::TailDrop, Capacity::Packets(10), LINK);
        let outputs = (0..4).map(|_| Any::new(&settings).expect("settings")).collect();
        Fabric::<Cargo>::new(plan, outputs).map(|_| ()).map_err(|why| why.to_string())
    };
    let memory = |reserve| Some(MemoryLimits { packets: 1_000, sharing: of(reserve) });
    assert_eq!(made(plan(25, memory(250))), Ok(()));
    let message = "4 queues that reserve 26 packets each need 104, and the buffer holds 100: reserve at \
                most 25, or let it hold more";
    assert_eq!(made(plan(26, None)), Err(message.to_owned()));
    assert!(made(plan(25, memory(251))).is_err_and(|why| why.contains("251")));
}
