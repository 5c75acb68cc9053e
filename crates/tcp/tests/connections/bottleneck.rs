//! Connections that share a link with a finite queue: how full it is, how fair, how long the wait.
//!
//! 10 Mb/s and 40 ms: 34 packets of 1500 bytes fill the path. The controllers have tests of their
//! own; here handshake, acknowledgements, recovery and pacing take part.

use std::collections::VecDeque;

use nilometer_tcp::{Algorithm, Config, Connection, Recovery, Segment};
use nilometer_wire::{Ecn, Rate, Span, Time};

const MS: Span = Span::from_nanos(1_000_000);

/// One sender, its receiver, and what is on the way between them.
struct Flow {
    ends: [Connection; 2],
    to_receiver: VecDeque<(Time, Segment)>,
    to_sender: VecDeque<(Time, Segment)>,
    starts: Time,
}

impl Flow {
    fn new(config: Config, index: u32) -> Flow {
        let mut sender = Connection::connect(config, index * 1_000_003 + 7);
        sender.write(u64::MAX / 4);
        Flow {
            ends: [sender, Connection::listen(config, 0)],
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            starts: Time::ZERO + MS * (u64::from(index) * 300),
        }
    }

    /// The next moment at which something happens, if not before `now`.
    fn next(&self, now: Time) -> Option<Time> {
        if now < self.starts {
            return Some(self.starts);
        }
        let arrivals = [&self.to_receiver, &self.to_sender].map(|way| Some(way.front()?.0));
        let alarms = self.ends.iter().map(Connection::poll_timeout);
        arrivals.into_iter().chain(alarms).flatten().min()
    }
}

/// The link that all flows share.
struct Link {
    now: Time,
    rate: Rate,
    buffer: Span,
    free_at: Time,
    flows: Vec<Flow>,
    drops: u64,
    waits: Vec<f64>,
}

/// What a run was like, after its first seconds.
struct Outcome {
    /// Part of the link's payload that each flow took.
    shares: Vec<f64>,
    mean_wait: f64,
}

impl Link {
    fn new(config: Config, flows: u32, buffer_ms: u64) -> Link {
        Link {
            now: Time::ZERO,
            rate: Rate::from_megabits(10),
            buffer: MS * buffer_ms,
            free_at: Time::ZERO,
            flows: (0..flows).map(|index| Flow::new(config, index)).collect(),
            drops: 0,
            waits: Vec::new(),
        }
    }

    fn send(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if self.now < flow.starts {
            return;
        }
        while let Some(outgoing) = flow.ends[0].poll_transmit(self.now) {
            let wait = self.free_at.since(self.now);
            if wait > self.buffer {
                self.drops += 1;
                continue;
            }
            self.waits.push(wait.as_secs_f64());
            let segment = outgoing.segment;
            let bytes = u64::from(segment.length) + u64::from(segment.header_bytes()) + 20;
            self.free_at = self.now + wait + self.rate.span_of(bytes);
            flow.to_receiver.push_back((self.free_at + MS * 20, segment));
        }
        while let Some(outgoing) = flow.ends[1].poll_transmit(self.now) {
            flow.to_sender.push_back((self.now + MS * 20, outgoing.segment));
        }
    }

    fn receive(&mut self, index: usize) {
        let (flow, now) = (&mut self.flows[index], self.now);
        let [sender, receiver] = &mut flow.ends;
        for (way, end) in [(&mut flow.to_receiver, receiver), (&mut flow.to_sender, sender)] {
            while let Some(&(at, segment)) = way.front()
                && at <= now
            {
                way.pop_front();
                end.receive(now, &segment, Ecn::NotCapable);
            }
            end.handle_timeout(now);
        }
    }

    fn run_until(&mut self, seconds: u64) {
        let end = Time::ZERO + Span::from_secs(seconds);
        while self.now < end {
            for index in 0..self.flows.len() {
                self.receive(index);
                self.send(index);
            }
            let next = self.flows.iter().filter_map(|flow| flow.next(self.now)).min();
            let next = next.expect("something is always due");
            assert!(next > self.now, "time stands still at {:?}", self.now);
            self.now = next;
        }
    }

