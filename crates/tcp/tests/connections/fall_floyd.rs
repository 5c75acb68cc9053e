//! Fall and Floyd's comparison of Tahoe, Reno, New-Reno and SACK, packet by packet.
//!
//! K. Fall and S. Floyd, "Simulation-based Comparisons of Tahoe, Reno and SACK TCP", CCR 26(3), 1996,
//! section 5: one, two, three or four packets are lost from the window of packets 14 to 28. What each
//! kind of recovery makes of it is asserted in words from that paper, and the whole course stands in
//! `tests/golden` (`UPDATE=1` rewrites it). The paper's queue and cross traffic, which are there to
//! cause these drops, are replaced by the list of drops. A line of a golden file is a moment in
//! milliseconds since the first data packet, a packet's number and what happened: `data` left the
//! sender, `drop` at R1, `ack` reached the sender (it names the last packet received in order).
//!
//! ```text
//! S1 ──8 Mb/s, 0.1 ms── R1 ──0.8 Mb/s, 100 ms── K1        packets of 1000 bytes, ACKs of 40
//! ```

use std::collections::VecDeque;
use std::fmt::Write as _;

use nilometer_tcp::{Config, Connection, Recovery, Segment};
use nilometer_wire::{Ecn, Rate, Span, Time};

/// Payload of a packet of 1000 bytes.
const MSS: u16 = 960;
/// The last packet whose acknowledgement is of interest.
const LAST: u64 = 49;
/// Packets lost, by how many are.
const DROPS: [&[u64]; 4] = [&[14], &[14, 28], &[14, 26, 28], &[14, 24, 26, 28]];

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Drop,
    Ack,
}

/// One line of a plot.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    packet: i64,
    kind: Kind,
}

/// A link that sends one packet after the other.
struct Link {
    rate: Rate,
    delay: Span,
    free_at: Time,
}

impl Link {
    fn new(bits_per_second: u64, delay_us: u64) -> Link {
        let rate = Rate::new(bits_per_second).expect("not zero");
        Link { rate, delay: Span::from_nanos(delay_us * 1_000), free_at: Time::ZERO }
    }

    /// When a packet of `bytes` that enters at `now` is at the other end.
    fn carry(&mut self, now: Time, bytes: u64) -> Time {
        self.free_at = self.free_at.max(now) + self.rate.span_of(bytes);
        self.free_at + self.delay
    }
}

/// One connection's course.
struct Run {
    now: Time,
    ends: [Connection; 2],
    /// S1 to R1, R1 to K1, and both back.
    links: [[Link; 2]; 2],
    flying: [VecDeque<(Time, Segment)>; 2],
    to_drop: Vec<u64>,
    marks: Vec<Mark>,
    /// Congestion window after each acknowledgement, in packets.
    windows: Vec<f64>,
}

impl Run {
    fn new(recovery: Recovery, drops: &[u64]) -> Run {
        let config = Config {
            mss: MSS,
            recovery,
            initial_window: 1,
            rto_min: Span::from_secs(1),
            ..Config::ns2_reno()
        };
        let mut sender = Connection::connect(config, 0);
        sender.write(1_000_000);
        let ways = || [Link::new(8_000_000, 100), Link::new(800_000, 100_000)];
        let mut run = Run {
            now: Time::ZERO,
            ends: [sender, Connection::listen(config, 0)],
            links: [ways(), ways()],
            flying: [VecDeque::new(), VecDeque::new()],
            to_drop: drops.to_vec(),
            marks: Vec::new(),
            windows: Vec::new(),
        };
        run.links[1].swap(0, 1);
        while run
            .marks
            .last()
            .is_none_or(|mark| mark.packet < LAST as i64 || mark.kind != Kind::Ack)
        {
            run.step();
        }
        run
    }

    fn step(&mut self) {
        for end in 0..2 {
            while let Some(outgoing) = self.ends[end].poll_transmit(self.now) {
                self.launch(end, outgoing.segment);
            }
        }
        let arrivals = self.flying.iter().map(|way| way.front().map(|(at, _)| *at));
        let alarms = self.ends.iter().map(Connection::poll_timeout);
        self.now = arrivals.chain(alarms).flatten().min().expect("something is always due");
        assert!(self.now < Time::ZERO + Span::from_secs(20), "it never ends");
        for end in 0..2 {
            while let Some(&(at, segment)) = self.flying[1 - end].front()
                && at <= self.now
            {
                self.flying[1 - end].pop_front();
                self.arrive(end, &segment);
            }
            self.ends[end].handle_timeout(self.now);
        }
    }

