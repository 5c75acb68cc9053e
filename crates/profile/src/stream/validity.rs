//! Whether a trial of a stream may be believed: what went wrong with the instrument, and not with the device.

use alloc::vec::Vec;
use core::fmt;

use nilometer_wire::{Span, Time};

use super::comb::Comb;
use crate::outcome::Imbalance;

/// The bounds within which a trial is valid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// A frame that is sent more than this after it was due has slipped.
    pub slip: Span,
    /// The share of frames that may slip.
    pub slipped_share: f64,
    /// The share of the frames that were due that must be sent.
    pub sent_share: f64,
    /// The share of the processors' time that a hypervisor may take.
    pub stolen_share: f64,
    /// The share of frames that may wait for ticks of the scheduler; infinite where the device is not on this machine.
    pub comb_share: f64,
}

/// What one frame of a burst may wait for the frames before it.
const OF_A_BURST: Span = Span::from_nanos(5_000);
/// And what it may wait at the most.
const BURST_MAX: Span = Span::from_nanos(10_000_000);

impl Bounds {
    /// The usual bounds: one frame of a hundred may slip by more than 100 µs plus the time to send a burst of
    /// `frames` (at most half the time until the next, and never more than 10 ms); 99.9 % of frames must be sent; 2 %
    /// of the time may be stolen; 1 % of frames may wait for ticks of the scheduler.
    pub fn of_bursts(frames: u32, pps: f64) -> Bounds {
        let half = Span::from_secs_f64(f64::from(frames) / pps / 2.0);
        let burst = (OF_A_BURST * u64::from(frames)).min(half).min(BURST_MAX);
        let slip = Span::from_nanos(100_000) + burst;
        let (slipped_share, sent_share, stolen_share, comb_share) = (0.01, 0.999, 0.02, 0.01);
        Bounds { slip, slipped_share, sent_share, stolen_share, comb_share }
    }
}

/// The instrument's observations of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observations {
    /// Frames that were due.
    pub due: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that had slipped.
    pub slipped: u64,
    /// The 99th percentile of the time from due to sent, ns.
    pub pacing_p99_ns: u64,
    /// By how much the latest frame was late, and when it was due.
    pub latest: Option<(Span, Time)>,
    /// The share of the processors' time that a hypervisor took.
    pub stolen_share: f64,
    /// How often the kernel broke off its receiving work (`time_squeeze` of `softnet_stat`).
    pub squeezed: u64,
    /// Frames that waited for ticks of the scheduler.
    pub comb: Option<Comb>,
    /// Stamps of sending that were overwritten before they were read.
    pub stamps_lost: u64,
    /// Frames that arrived and that the receiver's ring had no room for.
    pub receiver_lost: u64,
    /// Frames that were decided before their time.
    pub overflow: u64,
    /// Frames that arrived after they had been counted as lost.
    pub late: u64,
    /// The ledger, where it does not balance.
    pub imbalance: Option<Imbalance>,
    /// The clocks of the two hosts contradict each other ([`super::clock_offset`]).
    pub clock_inconsistent: bool,
    /// The receiver was stopped, or ended before all frames had arrived.
    pub interrupted: bool,
}

