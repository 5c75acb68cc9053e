//! Forwarding on real links: how many packets a device forwards, and what they cost the machine.
//!
//! The paper's Section 6.2 offers a router 40-byte packets at rising rates, counts what it forwards
//! (Figure 10), and switches its parts off; Section 6.3 goes through packet sizes (Figures 12 and
//! 13). Here the same is measured for our router and for the kernel, over the same links, in one
//! run. As the links are veths, on which every frame is carried by the processors that also forward,
//! a rate says less than its price: a point also gives the packets per processor second.
//!
//! # The price of a packet
//!
//! Each round sets everything up anew, links, devices and tester: where the kernel puts their memory changes
//! the cost of a packet by tenths, and would be the same in all rounds of one setup. Each setup is offered
//! the first load for `SETTLING`, so that neighbours and shortcuts are in place. Then the round offers the
//! same load to a bare link and to each device, one after the other and in the other order the next time
//! ([`measure`]); before each is measured it is offered `WARM_UP` of the load that does not count. From
//! the processor time of a device's run ([`usage`] defines whose time that is, and which rounds are
//! discarded because others disturbed them) that of the bare link's run of the same round is taken away,
//! per frame that was sent, and what remains is divided by the frames that were forwarded:
//!
//! ```text
//!   price = (time of the device's run - time of the bare run / frames it sent * frames sent)
//!           / frames forwarded
//! ```
//!
//! Meanwhile no CPU enters an idle state, and the measuring thread and the device's are pinned to one CPU
//! each ([`nilometer_linux::processors`] explains why): the time it takes to leave an idle state is in no
//! price.
//!
//! So the price covers all of the device's work, in whichever thread the kernel did it, and the one
//! additional link; the cost of generator and sink is not in it. Frames that a device drops have not been
//! carried to the sink, so at a load beyond the peak this takes away too much: compare prices where
//! nothing is lost. [`price`] explains how many rounds there are, what interval the price has, and when
//! it is not reported.
//!
//! # The paths of packets
//!
//! For our router each point gives how many of the frames went through the pipeline, by the slow
//! path, or past both by a shortcut. `complete` is the paper's "complete processing": everything
//! that a router does by default, and no shortcut, which its distributed queueing rules out.
//! `offloaded` is a router without regulated fabric, whose flows take shortcuts to the extent shown
//! by the paths.
//!
//! # What the devices do
//!
//! Ours has 100,000 routes (engine `lines`), 1,000 filters, distributed queueing (DQ+) and QSDRR, on
//! AF_XDP ports; variants switch one thing or another off. The sending thread also forwards the packet, as with the
//! kernel, so that no order is promised to packets that several processors send (the tester is one thread); the
//! variant `ordered` does. `linux` has one matching route and nothing else. `nftables` also has the denying half of
//! the filters, as far as they do not overlap, as one set with intervals, and HTB at the output. So the kernel has
//! less to do.

pub mod comparison;
pub mod course;
pub mod dut;
pub mod figures;
pub mod price;
pub mod repeat;
pub mod result;
pub mod site;
pub mod tester;
pub mod traffic;
pub mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result};

use course::{Course, Sample, point};
use dut::{Device, Dut, Variant};
use nilometer_linux::clock::{thread_id, thread_time};
use nilometer_linux::epoll::PromptTimers;
use nilometer_linux::machine::Machine;
use nilometer_linux::processors::{Awake, keep_apart};
use nilometer_linux::scheduling::run_queue_wait;
use price::{CONFIDENCE, HALF_WIDTH_MAX, Rounds};
use repeat::compare;
use result::{Forwarding, Point};
use site::Site;
use tester::{Load, Tester};
use traffic::{FRAME_BYTES_MIN, Frames};
use usage::{KernelThreads, Usage, are_interrupts_apart};

/// The longest frame: the IP packet of 1,912 bytes that the paper's sweep ends with, in Ethernet.
pub const FRAME_BYTES_MAX: u16 = 1_930;
/// The share of frames lost by the tester from which on it is reported.
const UNHEARD_MAX: f64 = 0.001;
/// For how long a load is offered before it is measured.
const WARM_UP: Duration = Duration::from_millis(20);

