//! The receiver: reads the stamps of both ends, and keeps the ledger of each stream.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nilometer_linux::stamp::{Arrival, Arrivals, Departures, PLACE_AT, RUN_AT, monotonic_ns};
use nilometer_profile::device_faults::DeviceWatch;
use nilometer_profile::stream::comb::CombWatch;
use nilometer_profile::stream::frame::TAG_AT;
use nilometer_profile::stream::tag::{TAG_BYTES, Tag};
use nilometer_profile::stream::{FrameMaker, Ledger, Packet};
use nilometer_profile::{Delays, Direction};
use nilometer_stat::Histogram;
use nilometer_wire::{Span, Time};

use super::arrival_source::ArrivalSource;
use super::live::LiveStream;
use super::pacer::Paced;
use super::rows::Rows;

/// How the receiver waits for frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// It sleeps between looks.
    #[default]
    Sleeping,
    /// It looks without rest.
    Polling,
}

/// How long it sleeps between reads.
const REST: Duration = Duration::from_micros(500);
const _: () = assert!(RUN_AT == TAG_AT && PLACE_AT == TAG_AT + 4, "both say where a tag is");

/// All that belongs to one stream at the receiver.
pub(super) struct StreamAccount<'a> {
    pub direction: Direction,
    pub maker: &'a FrameMaker,
    pub ledger: Ledger,
    pub departures: Departures,
    pub arrivals: ArrivalSource,
    /// At the sender's end; none where the other stream's are taken there.
    pub returned: Option<Arrivals>,
    /// Frames that were only counted.
    pub counted: u64,
    pub delays: Delays,
    pub watch: DeviceWatch,
    pub comb: CombWatch,
    /// By size of frame: the delays of those that came unharmed.
    pub by_size: BTreeMap<u16, Histogram>,
    pub rows: Option<&'a Rows>,
    pub live: &'a LiveStream,
    /// The length of all frames where a program sends them, which then count as sent when they are stamped.
    pub even_bytes: Option<u64>,
    pub scratch: Vec<u8>,
}

/// How long the receiver waits for the last frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The least wait after the last frame was sent, for copies of received frames.
    pub settle: Duration,
    /// The longest wait, for frames not yet received.
    pub wait: Duration,
}

/// Reads until all senders have reported by `paced` that they are done and no more frames are
/// expected.
///
/// # Errors
/// When an interface is gone.
pub(super) fn receive(
    accounts: &mut [StreamAccount<'_>],
    origin_ns: u64,
    reading: Reading,
    patience: Patience,
    is_sent: &AtomicBool,
) -> Result<()> {
    let mut over_since = None;
    loop {
        let was_sent = is_sent.load(Ordering::Acquire);
        let mut moved = 0;
        for account in accounts.iter_mut() {
            moved += account.turn(origin_ns)?;
        }
        if was_sent {
            let since = *over_since.get_or_insert_with(monotonic_ns);
            let over = Duration::from_nanos(monotonic_ns() - since);
            let is_empty = moved == 0 && accounts.iter().all(|one| one.ledger.waiting() == 0);
            if over >= patience.wait || is_empty && over >= patience.settle {
                return Ok(());
            }
        }
        match reading {
            Reading::Sleeping if moved == 0 => thread::sleep(REST),
            Reading::Polling => std::hint::spin_loop(),
            Reading::Sleeping => {}
        }
    }
}

impl StreamAccount<'_> {
    /// Reads the frames and stamps that are there; returns how many there were.
    fn turn(&mut self, origin_ns: u64) -> Result<usize> {
        let StreamAccount { ledger, departures, arrivals, .. } = self;
        let mut sinks = FateSinks {
            direction: self.direction,
            delays: &mut self.delays,
            watch: &mut self.watch,
            comb: &mut self.comb,
            by_size: &mut self.by_size,
            rows: self.rows,
            live: self.live,
        };
        let time = |ns: u64| Time::from_nanos(ns.saturating_sub(origin_ns));
        let mut sent = None;
        let mut moved = departures.drain(|sequence, stamp_ns| {
            sent = Some(sequence + 1);
            ledger.sent(sequence, time(stamp_ns), &mut |packet| sinks.book(&packet));
        })?;
        if let (Some(sent), Some(frame_bytes)) = (sent, self.even_bytes) {
            sinks.live.sent.store(sent, Ordering::Relaxed);
            sinks.live.sent_bytes.store(sent * frame_bytes, Ordering::Relaxed);
        }
        let (maker, scratch) = (self.maker, &mut self.scratch);
        let came = arrivals.drain(|arrival| {
            sinks.live.received.fetch_add(1, Ordering::Relaxed);
            let Some(sequence) = sequence_of(&arrival, maker) else {
                if is_other_streams(&arrival, maker) {
                    sinks.watch.sent_back(sinks.direction.opposite(), time(arrival.stamp_ns));
                }
                return ledger.originated();
            };
            let is_intact = match ledger.scheduled(sequence) {
                Some(one) => maker.is_intact(sequence, &one, arrival.frame, scratch),
                None => true,
            };
            let at = time(arrival.stamp_ns);
            ledger.received(sequence, at, !is_intact, &mut |packet| sinks.book(&packet));
        })?;
        if let Some(returned) = &mut self.returned {
            let (direction, watch) = (sinks.direction, &mut *sinks.watch);
            returned.drain(|arrival| watch.sent_back(direction, time(arrival.stamp_ns)))?;
        }
        if !arrivals.is_stamped() {
            self.counted += came as u64;
            sinks.live.received.fetch_add(came as u64, Ordering::Relaxed);
        }
        moved += came;
        ledger.decide(time(monotonic_ns()), &mut |packet| sinks.book(&packet));
        Ok(moved)
    }

    /// Ends the trial at a receiver on another host, and takes what was still on its way from there.
    pub fn end(&mut self, origin_ns: u64) -> Result<()> {
        if self.arrivals.finish()? {
            self.turn(origin_ns)?;
        }
        Ok(())
    }

    /// The stream is over: decides the fates still open.
    pub fn finish(&mut self, paced: &Paced) {
        let mut sinks = FateSinks {
            direction: self.direction,
            delays: &mut self.delays,
            watch: &mut self.watch,
            comb: &mut self.comb,
            by_size: &mut self.by_size,
            rows: self.rows,
            live: self.live,
        };
        self.ledger.finish(paced.sent, &mut |packet| sinks.book(&packet));
    }
}

