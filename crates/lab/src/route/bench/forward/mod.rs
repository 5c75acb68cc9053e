//! Forwarding on real links: how many packets a device forwards, and what they cost the machine.
//!
//! The paper's Section 6.2 offers a router 40-byte packets at rising rates, counts what it forwards
//! (Figure 10), and switches its parts off; Section 6.3 goes through packet sizes (Figures 12 and 13).
//! Here the same is asked of our router and of the kernel, over the same links, in one run. As the
//! links are veths, on which every frame is carried by the processors that also forward, a rate says
//! less than its price: a point also gives the packets per processor second.
//!
//! # The price of a packet
//!
//! A round offers the same load to each device and to a bare link, one after the other ([`measure`]).
//! From the processor time of a device's run ([`usage`]) that of the bare link's run is taken away, per
//! frame that was sent, and what remains is divided by the frames that were forwarded. Frames that a
//! device drops have not been carried to the sink, so at a load beyond the peak this takes away too
//! much: compare prices where nothing is lost. Medians of rounds count; the lowest and the highest
//! round stand beside them.
//!
//! # What the devices do
//!
//! Ours has 100,000 routes (engine `lines`), 1,000 filters, distributed queueing (DQ+) and QSDRR, on
//! AF_XDP ports. Whoever sends a packet also forwards it, as with the kernel, so that nobody promises order to
//! packets that several processors send (the tester is one thread); the variant `ordered` does. `linux` has one route that fits and nothing else. `nftables` has besides the denying
//! half of the filters, as far as they do not overlap, as one set with intervals, and HTB at the
//! output. So the kernel has less to do.

pub mod dut;
pub mod figures;
pub mod site;
pub mod tester;
pub mod traffic;
pub mod usage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::clock::{median, thread_time};
use crate::generate::epoll::PromptTimers;
use dut::{Device, Dut, Variant};
use site::Site;
use tester::{Load, Run, Tester};
use traffic::{FRAME_BYTES_MIN, Frames};
use usage::{KernelThreads, Machine};

/// The longest frame: the IP packet of 1,912 bytes that the paper's sweep ends with, in Ethernet.
pub const FRAME_BYTES_MAX: u16 = 1_930;
/// The share of frames that the tester lost from which on it is said.
const UNHEARD_MAX: f64 = 0.001;
/// The share of foreign processor time from which on it is said.
const FOREIGN_MAX: f64 = 0.25;

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
    /// How often.
    pub rounds: u32,
    /// Seed of flows, routes and filters.
    pub seed: u64,
    /// Where the page goes, if anywhere.
    pub out: Option<PathBuf>,
}

/// A device's figures under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The device: `nilometer`, `linux`, `nftables`.
    pub dut: String,
    /// What of it is at work.
    pub variant: String,
    /// Length of frames with their check sequence, as RFC 2544 counts.
    pub frame_bytes: u16,
    /// Frames per second that were to be offered.
    pub asked_pps: f64,
    /// Frames per second that were.
    pub offered_pps: f64,
    /// Frames per second that came out.
    pub forwarded_pps: f64,
    /// The same in the worst and in the best round.
    pub forwarded_pps_range: [f64; 2],
    /// Whether the generator kept its pace in most rounds, and so `offered_pps` is what was asked for.
    pub is_paced: bool,
    /// Frames that another of their flow had overtaken, of all rounds.
    pub disordered: u64,
    /// The share of the offered frames that the tester's own ring lost, in the worst round: they were
    /// forwarded, and are not in `forwarded_pps`.
    pub unheard_share: f64,
    /// Forwarded frames per processor second of the device, at the median price of a frame; none where the
    /// difference to the bare link is lost in the noise of more than a quarter of the rounds.
    pub packets_per_cpu_second: Option<f64>,
    /// The same in the worst and in the best round; none where the difference is lost in any.
    pub packets_per_cpu_second_range: Option<[f64; 2]>,
    /// Processor seconds per second of load, generator and sink included.
    pub cpu_seconds: f64,
    /// Those of generator and sink alone under the same load.
    pub generator_cpu_seconds: f64,
    /// Those of the whole machine, whoever used them.
    pub machine_cpu_seconds: f64,
}

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forwarding {
    /// Seed of flows, routes and filters.
    pub seed: u64,
    /// Seconds of each load, and how often it was offered.
    pub seconds: f64,
    /// Rounds whose medians the points are.
    pub rounds: u32,
    /// Routes and filters of our router.
    pub routes: usize,
    /// Filters of our router.
    pub filters: usize,
    /// How our router's ports were opened.
    pub ports: Vec<String>,
    /// The points, by device, variant, length and rate.
    pub points: Vec<Point>,
    /// What is not as asked for, and why.
    pub warnings: Vec<String>,
}

