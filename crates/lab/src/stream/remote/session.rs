//! The sender's side: connections to the receiver, its clock, and the frames that it stamps.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nilometer_files::tool;
use nilometer_linux::stamp::{Arrival, Stamping, Watched, monotonic_ns};
use nilometer_profile::stream::clock_offset::{ClockOffset, Exchange, Offset};

use super::super::checks::MachineSeen;
use super::messages::{
    Answer, Begin, Hello, PROTOCOL, RECORD_BYTES, Record, Totals, read_line, record, write_line,
};

/// How long either side waits for the other.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the receiver may take to get its interface ready.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Exchanges before a trial, without a pause.
const EXCHANGES_FIRST: usize = 64;
/// The pause between exchanges afterwards.
const EXCHANGE_EVERY: Duration = Duration::from_millis(50);
/// Bytes that are read from the receiver at once.
const READ_BYTES: usize = 1 << 18;

/// The server's end of a stream, on another host.
#[derive(Debug)]
pub struct RemoteEnd {
    address: SocketAddr,
    is_transparent: bool,
    clock: Arc<Mutex<ClockOffset>>,
    is_over: Arc<AtomicBool>,
    exchanges: Option<JoinHandle<()>>,
}

/// What was seen of the other host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSeen {
    /// The offset at the end, and the greatest uncertainty in the trial.
    pub offset: Offset,
    /// Exchanges of messages.
    pub exchanges: u64,
}

fn locked(clock: &Mutex<ClockOffset>) -> MutexGuard<'_, ClockOffset> {
    clock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let step = || format!("no stream receiver at {address} (nilometer stream receive)");
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).with_context(step)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// One exchange of messages.
fn exchange(stream: &mut TcpStream) -> Result<Exchange> {
    let t1 = monotonic_ns();
    stream.write_all(&t1.to_le_bytes())?;
    let mut answer = [[0; 8]; 2];
    stream.read_exact(answer.as_flattened_mut())?;
    let t4 = monotonic_ns();
    let [t2, t3] = answer.map(u64::from_le_bytes);
    Ok(Exchange { t1, t2, t3, t4 })
}

impl RemoteEnd {
    /// Connects to a receiver behind a device, which may forward by Ethernet addresses, and reads its clock from now on.
    ///
    /// # Errors
    /// When there is none, or its clock cannot be had.
    pub fn connect(address: SocketAddr, is_transparent: bool) -> Result<RemoteEnd> {
        let mut stream = connect(address)?;
        write_line(&mut stream, &Hello::Clock)?;
        let mut clock = ClockOffset::default();
        for _ in 0..EXCHANGES_FIRST {
            let one = exchange(&mut stream);
            clock.add(one.with_context(|| format!("the clock of the receiver at {address}"))?);
        }
        ensure!(clock.at(monotonic_ns()).is_some(), "the clock of the receiver at {address} jumps");
        let clock = Arc::new(Mutex::new(clock));
        let is_over = Arc::new(AtomicBool::new(false));
        let (kept, ends) = (Arc::clone(&clock), Arc::clone(&is_over));
        // (It ends with the connection as well; the uncertainty then grows by the drift.)
        let exchanges = thread::Builder::new().name("clock offset".to_owned()).spawn(move || {
            while !ends.load(Ordering::Relaxed)
                && let Ok(one) = exchange(&mut stream)
            {
                locked(&kept).add(one);
                thread::sleep(EXCHANGE_EVERY);
            }
        })?;
        Ok(RemoteEnd { address, is_transparent, clock, is_over, exchanges: Some(exchanges) })
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
        let mut stream = connect(self.address)?;
        let begin = Begin {
            protocol: PROTOCOL.to_owned(),
            version: tool::version().to_owned(),
            run: watched.run,
            source: watched.source,
            ring_slots,
            frame_bytes_max,
            by_driver: stamping == Stamping::Driver,
            is_transparent: self.is_transparent,
        };
        write_line(&mut stream, &Hello::Receive(begin))?;
        stream.set_read_timeout(Some(READY_WITHIN))?;
        // (Nothing follows the answer before the first frame; what was read with it is kept.)
        let mut reader = BufReader::new(stream);
        let described = match read_line(&mut reader)? {
            Answer::Ready(described) => described,
            Answer::Refused(why) => bail!("the receiver at {}: {why}", self.address),
        };
        let buffer = reader.buffer().to_vec();
        let stream = reader.into_inner();
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nonblocking(true)?;
        let offset = locked(&self.clock).at(monotonic_ns()).context("the receiver's clock jumps")?;
        let seen = ClockSeen { offset, exchanges: 0 };
        let clock = Arc::clone(&self.clock);
        Ok(RemoteArrivals {
            stream,
            buffer,
            described,
            frame_bytes_max,
            clock,
            seen,
            is_inconsistent: false,
            totals: None,
        })
    }
}