/// For how long the first load is offered to what was set up anew.
const SETTLING: Duration = Duration::from_millis(100);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The devices.
    pub duts: Vec<Dut>,
    /// What of our router is at work; the first of a device counts for the sweep over lengths.
    pub variants: Vec<Variant>,
    /// Lengths of frames with their check sequence; the first is offered at all rates to all variants,
    /// the others at the lowest and the highest rate to the first variant.
    pub frame_bytes: Vec<u16>,
    /// Frames in a second, rising.
    pub rates: Vec<f64>,
    /// How long each load is offered.
    pub seconds: f64,
    /// How often at least.
    pub rounds: u32,
    /// How often at most, disturbed rounds included.
    pub rounds_max: u32,
    /// The share of all processors that others may use in a round that counts.
    pub others_max: f64,
    /// Earlier results to be compared with these.
    pub against: Vec<Forwarding>,
    /// Seed of flows, routes and filters.
    pub seed: u64,
}

/// A device, its links, and its tester.
struct Bench {
    what: Option<(Dut, Variant)>,
    // The device ends before its links do.
    device: Device,
    tester: Tester,
    _site: Site,
}

/// A load: the length of its frames and its place among the rates.
type LoadId = (u16, usize);
/// By the place of the bench, and the load.
type Courses = BTreeMap<(usize, LoadId), Course>;

/// Measures.
///
/// # Errors
/// Without root, or if a device cannot be set up.
pub fn measure(options: &Options) -> Result<Forwarding> {
    site::privileged()?;
    let mut warnings = Vec::new();
    let asked = asked(options, &mut warnings);
    let awake = Awake::begin()?;
    usage::raise(thread_id());
    let (courses, ports) = rounds(options, &asked, &awake)?;
    drop(awake);
    let points = points(options, &asked, &courses);
    warnings.extend(doubts(&points).iter().map(Doubt::to_string));
    let mut result = Forwarding {
        seed: options.seed,
        seconds: options.seconds,
        rounds: options.rounds,
        rounds_max: options.rounds_max,
        others_max: options.others_max,
        confidence: CONFIDENCE,
        half_width_max: HALF_WIDTH_MAX,
        points_told: points.iter().filter(|point| point.told).count(),
        routes: dut::ROUTES,
        filters: dut::FILTERS,
        ports,
        points,
        comparison: None,
        warnings,
    };
    if !options.against.is_empty() {
        let runs: Vec<&Forwarding> = options.against.iter().chain([&result]).collect();
        result.comparison = Some(compare(&runs));
    }
    Ok(result)
}

/// The devices under test and their variants, in order; first the bare link.
type RequestedVariants = [Option<(Dut, Variant)>];

/// Rounds of all devices under all loads, as long as some point needs more; also a description of our
/// router's ports, if it takes part.
fn rounds(
    options: &Options,
    asked: &RequestedVariants,
    awake: &Awake,
) -> Result<(Courses, Vec<String>)> {
    let mut courses = Courses::new();
    for load in loads(options) {
        for (number, what) in asked.iter().enumerate().skip(1) {
            if is_wanted(options, *what, load) {
                let rounds = Rounds::new(options.rounds, options.rounds_max);
                courses.insert((number, load), Course::new(rounds, options.others_max));
            }
        }
    }
    let mut ports = Vec::new();
    for is_backward in [false, true].into_iter().cycle() {
        let wanted: BTreeSet<usize> = courses
            .iter()
            .filter(|(_, course)| course.rounds.are_wanted())
            .map(|((number, _), _)| *number)
            .collect();
        if wanted.is_empty() {
            break;
        }
        let mut benches = BTreeMap::new();
        for number in [0].into_iter().chain(wanted) {
            benches.insert(number, set_up(options, asked[number])?);
        }
        if let Some(notes) = benches.values().find_map(|bench| bench.device.ports()) {
            ports = notes;
        }
        round(options, &mut benches, &mut courses, is_backward, awake)?;
        for bench in benches.into_values() {
            bench.device.stop()?;
        }
    }
    Ok((courses, ports))
}

