//! The whole pipeline without devices: the cost of a packet on one core, and where its time goes.
//!
//! A router of some ports stands in memory with a full table, a thousand filters, distributed queueing
//! and a discipline at each output. Frames of a million flows lie ready in buffers; one thread does
//! what a driver does, over and over: each port receives a batch of 64, the router's timers run, each
//! output transmits what its link may carry. A device's work, putting frames into buffers and taking
//! them away, is done between the timed stretches.
//!
//! **Load.** Time is virtual: a turn takes as long as 64 frames on a link, and links are such that all
//! of them together carry [`LINKS_PPS`] frames a second, so that distributed queueing runs about as
//! often per packet as it would on a router at the intended speed. Every output starts with a backlog,
//! and the frames of a turn are dealt evenly to outputs: as much leaves as arrives, queues keep their
//! length, and nothing is dropped.
//!
//! **Time.** A rate is packets per second of the thread's CPU time, the median of rounds. Stages are
//! timed by the processor's counter at each passage from one stage to the next, in every second stretch
//! of a round; the rate is that of the other stretches, in which there is no probe. The sum of the
//! stages is compared with it: a deviation of [`SUM_OFF_MAX`] is allowed. A passage through a stage of
//! more than [`rounds::INTERRUPTED`] ticks a packet was interrupted by the system; it is left out, and
//! counted.

pub mod flows;
pub mod machine;
pub mod pool;
pub mod rounds;
pub mod tables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use nilometer_queue::DisciplineKind;
use nilometer_router::Engine;
use nilometer_router::pipeline::stage::Stage;
use serde::Serialize;

use flows::Sequence;
use machine::Machine;
use nilometer_routerd::tally::Paths;
use rounds::{Clocked, Rounds};
use tables::{Routes, Rules};

/// Frames a second that all links together carry, in virtual time.
pub const LINKS_PPS: u64 = 15_000_000;
/// By what part the sum of the stages may differ from the time of a packet.
pub const SUM_OFF_MAX: f64 = 0.1;
/// Rounds at least, however few seconds are given.
const ROUNDS_MIN: u32 = 3;

/// Stage of the pipeline that is switched off (Figure 10 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Nothing.
    Complete,
    /// Distributed queueing: arrivals cross the fabric immediately.
    NoDq,
    /// The lookup: the low bits of the destination address are the next hop.
    NoLookup,
    /// The classifier: there are no filters.
    NoClassifier,
}

/// What is to be timed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file of prefixes; without it, prefixes are drawn.
    pub table: Option<PathBuf>,
    /// The file of filters; without it, those of the folder of data, or drawn ones.
    pub rules: Option<PathBuf>,
    /// The number of different flows, each with one frame in a round of as many frames.
    pub flows: usize,
    /// Frames of a round.
    pub frames: usize,
    /// Rounds of which the median counts.
    pub rounds: u32,
    /// Instead, how long rounds may take together.
    pub limit: Option<Duration>,
    /// The lookup engine.
    pub engine: Engine,
    /// Ports.
    pub ports: usize,
    /// Bytes of a frame, check sequence included, as RFC 2544 counts.
    pub frame_bytes: u16,
    /// The discipline of every output.
    pub discipline: DisciplineKind,
    /// Seed of what is drawn.
    pub seed: u64,
    /// What is timed, in this order.
    pub variants: Vec<Variant>,
    /// Places of the flow cache of each run; `None` if it is off.
    pub caches: Vec<Option<usize>>,
    /// Frames that a port receives at once, 1 to [`nilometer_router::pipeline::BATCH`].
    pub batch: usize,
}

/// What was timed, with what.
#[derive(Clone, Debug, Serialize)]
pub struct Configuration {
    /// Where the routes are from.
    pub table: String,
    /// Routes.
    pub prefixes: usize,
    /// What they are looked up in.
    pub engine: &'static str,
    /// Where the filters are from.
    pub rules_from: String,
    /// Filters.
    pub rules: usize,
    /// Different flows.
    pub flows: usize,
    /// Ports.
    pub ports: usize,
    /// Bytes of a frame, check sequence included.
    pub frame_bytes: u16,
    /// Packets of a batch.
    pub batch: usize,
    /// The discipline of every output.
    pub discipline: &'static str,
    /// Packets that wait at an output, unless its discipline keeps fewer.
    pub backlog_packets: u64,
    /// Queues of an output.
    pub queues: u32,
    /// Bits per second of a link, in virtual time.
    pub link_bps: u64,
    /// Microseconds between two broadcasts of distributed queueing, in virtual time.
    pub period_us: f64,
    /// Bytes of the buffers.
    pub memory_bytes: usize,
    /// Seed of what was drawn.
    pub seed: u64,
    /// Rounds of each kind.
    pub rounds: u32,
}

