//! The sender's side: connections to the receiver, its clock, and the frames that it stamps.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nilometer_files::{terminal, tool};
use nilometer_linux::stamp::{Arrival, Stamping, Watched, monotonic_ns};
use nilometer_profile::stream::clock_offset::{ClockOffset, Exchange, drift_ns};
use socket2::{SockRef, TcpKeepalive};

use super::messages::{
    Answer, Greeting, Hello, PROTOCOL, RECORD_BYTES, Record, Setup, StreamFilter, Totals, in_words,
    read_line, record, write_line,
};

/// How long either side waits for the other.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// How long either may take to get its interface ready.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(30);
/// Exchanges before a trial, without a pause.
const EXCHANGES_FIRST: usize = 64;
/// The pause between exchanges afterwards.
const EXCHANGE_EVERY: Duration = Duration::from_millis(50);
/// Bytes that are read from the receiver at once.
const READ_BYTES: usize = 1 << 18;
/// The most that the receiver may still have of a trial when it ends, bytes.
const LEFT_BYTES_MAX: usize = 1 << 30;
/// For so long an offset is used before it is looked at again, ns of the frames' stamps.
const OFFSET_KEPT_NS: u64 = 5_000_000;

/// The server's end of a stream, on another host.
#[derive(Debug)]
pub struct RemoteEnd {
    /// The connection, until frames are received by it.
    session: Mutex<Option<Session>>,
    clock: Arc<Clock>,
    exchanges: Option<JoinHandle<()>>,
}

/// The other host's clock.
#[derive(Debug, Default)]
struct Clock {
    offset: Mutex<ClockOffset>,
    /// The trial is over.
    is_over: AtomicBool,
    /// The other host has stopped answering.
    is_gone: AtomicBool,
}

/// What was seen of the other host's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSeen {
    /// The offset at the end of the trial, ns.
    pub offset_ns: i64,
    /// The greatest uncertainty in the trial, ns.
    pub uncertainty_ns: u64,
    /// Exchanges of messages.
    pub exchanges: u64,
}

impl Clock {
    fn offset(&self) -> MutexGuard<'_, ClockOffset> {
        self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Session = BufReader<TcpStream>;

/// Connects to one of the addresses of a receiver.
fn connect(addresses: &[SocketAddr]) -> Result<Session> {
    let mut why = anyhow!("it has no address");
    let connected = addresses.iter().find_map(|address| {
        TcpStream::connect_timeout(address, TIMEOUT).map_err(|error| why = error.into()).ok()
    });
    let Some(stream) = connected else {
        return Err(why.context("no stream receiver is there (nilometer stream receive)"));
    };
    keep_watch(&stream)?;
    let mut session = BufReader::new(stream);
    let found: Greeting = read_line(&mut session).context("is a stream receiver there?")?;
    ensure!(
        found.protocol == PROTOCOL && found.version == tool::version(),
        "it has version {} of the program, and this is {}: use the same on both hosts",
        terminal::plain(&found.version),
        tool::version()
    );
    session.get_ref().set_read_timeout(Some(READY_WITHIN))?;
    Ok(session)
}

/// Sets how long a connection waits for a host that is switched off.
pub(super) fn keep_watch(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let probes = TcpKeepalive::new().with_time(TIMEOUT).with_interval(TIMEOUT).with_retries(3);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&probes)?;
    // (Nothing is probed while data are not acknowledged.)
    socket.set_tcp_user_timeout(Some(3 * TIMEOUT)).context("TCP_USER_TIMEOUT")
}

/// One exchange of messages.
fn exchange(session: &mut Session) -> Result<Exchange> {
    let t1 = monotonic_ns();
    session.get_mut().write_all(&t1.to_le_bytes()).map_err(in_words)?;
    let mut answer = [[0; 8]; 2];
    session.read_exact(answer.as_flattened_mut()).map_err(in_words)?;
    let t4 = monotonic_ns();
    let [t2, t3] = answer.map(u64::from_le_bytes);
    Ok(Exchange { t1, t2, t3, t4 })
}

impl RemoteEnd {
    /// Connects to a receiver; has it set its interface up, and reads its clock from now on.
    ///
    /// # Errors
    /// When there is none, it refuses, or its clock cannot be had.
    pub fn connect(addresses: &[SocketAddr], setup: RemoteSetup) -> Result<RemoteEnd> {
        let mut session = connect(addresses)?;
        let RemoteSetup { is_transparent, may_fall_back } = setup;
        let hello = Hello::Receive(Setup { is_transparent, may_fall_back });
        write_line(session.get_mut(), &hello)?;
        match read_line(&mut session)? {
            Answer::InterfaceReady => {}
            other => bail!(refusal(other)),
        }
        let clock = Arc::new(Clock::default());
        let exchanges = read_clock(connect(addresses)?, &clock)?;
        let session = Mutex::new(Some(session));
        Ok(RemoteEnd { session, clock, exchanges: Some(exchanges) })
    }

