//! Receiver-driven layered multicast: a receiver joins layers when it has waited, and leaves the highest one by loss.
//!
//! The paper compares Wave Video with layered multicast and names none; this is RLM (McCanne, Jacobson and Vetterli,
//! 1996), the state machine of one receiver:
//!
//! ```text
//!             loss, an experiment of one's own under way: leave, back off        T_D over
//!        ┌──────────────────────────────────────────────────────► dropped ──────────────┐
//!   steady ── loss ──► hysteresis ── T_D over ──► measuring ── more than a quarter lost ─┘ (leave)
//!     ▲                                              │ T_D over                          │
//!     └──────────────────────────────────────────────┴◄──────────────────────────────────┘
//! ```
//!
//! A join experiment begins when the join timer of the next layer expires in the steady state: the layer is joined,
//! and where loss follows within the detection time, it is left and its join timer grows. The detection time is
//! learnt from how long such losses took. Constants are those of the authors' own simulation, except the initial
//! detection time: a receiver that has run for a while has learnt it, and a shorter one favours this contender.

use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

/// The purpose of the random stream of join timers.
const JOINING: u32 = 0x726c_6d00;
/// The factor of a join timer when its experiment fails, and when the layer below has been quiet.
const BACK_OFF: f64 = 2.0;
const RELAX: f64 = 0.75;
/// Join timers, seconds.
const JOIN_S: [f64; 2] = [5.0, 60.0];
/// The detection time at first, and its deviation, seconds (the authors': 5 and 2).
const DETECTION_S: [f64; 2] = [1.0, 0.25];
/// The weight of the newest detection.
const GAIN: f64 = 0.25;
/// Share of packets lost above which a layer is left, and the number of packets from which such a share is
/// meaningful.
const LOST_MOST: f64 = 0.25;
const PACKETS_LEAST: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Steady,
    Hysteresis,
    Measuring,
    Dropped,
}

/// What is known of a layer.
#[derive(Clone, Copy, Debug)]
struct Layer {
    join_s: f64,
    /// When it was joined last by an experiment.
    tried: Option<Time>,
    /// The number that its next packet has, once one has come since it was joined.
    expected: Option<u32>,
    received: u64,
    /// Of `received`, when it was joined.
    received_before: u64,
}

/// One receiver's subscription.
#[derive(Clone, Debug)]
pub struct LayeredReceiver {
    layers: Vec<Layer>,
    subscribed: usize,
    state: State,
    detection_s: f64,
    deviation_s: f64,
    detects: Option<Time>,
    joins: Option<Time>,
    received: u64,
    lost: u64,
    /// Received and lost when measuring began.
    measured_from: (u64, u64),
    rng: Rng,
}

impl LayeredReceiver {
    /// A receiver that has joined all `layers`, at least one.
    pub fn new(layers: usize, seed: u64, receiver: u64) -> LayeredReceiver {
        let layer = Layer {
            join_s: JOIN_S[0],
            tried: None,
            expected: None,
            received: 0,
            received_before: 0,
        };
        LayeredReceiver {
            layers: vec![layer; layers.max(1)],
            subscribed: layers.max(1),
            state: State::Steady,
            detection_s: DETECTION_S[0],
            deviation_s: DETECTION_S[1],
            detects: None,
            joins: None,
            received: 0,
            lost: 0,
            measured_from: (0, 0),
            rng: Rng::new(seed, JOINING, receiver),
        }
    }

    /// How many layers it has joined, from the lowest on.
    pub fn subscribed(&self) -> usize {
        self.subscribed
    }

    /// Packets that it missed.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// A packet of a layer has come, with its number in that layer.
    pub fn receive(&mut self, now: Time, layer: usize, number: u32) {
        if layer >= self.subscribed {
            return; // What still comes of a layer that was left.
        }
        let it = &mut self.layers[layer];
        let missed = it.expected.map_or(0, |expected| number.wrapping_sub(expected));
        it.expected = Some(number.wrapping_add(1));
        it.received += 1;
        self.received += 1;
        // (One from before cannot come behind: the network keeps the order of a group.)
        if missed > 0 && missed < u32::MAX / 2 {
            self.lost += u64::from(missed);
            self.meet_loss(now);
        }
    }