/// The results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Times {
    /// What was switched off.
    pub variant: Variant,
    /// Places of the flow cache; `None` if it was off.
    pub flow_cache: Option<usize>,
    /// The share of its lookups that were hits.
    pub flow_cache_hits: Option<f64>,
    /// Million packets a second of CPU time.
    pub mpps: f64,
    /// Lower and upper quartile of the rounds.
    pub mpps_quartiles: [f64; 2],
    /// The same as nanoseconds a packet.
    pub ns_per_packet: f64,
    /// Nanoseconds a packet in each stage.
    pub stages_ns: BTreeMap<&'static str, f64>,
    /// Their lower and upper quartiles.
    pub stages_ns_quartiles: BTreeMap<&'static str, [f64; 2]>,
    /// Their sum.
    pub stages_sum_ns: f64,
    /// By how many percent the sum differs from `ns_per_packet`.
    pub stages_sum_off_percent: f64,
    /// Packets that were received in rounds.
    pub packets: u64,
    /// Packets that were transmitted in rounds.
    pub transmitted: u64,
    /// The part of them that some filter matched.
    pub filtered: f64,
    /// Broadcasts of distributed queueing since the beginning.
    pub broadcasts: u64,
    /// The paths that packets took since the beginning; there are no shortcuts past this pipeline.
    pub paths: Paths,
    /// Packets that were dropped since the beginning, by reason; a reason without drops is absent.
    pub dropped: BTreeMap<String, u64>,
    /// Stretches that were interrupted and left out of the stages.
    pub interrupted: u64,
}

impl Times {
    /// The stages in the order of a packet's way.
    pub fn in_order(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        Stage::ALL.into_iter().map(|stage| (stage.name(), self.stages_ns[stage.name()]))
    }

