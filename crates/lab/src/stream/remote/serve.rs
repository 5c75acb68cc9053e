//! The receiver: takes the frames of another host's streams off an interface of this one, and sends them on with their
//! stamps.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nilometer_files::tool;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::scheduling::{Class, Role, Timed};
use nilometer_linux::stamp::{Arrivals, Stamping, Watched, monotonic_ns};
use nilometer_linux::testbed::HostSide;

use super::super::checks::Watch;
use super::super::device::{DeviceRequest, testbed_config};
use super::messages::{
    Answer, Greeting, Hello, PROTOCOL, Setup, StreamFilter, Totals, put_end, put_record, read_line,
    write_line,
};
use super::session::{READY_WITHIN, keep_watch};

/// How long the receiver rests when no frames are there, and between looks for connections.
const REST: Duration = Duration::from_micros(500);
const ACCEPT_REST: Duration = Duration::from_millis(20);
/// Connections at once.
const CONNECTIONS_MAX: usize = 8;
/// How long a trial waits for the one before to give the interface back.
const FREE_WITHIN: Duration = Duration::from_secs(5);
/// Bounds of what a sender may request.
const RING_SLOTS_MAX: usize = 1 << 20;
const FRAME_BYTES_MAX: usize = 9_216;
/// The side of the testbed that is here.
const SERVER_SIDE: usize = 1;

/// Where frames are received, and for whom.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// The interface of this host that leads to the device.
    pub interface: String,
    /// Where the other host connects.
    pub listen: SocketAddr,
    /// Whether it ends after one trial.
    pub once: bool,
}

/// What was seen of one trial.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSeen {
    /// The other host.
    pub peer: SocketAddr,
    /// The run in the frames' tags.
    pub run: u32,
    /// Frames that were received, and frames that found the ring full.
    pub received: u64,
    /// See [`SessionSeen::received`].
    pub lost: u64,
}

/// What the receiver reports.
#[derive(Debug)]
pub enum ReceiverEvent {
    /// Connections are taken at this address.
    Listening(SocketAddr),
    /// A trial is over.
    Received(SessionSeen),
    /// A connection or a trial failed.
    Failed(anyhow::Error),
    /// The interface could not be restored in this respect.
    NotRestored(String),
}

/// What the connections share.
struct Receiver<'a> {
    options: &'a ReceiverOptions,
    events: &'a (dyn Fn(ReceiverEvent) + Sync),
    stop: &'a AtomicBool,
    is_done: AtomicBool,
    interface: Mutex<()>,
    /// The open connections by number, to be shut down at the end.
    open: Mutex<HashMap<u64, TcpStream>>,
}

