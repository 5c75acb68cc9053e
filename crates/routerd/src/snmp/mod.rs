//! The router's SNMP agent: a subagent by AgentX, whose objects are read from the command channel.
//!
//! ```text
//!   snmpwalk ── SNMP ── snmpd ── AgentX (RFC 2741) ── this thread ── command channel ── between two turns ── driver
//! ```
//!
//! The daemon has the protocol, the communities and the views; the subagent has the objects. They are
//! read from the router at most every [`FRESH`], whatever is requested, so that a walk costs the
//! forwarding thread one call. Where the daemon is not running, the connection is retried. Nothing can
//! be set.

mod agentx;
mod mib;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Bound;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::agentx::{HEADER_BYTES, Header, Oid, Range, Value, Writer, error, kind};
use super::control::command_channel::CommandChannel;
use super::control::messages::Level;
use super::worker::Worker;

/// For how long values that were read are reused.
const FRESH: Duration = Duration::from_secs(1);
/// Between two tries to reach the daemon.
const AGAIN: Duration = Duration::from_secs(5);
/// How often the stop flag is checked.
const LOOK: Duration = Duration::from_millis(100);
/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer to a request for many ends here.
const ANSWER_BYTES: usize = 32_768;
/// A GetBulk is answered with at most this many repetitions.
const REPEATED_MAX: u16 = 256;

/// Every object, by its name.
type Tree = BTreeMap<Oid, Value>;

/// The subagent and its thread; dropped, it ends its session.
#[derive(Debug)]
pub struct Subagent {
    _worker: Worker,
}