/// A reason not to believe a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The pacer was late too often.
    PacerSlip {
        /// Frames of a hundred that were late.
        percent: f64,
        /// What is late.
        slip: Span,
        /// The 99th percentile, ns.
        p99_ns: u64,
        /// The latest, and when it was due.
        latest: Option<(Span, Time)>,
    },
    /// Not all that was due was sent.
    Behind {
        /// Frames that were due.
        due: u64,
        /// Frames that were sent.
        sent: u64,
    },
    /// The last frame was sent long after it was due: the sender could not keep up.
    Overrun(Span),
    /// A hypervisor took the processors away.
    Stolen(f64),
    /// Frames waited for ticks of the scheduler.
    Comb(Comb),
    /// The kernel broke off its receiving work, which explains why the pacer was late.
    Squeezed(u64),
    /// The ring of sending stamps ran over.
    StampsLost(u64),
    /// The receiver's ring was full.
    ReceiverLoss(u64),
    /// The window of open frames was full.
    Overflow(u64),
    /// Frames arrived after the wait for them was over.
    Late(u64),
    /// The ledger does not balance.
    Imbalance(Imbalance),
    /// The offset between the clocks of the two hosts is not known.
    Clock,
    /// The trial was interrupted.
    Interrupted,
    /// Nothing was sent.
    Nothing,
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::PacerSlip { percent, slip, p99_ns, latest } => {
                let us = |ns: u64| ns as f64 / 1e3;
                write!(
                    out,
                    "pacer slip: {percent:.2} % of frames were sent more than {:.0} µs late (p99 {:.1} µs)",
                    us(slip.as_nanos()),
                    us(*p99_ns)
                )?;
                let Some((most, at)) = latest else { return Ok(()) };
                let at = at.as_secs_f64();
                write!(out, ", the latest by {:.1} µs at {at:.3} s", us(most.as_nanos()))
            }
            Reason::Behind { due, sent } => {
                let percent = 100.0 * *sent as f64 / (*due).max(1) as f64;
                write!(out, "behind: {sent} of {due} frames were sent ({percent:.2} %)")
            }
            Reason::Overrun(by) => {
                let ms = by.as_nanos() as f64 / 1e6;
                write!(out, "behind real time: the last frame was sent {ms:.1} ms after it was due")
            }
            Reason::Stolen(share) => {
                write!(out, "stolen time: a hypervisor took {:.1} %", 100.0 * share)
            }
            Reason::Comb(Comb { tick, stalls, longest, delayed_share }) => {
                let ms = |span: &Span| span.as_nanos() as f64 / 1e6;
                write!(
                    out,
                    "comb of scheduler ticks: {stalls} stalls of up to {:.1} ms ended on ticks of {:.0} ms and delayed \
                     {:.1} % of frames, as happens when another program occupies the device's processor",
                    ms(longest),
                    ms(tick),
                    100.0 * delayed_share
                )
            }
            Reason::Squeezed(times) => {
                write!(
                    out,
                    "softirq squeeze: the kernel interrupted its receive processing {times} times"
                )
            }
            Reason::StampsLost(stamps) => {
                write!(out, "record ring overflow: {stamps} transmit stamps were lost")
            }
            Reason::ReceiverLoss(frames) => {
                write!(out, "receiver loss: {frames} frames found the receiver's ring full")
            }
            Reason::Overflow(frames) => {
                write!(out, "window overflow: {frames} frames were judged early")
            }
            Reason::Late(frames) => {
                write!(out, "late arrivals: {frames} frames arrived after the final wait")
            }
            Reason::Imbalance(imbalance) => write!(out, "the ledger does not balance: {imbalance}"),
            Reason::Clock => out.write_str(
                "clock offset: the clocks of the two hosts drift apart by more than 200 µs a second; let time daemons settle (chronyc tracking)",
            ),
            Reason::Interrupted => out.write_str("the trial was interrupted"),
            Reason::Nothing => out.write_str("no frame was sent"),
        }
    }
}

/// By how much the sender was behind at the end, where that is more than a hundredth of the stream and 10 ms.
pub fn overrun(last_due: Span, last_sent: Span) -> Option<Reason> {
    const LEAST: Span = Span::from_nanos(10_000_000);
    let by = Span::from_nanos(last_sent.as_nanos().saturating_sub(last_due.as_nanos()));
    let is_long = by > LEAST && by.as_nanos() > last_due.as_nanos() / 100;
    is_long.then_some(Reason::Overrun(by))
}

