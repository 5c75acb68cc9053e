//! Rounds of the pipeline's bench: one thread does what a driver does, and is timed.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use nilometer_queue::{Reason, Tally};
use nilometer_router::discard::Discard;
use nilometer_router::memory::{Memory, Place};
use nilometer_router::pipeline::stage::{Probe, Stage};
use nilometer_wire::{Span, Time};

use super::Options;
use super::flows::Sequence;
use super::machine::{BACKLOG_PACKETS, CAPACITY_PACKETS, CHECK_BYTES, LINK_OVERHEAD, Machine};
use super::machine::{link, mac};
use super::pool::{Pool, write};
use nilometer_linux::clock::{thread_time, ticks};
use nilometer_routerd::tally::Paths;

/// Ticks of the counter (some tenths of a nanosecond each) for each packet of a turn that no passage
/// through a stage takes by itself.
pub const INTERRUPTED: u64 = 2_000;
/// Frames that lie ready when a timed stretch begins, at least: the receive rings of some ports.
const READY_FRAMES: usize = 2_048;
/// Frames that are taken from an output at once, as by the driver.
const GIVEN_AT_ONCE: usize = 256;
/// Frames of a port until queues are full, if their discipline lets them be.
const FILLING_FRAMES: usize = 8 * BACKLOG_PACKETS as usize;

/// What a round has taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// Packets that were received.
    pub packets: u64,
    /// Packets that were transmitted.
    pub transmitted: u64,
    /// CPU seconds.
    seconds: f64,
    /// By stage.
    ticks: [u64; Stage::ALL.len()],
    /// Passages that are not in `ticks`.
    pub interrupted: u64,
}

impl Round {
    /// Million packets a second of CPU time.
    pub fn mpps(&self) -> f64 {
        self.packets as f64 / self.seconds / 1e6
    }

    /// Ticks that a packet was in `stage`.
    pub fn ticks_per_packet(&self, stage: Stage) -> f64 {
        self.ticks[stage as usize] as f64 / self.packets as f64
    }
}

/// A round without a probe and one with it, stretch by stretch in turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    /// Without.
    pub plain: Round,
    /// With.
    pub probed: Round,
}

/// Adds up where the time goes.
struct Stopwatch {
    stage: Stage,
    since: u64,
    ticks: [u64; Stage::ALL.len()],
    /// Ticks of a passage that was interrupted.
    too_long: u64,
    interrupted: u64,
}

impl Stopwatch {
    fn new(packets_of_turn: usize) -> Stopwatch {
        let too_long = INTERRUPTED * packets_of_turn as u64;
        let ticks = [0; Stage::ALL.len()];
        Stopwatch { stage: Stage::Elsewhere, since: 0, ticks, too_long, interrupted: 0 }
    }
}

impl Probe for Stopwatch {
    #[inline(always)]
    fn enter(&mut self, stage: Stage) {
        let now = ticks();
        let took = now.wrapping_sub(self.since);
        if took < self.too_long {
            self.ticks[self.stage as usize] += took;
        } else {
            self.interrupted += 1;
        }
        (self.stage, self.since) = (stage, now);
    }
}

/// Called when a timed stretch begins.
pub trait Watch: Probe {
    /// It begins now.
    fn begin(&mut self);
}

impl Watch for () {
    fn begin(&mut self) {}
}

impl Watch for Stopwatch {
    fn begin(&mut self) {
        (self.stage, self.since) = (Stage::Elsewhere, ticks());
    }
}

/// A router at work.
#[derive(Debug)]
pub struct Clocked {
    machine: Machine,
    memory: Pool,
    sequence: Sequence,
    /// The next header of the sequence.
    next: usize,
    now: Time,
    /// How long a turn takes.
    turn: Span,
    ports: usize,
    turns_of_stretch: usize,
    stretches: usize,
    frame_bytes: u16,
    batch: usize,
    arrivals: Vec<Place>,
    sent: Vec<Place>,
}

impl Clocked {
    /// The router with its queues filled.
    pub fn new(machine: Machine, sequence: Sequence, options: &Options) -> Clocked {
        let turns_of_stretch = READY_FRAMES.div_ceil(options.turn());
        let frames_of_stretch = turns_of_stretch * options.turn();
        let buffers = options.ports * CAPACITY_PACKETS as usize / 2 + 2 * frames_of_stretch;
        let link_bytes = u64::from(options.frame_bytes + LINK_OVERHEAD - CHECK_BYTES);
        let mut clocked = Clocked {
            machine,
            memory: Pool::new(buffers as u32),
            sequence,
            next: 0,
            now: Time::ZERO,
            turn: Span(link(options).span_of(link_bytes).0 * options.batch as u64),
            ports: options.ports,
            turns_of_stretch,
            stretches: options.frames.div_ceil(frames_of_stretch),
            frame_bytes: options.frame_bytes,
            batch: options.batch,
            arrivals: Vec::with_capacity(frames_of_stretch),
            sent: Vec::with_capacity(options.turn()),
        };
        clocked.fill_queues();
        clocked
    }

    /// Receives until the backlog is reached, or the discipline has shown that it does not let it grow
    /// that far; from then on links transmit.
    fn fill_queues(&mut self) {
        for _ in 0..FILLING_FRAMES / self.batch {
            let fabric = self.machine.router.fabric();
            let is_full = |output| fabric.output_backlog(output).packets >= BACKLOG_PACKETS;
            if (0..self.ports).all(is_full) {
                return;
            }
            self.make_ready(1);
            self.receive(0, &mut ());
        }
    }

