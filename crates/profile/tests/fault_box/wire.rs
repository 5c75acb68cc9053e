//! A fault box under real time, and what an observer sees of both its sides.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;

use nilometer_profile::Fate;
use nilometer_stat::Rng;

use crate::traffic::{Connection, Segment};

/// How the box treats packets and how fast they come.
#[derive(Clone, Copy, Debug)]
pub struct Regime {
    pub name: &'static str,
    /// The box's own delay, and how much it varies up and down; the order is kept.
    pub delay_ns: u64,
    pub jitter_ns: u64,
    /// How long a turn takes, and the longest time for which the box is occasionally held up.
    pub turn_ns: u64,
    pub stall_ns: u64,
    pub loss: f64,
    pub corrupt: f64,
    pub duplicate: f64,
    /// The probability of being held back, and for how long.
    pub reorder: f64,
    pub reorder_by_ns: u64,
    /// The longest gap within a burst of a connection, and between bursts.
    pub gap_ns: u64,
    pub pause_ns: u64,
}

impl Regime {
    /// Packets that enter closer together than this may be mistaken for one another: twice the most by which their
    /// delays differ, or, where there are copies, four times that, which the matcher considers far.
    pub fn window_ns(&self) -> u64 {
        let held_back = if self.reorder > 0.0 { self.reorder_by_ns } else { 0 };
        let range = 2 * self.jitter_ns + self.stall_ns + 40 * self.turn_ns + held_back;
        if self.duplicate > 0.0 { 8 * range } else { 2 * range }
    }
}

/// What became of a packet, by the box's own account.
#[derive(Clone, Debug)]
pub struct Truth {
    pub entered_ns: u64,
    pub bytes: Vec<u8>,
    pub fate: Fate,
    pub left_ns: Option<u64>,
    pub copy_left_ns: Option<u64>,
    pub reordered: bool,
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Truth { entered_ns, fate, left_ns, copy_left_ns, .. } = self;
        let bytes = self.bytes.len();
        write!(f, "{fate:?}, {bytes} bytes, {entered_ns} to {left_ns:?} and {copy_left_ns:?}")
    }
}

/// A run: packets in the order in which they entered, and what left, in that order.
pub struct Run {
    pub truth: Vec<Truth>,
    pub exits: Vec<(u64, Vec<u8>)>,
}

/// One direction of the box.
struct FaultBox {
    regime: Regime,
    rng: Rng,
    came: u64,
    free_ns: u64,
    before_ns: u64,
}

impl FaultBox {
    fn has(&mut self, chance: f64) -> bool {
        self.rng.unit() < chance
    }

    /// When a packet that arrives at this moment leaves.
    fn due(&mut self, at_ns: u64) -> u64 {
        let regime = self.regime;
        let stall = if self.has(0.01) { self.rng.below(regime.stall_ns + 1) } else { 0 };
        let turn = 1 + regime.turn_ns / 2 + self.rng.below(regime.turn_ns);
        self.free_ns = self.free_ns.max(at_ns) + turn + stall;
        let vary = self.rng.below(2 * regime.jitter_ns + 1);
        let due = self.free_ns + regime.delay_ns + vary - regime.jitter_ns;
        self.before_ns = self.before_ns.max(due) + 1;
        self.before_ns
    }

    /// As the box in `nilometer-sim` does: a bit behind IP's header and twenty bytes of TCP's, or of the last byte.
    fn damage(&self, bytes: &mut [u8]) {
        let draw = self.came.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let headers = if bytes[0] >> 4 == 6 { 60 } else { 40 };
        let first = headers.min(bytes.len() - 1);
        let at = first + (draw / 8) as usize % (bytes.len() - first);
        bytes[at] ^= 1 << (draw % 8);
    }