/// The number in a frame's tag, if it belongs to this stream.
fn sequence_of(arrival: &Arrival<'_>, maker: &FrameMaker) -> Option<u64> {
    let bytes: &[u8; TAG_BYTES] = arrival.frame.get(TAG_AT..TAG_AT + TAG_BYTES)?.try_into().ok()?;
    let tag = Tag::find(bytes)?.tag;
    (tag.run == maker.run() && tag.stream == maker.stream()).then_some(tag.sequence)
}

/// Whether it is a frame of the run's other stream that came back to its sender.
fn is_other_streams(arrival: &Arrival<'_>, maker: &FrameMaker) -> bool {
    let bytes = arrival.frame.get(TAG_AT..TAG_AT + TAG_BYTES);
    let bytes: Option<&[u8; TAG_BYTES]> = bytes.and_then(|bytes| bytes.try_into().ok());
    let tag = bytes.and_then(Tag::find).map(|found| found.tag);
    tag.is_some_and(|tag| tag.run == maker.run() && tag.stream != maker.stream())
}

/// Where the fate of a frame is recorded.
struct FateSinks<'a> {
    direction: Direction,
    delays: &'a mut Delays,
    watch: &'a mut DeviceWatch,
    comb: &'a mut CombWatch,
    by_size: &'a mut BTreeMap<u16, Histogram>,
    rows: Option<&'a Rows>,
    live: &'a LiveStream,
}

impl FateSinks<'_> {
    fn book(&mut self, packet: &Packet) {
        use nilometer_profile::Fate;
        let outcome = packet.outcome(self.direction);
        if let Some(outcome) = &outcome {
            self.delays.record(outcome);
            self.watch.record(outcome);
            if let (Some(sent), Some(received)) = (outcome.entered_at, outcome.left_at) {
                self.comb.record(sent, received);
            }
        }
        let delay = outcome.and_then(|outcome| outcome.delay()).map(Span::as_nanos);
        if let Some(delay) = delay {
            self.by_size.entry(packet.scheduled.frame_bytes).or_default().record(delay);
            self.live.delay_ns.fetch_add(delay, Ordering::Relaxed);
            self.live.delays.fetch_add(1, Ordering::Relaxed);
        }
        if packet.fate == Fate::Lost {
            self.live.lost.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(rows) = self.rows {
            rows.offer(self.direction, packet);
        }
    }
}