/// A device, its links, and who tests it.
struct Bench {
    what: Option<(Dut, Variant)>,
    // The device ends before its links do.
    device: Device,
    tester: Tester,
    _site: Site,
}

/// What one run of a load showed.
#[derive(Clone, Copy, Debug)]
struct Sample {
    run: Run,
    /// Processor seconds of what took part, and of the whole machine.
    cpu: f64,
    machine: f64,
}

/// A load: the length of its frames and its place among the rates.
type LoadId = (u16, usize);
/// Whose samples: the place of the bench, and the load.
type Samples = BTreeMap<(usize, LoadId), Vec<Sample>>;

/// Measures, and draws if asked to.
///
/// # Errors
/// Without root, and what a device refuses.
pub fn measure(options: &Options) -> Result<Forwarding> {
    site::privileged()?;
    let (mut warnings, mut benches) = (Vec::new(), Vec::new());
    for what in asked(options, &mut warnings) {
        let name = what.map_or("the bare link", |(dut, _)| dut.name());
        benches.push(set_up(options, what).with_context(|| name.to_owned())?);
    }
    let ports = benches.iter().find_map(|bench| match &bench.device {
        Device::Router(running) => Some(running.notes.ports.clone()),
        _ => None,
    });
    let mut samples = Samples::new();
    for _ in 0..options.rounds {
        for load in loads(options) {
            for (number, bench) in benches.iter_mut().enumerate() {
                if is_wanted(options, bench.what, load) {
                    let sample = sample(bench, options, load)?;
                    samples.entry((number, load)).or_default().push(sample);
                }
            }
        }
    }
    let points = points(options, &benches, &samples);
    warnings.extend(doubts(&points));
    for bench in benches {
        bench.device.stop()?;
    }
    let result = Forwarding {
        seed: options.seed,
        seconds: options.seconds,
        rounds: options.rounds,
        routes: dut::ROUTES,
        filters: dut::FILTERS,
        ports: ports.unwrap_or_default(),
        points,
        warnings,
    };
    if let Some(directory) = &options.out {
        figures::write(&result, directory)?;
    }
    Ok(result)
}

/// The bare link first, then what was asked for and is there.
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
    let longest = options.frame_bytes.iter().copied().max().unwrap_or(FRAME_BYTES_MIN);
    let mtu_bytes = u32::from(longest - 18).max(1_500);
    let site = Site::build(what.is_some(), mtu_bytes)?;
    let device = Device::start(&site, what, options.seed)?;
    let tester = Tester::open(&site)?;
    Ok(Bench { what, device, tester, _site: site })
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

fn sample(bench: &mut Bench, options: &Options, (frame_bytes, rate): LoadId) -> Result<Sample> {
    let to = site::first_hop(bench.what.is_some());
    let frames = Frames::new(options.seed, frame_bytes, to);
    let load =
        Load { pps: options.rates[rate], duration: Duration::from_secs_f64(options.seconds) };
    let _fine = PromptTimers::new();
    let kernel = KernelThreads::find()?;
    let time = |device: &Device| -> Result<f64> {
        Ok((thread_time() + device.time()? + kernel.time()).as_secs_f64())
    };
    let (machine, before) = (Machine::now()?, time(&bench.device)?);
    let run = bench.tester.offer(&frames, load)?;
    let cpu = time(&bench.device)? - before;
    let machine = Machine::now()?.busy_since(&machine);
    Ok(Sample { run, cpu: cpu / run.seconds, machine: machine / run.seconds })
}

fn points(options: &Options, benches: &[Bench], samples: &Samples) -> Vec<Point> {
    let mut points = Vec::new();
    for (number, bench) in benches.iter().enumerate() {
        let Some((dut, variant)) = bench.what else { continue };
        for load in loads(options) {
            let (Some(own), Some(bare)) = (samples.get(&(number, load)), samples.get(&(0, load)))
            else {
                continue;
            };
            let point = point(own, bare);
            points.push(Point {
                dut: dut.name().to_owned(),
                variant: variant.name().to_owned(),
                frame_bytes: load.0,
                asked_pps: options.rates[load.1],
                ..point
            });
        }
    }
    points
}