/// Receives until `stop`, or for one trial.
///
/// # Errors
/// When the address cannot be listened on.
pub fn serve(
    options: &ReceiverOptions,
    events: &(dyn Fn(ReceiverEvent) + Sync),
    stop: &AtomicBool,
) -> Result<()> {
    let step = || format!("cannot listen on {}", options.listen);
    let listener = TcpListener::bind(options.listen).with_context(step)?;
    listener.set_nonblocking(true)?;
    events(ReceiverEvent::Listening(listener.local_addr()?));
    let receiver = Receiver {
        options,
        events,
        stop,
        is_done: AtomicBool::new(false),
        interface: Mutex::new(()),
        open: Mutex::new(HashMap::new()),
    };
    let mut number = 0;
    thread::scope(|scope| {
        while !receiver.is_over() {
            let Ok((stream, peer)) = listener.accept() else {
                thread::sleep(ACCEPT_REST);
                continue;
            };
            let mut open = locked(&receiver.open);
            if open.len() < CONNECTIONS_MAX
                && let Ok(kept) = stream.try_clone()
            {
                number += 1;
                open.insert(number, kept);
                let receiver = &receiver;
                scope.spawn(move || receiver.attend(number, stream, peer));
            }
        }
        // (Every phase of a connection ends when there is no more to read.)
        for stream in locked(&receiver.open).values() {
            let _ = stream.shutdown(Shutdown::Read);
        }
    });
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Receiver<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_done.load(Ordering::Relaxed)
    }

    /// Serves one connection to its end.
    fn attend(&self, number: u64, stream: TcpStream, peer: SocketAddr) {
        match self.answer(stream, peer) {
            Ok(None) => {}
            Ok(Some(seen)) => {
                self.is_done.fetch_or(self.options.once, Ordering::Relaxed);
                (self.events)(ReceiverEvent::Received(seen));
            }
            Err(why) => (self.events)(ReceiverEvent::Failed(why.context(peer.to_string()))),
        }
        locked(&self.open).remove(&number);
    }

    /// What was received, if that was the purpose of the connection.
    fn answer(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<Option<SessionSeen>> {
        stream.set_nonblocking(false)?;
        keep_watch(&stream)?;
        let (protocol, version) = (PROTOCOL.to_owned(), tool::version().to_owned());
        write_line(&mut stream, &Greeting { protocol, version })?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let setup = match read_line(&mut reader)? {
            Hello::Clock => {
                self.answer_clock_requests(&mut reader, &mut stream);
                return Ok(None);
            }
            Hello::Receive(setup) => setup,
        };
        stream.set_read_timeout(Some(READY_WITHIN))?;
        let mut is_receiving = false;
        let received = self.receive(setup, (&mut reader, &mut stream), &mut is_receiving);
        match received {
            Ok((run, Totals { received, lost, .. })) => {
                Ok(Some(SessionSeen { peer, run, received, lost }))
            }
            Err(why) => {
                // (Among frames it would be taken for one; the end of the connection has to do.)
                if !is_receiving {
                    let _ = write_line(&mut stream, &Answer::Refused(format!("{why:#}")));
                }
                Err(why)
            }
        }
    }

    /// Answers requests for the time until the other host has no more.
    fn answer_clock_requests(&self, reader: &mut impl Read, stream: &mut TcpStream) {
        let mut request = [0; 8];
        while !self.is_over() && reader.read_exact(&mut request).is_ok() {
            let received = monotonic_ns().to_le_bytes();
            let mut answer = [received, [0; 8]];
            answer[1] = monotonic_ns().to_le_bytes();
            if stream.write_all(answer.as_flattened()).is_err() {
                return;
            }
        }
    }

    /// The interface for one trial, as soon as the one before has given it back.
    fn only(&self) -> Result<MutexGuard<'_, ()>> {
        let began = Instant::now();
        loop {
            match self.interface.try_lock() {
                Ok(only) => return Ok(only),
                Err(TryLockError::Poisoned(only)) => return Ok(only.into_inner()),
                Err(TryLockError::WouldBlock) => ensure!(
                    began.elapsed() < FREE_WITHIN,
                    "another trial is being received at this interface"
                ),
            }
            thread::sleep(ACCEPT_REST);
        }
    }

    /// Receives one trial: its run and its counts.
    fn receive(
        &self,
        setup: Setup,
        (reader, stream): (&mut (impl BufRead + Send), &mut TcpStream),
        is_receiving: &mut bool,
    ) -> Result<(u32, Totals)> {
        let _only = self.only()?;
        let interface = &self.options.interface;
        let own = stream.local_addr()?.ip().to_canonical();
        let addresses = Netlink::open()?.addresses(interface)?;
        ensure!(
            addresses.iter().all(|(address, _)| *address != own),
            "the sender is connected by {interface}, which is under test: let it connect by another network"
        );
        let requested = DeviceRequest::behind(interface, setup.is_transparent);
        let mut side = HostSide::build(&testbed_config(&requested), SERVER_SIDE)?;
        let received = (|| {
            write_line(stream, &Answer::InterfaceReady)?;
            let filter: StreamFilter = read_line(reader)?;
            side.wait_until_up()?;
            let (mut arrivals, stamped_by) = open(&side, filter, setup.may_fall_back)?;
            let timed = Timed::new(Class::RealTime).guarded()?;
            let _timed = timed.enter_for_now(Role::Receiver);
            let watch = Watch::begin()?;
            write_line(stream, &Answer::Receiving { stamped_by })?;
            *is_receiving = true;
            let received = self.send_on(&mut arrivals, (reader, stream))?;
            let (machine, lost) = (watch.end()?, arrivals.lost()?);
            let totals = Totals {
                received,
                lost,
                most_waiting: arrivals.most_waiting(),
                stolen_share: machine.stolen_share,
            };
            write_line(stream, &totals)?;
            Ok((filter.run, totals))
        })();
        match side.give_back() {
            Ok(problems) => {
                problems.into_iter().map(ReceiverEvent::NotRestored).for_each(self.events);
            }
            Err(why) => (self.events)(ReceiverEvent::NotRestored(format!("{why:#}"))),
        }
        received
    }

    /// Sends frames on as they come, until the other host has had enough of them.
    fn send_on(
        &self,
        arrivals: &mut Arrivals,
        (reader, stream): (&mut (impl BufRead + Send), &mut TcpStream),
    ) -> Result<u64> {
        // (A trial may take as long as it likes.)
        stream.set_read_timeout(None)?;
        let (has_ended, is_gone) = (AtomicBool::new(false), AtomicBool::new(false));
        let (mut received, mut records) = (0, Vec::new());
        thread::scope(|scope| {
            let reading = stream.try_clone()?;
            scope.spawn(|| {
                let is_end = read_line::<String>(reader).is_ok_and(|word| word == "end");
                let flag = if is_end { &has_ended } else { &is_gone };
                flag.store(true, Ordering::Release);
            });
            let sent = loop {
                let is_last = has_ended.load(Ordering::Acquire);
                records.clear();
                let count = arrivals.drain(|arrival| put_record(&mut records, &arrival));
                if is_last {
                    put_end(&mut records);
                }
                let written = count.and_then(|count| {
                    stream.write_all(&records).context("the sender takes no frames any more")?;
                    Ok(count)
                });
                match written {
                    Ok(count) => {
                        received += count as u64;
                        if is_last {
                            break Ok(received);
                        }
                        if is_gone.load(Ordering::Acquire) || self.is_over() {
                            break Err(anyhow!("it ended in the middle of the trial"));
                        }
                        if count == 0 {
                            thread::sleep(REST);
                        }
                    }
                    Err(why) => break Err(why),
                }
            };
            if sent.is_err() {
                let _ = reading.shutdown(Shutdown::Both);
            }
            sent
        })
    }
}

