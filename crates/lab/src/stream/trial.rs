//! One trial: streams between two ends, sent and received, and whether the instrument may be believed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nilometer_linux::clock::thread_id;
use nilometer_linux::processors::keep_apart;
use nilometer_linux::scheduling::{Role, Timed};
use nilometer_linux::stamp::sender::Sender;
use nilometer_linux::stamp::{Arrivals, Departures, Stamping, Watched, monotonic_ns};
use nilometer_profile::stream::flows::Flows;
use nilometer_profile::stream::ledger::{Limits, Timings};
use nilometer_profile::stream::validity::{Bounds, Observations, Reason, overrun, reasons};
use nilometer_profile::stream::{FrameMaker, Ledger, Schedule, StreamSettings};
use nilometer_profile::{Counts, DelayConfig, Delays, Direction};
use nilometer_stat::{Histogram, Rng};
use nilometer_wire::Span;

use super::checks::{MachineSeen, Watch};
use super::ends::{End, source};
use super::live::Live;
use super::pacer::{Paced, pace};
use super::receiver::{Patience, Reading, StreamAccount, receive};
use super::rows::Rows;

const PURPOSE_RUN: u32 = 0x5354_0110;
/// From the moment at which all is ready to that at which the first frame is due.
const LEAD: Duration = Duration::from_millis(50);
/// How long the last frames are waited for, beyond what the device's files say (RFC 2544 23): what comes later is lost.
const WAIT: Duration = Duration::from_secs(2);
/// Stamps of departures are kept for so many seconds until they are read: few, as a ring that a cache holds costs the
/// sender less.
const DEPARTURES_S: f64 = 0.1;
/// At least so many, and at most.
const DEPARTURES: [usize; 2] = [1 << 12, 1 << 18];
/// Frames whose fate may be open beyond those that the wait explains.
const WINDOW_SLACK: usize = 1 << 16;
/// The most of them, some 64 bytes each.
const WINDOW_MAX: usize = 1 << 22;

/// How a trial is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instrument {
    /// Who takes stamps.
    pub stamping: Stamping,
    /// How the receiver waits.
    pub reading: Reading,
    /// Frames that the receiver's ring holds, a power of two.
    pub ring_slots: usize,
    /// What makes a trial invalid.
    pub bounds: Bounds,
}

/// A trial to be made.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// The client's end and the server's, links up.
    pub ends: &'a [End<'a>; 2],
    /// One stream from the clients, and where there is a second, one from the servers.
    pub streams: &'a [StreamSettings],
    /// How it is measured.
    pub instrument: Instrument,
    /// The longest that a frame may stay in the device.
    pub stay: Span,
    /// The device's threads, which are kept off the sender's processor.
    pub apart: &'a [i32],
    /// Which of several trials of one seed it is.
    pub repetition: u64,
    /// Where rows are offered.
    pub rows: Option<&'a Rows>,
}

/// What was seen of one stream.
#[derive(Clone, Debug)]
pub struct StreamSeen {
    /// Which way it went.
    pub direction: Direction,
    /// What its sender did.
    pub paced: Paced,
    /// Frames by fate.
    pub counts: Counts,
    /// Delays and pacing.
    pub timings: Timings,
    /// Delays over time.
    pub delays: Delays,
    /// Delays by size of frame.
    pub by_size: BTreeMap<u16, Histogram>,
    /// Frames that found no room in the receiver's ring.
    pub receiver_lost: u64,
    /// The most frames in the receiver's ring at once.
    pub most_waiting: u64,
    /// Why it may not be believed; nothing where it may.
    pub why: Vec<Reason>,
}

/// What was seen in a trial.
#[derive(Clone, Debug)]
pub struct Seen {
    /// By stream.
    pub streams: Vec<StreamSeen>,
    /// Who took the stamps of arrivals, in words.
    pub arrivals: &'static str,
    /// What happened to the machine.
    pub machine: MachineSeen,
}

/// Plays a trial. `stop` ends it early, and makes it invalid.
///
/// # Errors
/// When an interface is gone, or the system does not let us stamp or send.
pub fn play(
    trial: &Trial<'_>,
    timed: &Timed,
    began: impl FnOnce(u64),
    (live, stop): (&Live, &AtomicBool),
) -> Result<Seen> {
    let makers: Vec<FrameMaker> = trial.streams.iter().map(|stream| maker(trial, stream)).collect();
    let mut accounts = Vec::new();
    for (way, maker) in makers.iter().enumerate() {
        accounts.push(account(trial, way, maker, live)?);
    }
    let arrivals = accounts[0].arrivals.described();
    let watch = Watch::begin()?;
    let origin_ns = monotonic_ns() + LEAD.as_nanos() as u64;
    began(origin_ns);
    let is_sent = AtomicBool::new(false);
    let apart: Vec<i32> = trial.apart.iter().copied().chain([thread_id()]).collect();
    let apart = &apart[..];
    let (ends, schedules) = (trial.ends, trial.streams);
    let stay = Duration::from_nanos(trial.stay.as_nanos());
    let patience = Patience { settle: stay + Duration::from_millis(30), wait: stay + WAIT };
    let (received, paced) = thread::scope(|scope| {
        let senders: Vec<_> = makers
            .iter()
            .enumerate()
            .map(|(way, maker)| {
                scope.spawn(move || {
                    let schedule = Schedule::new(&schedules[way]);
                    let live = (&live.streams[way], stop);
                    send(&ends[way], (schedule, maker), origin_ns, (timed, apart), live)
                })
            })
            .collect();
        let is_sent = &is_sent;
        let waiting = scope.spawn(move || {
            let paced = senders.into_iter().map(|sender| sender.join());
            let paced: Vec<_> = paced
                .map(|one| one.map_err(|_| anyhow!("a pacer panicked")).and_then(|paced| paced))
                .collect();
            is_sent.store(true, Ordering::Release);
            paced
        });
        let reading = trial.instrument.reading;
        let _timed = timed.enter_for_now(Role::Receiver);
        let received = receive(&mut accounts, origin_ns, reading, patience, is_sent);
        if received.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        (received, waiting.join())
    });
    received.context("the receiver failed")?;
    let paced: Result<Vec<Paced>> =
        paced.map_err(|_| anyhow!("a pacer panicked"))?.into_iter().collect();
    let (paced, machine) = (paced.context("the pacer failed")?, watch.end()?);
    let is_stopped = stop.load(Ordering::Relaxed);
    let seen = accounts.into_iter().zip(paced);
    let streams = seen.map(|(account, paced)| {
        judged(account, paced, &machine, &trial.instrument.bounds, is_stopped)
    });
    Ok(Seen { streams: streams.collect::<Result<_>>()?, arrivals, machine })
}

