//! The pacer: sends each frame of a schedule at its time, spinning for the last of the wait.
//!
//! A pacer whose frames are too close to sleep between them takes its turns in the real-time class
//! ([`nilometer_linux::rt_throttling`]). The next frame is made before its time has come, so that only the call lies
//! between a frame's time and its departure. Where the pacer falls behind, all frames due go out in one call, up to a
//! batch. The stamps show how late each frame was.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nilometer_linux::clock::thread_id;
use nilometer_linux::epoll::PromptTimers;
use nilometer_linux::rt_throttling::Turns;
use nilometer_linux::stamp::live::{LiveControl, LiveSender};
use nilometer_linux::stamp::monotonic_ns;
use nilometer_linux::stamp::sender::{BATCH_MAX, Sender};
use nilometer_profile::stream::{Even, FrameMaker, Schedule, Scheduled};

use super::live::LiveStream;

/// The last of a wait is spun through, ns: a sleep overshoots, and a processor that has slept is slow for a while.
const SPIN_NS: u64 = 5_000_000;
/// A wait that is longer by less than this is spun through as well, ns.
const SLEEP_MIN_NS: u64 = 100_000;
/// Before that time the thread may change its class, which takes some microseconds.
const TURN_NS: u64 = 8_000;
/// The call that makes live frames begins so long before the first frame is due, ns: it takes a while to get going.
const LIVE_EARLY_NS: u64 = 5_000_000;
/// How often the program's progress is checked.
const LIVE_WATCH: Duration = Duration::from_millis(1);
/// The error where the other end of the link takes no live frames.
const NO_NAPI: &str = "the link took none of the live frames: let the port at its other end receive by NAPI (ethtool -K \
                       PORT gro on), or send by --transmit socket";
/// The longest sleep, so that a stop is noticed, ns.
const SLEEP_NS: u64 = 20_000_000;

/// What a pacer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paced {
    /// Frames that were due until it ended.
    pub due: u64,
    /// Frames that the kernel took.
    pub sent: u64,
    /// Their bytes, check sequences included.
    pub bytes: u64,
    /// Of these, frames that the interface refused: the device's side had no room for them.
    pub refused: u64,
    /// When the last was due, ns after the beginning.
    pub last_due_ns: u64,
    /// When the last was sent, on the same clock.
    pub last_sent_ns: u64,
}

/// A frame that is due, and its number.
struct Batch<'a> {
    maker: &'a FrameMaker,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    number: u64,
}

impl Batch<'_> {
    fn push(&mut self, one: &Scheduled) {
        self.maker.write(self.number, one, &mut self.bytes);
        self.ends.push(self.bytes.len());
        self.number += 1;
    }

    /// Forgets the first frames.
    fn drop_first(&mut self, count: usize) {
        if count == self.ends.len() {
            self.bytes.clear();
            self.ends.clear();
            return;
        }
        let taken = self.ends[count - 1];
        self.bytes.drain(..taken);
        self.ends.drain(..count);
        self.ends.iter_mut().for_each(|end| *end -= taken);
    }
}

/// Sends a schedule that begins at `origin_ns` of the monotonic clock, until its end or `stop`.
///
/// # Errors
/// When the interface is down or gone.
pub(super) fn pace(
    mut schedule: Schedule,
    maker: &FrameMaker,
    sender: &mut Sender,
    origin_ns: u64,
    (live, stop): (&LiveStream, &AtomicBool),
) -> Result<Paced> {
    let (_prompt, mut turns) = (PromptTimers::new(), Turns::new());
    let mut batch = Batch { maker, bytes: Vec::new(), ends: Vec::new(), number: 0 };
    let mut paced = Paced::default();
    let mut next = schedule.next();
    let due_ns = |one: &Scheduled| origin_ns + one.at.as_nanos();
    while let Some(one) = next {
        batch.push(&one);
        paced.due += 1;
        paced.last_due_ns = one.at.as_nanos();
        next = schedule.next();
        let mut now = wait_until(due_ns(&one), &mut turns, stop);
        while let Some(other) = next.filter(|other| due_ns(other) <= now)
            && batch.ends.len() < BATCH_MAX
        {
            batch.push(&other);
            paced.due += 1;
            paced.last_due_ns = other.at.as_nanos();
            next = schedule.next();
            // (Those that became due meanwhile go with the others.)
            now = monotonic_ns();
        }
        let count = send(&mut batch, sender, &mut paced, stop)?;
        paced.last_sent_ns = monotonic_ns().saturating_sub(origin_ns);
        live.sent.store(paced.sent, Relaxed);
        live.sent_bytes.store(paced.bytes, Relaxed);
        if stop.load(Relaxed) || !count {
            break;
        }
    }
    paced.refused = sender.refused();
    Ok(paced)
}

