//! The replay: events in the order of the script, virtual time between them.
//!
//! Time moves only here. Between two events the connection's own timers fire at their moments; a
//! packet that leaves is kept with its time until the script expects it. A relative time counts
//! from the moment the event before was done, except that arrivals in a row count from one
//! another's stated times, as in packetdrill. Tolerance is packetdrill's own: 4 ms or the script's
//! setting, or an eighth of the time since the event before if that is more. A packet that leaves
//! and is never expected goes unnoticed unless another is expected later, which is then compared
//! with it.

use std::collections::{BTreeMap, VecDeque};

use nilometer_tcp::segment::{ACK, RST, SYN};
use nilometer_tcp::{Connection, Segment};
use nilometer_wire::{Ecn, Time};

use super::call::Call;
use super::expression::{self, Refusal, Scope};
use super::host;
use super::lexer::Fault;
use super::matching::Numbers;
use super::packet::{Frame, Mark, Packet};
use super::script::{Action, Event, Script, When};
use super::socket::{self, Ending, Sockets};

/// The script's time zero on the connection's clock.
const EPOCH_NANOS: i64 = 10_000_000_000;
/// The first initial sequence number of the end under test: near the wrap, so that scripts cross
/// it.
const ISN: u32 = 0xffff_f000;
/// How long an event with `*` waits.
const PATIENCE_NANOS: i64 = 600_000_000_000;
const MILLI: i64 = 1_000_000;

/// Plays `script` to its end.
///
/// # Errors
///
/// The first line that did not hold, and why.
pub fn replay(script: &Script) -> Result<(), Fault> {
    let config =
        host::configure(script).map_err(|what| Fault { line: 1, what: format!("host: {what}") })?;
    let usecs = |name: &str| script.option(name).and_then(|value| value.parse::<i64>().ok());
    let tolerance = usecs("tolerance_usecs").map_or(4 * MILLI, |usecs| usecs * 1000);
    let mut replay = Replay {
        now: 0,
        tolerance,
        tick: usecs("tcp_ts_tick_usecs").map(|tick| (tick as u32, (tolerance / 1000) as u32)),
        numbers: Numbers::default(),
        left: VecDeque::new(),
        sockets: Sockets::new(config),
        blocked: None,
        variables: constants(),
    };
    let mut before: Option<(&Event, i64)> = None;
    for event in &script.events {
        let at = |what| Fault { line: event.line, what };
        let window = replay.window(event, before);
        replay.play(event, window).map_err(|(line, what)| match line {
            Some(line) => Fault { line, what },
            None => at(what),
        })?;
        before = Some((event, window.from));
    }
    replay.finish_blocked().map_err(|(line, what)| Fault { line: line.unwrap_or(0), what })
}

/// What went wrong; the line only where it is not that of the event at hand.
type Wrong = (Option<usize>, String);

fn wrong(what: impl Into<String>) -> Wrong {
    (None, what.into())
}

/// Between which moments an event may happen, and how far off it may be.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: i64,
    to: i64,
    tolerance: i64,
    /// What relative times, also that of a call's end, count from.
    offset: i64,
}

struct Replay<'s> {
    /// Nanoseconds since the script began.
    now: i64,
    tolerance: i64,
    tick: Option<(u32, u32)>,
    numbers: Numbers,
    /// Packets that have left and were not expected yet.
    left: VecDeque<(i64, Segment, Ecn)>,
    sockets: Sockets,
    /// A call that has not returned: its line, and when it must.
    blocked: Option<(usize, &'s Call, i64)>,
    variables: BTreeMap<String, i64>,
}

fn constants() -> BTreeMap<String, i64> {
    let states = ["ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT"];
    let states = states.iter().chain(&["CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING"]);
    let mut constants: BTreeMap<_, _> =
        states.zip(1..).map(|(name, value)| (format!("TCP_{name}"), value)).collect();
    let phases = ["Open", "Disorder", "CWR", "Recovery", "Loss"];
    for (name, value) in phases.iter().zip(0..) {
        constants.insert(format!("TCP_CA_{name}"), value);
    }
    constants
}

