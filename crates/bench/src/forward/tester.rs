//! The generator and the sink: one thread that sends at a pace and counts what comes back.
//!
//! Both are AF_XDP ports. The thread sends a burst, [`TICK`] of the load, as soon as the last frame of the
//! burst is due, takes what has come, and waits for the next burst.
//!
//! The cost of generator and sink is measured on a bare link and subtracted from a device's run. That is
//! right only if they do the same in both. So bursts always have the same length, also when the generator is
//! late: it never sends all that happens to be due. And it waits without sleeping, and reports for how long
//! ([`Run::waited`]): a sleep costs half as much as a burst of 15 frames, and a generator whose device keeps
//! it busy for almost a whole `TICK` skips some of its sleeps, which the one on the bare link never does.
//! With sleeps the price of Linux at 300,000 frames a second was 1,014 to 1,143 ns from one run to the next;
//! it is 1,216 to 1,243 without, as at 100,000. Only on a machine with one processor does it sleep, as the
//! device needs that.
//!
//! # The check on itself
//!
//! A frame that could not be sent within [`LATE`] of its moment is given up and counted as missed: a
//! generator that was held up does not make up for it with an unrequested burst. A run in which more
//! than [`MISSED_MAX`] of the frames were missed did not offer the requested load; its figures are
//! those of the load that was offered, and the run reports that ([`Run::is_paced`]).
//!
//! Each frame carries the number of its run and its own. Frames of another run are not counted, and
//! a run ends when nothing has come for a while, so that what is in a queue is not lost to it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::{hint, thread};

use anyhow::{Context, Result, ensure};

use super::site::{SINK, SOURCE, Site};
use super::traffic::{FLOWS, Frames};
use nilometer_linux::clock::thread_time;
use nilometer_linux::memory::{MemoryConfig, Packet, PacketMemory};
use nilometer_linux::port::PortIo;
use nilometer_linux::processors;
use nilometer_linux::xdp::{XdpConfig, XdpPort};

/// How much of the load a burst is.
pub const TICK: Duration = Duration::from_micros(50);
/// After this long a frame is no longer sent.
pub const LATE: Duration = Duration::from_millis(1);
/// The share of missed frames from which on the load was not the requested one.
pub const MISSED_MAX: f64 = 0.02;
/// The longest burst; what has come is taken after each.
const BATCH: u64 = 64;
/// A run is over when nothing has arrived for this long.
const SILENCE: Duration = Duration::from_millis(50);
/// And at the latest this long after its last frame.
const PATIENCE: Duration = Duration::from_millis(500);
/// Buffers of both ports.
const BUFFERS: u32 = 8_192;

/// A load to be offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Frames in a second.
    pub pps: f64,
    /// For how long.
    pub duration: Duration,
}

/// What became of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that were given up because their moment had passed.
    pub missed: u64,
    /// Frames that came back, of this run.
    pub delivered: u64,
    /// Those that arrived after one of the same flow with a greater number.
    pub disordered: u64,
    /// Frames that the tester itself lost: they reached the sink while its ring was full.
    pub unheard: u64,
    /// How long was sent, in seconds.
    pub seconds: f64,
    /// How much of its processor time the generator waited away.
    pub waited: Duration,
}

impl Run {
    /// Whether the load was offered as requested.
    pub fn is_paced(&self) -> bool {
        self.missed as f64 <= (self.sent + self.missed) as f64 * MISSED_MAX
    }

    /// The share of sent frames that the tester itself lost.
    pub fn unheard_share(&self) -> f64 {
        self.unheard as f64 / self.sent.max(1) as f64
    }
}

/// The generator and the sink of a site.
pub struct Tester {
    memory: PacketMemory,
    source: XdpPort,
    sink: XdpPort,
    /// Frames that the source had no room for.
    waiting: VecDeque<Packet>,
    came: Vec<Packet>,
    run: u32,
    /// Whether it sleeps between bursts, as the device works on the same processor.
    sleeps: bool,
}

