//! Whether frames waited for whole ticks of the scheduler: another program had the processor of the device.
//!
//! A thread that loses its processor to another one gets it back at a tick of the scheduler, and what waited for it
//! leaves then. Delays look like a comb, and a queue of the device seems deeper than it is; so a trial in which much
//! of the delay is of this kind measures the neighbour and not the device.
//!
//! A *stall* begins with a frame whose delay is longer by `STALL_MIN` than that of the frame before, and ends when it
//! arrives, if another frame that was sent meanwhile arrives no sooner; whatever was sent in between was delayed by it.
//! Ticks are periodic in the clock that stamps are taken from, so the ends of stalls have one phase in a tick if ticks end
//! them, and any phase if the device does. Rayleigh's test tells which: of `n` phases with the mean resultant length `R`,
//! `n R²` above `EVIDENCE` comes by chance once in 160,000 trials. Frames that the device delays by a time of its own (a
//! constant, jitter, a queue that fills) make no stalls, or stalls that end at any phase.
//!
//! Where frames themselves are sent at one phase of the tick (one a tick, bursts), so is everything that becomes of them,
//! and nothing is concluded. A device that works in a period of whole ticks cannot be told from one that is kept waiting.

use nilometer_wire::{Span, Time};

/// The jump in delay that is a stall.
const STALL_MIN: Span = Span::from_nanos(500_000);
/// `n R²` of phases that are hardly there by chance.
const EVIDENCE: f64 = 12.0;
/// The mean resultant length below which most stalls end elsewhere.
const RESULTANT_MIN: f64 = 0.5;
/// The mean resultant length above which frames are sent at a phase of the tick.
const SENT_RESULTANT_MAX: f64 = 0.3;
/// The phases at which the first so many frames are sent are looked at, and of the others one of 64, drawn by number.
const ALL_SENT: u64 = 1 << 12;

/// Stalls that ended at ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comb {
    /// The time between two ticks.
    pub tick: Span,
    /// Stalls of the trial.
    pub stalls: u64,
    /// The longest stall.
    pub longest: Span,
    /// The share of frames that they delayed, 0 to 1.
    pub delayed_share: f64,
}

/// Watches the delays of one stream.
#[derive(Clone, Debug)]
pub struct CombWatch {
    tick: Span,
    /// When the latest frame was sent, and its delay.
    latest: Option<(Time, Span)>,
    /// A stall that no other frame has shown yet: its end, and its length.
    pending: Option<(Time, Span)>,
    /// When the latest stall ended.
    stalled_until: Time,
    frames: u64,
    delayed: u64,
    stalls: u64,
    longest: Span,
    ends: Phases,
    sent: Phases,
}

/// Phases in a period, as a sum of unit vectors.
#[derive(Clone, Copy, Debug, Default)]
struct Phases {
    count: u64,
    cosine: f64,
    sine: f64,
}

impl Phases {
    fn add(&mut self, at: Time, period: Span) {
        let period_ns = period.as_nanos();
        let phase = (at.as_nanos() % period_ns) as f64 / period_ns as f64;
        let (sine, cosine) = libm::sincos(core::f64::consts::TAU * phase);
        self.count += 1;
        self.cosine += cosine;
        self.sine += sine;
    }

    /// The mean resultant length: 1 if all are the same, about 0 if they are spread evenly.
    fn resultant(&self) -> f64 {
        libm::hypot(self.cosine, self.sine) / self.count.max(1) as f64
    }
}

impl CombWatch {
    /// On a machine whose scheduler has a `tick` of this length, above zero.
    pub fn new(tick: Span) -> CombWatch {
        CombWatch {
            tick,
            latest: None,
            pending: None,
            stalled_until: Time::ZERO,
            frames: 0,
            delayed: 0,
            stalls: 0,
            longest: Span::ZERO,
            ends: Phases::default(),
            sent: Phases::default(),
        }
    }

    /// A frame that was sent and arrived. Frames that were overtaken count, and are otherwise passed over.
    pub fn record(&mut self, sent: Time, received: Time) {
        self.frames += 1;
        // (By Fibonacci hashing, so that no period of the stream decides which.)
        if self.frames <= ALL_SENT || self.frames.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58 == 0 {
            self.sent.add(sent, self.tick);
        }
        let delay = received.since(sent);
        let (latest, before) = self.latest.unwrap_or((Time::ZERO, delay));
        if self.latest.is_some() && sent <= latest {
            return;
        }
        self.latest = Some((sent, delay));
        if let Some((end, length)) = self.pending.take()
            && sent < end
            && received >= end
        {
            self.stall(end, length);
        }
        if sent < self.stalled_until {
            self.delayed += 1;
        } else if delay >= before + STALL_MIN {
            let length = Span::from_nanos(delay.as_nanos() - before.as_nanos());
            self.pending = Some((received, length));
        }
    }

    /// A stall, whose first frame was delayed.
    fn stall(&mut self, end: Time, length: Span) {
        self.stalled_until = end;
        self.delayed += 1;
        self.stalls += 1;
        self.longest = self.longest.max(length);
        self.ends.add(end, self.tick);
    }

