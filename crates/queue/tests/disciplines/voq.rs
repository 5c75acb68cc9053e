//! Virtual output queues against a twin that keeps one list, and their pacing over many periods.

use nilometer_queue::aal5::Framing;
use nilometer_queue::voq::{InputLimits, VirtualOutputs};
use nilometer_queue::{Alpha, Packet, Reason, Sharing, Tally};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Span};

const PURPOSE: u32 = 0xd902;
const PERIOD: Span = Span::from_nanos(500_000);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Parcel {
    number: u32,
    bytes: u32,
}

impl Packet for Parcel {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u32 {
        self.number
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }
    fn mark(&mut self) {}
}

/// One list of all packets in order of arrival; credit in bits, from the whole history.
struct Twin {
    waiting: Vec<(usize, Parcel)>,
    rate: Vec<u128>,
    kept: Vec<u128>,
    sent: Vec<u128>,
    period: u128,
    holds: Vec<u128>,
    first: usize,
    limits: InputLimits,
}

impl Twin {
    /// Bit-picoseconds, as rates are bits per second and times picoseconds.
    fn cost(&self, bytes: u32) -> u128 {
        u128::from(self.limits.framing.fabric_bytes(bytes)) * 8 * 1_000_000_000_000
    }

    fn grant(&mut self, period: Span, rates: &[f64], holds: &[Span]) {
        let most = self.cost(self.limits.packet_bytes);
        for (j, rate) in rates.iter().enumerate() {
            self.kept[j] = (self.kept[j] + self.rate[j] * self.period - self.sent[j]).min(most);
            self.rate[j] = rate.floor() as u128;
            self.sent[j] = 0;
        }
        self.period = u128::from(period.0);
        self.holds = holds.iter().map(|hold| u128::from(hold.0).min(self.period)).collect();
    }

    /// Whether a packet for `output` comes in: everything is counted anew.
    fn has_room(&self, output: usize) -> bool {
        let InputLimits { packets, sharing, .. } = self.limits;
        let reserve = sharing.reserve(self.rate.len(), packets);
        let held = |j: usize| self.waiting.iter().filter(|w| w.0 == j).count() as u64;
        let beyond = |j: usize| held(j).saturating_sub(reserve);
        let shared = packets - reserve * self.rate.len() as u64;
        let free = shared - (0..self.rate.len()).map(beyond).sum::<u64>();
        let allowed = sharing.alpha.value() * free as f64;
        held(output) < reserve || free > 0 && (beyond(output) as f64) < allowed
    }

    fn dequeue(&mut self) -> Option<(usize, Parcel)> {
        let n = self.rate.len();
        let mut able = Vec::new();
        for j in 0..n {
            let Some(at) = self.waiting.iter().position(|w| w.0 == j) else { continue };
            let cost = self.cost(self.waiting[at].1.bytes);
            if self.sent[j] + cost > self.kept[j] + self.rate[j] * self.period {
                continue;
            }
            let due = (self.sent[j] + cost).saturating_sub(self.kept[j]);
            let rate = self.rate[j].max(1);
            able.push((due + self.holds[j] * rate, rate, (j + n - self.first) % n, at, cost));
        }
        able.sort_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)).then(a.2.cmp(&b.2)));
        let &(_, _, _, at, cost) = able.first()?;
        let (output, packet) = self.waiting.remove(at);
        self.sent[output] += cost;
        Some((output, packet))
    }
}

