//! `stream run`: a calibration over the bare wire, the device, the result and its directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nilometer_files::document::results::Directory;
use nilometer_files::{say, tool};
use nilometer_linux::borrowed::ensure_lendable;
use nilometer_linux::idle_states::AwakeProcessors;
use nilometer_linux::privilege;
use nilometer_linux::scheduling::{Class, Timed};
use nilometer_linux::stamp::{Departures, Stamping, monotonic_ns};
use nilometer_linux::testbed::{CLIENT_INTERFACE, HostSide, Testbed};
use nilometer_profile::Direction;
use nilometer_profile::stream::StreamSettings;
use nilometer_profile::stream::validity::Bounds;
use nilometer_wire::Span;

use super::added::AddedDelay;
use super::config::{StampChoice, StreamConfig};
use super::device::{Device, DeviceRequest, DeviceSeen, ReceiverRequest, testbed_config};
use super::ends::{of_testbed, of_two_hosts};
use super::live::{HEADING, Lines, Live};
use super::outcome::{
    ClockOutcome, FORMAT, FaultTruth, Outcome, Stamps, StreamOutcome, WireOutcome, noise_ns,
    together,
};
use super::page;
use super::receiver::Reading;
use super::remote::{RemoteEnd, RemoteSetup};
use super::rows::{ROWS_FILE, Rows, estimate_bytes};
use super::transmit::{Transmit, transmit};
use super::trial::{Instrument, Seen, Trial, new_run, play};
use crate::trial::config::DutKind;

/// The result's name among the results, and that of the configuration.
const RESULT_FILE: &str = "result.json";
const CONFIG_FILE: &str = "stream.toml";
/// How often a line is printed.
const INTERVAL: Duration = Duration::from_secs(1);
/// What stamps live frames.
const LIVE_STAMP: &str = "the program that makes live frames, before the driver";

/// Options of a run beside its configuration.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The directory of results; none where nothing is kept.
    pub out: Option<PathBuf>,
    /// Whether an earlier one may be replaced.
    pub force: bool,
    /// The command that repeats the run.
    pub command: String,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The result.
    pub outcome: Outcome,
    /// The directory of results, if there is one.
    pub kept: Option<PathBuf>,
    /// A signal ended it.
    pub is_interrupted: bool,
}

/// Which stamps this machine takes: those requested, as far as the system allows.
///
/// # Errors
/// When the system does not allow the requested stamps.
pub fn stamping(choice: StampChoice) -> Result<(Stamping, Stamps)> {
    privilege::acquire()?;
    let tried = || -> Result<()> {
        let testbed = Testbed::build(&testbed_config(&DeviceRequest::wire()))?;
        let open = || Departures::open(CLIENT_INTERFACE, 1, 64, Stamping::Driver).map(drop);
        testbed.client().enter(open)
    };
    let (stamping, why_not) = match choice {
        StampChoice::Driver => tried().map(|()| (Stamping::Driver, None))?,
        StampChoice::Socket => (Stamping::Socket, None),
        StampChoice::None => (Stamping::Off, None),
        StampChoice::Best => match tried() {
            Ok(()) => (Stamping::Driver, None),
            Err(why) => (Stamping::Socket, Some(format!("{why:#}"))),
        },
    };
    let driver = stamping == Stamping::Driver || (why_not.is_none() && tried().is_ok());
    let sending = match stamping {
        Stamping::Driver => "tc egress, before the queueing discipline and the driver",
        Stamping::Socket => "packet socket, as the driver is given the frame",
        Stamping::Off => "none",
    };
    let pair = [sending.to_owned(), String::new()];
    // (No card's clock is read: the lab's links have none.)
    let stamps = Stamps { hardware: false, driver, software: true, socket: true, pair, why_not };
    Ok((stamping, stamps))
}

/// How a configuration is measured.
fn instrument(
    config: &StreamConfig,
    pps: f64,
    (stamping, transmit): (Stamping, Transmit),
) -> Instrument {
    let usual = Bounds::of_bursts(config.pattern.burst(), pps);
    // (Ticks that are seen in the delays of a device elsewhere are the device's.)
    let comb_share = match config.dut {
        DutKind::External => f64::INFINITY,
        _ => usual.comb_share,
    };
    Instrument {
        stamping,
        transmit,
        reading: Reading::Sleeping,
        ring_slots: config.ring_slots(pps),
        bounds: Bounds { comb_share, ..usual },
    }
}

