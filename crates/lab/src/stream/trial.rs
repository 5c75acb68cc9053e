//! One trial: streams between two ends, sent and received, and whether the instrument was accurate.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nilometer_linux::clock::{scheduler_tick_ns, thread_id};
use nilometer_linux::netlink::Netlink;
use nilometer_linux::processors::keep_apart;
use nilometer_linux::scheduling::{Role, Timed};
use nilometer_linux::stamp::live::{LiveSender, LiveTemplate};
use nilometer_linux::stamp::sender::Sender;
use nilometer_linux::stamp::{Arrivals, Departures, Stamping, Watched, monotonic_ns};
use nilometer_profile::device_faults::{DeviceFault, DeviceWatch, FaultKind};
use nilometer_profile::stream::comb::CombWatch;
use nilometer_profile::stream::flows::Flows;
use nilometer_profile::stream::frame::FRAME_BYTES_MIN;
use nilometer_profile::stream::ledger::{Limits, Timings};
use nilometer_profile::stream::validity::{Bounds, Observations, Reason, overrun, reasons};
use nilometer_profile::stream::{Even, FrameMaker, Ledger, Schedule, Scheduled, StreamSettings};
use nilometer_profile::{Counts, DelayConfig, Delays, Direction};
use nilometer_stat::Histogram;
use nilometer_wire::{Span, Time};

use super::arrival_source::ArrivalSource;
use super::checks::{MachineSeen, Watch};
use super::ends::{End, EndPort, LocalPort, source};
use super::live::Live;
use super::pacer::{Paced, pace, pace_live};
use super::receiver::{Patience, Reading, StreamAccount, receive};
use super::remote::ClockSeen;
use super::rows::Rows;
use super::transmit::{self, Transmit};

/// From the moment at which all is ready to that at which the first frame is due.
const LEAD: Duration = Duration::from_millis(50);
/// Frames that came back are kept until they are read, this many.
const RETURNED: usize = 1 << 10;
/// How long copies of received frames are waited for.
const SETTLE: Duration = Duration::from_millis(30);
/// Stamps of departures for this many seconds are kept until they are read: few, as a ring that fits a
/// cache costs the sender less.
const DEPARTURES_S: f64 = 0.1;
/// The least and the greatest number of them.
const DEPARTURES: [usize; 2] = [1 << 12, 1 << 18];
/// Frames whose fate may be open beyond those that the wait explains.
const WINDOW_SLACK: usize = 1 << 16;
/// The most of them, some 64 bytes each.
const WINDOW_MAX: usize = 1 << 22;

/// How a trial is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instrument {
    /// What takes stamps.
    pub stamping: Stamping,
    /// How frames are sent.
    pub transmit: Transmit,
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
    /// The run number in its tags ([`new_run`]).
    pub run: u32,
    /// How long the last frames are waited for, beyond their stay in the device: later frames count as
    /// lost.
    pub wait: Span,
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
    /// What the device did wrong.
    pub faults: Vec<DeviceFault>,
    /// Why it may not be believed; nothing where it may.
    pub why: Vec<Reason>,
}

/// What was seen in a trial.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The run number in its tags.
    pub run: u32,
    /// By stream.
    pub streams: Vec<StreamSeen>,
    /// What took the stamps of arrivals, in words.
    pub arrivals: String,
    /// What happened to the machine; of stolen time, the greater share where the receiver is another host.
    pub machine: MachineSeen,
    /// The receiver's clock, where that is another host with a known offset.
    pub clock: Option<ClockSeen>,
}

impl Seen {
    /// A histogram of all streams together.
    pub fn merged(&self, of: fn(&StreamSeen) -> &Histogram) -> Histogram {
        let mut all = Histogram::new();
        self.streams.iter().for_each(|stream| all.merge(of(stream)));
        all
    }