impl Tester {
    /// Opens both ports of a site.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn open(site: &Site) -> Result<Tester> {
        let config = MemoryConfig { chunk_bytes: 4_096, chunks: BUFFERS, reserve: 2_048 };
        let mut memory = PacketMemory::new(config).context("memory of the generator")?;
        let xdp = XdpConfig::default();
        let source = site.left.enter(|| XdpPort::open(&mut memory, SOURCE.0, &xdp))?;
        let sink = site.right.enter(|| XdpPort::open(&mut memory, SINK.0, &xdp))?;
        let (waiting, came) = (VecDeque::new(), Vec::new());
        let sleeps = processors::are_one()?;
        Ok(Tester { memory, source, sink, waiting, came, run: 0, sleeps })
    }

    /// Offers a load and counts what arrives.
    ///
    /// # Errors
    /// When a port fails, or when more arrives than was sent.
    pub fn offer(&mut self, frames: &Frames, load: Load) -> Result<Run> {
        self.run += 1;
        let (mut run, mut next) = (Run::default(), [0; FLOWS]);
        let unheard_before = self.sink.statistics()?.rx_lost();
        let began = Instant::now();
        let total = (load.pps * load.duration.as_secs_f64()) as u64;
        let burst = ((load.pps * TICK.as_secs_f64()).round() as u64).clamp(1, BATCH);
        let late_max = (load.pps * LATE.as_secs_f64()).ceil().max(1.0) as u64;
        while run.sent + run.missed < total {
            let elapsed = began.elapsed();
            let due = ((load.pps * elapsed.as_secs_f64()) as u64 + 1).min(total);
            let mut owed = due - run.sent - run.missed;
            if owed > late_max {
                run.missed += owed - late_max;
                owed = late_max;
            }
            if owed >= burst || due == total {
                run.sent += self.send(frames, run.sent as u32, owed.min(burst))?;
            }
            let came = self.take(frames, &mut run, &mut next)?;
            if owed < 2 * burst && came < BATCH as usize {
                let last = run.sent + run.missed + burst - 1;
                run.waited +=
                    self.wait_until(began + Duration::from_secs_f64(last as f64 / load.pps));
            }
        }
        run.seconds = began.elapsed().as_secs_f64();
        self.drain(frames, &mut run, &mut next)?;
        run.unheard = self.sink.statistics()?.rx_lost() - unheard_before;
        let Run { sent, delivered, .. } = run;
        ensure!(delivered <= sent, "{delivered} frames came back of {sent} that were sent");
        Ok(run)
    }

    /// Waits until `due`; returns how much of this thread's processor time that took.
    fn wait_until(&self, due: Instant) -> Duration {
        if self.sleeps {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            return Duration::ZERO;
        }
        // (Not wall-clock time: time that others get the processor meanwhile is not this thread's.)
        let from = thread_time();
        while Instant::now() < due {
            hint::spin_loop();
        }
        thread_time() - from
    }

    /// Sends `count` frames, as far as there is room; returns how many.
    fn send(&mut self, frames: &Frames, first: u32, count: u64) -> Result<u64> {
        for number in 0..count as u32 {
            let Some(buffer) = self.memory.take() else { break };
            let packet = buffer.packet(frames.link_bytes());
            frames.write(self.run, first + number, self.memory.frame_mut(&packet));
            self.waiting.push_back(packet);
        }
        let taken = self.source.transmit(&mut self.memory, &mut self.waiting)?;
        self.source.flush(&mut self.memory)?;
        self.waiting.drain(..).for_each(|packet| self.memory.give(packet));
        Ok(taken as u64)
    }

    /// Takes what has arrived; returns how many frames, of this run or not.
    fn take(&mut self, frames: &Frames, run: &mut Run, next: &mut [u32; FLOWS]) -> Result<usize> {
        self.came.clear();
        let count = self.sink.receive(&mut self.memory, &mut self.came, 4 * BATCH as usize)?;
        for packet in self.came.drain(..) {
            if let Some((of, number)) = frames.number_of(self.memory.frame(&packet))
                && of == self.run
            {
                run.delivered += 1;
                let next = &mut next[number as usize % FLOWS];
                run.disordered += u64::from(number < *next);
                *next = (*next).max(number + 1);
            }
            self.memory.give(packet);
        }
        Ok(count)
    }

    /// Takes what is still under way.
    fn drain(&mut self, frames: &Frames, run: &mut Run, next: &mut [u32; FLOWS]) -> Result<()> {
        let ended = Instant::now();
        let mut received = ended;
        while run.delivered < run.sent && received.elapsed() < SILENCE && ended.elapsed() < PATIENCE
        {
            self.source.flush(&mut self.memory)?;
            if self.take(frames, run, next)? > 0 {
                received = Instant::now();
            } else {
                thread::sleep(10 * TICK);
            }
        }
        Ok(())
    }
}