#[test]
fn the_twin_sends_the_same_packets_in_the_same_order() {
    let mut sent = 0;
    for case in 0..300 {
        let mut rng = Rng::new(1, PURPOSE, case);
        let outputs = 1 + rng.below(9) as usize;
        let framing = if rng.below(2) == 0 { Framing::Whole } else { Framing::Cells };
        let packets = 1 + rng.below(60);
        let reserve_packets = (rng.below(3) > 0).then(|| rng.below(packets / outputs as u64 + 1));
        let alpha = Alpha::of_exponent(rng.below(15) as i8 - 7).unwrap();
        let sharing = Sharing { reserve_packets, alpha };
        let limits = InputLimits { packets, packet_bytes: 1500, sharing, framing };
        let first = rng.below(outputs as u64) as usize;
        let mut voq = VirtualOutputs::new(outputs, first, limits).unwrap();
        let zeros = || vec![0u128; outputs];
        let (rate, kept, done) = (zeros(), zeros(), zeros());
        let waiting = Vec::new();
        let mut twin = Twin {
            waiting,
            rate,
            kept,
            sent: done,
            period: 0,
            holds: vec![0; outputs],
            first,
            limits,
        };
        let (mut offered, mut drops) = (0u32, Tally::default());
        for _ in 0..300 {
            match rng.below(8) {
                0 => {
                    let period = Span::from_nanos(1 + rng.below(900_000));
                    let zero = rng.below(3) == 0;
                    let mut rate = || if zero { 0.0 } else { rng.unit() * 3e7 };
                    let rates: Vec<f64> = (0..outputs).map(|_| rate()).collect();
                    let holds: Vec<Span> =
                        (0..outputs).map(|_| Span::from_nanos(rng.below(900_000))).collect();
                    voq.grant(period, &rates, &holds);
                    twin.grant(period, &rates, &holds);
                }
                1..5 => {
                    let output = rng.below(outputs as u64) as usize;
                    let packet = Parcel { number: offered, bytes: 40 + rng.below(1470) as u32 };
                    offered += 1;
                    if packet.bytes <= limits.packet_bytes && twin.has_room(output) {
                        twin.waiting.push((output, packet));
                    }
                    voq.enqueue(output, packet, &mut drops);
                }
                _ => {
                    let got = voq.dequeue();
                    sent += u64::from(got.is_some());
                    assert_eq!(got, twin.dequeue(), "case {case}");
                }
            }
            assert_eq!(voq.backlog().packets, twin.waiting.len() as u64);
            let bytes: u64 = twin.waiting.iter().map(|w| u64::from(w.1.bytes)).sum();
            assert_eq!(voq.backlog().bytes, bytes);
            assert_eq!(voq.backlog_bytes().iter().sum::<u64>(), bytes);
        }
    }
    assert!(sent > 3000, "only {sent} packets were sent: the test says little");
}

fn one_queue(framing: Framing) -> VirtualOutputs<Parcel> {
    let limits =
        InputLimits { packets: 100_000, packet_bytes: 520, sharing: Sharing::default(), framing };
    VirtualOutputs::new(1, 0, limits).unwrap()
}

#[test]
fn a_grant_below_a_packet_still_moves_the_queue() {
    // 6 Mb/s is 375 bytes in 500 µs, less than the packet of 520.
    for (framing, fabric_bytes) in [(Framing::Whole, 520.0), (Framing::Cells, 583.0)] {
        let mut voq = one_queue(framing);
        for number in 0..2000 {
            voq.enqueue(0, Parcel { number, bytes: 520 }, &mut Tally::default());
        }
        let mut sent = 0u32;
        for period in 1..=1000u32 {
            voq.grant(PERIOD, &[6e6], &[Span::ZERO]);
            sent += std::iter::from_fn(|| voq.dequeue()).count() as u32;
            let granted = f64::from(period) * 375.0;
            let spent = f64::from(sent) * fabric_bytes;
            assert!(spent <= granted && spent > granted - fabric_bytes, "{period}: {spent}");
        }
    }
}

