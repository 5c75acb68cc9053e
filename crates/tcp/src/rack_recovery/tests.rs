//! The sender with records, step by step: what is believed, when the tail is probed, what is cut.

use super::*;
use crate::config::{Algorithm, Config};
use crate::segment::Segment;

const MSS: u64 = 1_000;
const MS: Span = Span::from_nanos(1_000_000);

/// A sender after the handshake, and the moment.
struct Stage {
    sender: Sender,
    now: Time,
    counts: Statistics,
}

impl Stage {
    /// A round trip of 50 ms was measured, and `cwnd` segments may leave.
    fn new(cwnd: u64) -> Stage {
        let config = Config {
            algorithm: Algorithm::Reno,
            initial_window: cwnd as u32,
            nagle: false,
            ..Config::linux()
        };
        let mut sender = Sender::new(&config, 0);
        sender.has_sack = true;
        sender.begin(MSS as u32, &config);
        (sender.una, sender.next, sender.max, sender.edge) = (1, 1, 1, 1 << 30);
        sender.rtt.sample(MS * 50);
        Stage { sender, now: Time::ZERO + MS * 1_000, counts: Statistics::default() }
    }

    fn state(&mut self) -> &mut RackState {
        self.sender.rack_state.as_mut().expect("there are records")
    }

    /// Sends all that may leave; where it begins.
    fn send(&mut self) -> alloc::vec::Vec<u64> {
        core::iter::from_fn(|| self.sender.transmit(self.now, &mut self.counts))
            .map(|chunk| chunk.start)
            .collect()
    }

    fn write(&mut self, segments: u64) -> alloc::vec::Vec<u64> {
        self.sender.write(segments * MSS);
        self.send()
    }

    fn ack(&mut self, ack: u64, blocks: &[[u32; 2]]) {
        let mut segment = Segment::default();
        blocks.iter().for_each(|[left, right]| assert!(segment.push_block(*left, *right)));
        let arrival = Arrival { now: self.now, segment: &segment, echoed: None, is_bare: true };
        self.sender.on_ack(ack, &arrival, &mut self.counts);
    }

    fn wait(&mut self, millis: u64) {
        self.now += MS * millis;
    }

    /// Waits for the timer, which must run for `millis`.
    fn alarm(&mut self, millis: u64) {
        assert_eq!(self.sender.deadline.since(self.now), MS * millis);
        self.now = self.sender.deadline;
        self.sender.deadline = NEVER;
        self.sender.on_timeout(self.now, &mut self.counts);
    }
}

/// RFC 2018: a block covers data that was sent and not acknowledged; any other is ignored.
#[test]
fn invalid_sack_blocks_are_ignored() {
    let cases: [([u32; 2], u64); 8] = [
        ([2_001, 3_001], MSS),
        ([2_001, 5_001], 3 * MSS),
        ([2_001, 5_002], 0),   // beyond what was sent
        ([2_001, 1 << 20], 0), // far beyond
        ([3_001, 2_001], 0),   // turned round
        ([3_001, 3_001], 0),   // empty
        ([1, 1_001], 0),       // acknowledged by now
        ([2_001, 2_901], 0),   // a part of a segment
    ];
    for (block, expected) in cases {
        let mut stage = Stage::new(10);
        assert_eq!(stage.write(5), [1, 1_001, 2_001, 3_001, 4_001]);
        stage.wait(50);
        stage.ack(1_001, &[block]);
        let bytes = *stage.state().bytes();
        assert_eq!((bytes.outstanding, bytes.sacked), (4 * MSS, expected), "{block:?}");
    }
}

/// RFC 8985, 7.2: PTO is twice the smoothed round-trip time, and for a single segment longer by
/// what its acknowledgement may be delayed; never beyond the timeout.
#[test]
fn the_tail_is_probed_after_two_round_trips() {
    let mut stage = Stage::new(10);
    stage.write(2);
    stage.alarm(102); // with two timers' margin
    assert_eq!(stage.send(), [1_001], "the last again");
    assert_eq!(stage.counts.timeouts, 0);
    // Its own timer is the timeout's, 50 ms and a margin of 200.
    stage.alarm(250);
    assert_eq!(stage.counts.timeouts, 1);

    let mut stage = Stage::new(10);
    stage.write(1);
    stage.alarm(250); // 100 and 200 would be more than the timeout

    // New data is sent rather than old.
    let mut stage = Stage::new(2);
    assert_eq!(stage.write(3), [1, 1_001]);
    stage.alarm(102);
    assert_eq!(stage.send(), [2_001]);
}