impl Drop for RemoteEnd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.exchanges.take() {
            let _ = thread.join();
        }
    }
}

/// Frames that the receiver stamped, in the order in which they came there.
#[derive(Debug)]
pub struct RemoteArrivals {
    stream: TcpStream,
    buffer: Vec<u8>,
    described: String,
    frame_bytes_max: usize,
    clock: Arc<Mutex<ClockOffset>>,
    seen: ClockSeen,
    is_inconsistent: bool,
    totals: Option<Totals>,
}

impl RemoteArrivals {
    /// What takes the stamps there, in words.
    pub fn described(&self) -> &str {
        &self.described
    }

    /// Passes the frames that are here to `each`, their stamps converted to this host's clock; returns how many there
    /// were.
    ///
    /// # Errors
    /// When the receiver is gone.
    pub fn drain(&mut self, mut each: impl FnMut(Arrival<'_>)) -> Result<usize> {
        let length = self.buffer.len();
        self.buffer.resize(length + READ_BYTES, 0);
        let read = self.stream.read(&mut self.buffer[length..]);
        self.buffer.truncate(length + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => bail!("the receiver closed the connection in the middle of the trial"),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(0),
            Err(error) => return Err(error).context("the receiver's frames"),
        }
        let offset_ns = self.offset_now();
        let (mut count, mut at) = (0, 0);
        while let Record::Frame(stamp_ns, bytes, frame) =
            record(&self.buffer[at..], self.frame_bytes_max)?
        {
            let stamp_ns = stamp_ns.saturating_add_signed(-offset_ns);
            each(Arrival { stamp_ns, bytes, frame });
            at += RECORD_BYTES + frame.len();
            count += 1;
        }
        self.buffer.drain(..at);
        Ok(count)
    }

    /// The offset of the receiver's clock, which is remembered.
    fn offset_now(&mut self) -> i64 {
        let clock = locked(&self.clock);
        self.is_inconsistent |= clock.is_inconsistent();
        self.seen.exchanges = clock.exchanges();
        match clock.at(monotonic_ns()) {
            Some(Offset { ns, uncertainty_ns }) => {
                let widest = self.seen.offset.uncertainty_ns.max(uncertainty_ns);
                self.seen.offset = Offset { ns, uncertainty_ns: widest };
            }
            None => self.is_inconsistent = true,
        }
        self.seen.offset.ns
    }

    /// The receiver's clock in the trial; none where its offset is not known.
    pub fn clock(&self) -> Option<ClockSeen> {
        (!self.is_inconsistent).then_some(self.seen)
    }

    /// Ends the trial there, once. (Frames that still come are later than the wait for them.)
    fn totals(&mut self) -> Result<Totals> {
        if let Some(totals) = self.totals {
            return Ok(totals);
        }
        let step = "the receiver's counts";
        self.stream.set_nonblocking(false)?;
        write_line(&mut self.stream, &"end").context(step)?;
        let mut reader = BufReader::new(self.buffer.as_slice().chain(&self.stream));
        loop {
            let mut head = [0; RECORD_BYTES];
            reader.read_exact(&mut head).context(step)?;
            match record(&head, self.frame_bytes_max)? {
                Record::End => break,
                _ => {
                    let kept = u64::from(u16::from_le_bytes([head[12], head[13]]));
                    skip(&mut reader, kept).context(step)?;
                }
            }
        }
        let totals = read_line(&mut reader).context(step)?;
        self.totals = Some(totals);
        Ok(totals)
    }

    /// Frames that found the receiver's ring full. Ends the trial there.
    ///
    /// # Errors
    /// When the receiver is gone.
    pub fn lost(&mut self) -> Result<u64> {
        self.totals().map(|totals| totals.lost)
    }

    /// Frames that were in the receiver's ring at once, at most; known when the trial has ended.
    pub fn most_waiting(&self) -> u64 {
        self.totals.map_or(0, |totals| totals.most_waiting)
    }

    /// What happened to the receiver's machine. Ends the trial there.
    ///
    /// # Errors
    /// When the receiver is gone.
    pub fn machine(&mut self) -> Result<MachineSeen> {
        self.totals().map(|totals| totals.machine())
    }
}

fn skip(from: &mut impl BufRead, bytes: u64) -> Result<()> {
    std::io::copy(&mut from.take(bytes), &mut std::io::sink())?;
    Ok(())
}