fn is_arrival(event: &Event) -> bool {
    matches!(event.action, Action::Frame(false, _))
}

impl<'s> Replay<'s> {
    fn window(&self, event: &Event, before: Option<(&Event, i64)>) -> Window {
        let offset = match before {
            Some((last, at)) if is_arrival(last) && is_arrival(event) => at,
            _ => self.now,
        };
        let (from, to, offset) = match event.when {
            When::Absolute(from, to) => (from, to, 0),
            When::Relative(from, to) => (offset + from, offset + to, offset),
            When::Any => (self.now, self.now + PATIENCE_NANOS, self.now),
        };
        let since = before.map_or(0, |(_, at)| from - at);
        Window { from, to, tolerance: self.tolerance.max(since / 8), offset }
    }

    fn play(&mut self, event: &'s Event, window: Window) -> Result<(), Wrong> {
        if let Action::Frame(true, frame) = &event.action {
            return match frame {
                Frame::Tcp(packet) => self.expect(packet, window),
                Frame::Foreign(kind) => Err(wrong(format!("no {kind} here"))),
            };
        }
        self.advance(window.from)?;
        if self.now > window.to + window.tolerance {
            return Err(wrong(format!("comes too late, at {}", seconds(self.now))));
        }
        match &event.action {
            Action::Frame(_, Frame::Tcp(packet)) => self.arrive(packet),
            Action::Frame(_, Frame::Foreign(kind)) => Err(wrong(format!("no {kind} here"))),
            Action::Call(call) => self.call(event.line, call, window),
            Action::Code(code) => self.code(code),
            Action::Command(_) => Ok(()),
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos((EPOCH_NANOS + self.now) as u64)
    }

    /// The connection's next deadline.
    fn timeout(&self) -> Option<i64> {
        let time = self.sockets.connection().and_then(Connection::poll_timeout)?;
        // Time is finer than the script's; it may not be woken too early.
        let nanos = time.as_nanos() + u64::from(Time::from_nanos(time.as_nanos()) < time);
        Some((nanos as i64 - EPOCH_NANOS).max(self.now))
    }

    /// Lets time pass until `to`, or only until the next timer if that is earlier.
    fn step(&mut self, to: i64) -> Result<(), Wrong> {
        match self.timeout() {
            Some(due) if due <= to => {
                self.now = due;
                let time = self.time();
                if let Some(connection) = self.sockets.connection_mut() {
                    connection.handle_timeout(time);
                }
                self.settle()
            }
            _ => {
                self.now = self.now.max(to);
                Ok(())
            }
        }
    }

    fn advance(&mut self, to: i64) -> Result<(), Wrong> {
        while self.now < to || self.timeout().is_some_and(|due| due <= to) {
            self.step(to)?;
        }
        Ok(())
    }

    /// Takes what is ready to leave, and lets a blocked call return if it now can.
    fn settle(&mut self) -> Result<(), Wrong> {
        loop {
            let time = self.time();
            let mut moved = false;
            if let Some(connection) = self.sockets.connection_mut() {
                while let Some(outgoing) = connection.poll_transmit(time) {
                    self.left.push_back((self.now, outgoing.segment, outgoing.ecn));
                    moved = true;
                }
            }
            let Some((line, call, ends)) = self.blocked else { return Ok(()) };
            match self.sockets.attempt(call, ISN).map_err(|what| (Some(line), what))? {
                Ending::Blocks if !moved => return Ok(()),
                Ending::Blocks => {}
                Ending::Done(value, error) => {
                    self.blocked = None;
                    let hold = |what| Err((Some(line), what));
                    if (self.now - ends).abs() > self.tolerance {
                        return hold(format!("{} returns at {}", call.name, seconds(self.now)));
                    }
                    socket::judge(call, value, error).or_else(hold)?;
                }
            }
        }
    }

    fn arrive(&mut self, packet: &Packet) -> Result<(), Wrong> {
        let segment = self.numbers.inbound(packet).map_err(wrong)?;
        let ecn = match packet.mark {
            Mark::Exactly(ecn) => ecn,
            Mark::Unstated | Mark::Capable => Ecn::NotCapable,
        };
        let time = self.time();
        let is_syn = segment.has(SYN) && !segment.has(ACK);
        if is_syn && self.sockets.takes_connections() {
            self.sockets.begin_passive(ISN);
        }
        match self.sockets.connection_mut() {
            Some(connection) => connection.receive(time, &segment, ecn),
            None => {
                self.left.extend(refuse(&segment).map(|answer| (self.now, answer, Ecn::NotCapable)))
            }
        }
        self.settle()?;
        self.sockets.forget_closed();
        Ok(())
    }

    /// Waits until `packet` has left, in one segment or in several.
    fn expect(&mut self, packet: &Packet, window: Window) -> Result<(), Wrong> {
        let deadline = window.to + window.tolerance;
        let mut bytes = 0;
        let mut first = None;
        loop {
            while self.left.is_empty() && self.now < deadline {
                self.step(deadline)?;
            }
            let Some((at, segment, ecn)) = self.left.pop_front() else {
                let missing =
                    if bytes > 0 { format!(" after {bytes} bytes") } else { String::new() };
                return Err(wrong(format!("nothing leaves{missing}")));
            };
            let compared = self.numbers.compare(packet, (&segment, ecn), bytes, self.tick);
            compared.map_err(|what| wrong(format!("{what} at {}", seconds(at))))?;
            let at = *first.get_or_insert(at);
            if at < window.from - window.tolerance || at > deadline {
                let seen = self.numbers.describe(&segment);
                return Err(wrong(format!("'{seen}' leaves at {}", seconds(at))));
            }
            bytes += u32::from(segment.length);
            if bytes >= packet.length {
                return Ok(());
            }
        }
    }

    fn call(&mut self, line: usize, call: &'s Call, window: Window) -> Result<(), Wrong> {
        self.finish_blocked()?;
        let ending = self.sockets.attempt(call, ISN).map_err(wrong)?;
        match (ending, call.ends) {
            (Ending::Done(value, error), _) => socket::judge(call, value, error).map_err(wrong)?,
            (Ending::Blocks, Some(ends)) => {
                self.blocked = Some((line, call, ends + window.offset));
            }
            (Ending::Blocks, None) => {
                return Err(wrong(format!("{} blocks", call.name)));
            }
        }
        self.settle()?;
        self.sockets.forget_closed();
        Ok(())
    }

    /// Gives a call that has not returned the time it still has.
    fn finish_blocked(&mut self) -> Result<(), Wrong> {
        let Some((line, call, ends)) = self.blocked else { return Ok(()) };
        let limit = ends + self.tolerance;
        while self.blocked.is_some() && self.now < limit {
            self.step(limit)?;
        }
        if self.blocked.is_some() {
            return Err((Some(line), format!("{} does not return", call.name)));
        }
        Ok(())
    }

    fn code(&mut self, code: &str) -> Result<(), Wrong> {
        let sockets = &self.sockets;
        let lookup = |name: &str| sockets.field(name);
        let mut scope = Scope { variables: &mut self.variables, lookup: &lookup };
        expression::run(code, &mut scope).map_err(|refusal| match refusal {
            Refusal::False(condition) => wrong(format!("not so: {condition}")),
            Refusal::Unknown(name) => wrong(format!("{name} is not known")),
            Refusal::Syntax(text) => wrong(format!("code that cannot be read: {text}")),
        })
    }
}

/// The answer of a host without such a connection (RFC 9293, 3.5.2).
fn refuse(segment: &Segment) -> Option<Segment> {
    if segment.has(RST) {
        return None;
    }
    let mut answer = Segment::default();
    answer.flags = RST;
    if segment.has(ACK) {
        answer.sequence = segment.acknowledgement;
    } else {
        answer.flags |= ACK;
        answer.acknowledgement = segment.sequence.wrapping_add(segment.sequence_length());
    }
    Some(answer)
}

fn seconds(nanos: i64) -> String {
    format!("{:.6} s", nanos as f64 / 1e9)
}