/// RFC 8985, 7.4: the probe that repaired a loss is a sign of congestion, unless that is answered
/// already; the one that came twice is none.
#[test]
fn a_probe_that_repaired_a_loss_cuts_the_window_once() {
    let probed = || {
        let mut stage = Stage::new(10);
        stage.write(2);
        stage.alarm(102);
        assert_eq!(stage.send(), [1_001]);
        stage.wait(50);
        assert_eq!(stage.state().probed, Some((2_001, true)));
        stage
    };
    // All is acknowledged, and a duplicate says that both copies arrived.
    let mut stage = probed();
    stage.ack(2_001, &[]);
    assert_eq!(stage.state().probed, Some((2_001, true)), "not yet known");
    stage.ack(2_001, &[]);
    assert_eq!(stage.state().probed, None);
    assert_eq!(stage.sender.window.ssthresh, u64::MAX);
    // More is acknowledged, and no duplicate came: it had been lost.
    let mut stage = probed();
    stage.ack(2_001, &[]);
    stage.write(1);
    stage.wait(50);
    stage.ack(3_001, &[]);
    assert_eq!(stage.state().probed, None);
    let cut = stage.sender.window.ssthresh;
    assert_ne!(cut, u64::MAX);
    assert_eq!((stage.sender.window.cwnd, stage.sender.phase), (cut, Phase::Open));
    // That is no news where the window is being reduced.
    let mut stage = probed();
    stage.ack(2_001, &[]);
    stage.write(1);
    stage.wait(50);
    stage.state().is_reducing = true;
    stage.sender.recover = 9_001;
    stage.ack(3_001, &[]);
    assert_eq!((stage.state().probed, stage.sender.window.ssthresh), (None, u64::MAX));
    // An acknowledgement below the probe decides nothing.
    let mut stage = probed();
    stage.ack(1_001, &[]);
    stage.ack(1_001, &[]);
    assert_eq!(stage.state().probed, Some((2_001, true)));
}

/// A probe of new data is at its end when that is acknowledged.
#[test]
fn a_probe_of_new_data_is_over_with_its_acknowledgement() {
    let mut stage = Stage::new(2);
    stage.write(3);
    stage.alarm(102);
    assert_eq!(stage.send(), [2_001]);
    assert_eq!(stage.state().probed, Some((3_001, false)));
    stage.wait(50);
    stage.ack(2_001, &[]);
    assert_eq!(stage.state().probed, Some((3_001, false)));
    stage.ack(3_001, &[]);
    assert_eq!((stage.state().probed, stage.sender.window.ssthresh), (None, u64::MAX));
}

/// While one probe is not answered there is no second, but the timeout.
#[test]
fn the_tail_is_probed_once() {
    let mut stage = Stage::new(10);
    stage.write(2);
    stage.alarm(102);
    stage.send();
    stage.wait(10);
    stage.write(1);
    assert_eq!(stage.state().alarm, Alarm::Tail);
    let deadline = stage.sender.deadline;
    stage.now = deadline;
    stage.sender.on_timeout(deadline, &mut stage.counts);
    assert_eq!(stage.state().alarm, Alarm::Timeout);
    assert!(!stage.state().probes_tail);
    assert_eq!((stage.send().len(), stage.counts.timeouts), (0, 0));
}

/// The end of the stream goes even if the window is full, but not what is a whole segment.
#[test]
fn a_last_partial_segment_does_not_wait_for_the_window() {
    let last = |bytes: u64, change: fn(&mut Sender)| {
        let mut stage = Stage::new(2);
        stage.sender.write(2 * MSS + bytes);
        stage.sender.has_fin = true;
        change(&mut stage.sender);
        stage.send();
        (stage.sender.max - 1, stage.state().segments().outstanding)
    };
    assert_eq!(last(0, |_| {}), (2_001, 2), "the FIN goes with the last segment");
    assert_eq!(last(999, |_| {}), (3_000, 3), "with data");
    assert_eq!(last(1_000, |_| {}), (2_000, 2), "a whole segment waits");
    assert_eq!(last(500, |sender| sender.has_fin = false), (2_000, 2), "no end");
    // The peer's window has to have room for it.
    assert_eq!(last(500, |sender| sender.edge = 2_502), (2_501, 3));
    assert_eq!(last(500, |sender| sender.edge = 2_501), (2_000, 2));
}