    fn launch(&mut self, end: usize, segment: Segment) {
        let bytes = u64::from(segment.header_bytes()) + 20 + u64::from(segment.length);
        let at_router = self.links[end][0].carry(self.now, bytes);
        if segment.length > 0 {
            let packet = u64::from(segment.sequence - 1) / u64::from(MSS);
            self.mark(self.now, packet as i64, Kind::Data);
            if let Some(index) = self.to_drop.iter().position(|&drop| drop == packet) {
                self.to_drop.remove(index);
                self.mark(at_router, packet as i64, Kind::Drop);
                return;
            }
        }
        let at_end = self.links[end][1].carry(at_router, bytes);
        self.flying[end].push_back((at_end, segment));
    }

    fn arrive(&mut self, end: usize, segment: &Segment) {
        self.ends[end].receive(self.now, segment, Ecn::NotCapable);
        if end == 0 && !self.marks.is_empty() {
            let packet = i64::from(segment.acknowledgement - 1) / i64::from(MSS) - 1;
            self.mark(self.now, packet, Kind::Ack);
            self.windows.push(self.ends[0].window().cwnd as f64 / f64::from(MSS));
        }
    }

    fn mark(&mut self, at: Time, packet: i64, kind: Kind) {
        self.marks.push(Mark { at, packet, kind });
    }

    /// When a packet left the sender: first, and each time again.
    fn departures(&self, packet: u64) -> Vec<Time> {
        let is_it = |mark: &&Mark| mark.kind == Kind::Data && mark.packet == packet as i64;
        self.marks.iter().filter(is_it).map(|mark| mark.at).collect()
    }

    /// When each lost packet was repaired, and that once was enough.
    fn repairs(&self, drops: &[u64]) -> Vec<Time> {
        drops
            .iter()
            .map(|&drop| {
                let departures = self.departures(drop);
                assert_eq!(departures.len(), 2, "packet {drop}");
                departures[1]
            })
            .collect()
    }

    /// Packets sent more than once though they had arrived.
    fn needless(&self, drops: &[u64]) -> usize {
        let again = |packet: &u64| self.departures(*packet).len() > 1 && !drops.contains(packet);
        (0..=LAST).filter(again).count()
    }

    fn plot(&self) -> String {
        let mut marks = self.marks.clone();
        marks.sort_by_key(|mark| mark.at);
        let start = marks[0].at;
        let mut text = String::new();
        for Mark { at, packet, kind } in marks {
            let micros = at.since(start).as_nanos() / 1_000;
            let kind = match kind {
                Kind::Data => "data",
                Kind::Drop => "drop",
                Kind::Ack => "ack",
            };
            writeln!(text, "{}.{:03} {packet} {kind}", micros / 1_000, micros % 1_000).unwrap();
        }
        text
    }
}

/// The runs of one kind of recovery, each compared with its golden file.
fn runs(name: &str, recovery: Recovery) -> [Run; 4] {
    DROPS.map(|drops| {
        let run = Run::new(recovery, drops);
        let path = format!(
            "{}/tests/golden/fall_floyd_{name}_{}.txt",
            env!("CARGO_MANIFEST_DIR"),
            drops.len()
        );
        let plot = run.plot();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &plot).expect("the golden file can be written");
        }
        let golden = std::fs::read_to_string(&path).expect("the golden file is there");
        let line = golden.lines().zip(plot.lines()).position(|(old, new)| old != new);
        assert_eq!(line, None, "{path}: first line (from 0) that differs");
        assert_eq!(golden.len(), plot.len(), "{path}: lengths");
        run
    })
}

/// All of them begin alike: 15 packets are under way when the third duplicate for 13 comes.
fn assert_beginning(run: &Run) {
    let first_repair = run.departures(14)[1];
    let before: Vec<_> = run.marks.iter().filter(|mark| mark.at < first_repair).collect();
    let highest = before.iter().map(|mark| mark.packet).max();
    assert_eq!(highest, Some(28));
    let at = |kind| before.iter().filter(|mark| mark.kind == kind && mark.packet == 13).count();
    assert_eq!(at(Kind::Ack), 3, "the first, two duplicates; the third releases the repair");
    assert_eq!(run.windows[..14], core::array::from_fn::<_, 14, _>(|i| (i + 2) as f64));
}

/// A round trip with an empty queue takes 211.64 ms; behind a dozen packets, half as much again.
fn is_one_round_trip(from: Time, to: Time) -> bool {
    let millis = to.since(from).as_nanos() / 1_000_000;
    (211..330).contains(&millis)
}