/// What the tags of a trial say of its run.
fn run_of(trial: &Trial<'_>) -> u32 {
    Rng::new(trial.streams[0].seed, PURPOSE_RUN, trial.repetition).next_u64() as u32
}

fn maker(trial: &Trial<'_>, stream: &StreamSettings) -> FrameMaker {
    let [from, to] = directed(trial, stream.stream.into());
    let flows = Flows { from: from.network, to: to.network, seed: stream.seed };
    FrameMaker::new(from.link(), &flows, stream.flows, run_of(trial), stream.stream)
}

/// The end that a stream comes from, and that to which it goes.
fn directed<'a>(trial: &Trial<'a>, way: usize) -> [&'a End<'a>; 2] {
    [&trial.ends[way], &trial.ends[1 - way]]
}

fn account<'a>(
    trial: &Trial<'a>,
    way: usize,
    maker: &'a FrameMaker,
    live: &'a Live,
) -> Result<StreamAccount<'a>> {
    let (stream, [from, to]) = (&trial.streams[way], directed(trial, way));
    let Instrument { stamping, ring_slots, bounds, .. } = trial.instrument;
    let run = maker.run();
    let watched = Watched { run, source: source(from.network) };
    let frame_bytes_max = usize::from(stream.longest_bytes());
    let kept = (stream.pps * DEPARTURES_S) as usize;
    let kept = kept.next_power_of_two().clamp(DEPARTURES[0], DEPARTURES[1]);
    let departures =
        from.namespace.enter(|| Departures::open(&from.interface, run, kept, stamping))?;
    let arrivals = to.namespace.enter(|| {
        Arrivals::open(&to.interface, watched, (ring_slots, frame_bytes_max), stamping)
    })?;
    let wait = trial.stay + Span::from_secs(1);
    let open = stream.pps * wait.as_secs_f64() * 1.5;
    let window_max = (open as usize).saturating_add(WINDOW_SLACK).min(WINDOW_MAX);
    let limits = Limits { wait, window_max };
    let schedule = Schedule::new(stream);
    Ok(StreamAccount {
        direction: Direction::ALL[way],
        maker,
        ledger: Ledger::new(schedule, stream.flows, limits, bounds.slip),
        departures,
        arrivals,
        delays: Delays::new(DelayConfig::default()),
        by_size: BTreeMap::new(),
        rows: trial.rows,
        live: &live.streams[way],
        scratch: Vec::new(),
    })
}

/// Sends a stream on this thread, which has a processor of its own where there are two.
fn send(
    end: &End<'_>,
    (schedule, maker): (Schedule, &FrameMaker),
    origin_ns: u64,
    (timed, apart): (&Timed, &[i32]),
    live: (&super::live::LiveStream, &AtomicBool),
) -> Result<Paced> {
    end.namespace.enter(|| {
        let mut sender = Sender::open(&end.interface)?;
        // (With two streams each sender has one of the processors, and the receiver shares.)
        let _apart =
            (maker.stream() == 0).then(|| keep_apart(apart.iter().copied())).transpose()?;
        timed.enter(Role::Sender);
        pace(schedule, maker, &mut sender, origin_ns, live)
    })
}

fn judged(
    mut account: StreamAccount<'_>,
    paced: Paced,
    machine: &MachineSeen,
    bounds: &Bounds,
    is_stopped: bool,
) -> Result<StreamSeen> {
    account.finish(&paced);
    let receiver_lost = account.arrivals.lost()?;
    let stamps_lost = account.departures.lost()?.max(account.ledger.unstamped());
    let (counts, timings) = (account.ledger.counts(), account.ledger.timings().clone());
    let seen = Observations {
        due: paced.due,
        sent: paced.sent,
        slipped: timings.slipped,
        pacing_p99_ns: timings.pacing.quantile(0.99).unwrap_or(0),
        latest: timings.latest,
        stolen_share: machine.stolen_share,
        squeezed: machine.softnet.squeezed,
        stamps_lost,
        receiver_lost,
        overflow: counts.overflow,
        late: account.ledger.late(),
        imbalance: counts.balance().err(),
        interrupted: is_stopped,
    };
    let mut why = reasons(&seen, bounds);
    let [last_due, last_sent] = [paced.last_due_ns, paced.last_sent_ns].map(Span::from_nanos);
    why.extend(overrun(last_due, last_sent).filter(|_| !is_stopped));
    Ok(StreamSeen {
        direction: account.direction,
        paced,
        counts,
        timings,
        delays: account.delays,
        by_size: account.by_size,
        receiver_lost,
        most_waiting: account.arrivals.most_waiting(),
        why,
    })
}