    /// Puts the frames of the next turns into buffers.
    fn make_ready(&mut self, turns: usize) {
        self.arrivals.clear();
        let keys = self.sequence.keys();
        for number in 0..turns * self.ports * self.batch {
            let port = number / self.batch % self.ports;
            let place = self.memory.take(self.frame_bytes - CHECK_BYTES);
            let place = place.expect("there are buffers for all queues and a stretch");
            let from = [2, 0, 0, 2, 0, port as u8];
            write(self.memory.frame_mut(place), &keys[self.next], &mac(port), &from);
            self.arrivals.push(place);
            self.next = if self.next + 1 == keys.len() { 0 } else { self.next + 1 };
        }
    }

    /// One turn: every port receives, and the router's timers run.
    #[inline]
    fn receive(&mut self, turn: usize, probe: &mut impl Probe) {
        let (router, memory) = (&mut self.machine.router, &mut self.memory);
        let frames = self.arrivals[turn * self.ports * self.batch..].chunks(self.batch);
        for (port, frames) in frames.take(self.ports).enumerate() {
            router.receive(self.now, port, frames, memory, probe);
        }
        self.now += self.turn;
        router.advance(self.now, memory, probe);
    }

    /// Every output transmits what its link carries; buffers come back as a device gives them back.
    #[inline]
    fn transmit(&mut self, probe: &mut impl Probe) {
        let (router, memory) = (&mut self.machine.router, &mut self.memory);
        probe.enter(Stage::Discipline);
        for output in 0..self.ports {
            let sent = &mut self.sent;
            router.transmit_all(self.now, output, GIVEN_AT_ONCE, memory, |place| sent.push(place));
        }
        probe.enter(Stage::Elsewhere);
    }

    /// As many stretches as a round has, without a probe and with one in turns.
    pub fn round(&mut self) -> Rounds {
        let mut rounds = Rounds::default();
        let mut watch = Stopwatch::new(self.ports * self.batch);
        for _ in 0..self.stretches {
            self.stretch(&mut (), &mut rounds.plain);
            self.stretch(&mut watch, &mut rounds.probed);
        }
        (rounds.probed.ticks, rounds.probed.interrupted) = (watch.ticks, watch.interrupted);
        rounds
    }

    /// Puts frames into buffers, and then passes them, timed.
    fn stretch(&mut self, probe: &mut impl Watch, round: &mut Round) {
        self.make_ready(self.turns_of_stretch);
        let begun = thread_time();
        probe.begin();
        for turn in 0..self.turns_of_stretch {
            self.receive(turn, probe);
            self.transmit(probe);
            round.transmitted += self.sent.len() as u64;
            for place in self.sent.drain(..) {
                self.memory.give(place);
            }
        }
        probe.enter(Stage::Elsewhere);
        round.seconds += (thread_time() - begun).as_secs_f64();
        round.packets += self.arrivals.len() as u64;
    }

    /// As many stretches as a round has, all without a probe.
    pub fn plain_round(&mut self) -> Round {
        let mut round = Round::default();
        for _ in 0..self.stretches {
            self.stretch(&mut (), &mut round);
        }
        round
    }

    /// Whether every packet and every buffer is accounted for.
    ///
    /// # Errors
    /// When one is not.
    pub fn check(&self) -> Result<()> {
        let router = &self.machine.router;
        ensure!(router.balances(), "the router has lost count of its packets");
        let taken = self.memory.bytes() / super::pool::BUFFER_BYTES - self.memory.free();
        ensure!(taken as u64 == router.inside(), "the router has lost count of its buffers");
        Ok(())
    }

    /// What was dropped, by reason.
    pub fn dropped(&self) -> BTreeMap<String, u64> {
        let router = &self.machine.router;
        let mut dropped = BTreeMap::new();
        let mut add = |name: String, count: u64| {
            if count > 0 {
                *dropped.entry(name).or_insert(0) += count;
            }
        };
        let mut add_all = |at: &str, tally: &Tally| {
            for reason in Reason::ALL {
                add(format!("{at}_{}", reason.name()), tally.packets(reason));
            }
        };
        for port in 0..self.ports {
            add_all("input", &router.fabric().input_ledger(port).drops);
            add_all("output", &router.fabric().output_ledger(port).drops);
        }
        for port in router.ports() {
            for reason in Discard::ALL {
                add(reason.name().to_owned(), port.discards().of(reason));
            }
        }
        dropped
    }

    /// The part of all packets that a filter matched.
    pub fn filtered(&self) -> f64 {
        let router = &self.machine.router;
        let matched: u64 = router.tables().filters4.iter().map(|(_, _, met)| met.packets).sum();
        matched as f64 / router.account().received.max(1) as f64
    }

    /// The router.
    pub fn router(&self) -> &nilometer_router::pipeline::Router {
        &self.machine.router
    }

    /// The router, to be changed between two rounds.
    pub fn router_mut(&mut self) -> &mut nilometer_router::pipeline::Router {
        &mut self.machine.router
    }

    /// Which way packets took.
    pub fn paths(&self) -> Paths {
        Paths::of(self.machine.router.account())
    }

    /// How many broadcasts of distributed queueing there were.
    pub fn broadcasts(&self) -> u64 {
        self.machine.router.fabric().updates()
    }

    /// The part of all headers that the flow cache knew, if there is one.
    pub fn cache_hits(&self) -> Option<f64> {
        let (hits, misses) = self.machine.router.tables().filters4.flow_cache()?;
        Some(hits as f64 / (hits + misses).max(1) as f64)
    }

    /// How many flows there are.
    pub fn flows(&self) -> usize {
        self.sequence.keys().len()
    }

    /// Bytes of the buffers.
    pub fn memory_bytes(&self) -> usize {
        self.memory.bytes()
    }
}