/// Plays streams through a device that the lab starts itself.
///
/// # Errors
/// When the device cannot be started, or an interface fails.
pub(super) fn through(
    request: &DeviceRequest,
    streams: &[StreamSettings],
    (instrument, wait): (Instrument, Span),
    rows: Option<&Rows>,
    (lines, stop): (Option<Printer<'_>>, &Arc<AtomicBool>),
) -> Result<(Seen, DeviceSeen)> {
    if let Some(receiver) = &request.receiver {
        return between_hosts(request, receiver, (streams, instrument, wait), rows, (lines, stop));
    }
    let config = testbed_config(request);
    let mut testbed = Testbed::build(&config)?;
    let timed = Timed::new(Class::RealTime).guarded().context("the guard of timed threads")?;
    let played = (|| {
        let device = Device::start(request, &testbed, &timed, stop)?;
        if matches!(instrument.transmit, Transmit::Live { .. }) {
            testbed.receive_by_napi()?;
        }
        let ends = of_testbed(&testbed, &config)?;
        let stay = request.longest_stay();
        let apart = &device.threads()?[..];
        let run = new_run();
        let trial = Trial { ends: &ends, streams, instrument, stay, apart, run, wait, rows };
        let seen = between(&trial, &timed, (lines, &|at| device.traffic_begins(at)), stop)?;
        Ok((seen, device.stop()?))
    })();
    for problem in testbed.give_back()? {
        say!("warning: not restored: {problem}");
    }
    played
}

/// The same through a device between this host and a receiver on another one.
fn between_hosts(
    request: &DeviceRequest,
    receiver: &ReceiverRequest,
    (streams, instrument, wait): (&[StreamSettings], Instrument, Span),
    rows: Option<&Rows>,
    (lines, stop): (Option<Printer<'_>>, &Arc<AtomicBool>),
) -> Result<(Seen, DeviceSeen)> {
    let config = testbed_config(request);
    let setup = RemoteSetup {
        is_transparent: request.is_transparent(),
        may_fall_back: receiver.may_fall_back,
    };
    let timed = Timed::new(Class::RealTime).guarded().context("the guard of timed threads")?;
    // (Set up before the receiver's, whose link may be the other end of the same cable.)
    let mut client = HostSide::build(&config, 0)?;
    let played = (|| {
        let remote = RemoteEnd::connect(&receiver.addresses, setup)
            .with_context(|| format!("the receiver at {}", receiver.name))?;
        client.wait_until_up()?;
        let ends = of_two_hosts(&client, &remote, &config)?;
        let (stay, apart, run) = (Span::ZERO, &[][..], new_run());
        let trial = Trial { ends: &ends, streams, instrument, stay, apart, run, wait, rows };
        Ok((between(&trial, &timed, (lines, &|_| {}), stop)?, DeviceSeen::default()))
    })();
    match client.give_back() {
        Ok(problems) => problems.iter().for_each(|it| say!("warning: not put back: {it}")),
        Err(why) => say!("warning: not put back: {why:#}"),
    }
    played
}

/// Prints a line.
pub type Printer<'a> = &'a (dyn Fn(&str) + Sync);

/// Plays a trial between any two ends, and prints a line for each second of each direction. When the traffic begins is
/// passed to `began` beforehand.
///
/// # Errors
/// As [`play`].
pub fn between(
    trial: &Trial<'_>,
    timed: &Timed,
    (lines, began): (Option<Printer<'_>>, &dyn Fn(Instant)),
    stop: &Arc<AtomicBool>,
) -> Result<Seen> {
    let _awake = AwakeProcessors::for_class(Class::RealTime);
    let (live, is_over) = (Live::default(), AtomicBool::new(false));
    let (streams, length) = (trial.streams.len(), trial.streams[0].length.as_secs_f64());
    thread::scope(|scope| {
        let begin = |origin_ns: u64| {
            let lead = Duration::from_nanos(origin_ns.saturating_sub(monotonic_ns()));
            let origin = Instant::now() + lead;
            began(origin);
            let Some(print) = lines else { return };
            let (live, is_over) = (&live, &is_over);
            scope.spawn(move || print_lines((live, streams, length), (print, origin), is_over));
        };
        let seen = play(trial, timed, begin, (&live, stop));
        is_over.store(true, Ordering::Release);
        seen
    })
}

fn print_lines(
    (live, streams, length): (&Live, usize, f64),
    (print, origin): (Printer<'_>, Instant),
    is_over: &AtomicBool,
) {
    let (mut lines, mut from) = (Lines::default(), 0.0);
    // (The traffic begins a moment later.)
    let elapsed = || Instant::now().saturating_duration_since(origin).as_secs_f64();
    print(HEADING);
    while from < length && !is_over.load(Ordering::Acquire) {
        let to = f64::min(from + INTERVAL.as_secs_f64(), length);
        while elapsed() < to && !is_over.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(20));
        }
        for way in &Direction::ALL[..streams] {
            print(&lines.line(live, *way, from, to));
        }
        from = to;
    }
}

/// The bare wire by the same streams, for some seconds.
fn calibrated(
    config: &StreamConfig,
    streams: &[StreamSettings],
    instrument: Instrument,
    stop: &Arc<AtomicBool>,
) -> Result<Option<(WireOutcome, Seen)>> {
    // (A bare wire of this host says nothing about a receiver on another.)
    if config.calibration == 0.0 || config.dut == DutKind::Wire || config.receiver.is_some() {
        return Ok(None);
    }
    let length = Span::from_secs_f64(config.calibration.min(config.seconds));
    let short: Vec<StreamSettings> =
        streams.iter().map(|stream| StreamSettings { length, ..stream.clone() }).collect();
    let request = DeviceRequest::wire();
    let wait = Span::from_secs_f64(config.wait);
    let seen = through(&request, &short, (instrument, wait), None, (None, stop))
        .context("calibration over the bare wire")?
        .0;
    let mut sum = Outcome { directions: directions(&seen, &short), ..Outcome::default() };
    together(&mut sum, &seen);
    let Outcome { delay_ns, valid, why, .. } = sum;
    // (An invalid calibration is no measure of the instrument.)
    let noise_ns = noise_ns(delay_ns).filter(|_| valid);
    Ok(Some((WireOutcome { delay_ns, noise_ns, valid, why }, seen)))
}

fn directions(seen: &Seen, streams: &[StreamSettings]) -> Vec<StreamOutcome> {
    seen.streams.iter().zip(streams).map(|(seen, one)| StreamOutcome::of(seen, one)).collect()
}

/// Runs a stream. `lines` prints a line a second; `stop` ends it early and keeps the results so
/// far.
///
/// # Errors
/// One line says what the configuration, the system or the disk did not permit.
pub fn run(
    config: &StreamConfig,
    options: &RunOptions,
    lines: Option<Printer<'_>>,
    stop: &Arc<AtomicBool>,
) -> Result<Ended> {
    config.check()?;
    let streams = config.streams()?;
    let request = DeviceRequest::new(config)?;
    if let Some(external) = &request.external {
        privilege::acquire_root("dut external")?;
        let here = external.interfaces().into_iter().filter(|it| !it.is_empty());
        here.into_iter().try_for_each(|it| ensure_lendable(it))?;
    }
    if let Some(out) = &options.out {
        Directory::check(out, options.force)?;
    }
    let (stamping, stamps) = stamping(config.stamps)?;
    let (transmit, transmission) = transmit(config.transmit, &streams, stamping)?;
    let instrument = instrument(config, streams[0].pps, (stamping, transmit));
    let calibrated = calibrated(config, &streams, instrument, stop)?;
    let directory = options.out.as_ref().map(|out| Directory::create(out, options.force));
    let directory = directory.transpose()?;
    let rows = directory.as_ref().map(|directory| begin_rows(config, &streams, directory));
    let rows = rows.transpose()?;
    let wait = Span::from_secs_f64(config.wait);
    let (seen, device) =
        through(&request, &streams, (instrument, wait), rows.as_ref(), (lines, stop))?;
    let mut outcome = Outcome {
        format: FORMAT.to_owned(),
        version: tool::version().to_owned(),
        commit: tool::commit().to_owned(),
        dut: config.dut.name().to_owned(),
        seed: config.seed,
        pattern: config.pattern.to_string(),
        frame_bytes: streams[0].mean_bytes(),
        flows: config.flows,
        seconds: config.seconds,
        wait_s: config.wait,
        run: seen.run,
        stamps,
        transmit: transmission,
        directions: directions(&seen, &streams),
        wire: calibrated.as_ref().map(|(wire, _)| wire.clone()),
        ring: [0, instrument.ring_slots as u64],
        fault: device.fault.map(truth),
        receiver: config.receiver.clone(),
        clock: seen.clock.map(ClockOutcome::from),
        ..Outcome::default()
    };
    outcome.stamps.pair[1].clone_from(&seen.arrivals);
    if transmit != Transmit::Socket {
        LIVE_STAMP.clone_into(&mut outcome.stamps.pair[0]);
    }
    together(&mut outcome, &seen);
    outcome.added_ns = calibrated
        .as_ref()
        .filter(|(wire, _)| wire.valid)
        .and_then(|(_, wire)| AddedDelay::of(&seen.delays(), &wire.delays()));
    if let Some(rows) = rows {
        let rows = rows.finish();
        outcome.rows = [rows.written, rows.left_out];
        outcome.warnings.extend(rows.failure.map(|why| format!("no table of frames: {why}")));
    }
    let wire = calibrated.as_ref().map(|(_, seen)| seen);
    let is_interrupted = stop.load(Ordering::Relaxed);
    let kept = match directory {
        Some(directory) => {
            match kept(config, options, directory, (&outcome, &seen, wire), is_interrupted) {
                Ok(kept) => Some(kept),
                // (The result is printed even if the disk fails.)
                Err(why) => {
                    outcome.warnings.push(format!("the results are not kept: {why:#}"));
                    None
                }
            }
        }
        None => None,
    };
    Ok(Ended { outcome, kept, is_interrupted })
}

/// Begins the table of frames, and reports its expected size beforehand if that does not fit.
fn begin_rows(
    config: &StreamConfig,
    streams: &[StreamSettings],
    directory: &Directory,
) -> Result<Rows> {
    let frames: f64 = streams.iter().map(|one| one.pps * one.length.as_secs_f64()).sum();
    let (needed, budget) = (estimate_bytes(frames as u64), config.disk << 20);
    if needed > budget {
        say!(
            "{ROWS_FILE} of {frames:.0} frames would take about {} MiB and may take {} (--disk): \
             the last frames have no row",
            needed >> 20,
            config.disk
        );
    }
    let marks = vec![
        ("seed", config.seed.to_string()),
        ("dut", config.dut.name().to_owned()),
        ("pattern", config.pattern.to_string()),
    ];
    Rows::begin(&directory.file(ROWS_FILE), budget, marks)
}

fn truth(counts: nilometer_sim::fault::FaultCounts) -> FaultTruth {
    FaultTruth {
        received: counts.received,
        sent: counts.sent,
        lost: counts.lost,
        corrupted: counts.corrupted,
        duplicated: counts.duplicated,
        held_back: counts.reordered,
        discarded: counts.discarded,
    }
}

/// Writes result, configuration and page; returns where they are.
fn kept(
    config: &StreamConfig,
    options: &RunOptions,
    directory: Directory,
    (outcome, seen, wire): (&Outcome, &Seen, Option<&Seen>),
    is_interrupted: bool,
) -> Result<PathBuf> {
    directory.file(RESULT_FILE).write_json(outcome)?;
    let text = toml::to_string(config).context("a configuration is TOML")?;
    directory.file(CONFIG_FILE).write(text.as_bytes())?;
    let page = page::render(outcome, (seen, wire), &options.command);
    directory.file(nilometer_report::PAGE_FILE).write(page.as_bytes())?;
    Ok(if is_interrupted { directory.keep() } else { directory.finish()? })
}