/// The window grows where it was used up, and in slow start where more than half of it was.
#[test]
fn a_window_grows_that_was_used() {
    let grown = |cwnd: u64, segments: u64, ssthresh: u64| {
        let mut stage = Stage::new(cwnd);
        stage.sender.window.ssthresh = ssthresh * MSS;
        stage.write(segments);
        stage.wait(50);
        stage.ack(1_001, &[]);
        stage.sender.window.cwnd - cwnd * MSS
    };
    assert_eq!(grown(10, 10, 1_000), MSS, "used up");
    assert_eq!(grown(10, 6, 1_000), MSS, "more than half");
    assert_eq!(grown(10, 5, 1_000), 0, "half");
    assert_eq!(grown(10, 9, 5), 0, "after slow start only if used up");
}

/// A timeout leaves a segment more than what may yet be in the network.
#[test]
fn a_timeout_begins_with_one_segment() {
    let mut stage = Stage::new(10);
    stage.state().has_tail_probe = false;
    stage.write(4);
    stage.alarm(250);
    let sender = &stage.sender;
    assert_eq!((sender.window.cwnd, sender.window.ssthresh), (MSS, 5 * MSS));
    assert_eq!((sender.phase, sender.recover, sender.retries), (Phase::Loss, 4_001, 1));
    assert_eq!(stage.send(), [1]);
    // A second one does not cut the threshold again.
    stage.alarm(500);
    assert_eq!((stage.sender.window.ssthresh, stage.counts.timeouts), (5 * MSS, 2));
    assert_eq!((stage.sender.retries, stage.sender.window.cwnd), (2, MSS));
}

/// A window that is too small for what waits was used up, also where nothing could be sent.
#[test]
fn a_window_that_keeps_all_back_was_used_up() {
    let limited = |cwnd: u64, segments: u64| {
        let mut stage = Stage::new(10);
        stage.write(3);
        assert!(!stage.state().usage.is_limited, "three of ten");
        stage.sender.window.cwnd = cwnd * MSS;
        assert!(stage.write(segments).is_empty());
        stage.state().usage.is_limited
    };
    assert_eq!([limited(3, 5), limited(3, 0)], [true, false]);
}

/// How much of the window was used is remembered for a round trip, and meanwhile only more counts.
#[test]
fn the_most_that_was_used_holds_for_a_round_trip() {
    let mut stage = Stage::new(10);
    stage.write(3);
    let mut usage = |ack: u64, segments: u64| {
        stage.wait(50);
        stage.ack(ack, &[]);
        stage.write(segments);
        let usage = stage.state().usage;
        (usage.most / MSS, usage.until)
    };
    assert_eq!(usage(1_001, 1), (3, 3_001), "as many as before");
    assert_eq!(usage(2_001, 3), (5, 7_001), "more");
    assert_eq!(usage(6_001, 1), (5, 7_001), "less, within the round trip");
    assert_eq!(usage(7_001, 1), (2, 9_001), "less, after it");
}

/// A timer that fires though nothing is late changes nothing but the timer.
#[test]
fn a_reordering_timer_without_a_loss_leaves_the_window() {
    let mut stage = Stage::new(10);
    stage.write(3);
    stage.state().alarm = Alarm::Reordering;
    let before = stage.sender.window;
    stage.sender.on_timeout(stage.now, &mut stage.counts);
    assert_eq!((stage.sender.window, stage.sender.phase), (before, Phase::Open));
    assert_eq!((stage.counts.timeouts, stage.counts.fast_recoveries), (0, 0));
    let alarm = stage.state().alarm;
    assert_eq!((alarm, stage.sender.deadline.since(stage.now)), (Alarm::Timeout, MS * 250));
}

/// A probe waits for the acknowledgement of all that it sent, a FIN with it.
#[test]
fn a_probe_is_over_with_all_that_it_sent() {
    for (segments, has_fin, expected) in [
        (3, true, (3_002, false)),
        (3, false, (3_001, false)),
        (2, false, (2_001, true)),
        (2, true, (2_002, true)),
    ] {
        let mut stage = Stage::new(2);
        stage.sender.has_fin = has_fin;
        stage.sender.write(0);
        stage.sender.end += segments * MSS;
        assert_eq!(stage.send().len(), 2);
        stage.alarm(102);
        assert_eq!(stage.send().len(), 1);
        assert_eq!(stage.state().probed, Some(expected), "{segments}, FIN {has_fin}");
    }
}