/// A round of all points that need more, on a fresh setup.
fn round(
    options: &Options,
    benches: &mut BTreeMap<usize, Bench>,
    courses: &mut Courses,
    is_backward: bool,
    awake: &Awake,
) -> Result<()> {
    let devices: Vec<i32> = benches.values().filter_map(|bench| bench.device.thread_id()).collect();
    devices.iter().copied().for_each(usage::raise);
    let _apart = keep_apart(devices)?;
    let _fine = PromptTimers::new();
    let loads = loads(options);
    for bench in benches.values_mut() {
        let frames = frames_of(bench, options, loads[0]);
        let load = Load { pps: options.rates[loads[0].1], duration: SETTLING };
        bench.tester.offer(&frames, load)?;
    }
    for load in loads {
        let wants = |number: &usize| {
            courses.get(&(*number, load)).is_some_and(|course| course.rounds.are_wanted())
        };
        let mut order: Vec<usize> = benches.keys().copied().filter(wants).collect();
        if order.is_empty() {
            continue;
        }
        order.insert(0, 0);
        if is_backward {
            order.reverse();
        }
        let mut samples = BTreeMap::new();
        for number in order {
            let bench = benches.get_mut(&number).expect("it was set up");
            samples.insert(number, sample(bench, options, load, awake)?);
        }
        let bare = samples.remove(&0).expect("the bare link is always there");
        for (number, own) in samples {
            courses.get_mut(&(number, load)).expect("it wants").add(own, bare);
        }
    }
    Ok(())
}

/// The bare link first, then the requested devices that are available.
fn asked(options: &Options, warnings: &mut Vec<String>) -> Vec<Option<(Dut, Variant)>> {
    let mut asked = vec![None];
    for &dut in &options.duts {
        if let Some(why) = dut::missing(dut) {
            warnings.push(why);
            continue;
        }
        match dut {
            Dut::Nilometer => asked.extend(options.variants.iter().map(|v| Some((dut, *v)))),
            Dut::Linux | Dut::Nftables => asked.push(Some((dut, Variant::Complete))),
        }
    }
    asked
}

fn set_up(options: &Options, what: Option<(Dut, Variant)>) -> Result<Bench> {
    let build = || -> Result<Bench> {
        let longest = options.frame_bytes.iter().copied().max().unwrap_or(FRAME_BYTES_MIN);
        let mtu_bytes = u32::from(longest - 18).max(1_500);
        let site = Site::build(what.is_some(), mtu_bytes)?;
        let device = Device::start(&site, what, options.seed)?;
        let tester = Tester::open(&site)?;
        Ok(Bench { what, device, tester, _site: site })
    };
    build().with_context(|| what.map_or("the bare link", |(dut, _)| dut.name()).to_owned())
}

/// All loads, each length at its rates.
fn loads(options: &Options) -> Vec<LoadId> {
    let last = options.rates.len() - 1;
    let mut loads = Vec::new();
    for (place, &frame_bytes) in options.frame_bytes.iter().enumerate() {
        let is_ours = |rate: &usize| place == 0 || *rate == 0 || *rate == last;
        loads.extend((0..=last).filter(is_ours).map(|rate| (frame_bytes, rate)));
    }
    loads
}

fn is_wanted(options: &Options, what: Option<(Dut, Variant)>, load: LoadId) -> bool {
    let is_sweep = Some(&load.0) == options.frame_bytes.first();
    match what {
        Some((Dut::Nilometer, variant)) => is_sweep || Some(&variant) == options.variants.first(),
        _ => true,
    }
}

/// The frames of a load for a bench.
fn frames_of(bench: &Bench, options: &Options, (frame_bytes, _): LoadId) -> Frames {
    Frames::new(options.seed, frame_bytes, site::first_hop(bench.what.is_some()))
}