/// The reasons why a trial is invalid, the gravest first; empty if it is valid.
pub fn reasons(seen: &Observations, bounds: &Bounds) -> Vec<Reason> {
    let count = |count: u64, reason: fn(u64) -> Reason| (count > 0).then(|| reason(count));
    let share = seen.slipped as f64 / seen.sent.max(1) as f64;
    let slip = Reason::PacerSlip {
        percent: 100.0 * share,
        slip: bounds.slip,
        p99_ns: seen.pacing_p99_ns,
        latest: seen.latest,
    };
    let has_slipped = share > bounds.slipped_share;
    let behind = (seen.sent as f64) < bounds.sent_share * seen.due as f64;
    // Other traffic squeezes soft interrupts as well, so this is reported only where it has done harm.
    let is_late = behind || has_slipped;
    [
        seen.interrupted.then_some(Reason::Interrupted),
        (seen.sent == 0).then_some(Reason::Nothing),
        count(seen.receiver_lost, Reason::ReceiverLoss),
        count(seen.stamps_lost, Reason::StampsLost),
        count(seen.overflow, Reason::Overflow),
        count(seen.late, Reason::Late),
        seen.imbalance.map(Reason::Imbalance),
        seen.clock_inconsistent.then_some(Reason::Clock),
        (behind && seen.sent > 0).then_some(Reason::Behind { due: seen.due, sent: seen.sent }),
        has_slipped.then_some(slip),
        (seen.stolen_share > bounds.stolen_share).then_some(Reason::Stolen(seen.stolen_share)),
        seen.comb.filter(|comb| comb.delayed_share > bounds.comb_share).map(Reason::Comb),
        count(if is_late { seen.squeezed } else { 0 }, Reason::Squeezed),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_cannot_keep_up_is_behind() {
        let ms = |ms: u64| Span::from_nanos(ms * 1_000_000);
        assert_eq!(overrun(ms(400), ms(680)), Some(Reason::Overrun(ms(280))));
        assert_eq!(overrun(ms(10_000), ms(10_050)), None, "half a hundredth of it");
        assert_eq!(overrun(ms(100), ms(105)), None, "a hiccup at the end of a short one");
        assert_eq!(overrun(ms(100), ms(99)), None);
    }
    use alloc::string::ToString;

    #[test]
    fn a_burst_has_no_more_time_than_half_of_its_period() {
        let slip_us = |frames, pps| Bounds::of_bursts(frames, pps).slip.as_nanos() / 1_000;
        assert_eq!(slip_us(1, 10_000.0), 105);
        assert_eq!(slip_us(16, 10_000.0), 180);
        assert_eq!(slip_us(16, 1_000_000.0), 108, "sixteen frames in 16 µs, and their half");
        assert_eq!(slip_us(65_536, 10_000.0), 10_100);
    }

    /// Each fault invalidates a trial by itself, and is named.
    #[test]
    fn each_fault_of_the_instrument_is_named() {
        let bounds = Bounds::of_bursts(1, 1e4);
        let fine = Observations { due: 1_000, sent: 1_000, slipped: 9, ..Default::default() };
        assert_eq!(reasons(&fine, &bounds), []);
        let imbalance = Some(Imbalance { debit: 3, credit: 4 });
        let latest = Some((Span::from_nanos(4_000_000), Time::from_nanos(1_500_000_000)));
        for (seen, words) in [
            (Observations { slipped: 11, latest, ..fine }, "4000.0 µs at 1.500 s"),
            (Observations { sent: 998, ..fine }, "behind: 998 of 1000 frames were sent (99.80 %)"),
            (Observations { stolen_share: 0.03, ..fine }, "took 3.0 %"),
            (Observations { stamps_lost: 2, ..fine }, "record ring overflow: 2 transmit stamps"),
            (Observations { receiver_lost: 3, ..fine }, "receiver loss: 3 frames"),
            (Observations { overflow: 1, ..fine }, "window overflow: 1"),
            (Observations { late: 1, ..fine }, "late arrivals: 1"),
            (Observations { imbalance, ..fine }, "does not balance"),
            (Observations { clock_inconsistent: true, ..fine }, "clock offset"),
            (Observations { interrupted: true, ..fine }, "interrupted"),
            (Observations { due: 0, sent: 0, slipped: 0, ..fine }, "no frame was sent"),
        ] {
            let found = reasons(&seen, &bounds);
            assert_eq!(found.len(), 1, "{words}: {found:?}");
            assert!(found[0].to_string().contains(words), "{}", found[0]);
        }
        // Ticks that a hundredth of the frames wait for are some noise; where the device is elsewhere, they are its own.
        let (tick, longest) = (Span::from_nanos(4_000_000), Span::from_nanos(11_900_000));
        let comb = |delayed_share| Some(Comb { tick, stalls: 37, longest, delayed_share });
        let kept_waiting = Observations { comb: comb(0.061), ..fine };
        let found = reasons(&kept_waiting, &bounds);
        let words = "37 stalls of up to 11.9 ms ended on ticks of 4 ms and delayed 6.1 % of frames";
        assert!(found.len() == 1 && found[0].to_string().contains(words), "{found:?}");
        assert_eq!(reasons(&Observations { comb: comb(0.009), ..fine }, &bounds), []);
        assert_eq!(reasons(&kept_waiting, &Bounds { comb_share: f64::INFINITY, ..bounds }), []);
        // A squeezed soft interrupt delays frames, which shows; by itself it is no reason.
        assert_eq!(reasons(&Observations { squeezed: 9, ..fine }, &bounds), []);
        let late = reasons(&Observations { squeezed: 9, slipped: 30, ..fine }, &bounds);
        assert!(matches!(late[..], [Reason::PacerSlip { .. }, Reason::Squeezed(9)]), "{late:?}");
    }
}
