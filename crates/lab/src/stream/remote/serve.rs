//! The receiver: takes the frames of another host's streams off an interface of this one, and sends them on with their
//! stamps.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nilometer_files::tool;
use nilometer_linux::scheduling::{Class, Role, Timed};
use nilometer_linux::stamp::{Arrivals, Stamping, Watched, monotonic_ns};
use nilometer_linux::testbed::HostSide;
use socket2::{SockRef, TcpKeepalive};

use super::super::checks::Watch;
use super::super::device::{DeviceRequest, testbed_config};
use super::messages::{
    Answer, Begin, Hello, PROTOCOL, Totals, put_end, put_record, read_line, write_line,
};
use super::session::TIMEOUT;

/// How long the receiver rests when no frames are there, and between looks for connections.
const REST: Duration = Duration::from_micros(500);
const ACCEPT_REST: Duration = Duration::from_millis(20);
/// Connections at once.
const CONNECTIONS_MAX: usize = 8;
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
    /// What could not be restored of the interface.
    pub not_restored: Vec<String>,
}

/// Receives until `stop`, or for one trial. `ready` is called when connections are taken, and `each` after each trial.
///
/// # Errors
/// When the address cannot be listened on.
pub fn serve(
    options: &ReceiverOptions,
    (ready, each): (impl FnOnce(SocketAddr), impl Fn(Result<SessionSeen>) + Sync),
    stop: &AtomicBool,
) -> Result<()> {
    let step = || format!("cannot listen on {}", options.listen);
    let listener = TcpListener::bind(options.listen).with_context(step)?;
    listener.set_nonblocking(true)?;
    ready(listener.local_addr()?);
    let (interface, is_done) = (Mutex::new(()), AtomicBool::new(false));
    let connections = AtomicUsize::new(0);
    let is_over = || stop.load(Ordering::Relaxed) || is_done.load(Ordering::Relaxed);
    thread::scope(|scope| {
        while !is_over() {
            let Ok((stream, peer)) = listener.accept() else {
                thread::sleep(ACCEPT_REST);
                continue;
            };
            if connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                continue;
            }
            connections.fetch_add(1, Ordering::Relaxed);
            let (interface, is_done, each) = (&interface, &is_done, &each);
            let (connections, is_over) = (&connections, &is_over);
            scope.spawn(move || {
                match answer(options, stream, peer, interface, is_over) {
                    Ok(None) => {}
                    Ok(Some(seen)) => {
                        is_done.fetch_or(options.once, Ordering::Relaxed);
                        each(Ok(seen));
                    }
                    Err(why) => each(Err(why.context(peer.to_string()))),
                }
                connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
}

/// Answers one connection; what was received, if that was its purpose.
fn answer(
    options: &ReceiverOptions,
    mut stream: TcpStream,
    peer: SocketAddr,
    interface: &Mutex<()>,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Option<SessionSeen>> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    // (A host that is switched off in mid-trial would be waited for forever.)
    let probes = TcpKeepalive::new().with_time(TIMEOUT).with_interval(TIMEOUT);
    SockRef::from(&stream).set_tcp_keepalive(&probes)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let begin = match read_line(&mut reader)? {
        Hello::Clock => {
            tell_time(&mut reader, &mut stream, is_over);
            return Ok(None);
        }
        Hello::Receive(begin) => begin,
    };
    let received = begin.check().and_then(|()| {
        let only = interface.try_lock();
        let _only = only.ok().context("another trial is being received at this interface")?;
        receive(options, &begin, (&mut reader, &mut stream), is_over)
    });
    match received {
        Ok((totals, not_restored)) => {
            let Totals { received, lost, .. } = totals;
            Ok(Some(SessionSeen { peer, run: begin.run, received, lost, not_restored }))
        }
        Err(why) => {
            // (Too late where frames were sent already: the other host then finds no end behind them.)
            let _ = write_line(&mut stream, &Answer::Refused(format!("{why:#}")));
            Err(why)
        }
    }
}

/// Answers requests for the time until the other host has no more.
fn tell_time(
    reader: &mut impl Read,
    stream: &mut TcpStream,
    is_over: &(dyn Fn() -> bool + Sync),
) {
    let mut request = [0; 8];
    while !is_over() && reader.read_exact(&mut request).is_ok() {
        let received = monotonic_ns().to_le_bytes();
        let mut answer = [received, [0; 8]];
        answer[1] = monotonic_ns().to_le_bytes();
        if stream.write_all(answer.as_flattened()).is_err() {
            return;
        }
    }
}

impl Begin {
    fn check(&self) -> Result<()> {
        ensure!(
            self.protocol == PROTOCOL && self.version == tool::version(),
            "this is {PROTOCOL} of version {}, and the sender has {} of version {}: use the same program on both hosts",
            tool::version(),
            self.protocol,
            self.version
        );
        ensure!((1..=32).contains(&self.source.1), "a source network of {} bits", self.source.1);
        Ok(())
    }
}

/// Receives one trial.
fn receive(
    options: &ReceiverOptions,
    begin: &Begin,
    (reader, stream): (&mut (impl BufRead + Send), &mut TcpStream),
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<(Totals, Vec<String>)> {
    let requested = DeviceRequest::behind(&options.interface, begin.is_transparent);
    let mut side = HostSide::build(&testbed_config(&requested), SERVER_SIDE)?;
    let received = (|| -> Result<Totals> {
        let watched = Watched { run: begin.run, source: begin.source };
        let room = (begin.ring_slots, begin.frame_bytes_max);
        let open = |stamping| {
            side.namespace().enter(|| Arrivals::open(side.interface(), watched, room, stamping))
        };
        let by_driver = begin.by_driver.then(|| open(Stamping::Driver).ok()).flatten();
        let mut arrivals = by_driver.map_or_else(|| open(Stamping::Socket), Ok)?;
        let timed = Timed::new(Class::RealTime).guarded()?;
        let _timed = timed.enter_for_now(Role::Receiver);
        let watch = Watch::begin()?;
        write_line(stream, &Answer::Ready(arrivals.described().to_owned()))?;
        let received = send_on(&mut arrivals, (reader, stream), is_over)?;
        let (machine, lost) = (watch.end()?, arrivals.lost()?);
        let totals = Totals {
            received,
            lost,
            most_waiting: arrivals.most_waiting(),
            stolen_share: machine.stolen_share,
            dropped: machine.softnet.dropped,
            squeezed: machine.softnet.squeezed,
        };
        write_line(stream, &totals)?;
        Ok(totals)
    })();
    let not_restored = side.give_back()?;
    Ok((received?, not_restored))
}

/// Sends frames on as they come, until the other host has had enough of them or is gone.
fn send_on(
    arrivals: &mut Arrivals,
    (reader, stream): (&mut (impl BufRead + Send), &mut TcpStream),
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<u64> {
    let has_ended = AtomicBool::new(false);
    // (A trial may take as long as it likes.)
    stream.set_read_timeout(None)?;
    let (mut received, mut records) = (0, Vec::new());
    let socket = stream.try_clone()?;
    let sent = thread::scope(|scope| {
        scope.spawn(|| {
            // (A line, or the end of the connection: either is the end of the trial.)
            let _ = read_line::<String>(reader);
            has_ended.store(true, Ordering::Release);
        });
        let sent = (|| -> Result<()> {
            loop {
                let is_last = has_ended.load(Ordering::Acquire) || is_over();
                records.clear();
                let count = arrivals.drain(|arrival| put_record(&mut records, &arrival))?;
                received += count as u64;
                stream.write_all(&records).context("the other host takes no frames any more")?;
                match (is_last, count) {
                    (true, _) => break,
                    (false, 0) => thread::sleep(REST),
                    (false, _) => {}
                }
            }
            records.clear();
            put_end(&mut records);
            stream.write_all(&records).context("the other host is gone")
        })();
        if sent.is_err() || !has_ended.load(Ordering::Acquire) {
            let _ = socket.shutdown(std::net::Shutdown::Read);
        }
        sent
    });
    sent.map(|()| received)
}
