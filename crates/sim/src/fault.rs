//! A box with two ports that does to packets what bad networks do: loses, repeats, delays, corrupts.
//!
//! What comes in at one port goes out at the other. Each packet meets the faults in this order:
//! *loss* (at a constant probability, and by the two states of Gilbert and Elliott), *corruption*
//! (a receiver's checksum finds it, so that it counts as lost at the far end; it is counted apart),
//! *duplication* (a second copy follows at once), *reordering* (it is held back for a while, so that
//! those behind it overtake). Each fault has a random stream of its own, named by the seed and the
//! box, so that switching one on does not change the chances of another.

use alloc::collections::BinaryHeap;
use core::cmp::Ordering;

use nilometer_stat::Rng;
use nilometer_wire::{Node, Port, Span, Time};

use crate::packet::Packet;

const PURPOSE_LOSS: u32 = 0x4641_0001;
const PURPOSE_STATE: u32 = 0x4641_0002;
const PURPOSE_CORRUPT: u32 = 0x4641_0003;
const PURPOSE_DUPLICATE: u32 = 0x4641_0004;
const PURPOSE_REORDER: u32 = 0x4641_0005;

/// A channel with a good and a bad state (Gilbert 1960, Elliott 1963). Probabilities for each
/// packet; the channel is good at first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// From good to bad.
    pub worsens: f64,
    /// From bad to good.
    pub recovers: f64,
    /// Loss while good.
    pub loss_good: f64,
    /// Loss while bad.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// The share of packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.worsens / (self.worsens + self.recovers);
        self.loss_good * (1.0 - bad) + self.loss_bad * bad
    }
}

/// What a box does. Probabilities are for each packet; zero switches a fault off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Lost, each independently.
    pub loss: f64,
    /// Every `loss_period`-th packet is lost, counted from the first; zero for none.
    pub loss_period: u64,
    /// Lost in bursts.
    pub bursts: Option<GilbertElliott>,
    /// Damaged.
    pub corrupt: f64,
    /// Sent twice.
    pub duplicate: f64,
    /// Held back.
    pub reorder: f64,
    /// For how long a packet is held back.
    pub reorder_by: Span,
}

/// What a box has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets that came in.
    pub received: u64,
    /// Packets that went out.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets damaged, and so dropped.
    pub corrupted: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
}

/// A packet that leaves later, in the order of moments and then of coming.
#[derive(Debug)]
struct Held {
    due: Time,
    order: u64,
    port: Port,
    packet: Packet,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    /// The earliest is the greatest: the heap gives the greatest.
    fn cmp(&self, other: &Held) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

/// A fault box.
#[derive(Debug)]
pub struct FaultBox {
    faults: Faults,
    is_bad: bool,
    held: BinaryHeap<Held>,
    counts: FaultCounts,
    loss: Rng,
    state: Rng,
    corrupt: Rng,
    duplicate: Rng,
    reorder: Rng,
}

impl FaultBox {
    /// Box number `index` of a run with `seed`.
    pub fn new(faults: Faults, seed: u64, index: u64) -> FaultBox {
        FaultBox {
            faults,
            is_bad: false,
            held: BinaryHeap::new(),
            counts: FaultCounts::default(),
            loss: Rng::new(seed, PURPOSE_LOSS, index),
            state: Rng::new(seed, PURPOSE_STATE, index),
            corrupt: Rng::new(seed, PURPOSE_CORRUPT, index),
            duplicate: Rng::new(seed, PURPOSE_DUPLICATE, index),
            reorder: Rng::new(seed, PURPOSE_REORDER, index),
        }
    }

    /// What it has done so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Whether every packet is accounted for.
    pub fn balances(&self) -> bool {
        let counts = &self.counts;
        counts.received + counts.duplicated
            == counts.sent + counts.lost + counts.corrupted + self.held.len() as u64
    }

    fn loses(&mut self) -> bool {
        let faults = self.faults;
        let mut lost = faults.loss > 0.0 && self.loss.unit() < faults.loss;
        if faults.loss_period > 0 && self.counts.received.is_multiple_of(faults.loss_period) {
            lost = true;
        }
        if let Some(channel) = faults.bursts {
            let turns = if self.is_bad { channel.recovers } else { channel.worsens };
            self.is_bad ^= self.state.unit() < turns;
            let loss = if self.is_bad { channel.loss_bad } else { channel.loss_good };
            lost |= self.loss.unit() < loss;
        }
        lost
    }