    /// From sent to received, of the frames of all streams, ns.
    pub fn delays(&self) -> Histogram {
        self.merged(|stream| &stream.timings.delay)
    }
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
    let makers = trial.streams.iter().map(|stream| maker(trial, stream));
    let makers: Vec<FrameMaker> = makers.collect::<Result<_>>()?;
    let (mut accounts, mut sendings) = (Vec::new(), Vec::new());
    for (way, maker) in makers.iter().enumerate() {
        let (departures, sending) = departures(trial, way, maker)?;
        accounts.push(account(trial, way, (maker, departures), live)?);
        sendings.push(sending);
    }
    let arrivals = accounts[0].arrivals.described().to_owned();
    let watch = Watch::begin()?;
    let origin_ns = monotonic_ns() + LEAD.as_nanos() as u64;
    began(origin_ns);
    let is_sent = AtomicBool::new(false);
    let apart: Vec<i32> = trial.apart.iter().copied().chain([thread_id()]).collect();
    let apart = &apart[..];
    let ends = trial.ends;
    let stay = Duration::from_nanos(trial.stay.as_nanos());
    let wait = Duration::from_nanos(trial.wait.as_nanos());
    let patience = Patience { settle: stay + SETTLE.min(wait), wait: stay + wait };
    let (received, paced) = thread::scope(|scope| {
        let senders: Vec<_> = makers
            .iter()
            .zip(sendings)
            .enumerate()
            .map(|(way, (maker, sending))| {
                scope.spawn(move || {
                    let live = (&live.streams[way], stop);
                    let end = ends[way].local()?;
                    send(end, (maker, sending), origin_ns, (timed, apart), live)
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
    let (paced, mut machine) = (paced.context("the pacer failed")?, watch.end()?);
    for account in &mut accounts {
        account.end(origin_ns)?;
        machine.stolen_share = machine.stolen_share.max(account.arrivals.stolen_share());
    }
    let clock = accounts[0].arrivals.clock();
    let is_stopped = stop.load(Ordering::Relaxed);
    let seen = accounts.into_iter().zip(paced);
    let streams = seen.map(|(account, paced)| {
        judged(account, paced, &machine, &trial.instrument.bounds, is_stopped)
    });
    let streams = streams.collect::<Result<_>>()?;
    Ok(Seen { run: trial.run, streams, arrivals, machine, clock })
}

/// A run number for the tags of a trial: another one each time, so that frames of an earlier run that a
/// device still holds are not taken for this one's.
pub fn new_run() -> u32 {
    RandomState::new().hash_one("run") as u32
}

fn maker(trial: &Trial<'_>, stream: &StreamSettings) -> Result<FrameMaker> {
    let [from, to] = directed(trial, stream.stream.into());
    let flows = Flows { from: from.network, to: to.network, seed: stream.seed };
    let link = from.local()?.link();
    Ok(FrameMaker::new(link, &flows, stream.flows, trial.run, stream.stream))
}

/// The end that a stream comes from, and that to which it goes.
fn directed<'a>(trial: &Trial<'a>, way: usize) -> [&'a End<'a>; 2] {
    [&trial.ends[way], &trial.ends[1 - way]]
}

/// Frames by fate where they were only counted.
fn counted(sent: u64, came: u64) -> Counts {
    let matched = sent.min(came);
    let (lost, originated) = (sent - matched, came - matched);
    Counts { entered: sent, left: came, matched, lost, originated, ..Counts::default() }
}

/// The device's faults. Where the instrument may have lost some of the missing frames, faults of loss are
/// left out.
fn faults(watch: &DeviceWatch, missing: u64) -> Vec<DeviceFault> {
    let mut faults = watch.faults();
    let is_of_loss = |kind: &FaultKind| {
        use FaultKind::{Died, Outage, PassedNothing};
        matches!(kind, Died { .. } | Outage { .. } | PassedNothing { .. })
    };
    faults.retain(|fault| missing == 0 || !is_of_loss(&fault.kind));
    faults
}

/// How a stream is sent.
enum Sending {
    Socket(Box<Schedule>),
    /// The sender, the stream, and how long after the beginning the first frames go, ns.
    Live(Box<LiveSender>, Even, u64),
}

/// The departure stamps, and the sender.
fn departures(trial: &Trial<'_>, way: usize, maker: &FrameMaker) -> Result<(Departures, Sending)> {
    let (stream, end) = (&trial.streams[way], trial.ends[way].local()?);
    let kept = (stream.pps * DEPARTURES_S) as usize;
    let kept = kept.next_power_of_two().clamp(DEPARTURES[0], DEPARTURES[1]);
    let Transmit::Live { batch } = trial.instrument.transmit else {
        let stamping = trial.instrument.stamping;
        let open = || Departures::open(&end.interface, maker.run(), kept, stamping);
        return Ok((end.namespace.enter(open)?, Sending::Socket(Box::new(Schedule::new(stream)))));
    };
    let even = Even::of(stream).context("live frames are evenly spaced")?;
    let template = LiveTemplate::learn(stream.flows, |flow, sequence| {
        let (mut frame, at) = (Vec::new(), Time::ZERO);
        maker.write(sequence, &Scheduled { at, frame_bytes: even.frame_bytes, flow }, &mut frame);
        frame
    })?;
    let (first_ns, pace) = transmit::pace(&even, batch);
    let open = || LiveSender::open(&end.interface, &template, &pace, kept);
    let (sender, departures) = end.namespace.enter(open)?;
    Ok((departures, Sending::Live(Box::new(sender), even, first_ns)))
}

fn account<'a>(
    trial: &Trial<'a>,
    way: usize,
    (maker, departures): (&'a FrameMaker, Departures),
    live: &'a Live,
) -> Result<StreamAccount<'a>> {
    let (stream, [from, to]) = (&trial.streams[way], directed(trial, way));
    let Instrument { stamping, ring_slots, bounds, .. } = trial.instrument;
    let run = maker.run();
    let watched = Watched { run, source: source(from.network) };
    let frame_bytes_max = usize::from(stream.longest_bytes());
    let room = (ring_slots, frame_bytes_max);
    let arrivals = match &to.port {
        EndPort::Here(port) => ArrivalSource::Here(
            port.namespace.enter(|| Arrivals::open(&port.interface, watched, room, stamping))?,
        ),
        EndPort::Elsewhere(end) => {
            let arrivals = end.arrivals(watched, room, stamping).context("the receiver")?;
            ArrivalSource::Elsewhere(arrivals)
        }
    };
    let returned = returned(trial, way, watched)?;
    let wait = trial.stay + trial.wait;
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
        returned,
        counted: 0,
        delays: Delays::new(DelayConfig::default()),
        watch: DeviceWatch::new(Time::ZERO),
        comb: CombWatch::new(Span::from_nanos(scheduler_tick_ns())),
        by_size: BTreeMap::new(),
        rows: trial.rows,
        live: &live.streams[way],
        even_bytes: (trial.instrument.transmit != Transmit::Socket)
            .then(|| u64::from(stream.longest_bytes())),
        scratch: Vec::new(),
    })
}

/// The stamps of frames that come back to the sender's end, where nothing else is received there.
fn returned(trial: &Trial<'_>, way: usize, watched: Watched) -> Result<Option<Arrivals>> {
    let (stamping, end) = (trial.instrument.stamping, trial.ends[way].local()?);
    if stamping != Stamping::Driver || trial.streams.len() > 1 {
        return Ok(None);
    }
    let room = (RETURNED, usize::from(FRAME_BYTES_MIN));
    let open = || Arrivals::open(&end.interface, watched, room, stamping);
    end.namespace.enter(open).map(Some)
}

/// Sends a stream on this thread, which has a processor of its own where there are two.
fn send(
    end: &LocalPort<'_>,
    (maker, sending): (&FrameMaker, Sending),
    origin_ns: u64,
    (timed, apart): (&Timed, &[i32]),
    live: (&super::live::LiveStream, &AtomicBool),
) -> Result<Paced> {
    end.namespace.enter(|| {
        // (With two streams each sender has one of the processors, and the receiver shares.)
        let _apart =
            (maker.stream() == 0).then(|| keep_apart(apart.iter().copied())).transpose()?;
        timed.enter(Role::Sender);
        match sending {
            Sending::Socket(schedule) => {
                let mut sender = Sender::open(&end.interface)?;
                pace(*schedule, maker, &mut sender, origin_ns, live)
            }
            Sending::Live(mut sender, even, first_ns) => {
                let taken = || Ok(Netlink::open()?.statistics(&end.interface)?.tx_packets);
                pace_live((&even, first_ns), (&mut sender, &taken), origin_ns, live.1)
            }
        }
    })
}

fn judged(
    mut account: StreamAccount<'_>,
    mut paced: Paced,
    machine: &MachineSeen,
    bounds: &Bounds,
    is_stopped: bool,
) -> Result<StreamSeen> {
    let is_stamped = account.arrivals.is_stamped();
    if is_stamped {
        account.finish(&paced);
    }
    let receiver_lost = account.arrivals.lost()?;
    let stamps_lost = account.departures.lost()?.max(account.ledger.unstamped());
    let timings = account.ledger.timings().clone();
    // (A call of the kernel's ends some time after the frame that it sent.)
    if let Some(at) = timings.last_sent {
        paced.last_sent_ns = at.as_nanos();
    }
    let counts = match is_stamped {
        true => account.ledger.counts(),
        false => counted(paced.sent, account.counted),
    };
    let seen = Observations {
        due: paced.due,
        sent: paced.sent,
        slipped: timings.slipped,
        pacing_p99_ns: timings.pacing.quantile(0.99).unwrap_or(0),
        latest: timings.latest,
        stolen_share: machine.stolen_share,
        squeezed: machine.softnet.squeezed,
        comb: account.comb.comb(),
        stamps_lost,
        receiver_lost,
        overflow: counts.overflow,
        late: account.ledger.late(),
        imbalance: counts.balance().err(),
        clock_inconsistent: account.arrivals.is_clock_inconsistent(),
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
        faults: faults(&account.watch, receiver_lost + counts.overflow + stamps_lost),
        most_waiting: account.arrivals.most_waiting(),
        why,
    })
}
