//! XDP live frames: test frames that a BPF program makes, stamps and sends, more than one in a microsecond.
//!
//! A packet socket makes a kernel packet for each frame and passes it down the sending stack. The kernel can also
//! run an XDP program on pages of its own any number of times, as if a driver had received them, and pass on what
//! the program redirects (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18): the interface gets
//! frames in the driver's own form, many at once, and nothing is made or freed for any of them.
//!
//! The program (`live_program`) writes headers, tag and checksum, and the stamp. What it writes is learnt from
//! frames that the caller makes: headers from one frame of each flow; and since the tag's check is linear, what
//! a byte of the sequence number adds to it, from the frame that has that byte and no other.
//!
//! # Pacing
//!
//! Frames go in groups. With constant spacing a group is as many frames as the kernel passes on together, and leaves
//! when its last frame is due, so that no frame is early and the slip of the others is seen; a burst is a group.
//!
//! # The other end
//!
//! A veth takes such frames only if its peer receives by NAPI: with an XDP program, or with `rx-gro` on. Frames
//! that it does not take it drops silently, except for the interface's counters.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, ensure};

use super::departures::DepartureRing;
use super::live_program::{
    CHECKS, Coded, FLOW_BYTES, FLOW_SUM, FLOWS, FRAMES, GROUP_FRACTION, GROUP_NS, HEADER_BYTES,
    MADE, NUMBER_BYTES, OPEN, RUNS, load_live,
};
use super::{CHECK_AT, CHECKSUM_AT, Departures, PLACE_AT};
use crate::bpf::{SharedMap, run_program};
use crate::interface::Interface;

/// The most frames that the kernel passes on together: one poll of the receiver.
pub const LIVE_BATCH_MAX: u32 = 64;
/// The longest frame: what a page holds beside the kernel's own.
const FRAME_BYTES_MAX: usize = 1_514;

/// Runs in a call at the most.
const RUNS_MAX: u32 = 1 << 31;

/// The signal that ends a call.
fn end_signal() -> libc::c_int {
    libc::SIGRTMIN() + 7
}

/// Gives the signal a handler that does nothing: without one it would end the process, and if
/// ignored it would not end a call.
fn handle_end_signal() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: an action of zeros is valid; its handler is a function of this program that does nothing, and no
    // other part of it uses the signal.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int) = nothing;
        action.sa_sigaction = handler as usize;
        libc::sigaction(end_signal(), &action, std::ptr::null_mut())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What the program makes frames of.
#[derive(Clone, Debug)]
pub struct LiveTemplate {
    /// A whole frame, for the parts that are the same in all.
    frame: Vec<u8>,
    /// The flows' part of the control map.
    flows: Vec<u8>,
    /// The checks' part.
    checks: Vec<u8>,
}

impl LiveTemplate {
    /// Learns the template from frames by flow and sequence number, all of one length.
    ///
    /// # Errors
    /// When a frame does not fit the pages that the kernel lends, or the check is not linear.
    pub fn learn(flows: u32, frame: impl Fn(u32, u64) -> Vec<u8>) -> Result<LiveTemplate> {
        let first = frame(0, 0);
        ensure!(
            (HEADER_BYTES..=FRAME_BYTES_MAX).contains(&first.len()),
            "live frames have up to {FRAME_BYTES_MAX} bytes"
        );
        let mut template = LiveTemplate { frame: first, flows: Vec::new(), checks: Vec::new() };
        for flow in 0..flows {
            template.flow(&frame(flow, 0));
        }
        let none = check_of(&template.frame);
        for byte in 0..NUMBER_BYTES {
            for value in 0..256u64 {
                let added = check_of(&frame(0, value << (8 * byte))) ^ none;
                template.checks.extend_from_slice(&added.to_le_bytes());
            }
        }
        let sequence = 0x00a5_5a3c_c30f_f081;
        ensure!(template.made(0, sequence) == frame(0, sequence), "the tag's check is not linear");
        Ok(template)
    }

    fn flow(&mut self, frame: &[u8]) {
        let header = &frame[..HEADER_BYTES];
        // Taken out of the checksum is what a later frame puts in (RFC 1624, in the order of the machine's bytes).
        let checksum = !word(header, CHECKSUM_AT);
        let differs = (PLACE_AT..HEADER_BYTES).step_by(2).map(|at| u32::from(!word(header, at)));
        let sum = u32::from(checksum) + differs.sum::<u32>();
        self.flows.extend_from_slice(header);
        self.flows.resize(self.flows.len().next_multiple_of(FLOW_BYTES) - 4, 0);
        self.flows.extend_from_slice(&sum.to_le_bytes());
    }

