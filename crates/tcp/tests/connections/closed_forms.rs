//! Steady throughput against the closed forms of Mathis and of Padhye.
//!
//! A path without a rate: what is sent arrives 50 ms later, so that a whole window leaves at one
//! moment, a round, and every round trip takes 100 ms.
//!
//! **Mathis, Semke, Mahdavi, Ott (CCR 27(3), 1997)**: one packet in 1/p lost, exactly, gives
//! MSS/RTT · √(3/2)/√p without delayed acknowledgements. The sawtooth of whole segments stays below
//! it: by 1, 2.5, 4.5 and 7 % from p = 10⁻⁴ to 3·10⁻³.
//!
//! **Padhye, Firoiu, Towsley, Kurose (SIGCOMM 1998)**, equation 32, the whole model and not the
//! approximation of equation 33; packets sent, those sent again included; a round trip of 0.1 s. The
//! model takes for granted that the first loss of a round takes the rest of the round with it, which
//! makes timeouts likely (equation 24), and that all of it is one signal, one halving, repaired at no
//! cost. Measurement over model:
//!
//! | losses | | T0 | p = 10⁻³ | 3·10⁻³ | 10⁻² | 3·10⁻² |
//! |---|---|---|---|---|---|---|
//! | independent | Reno | 0.2 s | 1.05 | 1.01 | 0.97 | 0.91 |
//! | independent | Reno | 1 s | 1.06 | 1.06 | **1.12** | 1.10 |
//! | rest of round | SACK | 1 s | 1.00 | 0.92 | **0.84** | **0.75** |
//! | rest of round | Reno | 1 s | **0.70** | **0.59** | **0.53** | **0.53** |
//! | independent, timeouts counted | NewReno | 0.2 s | 1.06 | 1.03 | 1.01 | 0.96 |
//! | independent, timeouts counted | NewReno | 1 s | 1.06 | 1.04 | 1.03 | 0.98 |
//! | rest of round, timeouts counted | SACK | 1 s | 1.02 | 0.95 | 0.92 | **0.88** |
//!
//! The deviations of more than a tenth have reasons that can be counted. Independent losses leave
//! duplicates enough for fast retransmit: at 1 % they end in a timeout six times more rarely than
//! equation 24 says. Losses of whole rounds do so more often, since repairs are lost too, and to
//! Reno nearly always, since it leaves recovery with the first hole (see `fall_floyd.rs`); only
//! SACK can do what the model takes for granted. With the counted fraction of timeouts instead of
//! equation 24, the equation holds for senders that answer a round's losses once, as long as
//! timeouts are not the rule: at 3 % every second loss ends in one, and the slow start after it,
//! which the model leaves out, shows.

use std::collections::VecDeque;

use nilometer_tcp::{Config, Connection, Recovery, Segment};
use nilometer_wire::{Ecn, Span, Time};

const MSS: u64 = 1_460;
const DELAY: Span = Span::from_nanos(50_000_000);
const RTT: f64 = 0.1;

/// A connection that always has something to send, over a path without a rate.
struct Path {
    now: Time,
    ends: [Connection; 2],
    flying: [VecDeque<(Time, Segment)>; 2],
    /// Data packets sent.
    packets: u64,
}

impl Path {
    fn new(config: Config) -> Path {
        let mut sender = Connection::connect(config, 0);
        sender.write(u64::MAX / 4);
        let ends = [sender, Connection::listen(config, 0)];
        Path { now: Time::ZERO, ends, flying: [VecDeque::new(), VecDeque::new()], packets: 0 }
    }