impl Subagent {
    /// Begins to serve a daemon that listens at `place`: an address and a port, or the path of a socket.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(place: &str, commands: Arc<CommandChannel>) -> Result<Subagent> {
        let stop = Arc::new(AtomicBool::new(false));
        let (place, until) = (place.to_owned(), Arc::clone(&stop));
        let work = move || {
            let mut reported = String::new();
            while !until.load(Ordering::Relaxed) {
                let ended = serve(&place, &commands, &until);
                if let Err(why) = ended.map_err(|why| format!("{why:#}"))
                    && why != reported
                {
                    commands.messages.say(Level::Warning, format!("SNMP: {why}"));
                    reported = why;
                }
                let began = Instant::now();
                while began.elapsed() < AGAIN && !until.load(Ordering::Relaxed) {
                    thread::sleep(LOOK);
                }
            }
        };
        Ok(Subagent { _worker: Worker::start("snmp", stop, work)? })
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn connect(place: &str) -> Result<Box<dyn Stream>> {
    let tried = || {
        Ok::<Box<dyn Stream>, std::io::Error>(match place.parse::<SocketAddr>() {
            Ok(address) => {
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Err(_) => {
                let stream = UnixStream::connect(place)?;
                stream.set_read_timeout(Some(LOOK))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    };
    tried().with_context(|| format!("no daemon listens for AgentX at {place}"))
}

/// One session, from its opening until the daemon goes or `stop`.
fn serve(place: &str, commands: &CommandChannel, stop: &AtomicBool) -> Result<()> {
    let mut session = Session { stream: connect(place)?, stop, number: 0 };
    session.open()?;
    commands.messages.say(Level::Info, format!("SNMP: AgentX connected at {place}"));
    let (mut tree, mut read) = (Tree::new(), None::<Instant>);
    while let Some((header, payload)) = session.hear(None)? {
        if header.kind == kind::CLOSE {
            bail!("the daemon has ended the session");
        }
        if read.is_none_or(|read| read.elapsed() >= FRESH) {
            tree = mib::tree(commands)?;
            read = Some(Instant::now());
        }
        let Some(answer) = answer(&header, &payload, &tree) else { continue };
        session.stream.write_all(&answer).context("the daemon is gone")?;
    }
    session.close()
}

struct Session<'a> {
    stream: Box<dyn Stream>,
    stop: &'a AtomicBool,
    number: u32,
}

impl Session<'_> {
    fn open(&mut self) -> Result<()> {
        let mut open = Writer::default();
        open.raw([PATIENCE.as_secs() as u8, 0, 0, 0]);
        open.oid(&[]);
        open.octets(b"Nilometer router");
        self.number = self.ask(kind::OPEN, open, 1)?.numbers[0];
        for (packet, subtree) in (2..).zip(mib::SUBTREES) {
            let mut register = Writer::default();
            // Ahead of the daemon's own registrations, which describe the host: the lower number takes
            // precedence.
            register.raw([0, 1, 0, 0]);
            register.oid(subtree);
            self.ask(kind::REGISTER, register, packet)?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let mut close = Writer::default();
        // Reason: shutdown.
        close.raw([5, 0, 0, 0]);
        let pdu = close.pdu(kind::CLOSE, [self.number, 0, 1_000]);
        self.stream.write_all(&pdu).context("the daemon is gone")
    }

    /// Sends a request, and waits for the answer that it succeeded.
    fn ask(&mut self, request_kind: u8, payload: Writer, packet: u32) -> Result<Header> {
        let pdu = payload.pdu(request_kind, [self.number, 0, packet]);
        self.stream.write_all(&pdu).context("the daemon is gone")?;
        let reply = self.hear(Some(PATIENCE))?;
        let (header, payload) = reply.context("the router ends")?;
        ensure!(
            header.kind == kind::RESPONSE,
            "the daemon answers with a PDU of kind {}",
            header.kind
        );
        let failed = header.reader(&payload)?.response()?;
        ensure!(
            failed == error::NONE,
            "the daemon refuses a PDU of kind {request_kind}: error {failed}"
        );
        Ok(header)
    }

    /// The daemon's next PDU; nothing when the subagent is to stop.
    fn hear(&mut self, within: Option<Duration>) -> Result<Option<(Header, Vec<u8>)>> {
        let mut head = [0; HEADER_BYTES];
        if !self.fill(&mut head, within)? {
            return Ok(None);
        }
        let header = agentx::header(&head)?;
        let mut payload = vec![0; header.payload_bytes];
        Ok(self.fill(&mut payload, Some(PATIENCE))?.then_some((header, payload)))
    }

    /// Reads until `bytes` are full; false when it is to stop.
    fn fill(&mut self, bytes: &mut [u8], within: Option<Duration>) -> Result<bool> {
        let (mut filled, began) = (0, Instant::now());
        while filled < bytes.len() {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            ensure!(
                within.is_none_or(|within| began.elapsed() < within),
                "the daemon does not answer"
            );
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => bail!("the daemon is gone"),
                Ok(count) => filled += count,
                Err(why) if is_momentary(why.kind()) => {}
                Err(why) => return Err(why).context("the daemon is gone"),
            }
        }
        Ok(true)
    }
}

fn is_momentary(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The answer to a request; nothing where none is needed.
fn answer(header: &Header, payload: &[u8], tree: &Tree) -> Option<Vec<u8>> {
    let mut binds = Writer::default();
    let reported = match header.kind {
        kind::GET | kind::GET_NEXT | kind::GET_BULK => look_up(header, payload, tree, &mut binds),
        kind::TEST_SET => Ok(error::NOT_WRITABLE),
        kind::CLEANUP_SET | kind::RESPONSE => return None,
        _ => Ok(error::NONE),
    };
    let failed = reported.unwrap_or(error::PARSE);
    let mut answer = Writer::default();
    // The daemon's own clock counts.
    answer.word(0);
    answer.pair([failed, u16::from(failed != error::NONE)]);
    let mut pdu = answer.pdu(kind::RESPONSE, header.numbers);
    if failed == error::NONE {
        let whole = binds.pdu(0, [0; 3]);
        pdu.extend(&whole[HEADER_BYTES..]);
        let length = (pdu.len() - HEADER_BYTES) as u32;
        pdu[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    }
    Some(pdu)
}

fn look_up(header: &Header, payload: &[u8], tree: &Tree, binds: &mut Writer) -> Result<u16> {
    let mut reader = header.reader(payload)?;
    match header.kind {
        kind::GET => {
            for range in reader.ranges()? {
                binds.bind(&range.start, &get(tree, &range.start));
            }
        }
        kind::GET_NEXT => {
            for range in reader.ranges()? {
                follow(tree, &range, 1, binds);
            }
        }
        _ => {
            let [once, repeated] = reader.pair()?;
            for (number, range) in reader.ranges()?.iter().enumerate() {
                let times = if number < usize::from(once) { 1 } else { repeated.min(REPEATED_MAX) };
                follow(tree, range, times, binds);
            }
        }
    }
    Ok(error::NONE)
}

fn get(tree: &Tree, oid: &Oid) -> Value {
    if let Some(value) = tree.get(oid) {
        return value.clone();
    }
    let object = &oid[..oid.len().saturating_sub(1)];
    let mut of_object = tree.range::<[u32], _>((Bound::Included(object), Bound::Unbounded));
    match of_object.next() {
        Some((name, _)) if name.starts_with(object) => Value::NoSuchInstance,
        _ => Value::NoSuchObject,
    }
}

/// Appends the objects that follow the start of a range, `times` of them.
fn follow(tree: &Tree, range: &Range, times: u16, binds: &mut Writer) {
    let start = match range.includes_start {
        true => Bound::Included(&range.start[..]),
        false => Bound::Excluded(&range.start[..]),
    };
    let mut last = &range.start;
    let mut all = tree.range::<[u32], _>((start, Bound::Unbounded));
    for _ in 0..times {
        match all.next() {
            Some((oid, value)) if range.end.is_empty() || *oid < range.end => {
                binds.bind(oid, value);
                last = oid;
            }
            _ => return binds.bind(last, &Value::EndOfMibView),
        }
        if binds.written() > ANSWER_BYTES {
            return;
        }
    }
}