    /// Whether the stages add up to the time of a packet.
    pub fn adds_up(&self) -> bool {
        self.stages_sum_off_percent.abs() <= 100.0 * SUM_OFF_MAX
    }
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineTimes {
    /// The first run.
    #[serde(flatten)]
    pub first: Times,
    /// Every run, the first too.
    pub runs: Vec<Times>,
    /// With what.
    pub configuration: Configuration,
}

/// Times the pipeline.
///
/// # Errors
/// When a file cannot be read, or no flow can be made from what is in it.
pub fn time_pipeline(options: &Options) -> Result<PipelineTimes> {
    let rules = Rules::find(options.rules.as_deref(), options.seed)?;
    let routes = Routes::find(options)?;
    let drawn = flows::draw(&routes, &rules.rules, options.flows, options.seed)?;
    let mut machines = Vec::new();
    for &variant in &options.variants {
        let sequence = Sequence::arrange(&drawn, &routes, variant, options)?;
        for &cache in &options.caches {
            let machine = Machine::new(&routes, &rules.rules, variant, cache, options)?;
            machines.push((variant, cache, Clocked::new(machine, sequence.clone(), options)));
        }
    }
    let (taken, ns_per_tick) = take_turns(&mut machines, options);
    let mut runs = Vec::new();
    for ((variant, cache, clocked), rounds) in machines.iter().zip(&taken) {
        clocked.check()?;
        runs.push(summed_up((*variant, *cache), clocked, rounds, ns_per_tick));
    }
    let [(_, _, clocked), ..] = &machines[..] else {
        anyhow::bail!("nothing to be timed: name a variant");
    };
    let configuration = Configuration {
        table: routes.from.clone(),
        prefixes: routes.prefixes.len(),
        engine: options.engine.name(),
        rules_from: rules.from.clone(),
        rules: rules.rules.len(),
        flows: clocked.flows(),
        ports: options.ports,
        frame_bytes: options.frame_bytes,
        batch: options.batch,
        discipline: options.discipline.name(),
        backlog_packets: machine::BACKLOG_PACKETS,
        queues: machine::QUEUES,
        link_bps: machine::link(options).bits_per_second(),
        period_us: machine::PERIOD.as_secs_f64() * 1e6,
        memory_bytes: clocked.memory_bytes(),
        seed: options.seed,
        rounds: taken[0].len() as u32,
    };
    Ok(PipelineTimes { first: runs[0].clone(), runs, configuration })
}

/// All machines in turns, round by round; and the length of a tick of the counter in nanoseconds.
fn take_turns(
    machines: &mut [(Variant, Option<usize>, Clocked)],
    options: &Options,
) -> (Vec<Vec<Rounds>>, f64) {
    let mut taken: Vec<Vec<Rounds>> = machines.iter().map(|_| Vec::new()).collect();
    for (_, _, clocked) in machines.iter_mut() {
        clocked.round();
    }
    let (begun, first_tick) = (Instant::now(), nilometer_linux::clock::ticks());
    for number in 0.. {
        let is_done = match options.limit {
            Some(limit) => number >= ROUNDS_MIN && begun.elapsed() >= limit,
            None => number >= options.rounds,
        };
        if is_done {
            break;
        }
        for ((_, _, clocked), taken) in machines.iter_mut().zip(&mut taken) {
            taken.push(clocked.round());
        }
    }
    let ticks = nilometer_linux::clock::ticks().wrapping_sub(first_tick);
    (taken, begun.elapsed().as_nanos() as f64 / ticks.max(1) as f64)
}

/// Medians and quartiles of the rounds of one machine.
fn summed_up(
    (variant, flow_cache): (Variant, Option<usize>),
    clocked: &Clocked,
    rounds: &[Rounds],
    ns_per_tick: f64,
) -> Times {
    let quartiles = |of: &dyn Fn(&Rounds) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| values[(values.len() * quarter / 4).min(values.len() - 1)])
    };
    let [low, mpps, high] = quartiles(&|taken| taken.plain.mpps());
    let (mut stages_ns, mut stages_ns_quartiles) = (BTreeMap::new(), BTreeMap::new());
    for stage in Stage::ALL {
        let ns = |taken: &Rounds| taken.probed.ticks_per_packet(stage) * ns_per_tick;
        let [low, middle, high] = quartiles(&ns);
        stages_ns.insert(stage.name(), middle);
        stages_ns_quartiles.insert(stage.name(), [low, high]);
    }
    let (ns_per_packet, stages_sum_ns) = (1e3 / mpps, stages_ns.values().sum::<f64>());
    let all = || rounds.iter().flat_map(|taken| [&taken.plain, &taken.probed]);
    Times {
        variant,
        flow_cache,
        flow_cache_hits: clocked.cache_hits(),
        mpps,
        mpps_quartiles: [low, high],
        ns_per_packet,
        stages_ns,
        stages_ns_quartiles,
        stages_sum_ns,
        stages_sum_off_percent: 100.0 * (stages_sum_ns / ns_per_packet - 1.0),
        packets: all().map(|round| round.packets).sum(),
        transmitted: all().map(|round| round.transmitted).sum(),
        filtered: clocked.filtered(),
        broadcasts: clocked.broadcasts(),
        paths: clocked.paths(),
        dropped: clocked.dropped(),
        interrupted: all().map(|round| round.interrupted).sum(),
    }
}

impl Options {
    /// Frames of a turn: a batch at each port.
    pub fn turn(&self) -> usize {
        self.ports * self.batch
    }

    /// Whether all is within its limits.
    ///
    /// # Errors
    /// If a value is not.
    pub fn check(&self) -> Result<()> {
        let (ports, turn) = (self.ports, self.turn());
        ensure!(
            (2..=machine::PORTS_MAX).contains(&ports),
            "--ports is 2 to {}",
            machine::PORTS_MAX
        );
        ensure!(self.flows >= turn, "--flows is at least a turn of all ports, {turn} here");
        ensure!(self.frames >= turn, "--frames is at least a turn of all ports, {turn} here");
        Ok(())
    }
}