/// The figures of a device's samples and those of the bare link, round by round.
fn point(own: &[Sample], bare: &[Sample]) -> Point {
    let of = |figure: &dyn Fn(&Sample) -> f64| own.iter().map(figure).collect::<Vec<f64>>();
    let forwarded = of(&|sample| sample.run.delivered as f64 / sample.run.seconds);
    let pairs = own.iter().zip(bare);
    // Processor seconds per frame that was sent, of generator and sink.
    let generator: Vec<f64> = pairs
        .clone()
        .map(|(own, bare)| {
            bare.cpu * bare.run.seconds / bare.run.sent as f64 * own.run.sent as f64
                / own.run.seconds
        })
        .collect();
    // Processor seconds per frame that was forwarded; below zero where noise is larger.
    let prices = forwarded.iter().zip(own).zip(&generator);
    let prices: Vec<f64> =
        prices.map(|((forwarded, own), generator)| (own.cpu - generator) / forwarded).collect();
    let paced = own.iter().filter(|sample| sample.run.is_paced()).count();
    Point {
        dut: String::new(),
        variant: String::new(),
        frame_bytes: 0,
        asked_pps: 0.0,
        offered_pps: median(of(&|sample| sample.run.sent as f64 / sample.run.seconds)),
        forwarded_pps: median(forwarded.clone()),
        forwarded_pps_range: range(&forwarded),
        is_paced: 2 * paced > own.len(),
        disordered: own.iter().map(|sample| sample.run.disordered).sum(),
        unheard_share: own.iter().map(|sample| sample.run.unheard_share()).fold(0.0, f64::max),
        packets_per_cpu_second: rate(&prices),
        packets_per_cpu_second_range: rates(&prices),
        cpu_seconds: median(of(&|sample| sample.cpu)),
        generator_cpu_seconds: median(generator),
        machine_cpu_seconds: median(of(&|sample| sample.machine)),
    }
}

/// Frames in a second of processor time at the median price; none where that is lost in the noise: where
/// more than a quarter of the rounds say that a frame costs nothing.
fn rate(prices: &[f64]) -> Option<f64> {
    let known = prices.iter().filter(|&&price| price > 0.0 && price.is_finite()).count();
    (4 * known >= 3 * prices.len()).then(|| 1.0 / median(prices.to_vec()))
}

/// The same in the dearest and in the cheapest round; none where the cheapest is lost in the noise.
fn rates(prices: &[f64]) -> Option<[f64; 2]> {
    let [low, high] = range(prices);
    (low > 0.0 && high.is_finite()).then_some([1.0 / high, 1.0 / low])
}

fn range(values: &[f64]) -> [f64; 2] {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    [low, high]
}

/// What makes the figures suspect.
fn doubts(points: &[Point]) -> Vec<String> {
    let mut doubts = Vec::new();
    let late = points.iter().filter(|point| !point.is_paced).count();
    if late > 0 {
        doubts.push(format!(
            "at {late} of {} points the generator did not keep its pace; there the load is what \
             offered_pps says, not what was asked for",
            points.len()
        ));
    }
    let unheard = points.iter().filter(|point| point.unheard_share > UNHEARD_MAX).count();
    if unheard > 0 {
        let worst = points.iter().map(|point| point.unheard_share).fold(0.0, f64::max);
        doubts.push(format!(
            "at {unheard} of {} points the tester could not take all that came, up to {:.1} % of what it \
             sent; there the device forwarded more than forwarded_pps says",
            points.len(),
            100.0 * worst
        ));
    }
    let foreign = |point: &&Point| {
        point.machine_cpu_seconds - point.cpu_seconds > FOREIGN_MAX * point.cpu_seconds
    };
    let foreign = points.iter().filter(foreign).count();
    if foreign > 0 {
        doubts.push(format!(
            "at {foreign} of {} points others used the machine as well; their processor time is \
             left out, and the rates are lower than they could be",
            points.len()
        ));
    }
    doubts
}

#[cfg(test)]
mod tests;