#[test]
fn unused_credit_is_kept_up_to_one_packet() {
    let mut voq = one_queue(Framing::Whole);
    for _ in 0..1000 {
        voq.grant(PERIOD, &[6e6], &[Span::ZERO]);
    }
    assert_eq!(voq.credit_bytes(0), 520 + 375);
    for number in 0..10 {
        voq.enqueue(0, Parcel { number, bytes: 520 }, &mut Tally::default());
    }
    assert!(voq.dequeue().is_some());
    assert_eq!(voq.dequeue(), None, "895 bytes of credit pay for one packet of 520");
    voq.grant(PERIOD, &[0.0], &[Span::ZERO]);
    assert_eq!(voq.credit_bytes(0), 375, "a rate of zero takes no credit away");
}

#[test]
fn queues_take_turns_as_their_rates_say() {
    let limits = InputLimits {
        packets: 1000,
        packet_bytes: 520,
        sharing: Sharing::default(),
        framing: Framing::Whole,
    };
    let mut voq = VirtualOutputs::new(3, 1, limits).unwrap();
    for number in 0..60 {
        voq.enqueue(number as usize % 3, Parcel { number, bytes: 520 }, &mut Tally::default());
    }
    // 1 : 2 : 4 packets in a period of 416 µs at 10, 20 and 40 Mb/s.
    let period = Span::from_nanos(416_000);
    voq.grant(period, &[10e6, 20e6, 40e6], &[Span::ZERO; 3]);
    let order: Vec<usize> = std::iter::from_fn(|| voq.dequeue()).map(|sent| sent.0).collect();
    assert_eq!(order, [2, 1, 2, 2, 1, 2, 0]);
}

#[test]
fn an_output_that_holds_enough_comes_after_one_that_is_empty() {
    let limits = InputLimits {
        packets: 1000,
        packet_bytes: 520,
        sharing: Sharing::default(),
        framing: Framing::Whole,
    };
    let mut voq = VirtualOutputs::new(2, 0, limits).unwrap();
    for number in 0..8 {
        voq.enqueue(number as usize % 2, Parcel { number, bytes: 520 }, &mut Tally::default());
    }
    // Two packets each at 20 Mb/s, due after 208 and 416 µs; output 0 holds enough for 300 µs.
    let holds = [Span::from_nanos(300_000), Span::ZERO];
    voq.grant(Span::from_nanos(416_000), &[20e6, 20e6], &holds);
    let order: Vec<usize> = std::iter::from_fn(|| voq.dequeue()).map(|sent| sent.0).collect();
    assert_eq!(order, [1, 1, 0, 0]);
}

#[test]
fn the_input_gives_a_reason_for_each_drop() {
    // One packet is reserved for each output; of the two that are shared an output may use half of
    // what is free.
    let half = Alpha::new(0.5).unwrap();
    let sharing = Sharing { reserve_packets: Some(1), alpha: half };
    let limits = InputLimits { packets: 4, packet_bytes: 520, sharing, framing: Framing::Whole };
    let mut voq = VirtualOutputs::new(2, 0, limits).unwrap();
    let mut drops: Vec<(Reason, Parcel)> = Vec::new();
    for (number, bytes) in [521, 520, 100, 100].into_iter().enumerate() {
        voq.enqueue(1, Parcel { number: number as u32, bytes }, &mut drops);
    }
    for number in 4..8 {
        voq.enqueue(0, Parcel { number, bytes: 10 }, &mut drops);
    }
    let why: Vec<(Reason, u32)> = drops.iter().map(|(r, p)| (*r, p.number)).collect();
    let want = [(Reason::TooBig, 0), (Reason::Share, 3), (Reason::Full, 6), (Reason::Full, 7)];
    assert_eq!(why, want);
    assert_eq!(voq.backlog_bytes(), [20, 620]);
    let sharing = Sharing { reserve_packets: Some(3), ..Sharing::default() };
    let refused = VirtualOutputs::<Parcel>::new(2, 0, InputLimits { sharing, ..limits });
    let why = refused.unwrap_err().to_string();
    assert_eq!(
        why,
        "2 queues that reserve 3 packets each need 6, and the buffer holds 4: reserve at most 2, or \
         let it hold more"
    );
}