    /// The comb, if stalls ended at ticks.
    pub fn comb(&self) -> Option<Comb> {
        let (stalls, resultant) = (self.stalls as f64, self.ends.resultant());
        let is_at_ticks = resultant >= RESULTANT_MIN && stalls * resultant * resultant >= EVIDENCE;
        (is_at_ticks && self.sent.resultant() <= SENT_RESULTANT_MAX).then(|| Comb {
            tick: self.tick,
            stalls: self.stalls,
            longest: self.longest,
            delayed_share: self.delayed as f64 / self.frames as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    const US: u64 = 1_000;
    const SECOND: u64 = 1_000_000_000;

    fn chance(seed: u64) -> Rng {
        Rng::new(seed, u32::from_be_bytes(*b"comb"), 0)
    }

    const TICK: u64 = 4_000 * US;

    /// Ten seconds of frames every `apart_ns`; `delay` gives that of one sent at a time.
    fn watch(tick: u64, apart_ns: u64, mut delay: impl FnMut(u64) -> u64) -> CombWatch {
        let mut watch = CombWatch::new(Span::from_nanos(tick));
        for sent in (0..10 * SECOND).step_by(apart_ns as usize) {
            watch.record(Time::from_nanos(sent), Time::from_nanos(sent + delay(sent)));
        }
        watch
    }

    /// Frames of 20 µs delay at a device that stops at times drawn by chance, ten a second, and resumes at `resumed`.
    fn stalling(seed: u64, tick: u64, resumed: impl Fn(&mut Rng, u64) -> u64) -> CombWatch {
        let mut rng = chance(seed);
        let (mut begin, mut end) = (0, 0);
        watch(tick, 100 * US, |sent| {
            if sent >= end {
                begin = sent + rng.below(SECOND / 5);
                end = resumed(&mut rng, begin);
            }
            if sent >= begin { (end - sent).max(20 * US) } else { 20 * US }
        })
    }

    #[test]
    fn stalls_that_end_at_ticks_are_a_comb() {
        for tick in [1_000 * US, 3_333_333, TICK, 10_000 * US] {
            for seed in 0..20 {
                // The thread has its processor again after one to three ticks, and some time to wake.
                let at_ticks = |rng: &mut Rng, begin: u64| {
                    (begin / tick + 2 + rng.below(3)) * tick + 233 * US + rng.below(tick / 20)
                };
                let comb = stalling(seed, tick, at_ticks).comb().expect("a comb");
                assert_eq!(comb.tick.as_nanos(), tick);
                assert!(comb.longest.as_nanos() < 5 * tick && comb.stalls > 50, "{comb:?}");
            }
        }
    }

    #[test]
    fn stalls_that_end_at_any_time_are_none() {
        for seed in 0..300 {
            let any = |rng: &mut Rng, begin: u64| begin + 600 * US + rng.below(12_000 * US);
            let watch = stalling(seed, TICK, any);
            assert!(watch.comb().is_none() && watch.stalls > 50, "seed {seed}: {watch:?}");
        }
    }

    #[test]
    fn delays_of_the_device_itself_are_no_comb() {
        let mut rng = chance(1);
        // A constant that is a tick, with a frame at each tick; jitter; and a queue that fills and drains.
        assert_eq!(watch(TICK, TICK, |_| TICK).comb(), None);
        let jitter = watch(TICK, 200 * US, |_| 1_000 * US + rng.below(5_000 * US));
        assert!(jitter.stalls > 100 && jitter.comb().is_none(), "{jitter:?}");
        let filling = watch(TICK, 100 * US, |sent| {
            let in_period = sent % (40_000 * US);
            20 * US + in_period.min(40_000 * US - in_period) / 4
        });
        assert_eq!((filling.stalls, filling.comb()), (0, None));
    }

    #[test]
    fn streams_in_step_with_the_tick_show_nothing() {
        let mut rng = chance(2);
        for (tick, apart, jitter) in [
            (TICK, TICK, 1_500 * US),
            (TICK, 2 * TICK, 2_000 * US),
            (TICK, 5 * TICK, 1_500 * US),
            (1_000 * US, 1_000 * US, 700 * US),
        ] {
            let one_a_tick = watch(tick, apart, |_| 20 * US + rng.below(jitter));
            assert_eq!(one_a_tick.comb(), None, "{one_a_tick:?}");
        }
        // Bursts of four a tick, on a link that takes 0.6 ms for a frame.
        let mut bursts = CombWatch::new(Span::from_nanos(TICK));
        for burst in 0..2_500 {
            for number in 0..4 {
                let sent = burst * TICK + number * 5 * US;
                let received = burst * TICK + (number + 1) * 615 * US;
                bursts.record(Time::from_nanos(sent), Time::from_nanos(received));
            }
        }
        assert_eq!(bursts.comb(), None, "{bursts:?}");
        assert!(bursts.delayed <= bursts.frames);
        // Two thousand a second, of which one in eight takes a slow path and is overtaken.
        let slow_path = watch(TICK, 500 * US, |sent| match sent % TICK {
            0 => 700 * US,
            _ => 20 * US,
        });
        assert_eq!((slow_path.stalls, slow_path.comb()), (0, None));
    }

    #[test]
    fn frames_that_wait_for_a_stall_are_counted() {
        // A stall of 4 ms every 24 ms: a sixth of the frames wait.
        let watch = watch(TICK, 100 * US, |sent| match sent % (24_000 * US) {
            in_stall @ 0..TICK if sent > 0 => TICK - in_stall,
            _ => 20 * US,
        });
        let comb = watch.comb().expect("all end at a tick");
        assert!((comb.delayed_share - 1.0 / 6.0).abs() < 0.01, "{comb:?}");
        assert_eq!(comb.stalls, 417);
    }
}