/// Begins to stamp frames, and says by what: programs in the driver if the sender wants and the system permits them.
fn open(side: &HostSide, filter: StreamFilter, may_fall_back: bool) -> Result<(Arrivals, String)> {
    let StreamFilter { run, source, ring_slots, frame_bytes_max, by_driver } = filter;
    ensure!((1..=32).contains(&source.1), "a source network of {} bits", source.1);
    if ring_slots > RING_SLOTS_MAX || frame_bytes_max > FRAME_BYTES_MAX {
        bail!("a ring of {ring_slots} frames of {frame_bytes_max} bytes");
    }
    let (watched, room) = (Watched { run, source }, (ring_slots, frame_bytes_max));
    let open = |stamping| {
        side.namespace().enter(|| Arrivals::open(side.interface(), watched, room, stamping))
    };
    let why_not = match by_driver.then(|| open(Stamping::Driver)) {
        Some(Ok(arrivals)) => {
            let stamped_by = arrivals.described().to_owned();
            return Ok((arrivals, stamped_by));
        }
        Some(Err(why)) if !may_fall_back => return Err(why),
        Some(Err(why)) => format!(" (not in the driver: {why:#})"),
        None => String::new(),
    };
    let arrivals = open(Stamping::Socket)?;
    let stamped_by = format!("{}{why_not}", arrivals.described());
    Ok((arrivals, stamped_by))
}