    /// Sends `packets` and returns the seconds that it took. `is_lost` is called for each, with the
    /// moment it leaves.
    fn run(&mut self, packets: u64, is_lost: &mut impl FnMut(Time) -> bool) -> f64 {
        let (start, until) = (self.now, self.packets + packets);
        while self.packets < until {
            for end in 0..2 {
                while let Some(outgoing) = self.ends[end].poll_transmit(self.now) {
                    let segment = outgoing.segment;
                    self.packets += u64::from(segment.length > 0);
                    if segment.length == 0 || !is_lost(self.now) {
                        self.flying[end].push_back((self.now + DELAY, segment));
                    }
                }
            }
            let arrivals = self.flying.iter().map(|way| way.front().map(|(at, _)| *at));
            let alarms = self.ends.iter().map(Connection::poll_timeout);
            self.now = arrivals.chain(alarms).flatten().min().expect("something is always due");
            for end in 0..2 {
                self.ends[end].handle_timeout(self.now);
                if let Some(&(at, segment)) = self.flying[1 - end].front()
                    && at <= self.now
                {
                    self.flying[1 - end].pop_front();
                    self.ends[end].receive(self.now, &segment, Ecn::NotCapable);
                }
            }
        }
        self.now.since(start).as_secs_f64()
    }
}

#[test]
fn mathis_holds_for_sack_with_periodic_loss() {
    for (p, every) in [(1e-4_f64, 10_000), (3e-4, 3_333), (1e-3, 1_000), (3e-3, 333)] {
        let mut path = Path::new(Config { recovery: Recovery::Sack, ..Config::ns2_reno() });
        let mut count = 0_u64;
        let mut is_lost = |_| {
            count += 1;
            count.is_multiple_of(every)
        };
        path.run(20 * every, &mut is_lost);
        let before = path.ends[0].acknowledged();
        let timeouts = path.ends[0].statistics().timeouts;
        let seconds = path.run(100 * every, &mut is_lost);
        let rate = (path.ends[0].acknowledged() - before) as f64 / seconds;
        let ratio = rate / (MSS as f64 / RTT * (1.5 / p).sqrt());
        println!("Mathis, p = {p}: {ratio:.3}");
        assert!((0.9..1.1).contains(&ratio), "p = {p}: {ratio}");
        assert_eq!(path.ends[0].statistics().timeouts, timeouts, "no timer is needed");
    }
}

/// Expected window at the end of a cycle, packets (equation 13, one packet per acknowledgement).
fn window(p: f64) -> f64 {
    1.0 + (8.0 * (1.0 - p) / (3.0 * p) + 1.0).sqrt()
}

/// The chance that a loss ends in a timeout (equation 24).
fn timeout_chance(p: f64) -> f64 {
    let s = 1.0 - p;
    let three = s.powi(3);
    let short = (1.0 - three) * (1.0 + three * (1.0 - s.powf(window(p) - 3.0)));
    (short / (1.0 - s.powf(window(p)))).min(1.0)
}

/// Packets per second by equation 32, for a window that nothing limits; `timeout` is T0 in seconds,
/// `q` the chance that a loss ends in one.
fn padhye(p: f64, timeout: f64, q: f64) -> f64 {
    let s = 1.0 - p;
    let f = (0..6).fold(1.0, |f, i| f + 2.0_f64.powi(i) * p.powi(i + 1)); // equation 29
    let packets = s / p + window(p) + q / s;
    packets / (RTT * (window(p) / 2.0 + 1.0) + q * timeout * f / s)
}

/// Whether a loss takes the rest of its round with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Losses {
    Independent,
    RestOfRound,
}