    fn hold(&mut self, due: Time, port: Port, packet: Packet) {
        let order = self.counts.received + self.counts.duplicated;
        self.held.push(Held { due, order, port, packet });
    }
}

impl Node<Packet> for FaultBox {
    fn receive(&mut self, now: Time, port: Port, packet: &Packet) {
        self.counts.received += 1;
        let faults = self.faults;
        if self.loses() {
            self.counts.lost += 1;
            return;
        }
        if faults.corrupt > 0.0 && self.corrupt.unit() < faults.corrupt {
            self.counts.corrupted += 1;
            return;
        }
        let out = Port(port.0 ^ 1);
        let is_late = faults.reorder > 0.0 && self.reorder.unit() < faults.reorder;
        let due = if is_late { now + faults.reorder_by } else { now };
        self.counts.reordered += u64::from(is_late);
        self.hold(due, out, *packet);
        if faults.duplicate > 0.0 && self.duplicate.unit() < faults.duplicate {
            self.counts.duplicated += 1;
            self.hold(due, out, *packet);
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time, packet: &mut Packet) -> Option<Port> {
        if self.held.peek()?.due > now {
            return None;
        }
        self.counts.sent += 1;
        let held = self.held.pop()?;
        *packet = held.packet;
        Some(held.port)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.held.peek().map(|held| held.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Route;

    /// Sends `packets` through a box, one each microsecond, and gives the sequence numbers that came
    /// out, in their order.
    fn pass(faults: Faults, packets: u32) -> (alloc::vec::Vec<u32>, FaultCounts) {
        let mut fault_box = FaultBox::new(faults, 11, 0);
        let mut out = alloc::vec::Vec::new();
        let mut now = Time::ZERO;
        for sequence in 0..packets + 1000 {
            if sequence < packets {
                let mut packet = Packet { route: Route::out(0), bytes: 100, ..Packet::default() };
                packet.segment.sequence = sequence;
                fault_box.receive(now, Port(0), &packet);
            }
            let mut passed = Packet::default();
            while let Some(port) = fault_box.poll_transmit(now, &mut passed) {
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
    fn each_fault_comes_as_often_as_asked() {
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
        let channel =
            GilbertElliott { worsens: 0.01, recovers: 0.25, loss_good: 0.0, loss_bad: 1.0 };
        let (out, counts) = pass(Faults { bursts: Some(channel), ..Faults::default() }, 400_000);
        let share = counts.lost as f64 / 400_000.0;
        assert!((share / channel.mean_loss() - 1.0).abs() < 0.05, "{share}");
        let gaps = out.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
        let mean_burst = counts.lost as f64 / gaps as f64;
        assert!((mean_burst - 4.0).abs() < 0.2, "{mean_burst}");
    }

    #[test]
    fn those_held_back_are_overtaken() {
        let faults =
            Faults { reorder: 0.1, reorder_by: Span::from_nanos(2500), ..Faults::default() };
        let (mut out, counts) = pass(faults, 10_000);
        assert!(
            out.windows(2)
                .any(|pair| pair[0] == pair[1] + 2 || pair[0] == pair[1] + 3 || pair[1] < pair[0])
        );
        assert!(counts.reordered > 900);
        out.sort_unstable();
        assert!(out.into_iter().eq(0..10_000));
    }

    /// The rule once more: who is lost by chance, in turn and in bursts, from the same numbers.
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
            let mut twin = FaultBox::new(faults, 11, 0);
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
        let faults = Faults {
            corrupt: 0.1,
            duplicate: 0.2,
            reorder: 0.3,
            reorder_by: by,
            ..Faults::default()
        };
        let (mut fault_box, mut twin) = (FaultBox::new(faults, 5, 2), FaultBox::new(faults, 5, 2));
        let mut wanted = FaultCounts::default();
        for number in 0..3_000u64 {
            let now = Time(number);
            let held = fault_box.held.len();
            fault_box.receive(now, Port(6), &Packet { bytes: 100, ..Packet::default() });
            wanted.received += 1;
            let mut added = 0;
            let mut is_late = false;
            if twin.corrupt.unit() < 0.1 {
                wanted.corrupted += 1;
            } else {
                is_late = twin.reorder.unit() < 0.3;
                let is_twice = twin.duplicate.unit() < 0.2;
                wanted.reordered += u64::from(is_late);
                wanted.duplicated += u64::from(is_twice);
                added = 1 + usize::from(is_twice);
            }
            assert_eq!(fault_box.held.len(), held + added);
            let due = if is_late { now + by } else { now };
            let held: alloc::vec::Vec<&Held> = fault_box.held.iter().collect();
            let newest = held.iter().filter(|held| held.due == due && held.port == Port(7));
            assert!(newest.count() >= added);
            assert_eq!(fault_box.counts(), wanted);
            assert!(fault_box.balances());
        }
        let one = |due: u64, order: u64| Held {
            due: Time(due),
            order,
            port: Port(0),
            packet: Packet::default(),
        };
        assert!(one(3, 1) > one(4, 0) && one(3, 1) > one(3, 2));
        assert!(one(3, 1) == one(3, 1) && one(3, 1) != one(3, 2) && one(3, 1) != one(2, 1));
    }
}