    /// The frame that the program makes.
    pub fn made(&self, flow: u32, sequence: u64) -> Vec<u8> {
        let mut frame = self.frame.clone();
        let own = &self.flows[flow as usize * FLOW_BYTES..][..FLOW_BYTES];
        frame[..HEADER_BYTES].copy_from_slice(&own[..HEADER_BYTES]);
        let stream = u64::from(own[PLACE_AT]) << 56;
        frame[PLACE_AT..PLACE_AT + 8].copy_from_slice(&(stream | sequence).to_be_bytes());
        let mut check = check_of(own);
        for byte in 0..NUMBER_BYTES {
            let at = 4 * (256 * byte + (sequence >> (8 * byte) & 255) as usize);
            check ^= u32::from_le_bytes(self.checks[at..at + 4].try_into().expect("four bytes"));
        }
        frame[CHECK_AT..CHECK_AT + 4].copy_from_slice(&check.to_le_bytes());
        let sum = u32::from_le_bytes(own[FLOW_SUM..].try_into().expect("four bytes"));
        let words = (PLACE_AT..HEADER_BYTES).step_by(2).map(|at| u32::from(word(&frame, at)));
        let mut sum = sum + words.sum::<u32>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let checksum = if sum == 0xffff { 0xffff } else { !sum as u16 };
        frame[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_le_bytes());
        frame
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The check as a little-endian machine loads it.
fn check_of(frame: &[u8]) -> u32 {
    u32::from_le_bytes(frame[CHECK_AT..CHECK_AT + 4].try_into().expect("four bytes"))
}

/// When frames go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LivePace {
    /// Frames in all.
    pub frames: u64,
    /// Frames that go together.
    pub group: u32,
    /// From one group to the next, ns.
    pub period_ns: f64,
    /// Frames that the kernel passes on together: a power of two, [`LIVE_BATCH_MAX`] at the most.
    pub batch: u32,
}

/// What the program is doing, for another thread.
#[derive(Clone)]
pub struct LiveControl(Arc<SharedMap>);

impl LiveControl {
    /// Frames that were made until now.
    pub fn made(&self) -> u64 {
        self.0.word(MADE).load(Relaxed)
    }

    /// When the next group goes, ns of CLOCK_MONOTONIC.
    pub fn next_ns(&self) -> u64 {
        self.0.word(GROUP_NS).load(Relaxed)
    }

    /// Ends the call in which a thread of this process runs the program, if it is in one.
    pub fn end_call(&self, thread_id: i32) {
        // SAFETY: the call takes numbers. The signal has a handler that does nothing, as every sender sees to.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread_id, end_signal()) };
    }
}

/// Sends live frames by one interface.
pub struct LiveSender {
    program: OwnedFd,
    control: LiveControl,
    frame: Vec<u8>,
    batch: u32,
}

impl LiveSender {
    /// A sender on an interface of the calling thread's namespace, and the ring in which it stamps; `records` stamps,
    /// a power of two, are kept until they are read.
    ///
    /// # Errors
    /// When there is no such interface, or the system does not permit it.
    pub fn open(
        interface: &str,
        template: &LiveTemplate,
        pace: &LivePace,
        records: usize,
    ) -> Result<(LiveSender, Departures)> {
        let LivePace { frames, group, period_ns, batch } = *pace;
        ensure!(
            batch.is_power_of_two() && batch <= LIVE_BATCH_MAX && group > 0 && period_ns >= 1.0,
            "live frames in batches of {batch}: choose a power of two up to {LIVE_BATCH_MAX}"
        );
        let step = || format!("cannot send live frames by {interface}");
        handle_end_signal().with_context(step)?;
        let index = Interface::open(interface, true).with_context(step)?.index();
        let mut control = SharedMap::new(FLOWS + template.flows.len()).with_context(step)?;
        let value = control.value();
        value[CHECKS..FLOWS].copy_from_slice(&template.checks);
        value[FLOWS..].copy_from_slice(&template.flows);
        value[FRAMES..FRAMES + 8].copy_from_slice(&frames.to_ne_bytes());
        let ring = DepartureRing::unattached(records).with_context(step)?;
        let coded = Coded {
            interface: index,
            flows: (template.flows.len() / FLOW_BYTES) as u32,
            group,
            period: [period_ns as u64, (period_ns.fract() * 4_294_967_296.0) as u64],
            batch,
            records,
        };
        let program = load_live(&control, ring.shared(), &coded).with_context(step)?;
        let (frame, control) = (template.frame.clone(), LiveControl(Arc::new(control)));
        let mut sender = LiveSender { program, control, frame, batch };
        // A kernel may accept the program and not run it like this; nothing is due yet, so nothing is sent.
        sender.begin(u64::MAX);
        sender
            .runs(1)
            .context("this kernel runs no live frames (Linux 5.18)")
            .with_context(step)?;
        Ok((sender, Departures::Driver(ring)))
    }

    /// The first group goes at that time of CLOCK_MONOTONIC, ns.
    pub fn begin(&mut self, first_ns: u64) {
        for (at, value) in [(GROUP_NS, first_ns), (GROUP_FRACTION, 0), (OPEN, 0)] {
            self.control.0.word(at).store(value, Relaxed);
        }
    }

    /// Runs the program until [`LiveControl::end_call`], or another signal, ends the call; returns how many frames
    /// were made so far. When a call ends the kernel gives up the pages that it lent, which takes some 25 ms.
    ///
    /// # Errors
    /// If the kernel does not run it.
    pub fn run(&mut self) -> io::Result<u64> {
        self.runs(RUNS_MAX)
    }

    /// Runs it `runs` times, rounded up to whole batches.
    pub(super) fn runs(&mut self, runs: u32) -> io::Result<u64> {
        self.control.0.word(RUNS).store(0, Relaxed);
        let repeat = runs.next_multiple_of(self.batch).max(self.batch);
        match run_program(&self.program, &self.frame, repeat, Some(self.batch)) {
            // (A signal ends a call before its time.)
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
            _ => {}
        }
        Ok(self.control.made())
    }

    /// What another thread may see and stop meanwhile.
    pub fn control(&self) -> &LiveControl {
        &self.control
    }
}