/// Uniform in [0, 1): SplitMix64.
fn unit(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((word ^ (word >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

const SEEDS: u64 = 12;

/// What was measured at one point.
struct Point {
    p: f64,
    /// Packets per second by those of the model.
    ratio: f64,
    /// The standard error of `ratio`.
    error: f64,
    /// Part of the losses' signals that ended in a timeout.
    timeouts: f64,
}

fn measure(recovery: Recovery, losses: Losses, timeout: f64, p: f64) -> Point {
    let packets = if p < 0.005 { 200.0 / p } else { 800.0 / p } as u64;
    let model = padhye(p, timeout, timeout_chance(p));
    let mut signals = [0; 2];
    let ratios: [f64; SEEDS as usize] = core::array::from_fn(|seed| {
        let rto_min = Span::from_secs_f64(timeout);
        let mut path = Path::new(Config { recovery, rto_min, ..Config::ns2_reno() });
        let mut state = seed as u64;
        let mut lossy_round = None;
        let mut is_lost = |now| {
            if losses == Losses::RestOfRound && lossy_round == Some(now) {
                return true;
            }
            let is_lost = unit(&mut state) < p;
            lossy_round = if is_lost { Some(now) } else { lossy_round };
            is_lost
        };
        path.run(packets / 10, &mut is_lost);
        let ratio = packets as f64 / path.run(packets, &mut is_lost) / model;
        let statistics = path.ends[0].statistics();
        signals[0] += statistics.timeouts;
        signals[1] += statistics.timeouts + statistics.fast_recoveries;
        ratio
    });
    let count = SEEDS as f64;
    let ratio = ratios.iter().sum::<f64>() / count;
    let variance = ratios.iter().map(|each| (each - ratio).powi(2)).sum::<f64>() / (count - 1.0);
    let (error, timeouts) = ((variance / count).sqrt(), signals[0] as f64 / signals[1] as f64);
    println!(
        "{recovery:?} {losses:?} T0 {timeout} p {p}: {ratio:.3} ± {error:.3}, timeouts {timeouts:.3} \
         (model {:.3})",
        timeout_chance(p)
    );
    assert!(error < 0.02 * ratio, "p = {p}: sampling error {error}");
    Point { p, ratio, error, timeouts }
}

const POINTS: [f64; 4] = [1e-3, 3e-3, 1e-2, 3e-2];

fn measure_all(recovery: Recovery, losses: Losses, timeout: f64) -> [Point; 4] {
    POINTS.map(|p| measure(recovery, losses, timeout, p))
}

fn assert_within_tenth(point: &Point, ratio: f64) {
    assert!((0.9..1.1).contains(&ratio), "p = {}: {ratio} ± {}", point.p, point.error);
}

/// The ratio to equation 32 with the part of timeouts that was counted in place of equation 24.
fn ratio_by_count(point: &Point, timeout: f64) -> f64 {
    let model = padhye(point.p, timeout, timeout_chance(point.p));
    point.ratio * model / padhye(point.p, timeout, point.timeouts)
}

#[test]
fn padhye_holds_for_reno_with_independent_losses() {
    for point in measure_all(Recovery::Reno, Losses::Independent, 0.2) {
        assert_within_tenth(&point, point.ratio);
    }
}

/// With a timer of ten round trips it matters how rare timeouts are: at 1 % they are six times rarer
/// than in the model, which is the one point off by more than a tenth; with the counted timeouts it
/// is not.
#[test]
fn with_a_long_timer_independent_losses_do_better_than_padhye_has_them() {
    let points = measure_all(Recovery::Reno, Losses::Independent, 1.0);
    assert_within_tenth(&points[0], points[0].ratio);
    assert_within_tenth(&points[1], points[1].ratio);
    assert!((1.05..1.15).contains(&points[3].ratio), "{}", points[3].ratio);
    let miss = &points[2];
    assert!((1.1..1.15).contains(&miss.ratio), "{}", miss.ratio);
    assert!(miss.timeouts < timeout_chance(miss.p) / 5.0, "{}", miss.timeouts);
    assert_within_tenth(miss, ratio_by_count(miss, 1.0));
}

#[test]
fn by_counted_timeouts_padhye_holds_for_new_reno() {
    for timeout in [0.2, 1.0] {
        for point in measure_all(Recovery::NewReno, Losses::Independent, timeout) {
            assert_within_tenth(&point, ratio_by_count(&point, timeout));
        }
    }
}

#[test]
fn losing_the_rest_of_a_round_is_one_signal_to_sack_and_a_timeout_to_reno() {
    let points = measure_all(Recovery::Sack, Losses::RestOfRound, 1.0);
    assert_within_tenth(&points[0], points[0].ratio);
    assert_within_tenth(&points[1], points[1].ratio);
    for point in &points[..3] {
        assert_within_tenth(point, ratio_by_count(point, 1.0));
    }
    let last = ratio_by_count(&points[3], 1.0);
    assert!((0.85..0.9).contains(&last), "{last}");
    for point in measure_all(Recovery::Reno, Losses::RestOfRound, 1.0) {
        assert!(point.timeouts > 0.4, "p = {}: {}", point.p, point.timeouts);
        assert!((0.45..0.75).contains(&point.ratio), "p = {}: {}", point.p, point.ratio);
    }
}