    /// Measures from second `from` to second `until`.
    fn measure(&mut self, from: u64, until: u64) -> Outcome {
        self.run_until(from);
        self.waits.clear();
        let delivered = |link: &Link| -> Vec<u64> {
            link.flows.iter().map(|flow| flow.ends[1].delivered()).collect()
        };
        let before = delivered(self);
        self.run_until(until);
        let capacity = 1_250_000.0 * 1_460.0 / 1_500.0 * (until - from) as f64;
        let shares = delivered(self).into_iter().zip(before);
        Outcome {
            shares: shares.map(|(now, old)| (now - old) as f64 / capacity).collect(),
            mean_wait: self.waits.iter().sum::<f64>() / self.waits.len() as f64,
        }
    }
}

fn config(algorithm: Algorithm) -> Config {
    Config {
        algorithm,
        recovery: Recovery::Sack,
        timestamps: true,
        initial_window: 10,
        ..Config::ns2_reno()
    }
}

#[test]
fn bbr_fills_the_link_and_not_the_queue() {
    for buffer_ms in [10, 20, 40, 200] {
        let mut link = Link::new(config(Algorithm::Bbr), 1, buffer_ms);
        let outcome = link.measure(2, 60);
        let used = outcome.shares[0];
        assert!(used > 0.9, "{used} with a buffer of {buffer_ms} ms");
        assert!(outcome.mean_wait < 0.006, "{} s of {buffer_ms} ms", outcome.mean_wait);
    }
}

#[test]
fn two_bbr_connections_share() {
    for buffer_ms in [10, 20, 40, 200] {
        let mut link = Link::new(config(Algorithm::Bbr), 2, buffer_ms);
        let outcome = link.measure(10, 60);
        let used: f64 = outcome.shares.iter().sum();
        assert!(used > 0.95, "{used} with a buffer of {buffer_ms} ms");
        let least = outcome.shares.iter().copied().fold(1.0, f64::min);
        assert!(least > 0.4, "{:?} with a buffer of {buffer_ms} ms", outcome.shares);
    }
}

/// With a queue shorter than the path, Reno waits after each cut: the link idles while the window is
/// below 34 packets. CUBIC cuts to 0.7.
#[test]
fn reno_and_cubic_fill_a_link_with_a_queue() {
    for (algorithm, buffer_ms, least) in [
        (Algorithm::Reno, 10, 0.84),
        (Algorithm::Reno, 40, 0.98),
        (Algorithm::Reno, 200, 0.98),
        (Algorithm::Cubic, 10, 0.95),
        (Algorithm::Cubic, 40, 0.98),
        (Algorithm::Cubic, 200, 0.98),
    ] {
        let mut link = Link::new(config(algorithm), 1, buffer_ms);
        link.run_until(10);
        let timeouts = link.flows[0].ends[0].statistics().timeouts;
        let outcome = link.measure(10, 60);
        let used = outcome.shares[0];
        assert!(used > least, "{algorithm:?}: {used} with a buffer of {buffer_ms} ms");
        assert_eq!(link.flows[0].ends[0].statistics().timeouts, timeouts, "{algorithm:?}");
    }
}

#[test]
fn two_of_a_kind_share_a_small_queue() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let outcome = Link::new(config(algorithm), 2, 20).measure(10, 60);
        let least = outcome.shares.iter().copied().fold(1.0, f64::min);
        assert!(least > 0.45, "{algorithm:?} {:?}", outcome.shares);
    }
}

#[test]
fn hystart_ends_slow_start_before_the_queue_does() {
    for (buffer_ms, part) in [(40, 0.5), (100, 0.25), (200, 0.25)] {
        let [without, with] = [false, true].map(|hystart| {
            let mut link = Link::new(Config { hystart, ..Config::linux() }, 1, buffer_ms);
            link.run_until(2);
            link.drops as f64
        });
        assert!(with < part * without, "{with} of {without} drops, buffer {buffer_ms} ms");
        assert!(without > 50.0);
    }
}

/// HyStart++ needs eight round-trip times from each round (RFC 9406, 4.2), also in a stack that
/// otherwise measures one. The rise shows a round late, so that the queue must have room for a
/// round.
#[test]
fn hystart_plus_plus_ends_slow_start_before_the_queue_does() {
    let stack = |hystart| Config {
        recovery: Recovery::Sack,
        algorithm: Algorithm::Cubic,
        hystart,
        ..Config::ns2_reno()
    };
    for buffer_ms in [100, 150, 200] {
        let [without, with] = [false, true].map(|hystart| {
            let mut link = Link::new(stack(hystart), 1, buffer_ms);
            link.run_until(2);
            link.drops as f64
        });
        assert!(with < 0.25 * without, "{with} of {without} drops, buffer {buffer_ms} ms");
    }
}