    /// Has the receiver take frames.
    ///
    /// # Errors
    /// When it refuses, with its reason.
    pub fn arrivals(
        &self,
        watched: Watched,
        (ring_slots, frame_bytes_max): (usize, usize),
        stamping: Stamping,
    ) -> Result<RemoteArrivals> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut session = session.context("a receiver takes one stream")?;
        let Watched { run, source } = watched;
        let by_driver = stamping == Stamping::Driver;
        let filter = StreamFilter { run, source, ring_slots, frame_bytes_max, by_driver };
        write_line(session.get_mut(), &filter)?;
        let stamped_by = match read_line(&mut session)? {
            Answer::Receiving { stamped_by } => terminal::plain(&stamped_by).into_owned(),
            other => bail!(refusal(other)),
        };
        // (Frames may have been read with the answer.)
        let buffer = session.buffer().to_vec();
        let stream = session.into_inner();
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nonblocking(true)?;
        let bounds = self.clock.offset().at(monotonic_ns()).context("its clock jumps")?;
        let seen = ClockSeen { offset_ns: bounds.middle_ns(), ..ClockSeen::default() };
        let clock = Arc::clone(&self.clock);
        Ok(RemoteArrivals {
            stream,
            scratch: vec![0; READ_BYTES],
            buffer,
            stamped_by,
            frame_bytes_max,
            clock,
            seen,
            looked_ns: None,
            is_inconsistent: false,
            received: 0,
            totals: None,
        })
    }
}

/// What a receiver has to know of a trial beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSetup {
    /// The device forwards by Ethernet addresses.
    pub is_transparent: bool,
    /// Packet sockets may stamp if programs in the driver cannot.
    pub may_fall_back: bool,
}

fn refusal(answer: Answer) -> String {
    match answer {
        Answer::Refused(why) => terminal::plain(&why).into_owned(),
        _ => "it answers out of turn".to_owned(),
    }
}

/// Reads the clock of the receiver at the other end of a connection, for as long as it is needed.
fn read_clock(mut session: Session, clock: &Arc<Clock>) -> Result<JoinHandle<()>> {
    write_line(session.get_mut(), &Hello::Clock)?;
    session.get_ref().set_read_timeout(Some(TIMEOUT))?;
    for _ in 0..EXCHANGES_FIRST {
        let one = exchange(&mut session)?;
        clock.offset().add(one);
    }
    ensure!(clock.offset().at(monotonic_ns()).is_some(), "its clock jumps");
    let clock = Arc::clone(clock);
    let exchanges = thread::Builder::new().name("clock offset".to_owned()).spawn(move || {
        while !clock.is_over.load(Ordering::Relaxed) {
            match exchange(&mut session) {
                Ok(one) => clock.offset().add(one),
                Err(_) => return clock.is_gone.store(true, Ordering::Relaxed),
            }
            thread::sleep(EXCHANGE_EVERY);
        }
    });
    exchanges.context("cannot start a thread")
}

impl Drop for RemoteEnd {
    fn drop(&mut self) {
        self.clock.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.exchanges.take() {
            let _ = thread.join();
        }
    }
}

/// Frames that the receiver stamped, in the order in which they came there.
#[derive(Debug)]
pub struct RemoteArrivals {
    stream: TcpStream,
    scratch: Vec<u8>,
    /// What was read and is not yet a whole record.
    buffer: Vec<u8>,
    stamped_by: String,
    frame_bytes_max: usize,
    clock: Arc<Clock>,
    seen: ClockSeen,
    /// The stamp at which the offset was looked at last, ns.
    looked_ns: Option<u64>,
    is_inconsistent: bool,
    received: u64,
    totals: Option<Totals>,
}

impl RemoteArrivals {
    /// What takes the stamps there, in words.
    pub fn stamped_by(&self) -> &str {
        &self.stamped_by
    }