    /// When it must next be called with the time.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.detects.into_iter().chain(self.joins).min()
    }

    /// The moment that [`LayeredReceiver::poll_timeout`] named has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.detects.is_some_and(|due| due <= now) {
            self.detects = None;
            self.detection_ends(now);
        }
        if self.joins.is_some_and(|due| due <= now) {
            self.joins = None;
            self.try_to_join(now);
        }
    }

    fn meet_loss(&mut self, now: Time) {
        match self.state {
            State::Measuring if self.loses_too_much() => self.leave(now),
            State::Steady => self.meet_first_loss(now),
            State::Measuring | State::Hysteresis | State::Dropped => {}
        }
    }

    fn meet_first_loss(&mut self, now: Time) {
        let top = self.subscribed - 1;
        if let Some(tried) = self.layers[top].tried.filter(|tried| self.is_recent(now, *tried)) {
            // The experiment has failed: this layer and those above wait longer.
            let join_s = (self.layers[top].join_s * BACK_OFF).min(JOIN_S[1]);
            for layer in &mut self.layers[top..] {
                layer.join_s = layer.join_s.max(join_s);
            }
            self.learn(now.since(tried).as_secs_f64());
            self.leave(now);
        } else {
            self.state = State::Hysteresis;
            self.detects = Some(self.after(now, 1.5));
        }
    }

    fn loses_too_much(&self) -> bool {
        let (received, lost) =
            (self.received - self.measured_from.0, self.lost - self.measured_from.1);
        received >= PACKETS_LEAST && lost as f64 > LOST_MOST * (received + lost) as f64
    }

    /// Leaves the highest layer but the lowest.
    fn leave(&mut self, now: Time) {
        if self.subscribed > 1 {
            self.subscribed -= 1;
            self.layers[self.subscribed].expected = None;
        }
        self.state = State::Dropped;
        self.detects = Some(self.after(now, 1.5));
        self.await_join(now);
    }

    fn detection_ends(&mut self, now: Time) {
        match self.state {
            State::Hysteresis => {
                self.state = State::Measuring;
                self.measured_from = (self.received, self.lost);
                let deviations = self.subscribed as f64 / 2.0 + 1.5;
                self.detects = Some(self.after(now, deviations));
            }
            State::Dropped | State::Measuring => {
                self.state = State::Steady;
                self.await_join(now);
            }
            State::Steady => {}
        }
    }

    /// Begins the join timer of the next layer, unless it is running or there is no such layer: half of it to three
    /// times as much.
    fn await_join(&mut self, now: Time) {
        if let Some(layer) = self.layers.get(self.subscribed).filter(|_| self.joins.is_none()) {
            let mean = layer.join_s;
            let drawn = self.rng.exponential(mean).min(4.0 * mean);
            self.joins = Some(now + Span::from_secs_f64(mean / 2.0 + drawn));
        }
    }

    fn try_to_join(&mut self, now: Time) {
        let top = &self.layers[self.subscribed - 1];
        let is_quiet = !self.layers[..self.subscribed]
            .iter()
            .any(|layer| layer.tried.is_some_and(|tried| self.is_recent(now, tried)));
        let comes = top.received > top.received_before;
        if self.state == State::Steady && is_quiet && comes && self.subscribed < self.layers.len() {
            // The layer below has borne the one above once more.
            let below = &mut self.layers[self.subscribed - 1];
            below.join_s = (below.join_s * RELAX).max(JOIN_S[0]);
            let layer = &mut self.layers[self.subscribed];
            (layer.tried, layer.expected) = (Some(now), None);
            layer.received_before = layer.received;
            self.subscribed += 1;
        }
        self.await_join(now);
    }

    /// Learns how long it took until a layer that is too much was noticed.
    fn learn(&mut self, took_s: f64) {
        let off = (took_s - self.detection_s).abs();
        self.detection_s += GAIN * (took_s - self.detection_s);
        self.deviation_s += GAIN * (off - self.deviation_s);
    }

    /// The detection time from now on, with `deviations` deviations added.
    fn after(&self, now: Time, deviations: f64) -> Time {
        now + Span::from_secs_f64(self.detection_s + deviations * self.deviation_s)
    }

    /// Whether the effects of an action at `then` may still be visible.
    fn is_recent(&self, now: Time, then: Time) -> bool {
        self.after(then, 2.0) > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays packets of all layers that are joined, 100 a second of each; the link carries `borne` layers.
    fn play(
        receiver: &mut LayeredReceiver,
        numbers: &mut [u32],
        ms: core::ops::Range<u64>,
        borne: usize,
    ) {
        for ms in ms.step_by(10) {
            let now = Time::from_nanos(ms * 1_000_000);
            while receiver.poll_timeout().is_some_and(|due| due <= now) {
                receiver.handle_timeout(now);
            }
            let joined = receiver.subscribed();
            for (layer, number) in numbers.iter_mut().enumerate().take(joined) {
                *number += 1;
                // Excess packets are lost from all layers equally.
                let slot = ms / 10 + layer as u64;
                if slot % joined as u64 >= borne as u64 {
                    continue;
                }
                receiver.receive(now, layer, *number);
            }
        }
    }

    #[test]
    fn layers_are_left_within_seconds_and_joined_again() {
        let (mut receiver, mut numbers) = (LayeredReceiver::new(6, 1, 0), [0; 6]);
        play(&mut receiver, &mut numbers, 0..5_000, 6);
        assert_eq!((receiver.subscribed(), receiver.lost()), (6, 0));
        play(&mut receiver, &mut numbers, 5_000..6_000, 3);
        assert_eq!(receiver.subscribed(), 6, "not within a second");
        play(&mut receiver, &mut numbers, 6_000..25_000, 3);
        assert!((3..=4).contains(&receiver.subscribed()), "{receiver:?}");
        play(&mut receiver, &mut numbers, 25_000..150_000, 6);
        assert_eq!(receiver.subscribed(), 6, "{receiver:?}");
    }

    #[test]
    fn a_failed_join_experiment_is_undone_and_repeated_less_often() {
        let (mut receiver, mut numbers) = (LayeredReceiver::new(6, 2, 0), [0; 6]);
        play(&mut receiver, &mut numbers, 0..20_000, 3);
        let first = receiver.layers[3].join_s;
        play(&mut receiver, &mut numbers, 20_000..120_000, 3);
        assert!(receiver.layers[3].join_s > first, "{receiver:?}");
        assert!(receiver.detection_s < DETECTION_S[0], "learnt: {}", receiver.detection_s);
        assert!((3..=4).contains(&receiver.subscribed()), "{receiver:?}");
    }

    #[test]
    fn the_lowest_layer_is_never_left_and_packets_of_left_layers_are_not_counted() {
        let (mut receiver, mut numbers) = (LayeredReceiver::new(2, 3, 0), [0; 2]);
        for ms in (0..20_000).step_by(10) {
            let now = Time::from_nanos(ms * 1_000_000);
            while receiver.poll_timeout().is_some_and(|due| due <= now) {
                receiver.handle_timeout(now);
            }
            numbers[0] += 3;
            receiver.receive(now, 0, numbers[0]);
        }
        assert_eq!(receiver.subscribed(), 1);
        let lost = receiver.lost();
        receiver.receive(Time::from_nanos(30_000_000_000), 1, 5);
        receiver.receive(Time::from_nanos(30_000_000_000), 1, 9);
        assert_eq!(receiver.lost(), lost);
    }
}