/// Sends an even stream as live frames, likewise. The kernel runs the program that makes them for some time in a call.
///
/// The interface's counter of frames that were sent is read by `taken`: frames that a link does not take show only
/// there.
///
/// # Errors
/// When the kernel does not run it, or the link takes none of its frames.
pub(super) fn pace_live(
    (even, first_ns): (&Even, u64),
    (sender, taken): (&mut LiveSender, &(dyn Fn() -> Result<u64> + Sync)),
    origin_ns: u64,
    stop: &AtomicBool,
) -> Result<Paced> {
    let (before, pacer) = (taken()?, thread_id());
    sender.begin(origin_ns + first_ns);
    let (control, is_over) = (sender.control().clone(), AtomicBool::new(false));
    let is_taken = || Ok(taken()? > before);
    let sent = thread::scope(|scope| {
        let watch = || watch_live(&control, (even.frames, pacer), (stop, &is_over), is_taken);
        let watching = scope.spawn(watch);
        let sent = run_live(even, sender, stop);
        is_over.store(true, Relaxed);
        watching.join().map_err(|_| anyhow!("a thread panicked"))??;
        sent
    })?;
    let frame_bytes = u64::from(even.frame_bytes);
    let elapsed_ns = monotonic_ns().saturating_sub(origin_ns);
    let due = even.frames.min(even.due_by(elapsed_ns)).max(sent);
    Ok(Paced {
        due,
        sent,
        bytes: sent * frame_bytes,
        refused: sent.saturating_sub(taken()? - before),
        last_due_ns: even.due_ns(due.saturating_sub(1)),
        last_sent_ns: elapsed_ns,
    })
}

/// Has the kernel run the program until all frames are made. One call lasts until [`watch_live`] ends it, because
/// consecutive calls leave a gap.
fn run_live(even: &Even, sender: &mut LiveSender, stop: &AtomicBool) -> Result<u64> {
    let (mut turns, mut sent) = (Turns::new(), 0);
    while sent < even.frames && !stop.load(Relaxed) {
        let next_ns = sender.control().next_ns();
        wait_until(next_ns.saturating_sub(LIVE_EARLY_NS), &mut turns, stop);
        sent = sender.run().context("live frames are not sent")?;
    }
    Ok(sent)
}

/// Watches a sender of live frames, which is in the kernel: has it take its turns in the real-time class, and ends its
/// call when all is sent.
fn watch_live(
    control: &LiveControl,
    (frames, pacer): (u64, i32),
    (stop, is_over): (&AtomicBool, &AtomicBool),
    is_taken: impl Fn() -> Result<bool>,
) -> Result<()> {
    let (mut turns, mut tried) = (Turns::of(pacer), None);
    while !is_over.load(Relaxed) {
        let sent = control.made();
        if sent > 0 && tried.is_none() {
            let taken = is_taken().and_then(|taken| taken.then_some(()).context(NO_NAPI));
            stop.fetch_or(taken.is_err(), Relaxed);
            tried = Some(taken);
        }
        if sent >= frames || stop.load(Relaxed) {
            control.end_call(pacer);
        }
        turns.turn(monotonic_ns());
        thread::sleep(LIVE_WATCH);
    }
    tried.unwrap_or(Ok(()))
}

/// Sends all of a batch; false where it was stopped before.
fn send(
    batch: &mut Batch<'_>,
    sender: &mut Sender,
    paced: &mut Paced,
    stop: &AtomicBool,
) -> Result<bool> {
    while !batch.ends.is_empty() {
        let count = sender.send(&batch.bytes, &batch.ends).context("a test frame is not sent")?;
        if count > 0 {
            paced.sent += count as u64;
            paced.bytes += batch.ends[count - 1] as u64 + 4 * count as u64;
            batch.drop_first(count);
        } else if stop.load(Relaxed) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns at a time of the monotonic clock, or as soon as `stop` is set; gives the current time.
fn wait_until(due_ns: u64, turns: &mut Turns, stop: &AtomicBool) -> u64 {
    loop {
        let now = monotonic_ns();
        let left = due_ns.saturating_sub(now);
        turns.turn_if_overdue(now);
        if left == 0 || stop.load(Relaxed) {
            return now;
        }
        if left > SPIN_NS + SLEEP_MIN_NS {
            thread::sleep(Duration::from_nanos((left - SPIN_NS).min(SLEEP_NS)));
        } else {
            if left > TURN_NS {
                turns.turn(now);
            }
            std::hint::spin_loop();
        }
    }
}