#[test]
fn tahoe_slow_starts_after_the_first_loss() {
    for (run, drops) in runs("tahoe", Recovery::Tahoe).iter().zip(DROPS) {
        assert_beginning(run);
        let statistics = run.ends[0].statistics();
        assert_eq!((statistics.fast_recoveries, statistics.timeouts), (1, 0));
        let repairs = run.repairs(drops);
        assert!(run.windows.contains(&1.0), "slow start from one packet");
        // It starts at half the window: at 7 packets growth becomes linear.
        assert_eq!(run.ends[0].window().ssthresh, 15 * u64::from(MSS) / 2);
        for pair in repairs.windows(2) {
            assert!(pair[1] >= pair[0]);
        }
        // "... constrained to either retransmit at most one dropped packet per round-trip time, or to
        // retransmit packets that might have already been successfully delivered": Tahoe is the latter.
        assert_eq!(run.needless(drops) > 0, drops.len() > 2, "{} drops", drops.len());
    }
}

#[test]
fn reno_recovers_from_one_loss_halves_twice_for_two_and_waits_for_the_timer_with_three() {
    let expected = [(1, 0), (2, 0), (2, 1), (2, 1)];
    let runs = runs("reno", Recovery::Reno);
    for ((run, drops), expected) in runs.iter().zip(DROPS).zip(expected) {
        assert_beginning(run);
        let statistics = run.ends[0].statistics();
        let seen = (statistics.fast_recoveries, statistics.timeouts);
        assert_eq!(seen, expected, "{} drops", drops.len());
    }
    let halved = |run: &Run| run.ends[0].window().ssthresh * 2 / u64::from(MSS);
    assert_eq!(halved(&runs[0]), 15);
    // Two losses are two signals of congestion to Reno: 15 packets, and of the 7 that remained again
    // half.
    assert_eq!(halved(&runs[1]), 7);
    for (run, drops) in runs.iter().zip(DROPS).skip(2) {
        // What the timer repairs has waited for a second.
        let last = run.departures(28);
        let waited = last[last.len() - 1].since(run.departures(14)[1]);
        assert!(waited > Span::from_secs(1), "{waited} for {} drops", drops.len());
    }
}

#[test]
fn new_reno_repairs_one_hole_per_round_trip_without_the_timer() {
    for (run, drops) in runs("newreno", Recovery::NewReno).iter().zip(DROPS) {
        assert_beginning(run);
        let statistics = run.ends[0].statistics();
        assert_eq!((statistics.fast_recoveries, statistics.timeouts), (1, 0));
        for pair in run.repairs(drops).windows(2) {
            assert!(is_one_round_trip(pair[0], pair[1]), "{pair:?}");
        }
        assert_eq!(run.needless(drops), 0);
        assert_eq!(run.ends[0].window().ssthresh, 15 * u64::from(MSS) / 2, "halved once");
    }
}

/// 24, 26 and 28 are only known to be lost when three packets above them have arrived (RFC 6675), so
/// that the first new packets of recovery reveal the losses: then all go out within a round trip,
/// where New-Reno takes one for each.
#[test]
fn sack_repairs_all_holes_in_the_same_round_trip() {
    for (run, drops) in runs("sack", Recovery::Sack).iter().zip(DROPS) {
        assert_beginning(run);
        let statistics = run.ends[0].statistics();
        assert_eq!((statistics.fast_recoveries, statistics.timeouts), (1, 0));
        let repairs = run.repairs(drops);
        if let [_, holes @ ..] = &repairs[..]
            && let (Some(first), Some(last)) = (holes.first(), holes.last())
        {
            assert!(last.since(*first) <= Span::from_nanos(30_000_000), "{repairs:?}");
            let departure = run.departures(29)[0];
            assert!(is_one_round_trip(departure, *first) && is_one_round_trip(departure, *last));
        }
        assert_eq!(run.needless(drops), 0);
        assert_eq!(run.ends[0].window().ssthresh, 15 * u64::from(MSS) / 2, "halved once");
    }
}

#[test]
fn sack_repairs_before_newreno_and_newreno_before_reno() {
    for drops in &DROPS[1..] {
        let end = |recovery| Run::new(recovery, drops).repairs(drops).into_iter().max();
        let [reno, new_reno, sack] = [Recovery::Reno, Recovery::NewReno, Recovery::Sack].map(end);
        assert!(sack <= new_reno || drops.len() == 2, "{sack:?} {new_reno:?}");
        assert!(new_reno < reno, "{new_reno:?} {reno:?}");
    }
}