    /// Passes the frames that are here to `each`, their stamps converted to this host's clock; returns how many there
    /// were.
    ///
    /// # Errors
    /// When the receiver is gone, or was stopped before [`RemoteArrivals::finish`].
    pub fn drain(&mut self, mut each: impl FnMut(Arrival<'_>)) -> Result<usize> {
        if self.totals.is_none() {
            self.read_on()?;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let (mut count, mut at) = (0, 0);
        loop {
            match record(&buffer[at..], self.frame_bytes_max)? {
                Record::Frame(stamp_ns, bytes, frame) => {
                    let stamp_ns = self.converted(stamp_ns);
                    each(Arrival { stamp_ns, bytes, frame });
                    at += RECORD_BYTES + frame.len();
                    count += 1;
                }
                Record::Partial => break,
                Record::End => bail!("the receiver was stopped in the middle of the trial"),
            }
        }
        self.received += count as u64;
        self.buffer = buffer;
        self.buffer.drain(..at);
        Ok(count)
    }

    /// Reads what has come, without waiting.
    fn read_on(&mut self) -> Result<()> {
        match self.stream.read(&mut self.scratch) {
            Ok(0) => bail!("the receiver closed the connection in the middle of the trial"),
            Ok(bytes) => self.buffer.extend_from_slice(&self.scratch[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => ensure!(
                !self.clock.is_gone.load(Ordering::Relaxed),
                "the receiver does not answer any more: is that host on, and the network to it up?"
            ),
            Err(error) => return Err(error).context("the receiver's frames"),
        }
        Ok(())
    }

    /// A stamp of the receiver's clock by this host's. The offset is that of the frame's time, however late it is read.
    fn converted(&mut self, stamp_ns: u64) -> u64 {
        let by = |offset_ns: i64| stamp_ns.saturating_add_signed(offset_ns.saturating_neg());
        let about_ns = by(self.seen.offset_ns);
        if self.looked_ns.is_some_and(|looked_ns| looked_ns.abs_diff(about_ns) < OFFSET_KEPT_NS) {
            return about_ns;
        }
        self.looked_ns = Some(about_ns);
        let clock = self.clock.offset();
        self.is_inconsistent |= clock.is_inconsistent();
        self.seen.exchanges = clock.exchanges();
        let Some(bounds) = clock.at(about_ns) else {
            self.is_inconsistent = true;
            return about_ns;
        };
        let offset_ns = bounds.nearest_ns(self.seen.offset_ns);
        let uncertainty_ns = bounds.uncertainty_ns(offset_ns) + drift_ns(OFFSET_KEPT_NS) as u64;
        self.seen.offset_ns = offset_ns;
        self.seen.uncertainty_ns = self.seen.uncertainty_ns.max(uncertainty_ns);
        by(offset_ns)
    }

    /// The receiver's clock in the trial; none where its offset is not known.
    pub fn clock(&self) -> Option<ClockSeen> {
        (!self.is_inconsistent && self.looked_ns.is_some()).then_some(self.seen)
    }

    /// Whether exchanges contradicted each other.
    pub fn is_clock_inconsistent(&self) -> bool {
        self.is_inconsistent
    }

    /// Ends the trial at the receiver. Frames that were still on their way are there for [`RemoteArrivals::drain`] then.
    ///
    /// # Errors
    /// When the receiver is gone.
    pub fn finish(&mut self) -> Result<()> {
        let step = "the receiver's counts";
        self.stream.set_nonblocking(false)?;
        write_line(&mut self.stream, &"end").context(step)?;
        let mut reader = BufReader::new(self.buffer.as_slice().chain(&self.stream));
        let mut frames = Vec::new();
        loop {
            let mut head = [0; RECORD_BYTES];
            reader.read_exact(&mut head).map_err(in_words).context(step)?;
            if record(&head, self.frame_bytes_max)? == Record::End {
                break;
            }
            ensure!(frames.len() < LEFT_BYTES_MAX, "the receiver sends frames without an end");
            let kept = usize::from(u16::from_le_bytes([head[12], head[13]]));
            let begin = frames.len() + RECORD_BYTES;
            frames.extend_from_slice(&head);
            frames.resize(begin + kept, 0);
            reader.read_exact(&mut frames[begin..]).map_err(in_words).context(step)?;
        }
        self.totals = Some(read_line(&mut reader).context(step)?);
        drop(reader);
        self.buffer = frames;
        Ok(())
    }

    /// Frames that found the receiver's ring full, or that it received and are not here; known when the trial has ended.
    pub fn lost(&self) -> u64 {
        self.totals.map_or(0, |totals| totals.lost + totals.received.saturating_sub(self.received))
    }

    /// Frames that were in the receiver's ring at once, at most, likewise.
    pub fn most_waiting(&self) -> u64 {
        self.totals.map_or(0, |totals| totals.most_waiting)
    }

    /// The share of its processors' time that a hypervisor took there, likewise.
    pub fn stolen_share(&self) -> f64 {
        self.totals.map_or(0.0, |totals| totals.stolen_share)
    }
}