    /// Takes a packet; returns what leaves, and when.
    fn take(&mut self, at_ns: u64, bytes: &[u8]) -> (Truth, Vec<(u64, Vec<u8>)>) {
        let regime = self.regime;
        self.came += 1;
        let mut truth = Truth {
            entered_ns: at_ns,
            bytes: bytes.to_vec(),
            fate: Fate::Lost,
            left_ns: None,
            copy_left_ns: None,
            reordered: false,
        };
        if self.has(regime.loss) {
            return (truth, Vec::new());
        }
        let mut leaving = bytes.to_vec();
        truth.fate = Fate::Forwarded;
        if self.has(regime.corrupt) {
            truth.fate = Fate::Corrupted;
            self.damage(&mut leaving);
        }
        let by_ns = if self.has(regime.reorder) { regime.reorder_by_ns } else { 0 };
        let is_twice = self.has(regime.duplicate);
        let left_ns = self.due(at_ns) + by_ns;
        truth.left_ns = Some(left_ns);
        let mut exits = vec![(left_ns, leaving.clone())];
        if is_twice {
            let copy_ns = self.due(at_ns) + by_ns;
            truth.copy_left_ns = Some(copy_ns);
            exits.push((copy_ns, leaving));
        }
        (truth, exits)
    }
}

/// Sends this many packets of TCP through the box.
pub fn run(regime: Regime, seed: u64, packets: usize) -> Run {
    let mut rng = Rng::new(seed, 1, 0);
    let mut fault_box =
        FaultBox { regime, rng: Rng::new(seed, 2, 0), came: 0, free_ns: 0, before_ns: 0 };
    let mut connections = Connection::all(12);
    let mut waiting: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut segments: Vec<Segment> = Vec::new();
    for connection in &mut connections {
        let segment = connection.next(&regime, &mut rng);
        waiting.push(Reverse((segment.at_ns, segments.len() as u64)));
        segments.push(segment);
    }
    let (mut truth, mut exits) = (Vec::new(), Vec::new());
    let mut last_ns = 0;
    while truth.len() < packets {
        let Some(Reverse((_, number))) = waiting.pop() else { break };
        let segment = segments[number as usize].clone();
        // (No two enter at one moment.)
        let at_ns = segment.at_ns.max(last_ns + 1);
        last_ns = at_ns;
        let (reported, left) = fault_box.take(at_ns, &segment.bytes);
        let connection = &mut connections[segment.connection];
        let mut plan = |segment: Segment| {
            waiting.push(Reverse((segment.at_ns, segments.len() as u64)));
            segments.push(segment);
        };
        if segment.turn == 0 {
            plan(connection.next(&regime, &mut rng));
        }
        let is_missed = reported.fate != Fate::Forwarded;
        // (One in a hundred is sent again needlessly.)
        if connection.sends_again() && segment.turn < 4 && (is_missed || rng.below(100) == 0) {
            let round_ns = 2 * regime.delay_ns + 60_000 + rng.below(600_000);
            let by_timeout = if rng.below(4) == 0 { 200_000_000 } else { 0 };
            let seen_ns = reported.left_ns.unwrap_or(at_ns) + regime.delay_ns;
            let again_ns = (at_ns + round_ns).max(seen_ns + 20_000) + by_timeout;
            plan(connection.again(&segment, again_ns));
        }
        truth.push(reported);
        exits.extend(left);
    }
    exits.sort();
    mark_overtaken(&mut truth);
    Run { truth, exits }
}

/// Whether each packet left after one of its flow that had entered later (RFC 4737).
fn mark_overtaken(truth: &mut [Truth]) {
    let mut left: Vec<usize> =
        (0..truth.len()).filter(|number| truth[*number].left_ns.is_some()).collect();
    left.sort_by_key(|number| truth[*number].left_ns);
    let mut newest = HashMap::new();
    for number in left {
        let packet = &mut truth[number];
        let flow =
            if packet.bytes[0] >> 4 == 4 { &packet.bytes[12..24] } else { &packet.bytes[8..44] };
        let newest = newest.entry(flow.to_vec()).or_insert(number);
        packet.reordered = number < *newest;
        *newest = number.max(*newest);
    }
}