fn sample(bench: &mut Bench, options: &Options, load: LoadId, awake: &Awake) -> Result<Sample> {
    let frames = frames_of(bench, options, load);
    let (pps, duration) = (options.rates[load.1], Duration::from_secs_f64(options.seconds));
    bench.tester.offer(&frames, Load { pps, duration: WARM_UP.min(duration) })?;
    let kernel = KernelThreads::find()?;
    let time = |device: &Device| -> Result<f64> {
        Ok((thread_time() + device.time()? + kernel.time()).as_secs_f64())
    };
    let paths = bench.device.paths()?;
    let held_up = || -> Duration {
        let threads = [Some(thread_id()), bench.device.thread_id()].into_iter().flatten();
        threads.filter_map(run_queue_wait).sum()
    };
    let waited = held_up();
    let (machine, spun, before) = (Machine::now()?, awake.time(), time(&bench.device)?);
    let run = bench.tester.offer(&frames, Load { pps, duration })?;
    let idle = run.waited.as_secs_f64();
    let cpu = time(&bench.device)? - before - idle;
    let held_up = (held_up() - waited).as_secs_f64();
    let mut machine = Machine::now()?.since(&machine);
    machine.busy_s = (machine.busy_s - (awake.time() - spun).as_secs_f64() - idle).max(0.0);
    let usage = Usage { machine, held_up };
    let paths = match (bench.device.paths()?, paths) {
        (Some(after), Some(before)) => Some(after.since(&before)),
        _ => None,
    };
    Ok(Sample { run, cpu, usage, paths })
}

fn points(options: &Options, asked: &RequestedVariants, courses: &Courses) -> Vec<Point> {
    let mut points = Vec::new();
    for (number, what) in asked.iter().enumerate() {
        let Some((dut, variant)) = *what else { continue };
        for load in loads(options) {
            let Some(course) = courses.get(&(number, load)) else { continue };
            points.push(Point {
                dut: dut.name().to_owned(),
                variant: variant.name().to_owned(),
                frame_bytes: load.0,
                asked_pps: options.rates[load.1],
                ..point(course)
            });
        }
    }
    points
}

/// What makes the figures suspect.
fn doubts(points: &[Point]) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let all = points.len();
    let late = points.iter().filter(|point| !point.is_paced).count();
    if late > 0 {
        doubts.push(Doubt::NotPaced { late, all });
    }
    let unheard = points.iter().filter(|point| point.unheard_share > UNHEARD_MAX).count();
    if unheard > 0 {
        let worst_share = points.iter().map(|point| point.unheard_share).fold(0.0, f64::max);
        doubts.push(Doubt::Unheard { unheard, all, worst_share });
    }
    let untold = points.iter().filter(|point| !point.told).count();
    if untold > 0 {
        let why = points.iter().find_map(|point| point.not_told.clone()).unwrap_or_default();
        doubts.push(Doubt::CostUntold { untold, all, why });
    }
    let disturbed: u32 = points.iter().map(|point| point.rounds_discarded).sum();
    let rounds: u32 = points.iter().map(|point| point.rounds + point.rounds_discarded).sum();
    if disturbed > 0 {
        doubts.push(Doubt::Disturbed { disturbed, rounds });
    }
    if are_interrupts_apart() == Some(true) {
        doubts.push(Doubt::InterruptsApart);
    }
    doubts
}

/// What makes the prices of a benchmark suspect.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
enum Doubt {
    /// The generator was too slow.
    #[error(
        "at {late} of {all} points the generator did not keep its rate; there the load is \
         offered_pps, not the requested rate"
    )]
    NotPaced { late: usize, all: usize },
    /// The tester itself lost frames.
    #[error(
        "at {unheard} of {all} points the tester could not receive all frames, up to {:.1} % of those \
         sent; there the device forwarded more than forwarded_pps",
        100.0 * worst_share
    )]
    Unheard { unheard: usize, all: usize, worst_share: f64 },
    /// Prices are not known closely enough.
    #[error(
        "at {untold} of {all} points the frames per CPU-second are too uncertain to report (of the first: {why}); \
         --rounds-max allows more rounds"
    )]
    CostUntold { untold: usize, all: usize, why: String },
    /// Others used the processors.
    #[error(
        "others used the machine as well: {disturbed} of {rounds} rounds were disturbed and do not count"
    )]
    Disturbed { disturbed: u32, rounds: u32 },
    /// Interrupts are in no thread's time.
    #[error(
        "this kernel accounts interrupts apart from threads: the work that they do is not in the \
         processor time, and frames cost more than reported"
    )]
    InterruptsApart,
}

#[cfg(test)]
mod tests;
