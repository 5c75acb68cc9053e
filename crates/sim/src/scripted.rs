//! One end of a scripted connection as a node: TCP, and an application that follows its script.
//!
//! The live engine has the same application over the kernel's TCP (`lab::generate::vectors`); both take the
//! next step from a [`Speaker`]. A step is passed to TCP when it is due and is over when TCP has sent the
//! last of it, so that a slower network delays all that comes after: a closed loop.
//!
//! * A segment of its own is written when the one before it has been sent, so that TCP never joins two. Where
//!   the congestion window holds one back those behind it wait.
//! * A bulk with a pace is written segment by segment at that pace, and no faster after a delay. What is sent
//!   again is not paced.
//! * Data followed by a close without a pause carries the FIN.
//! * A server that refuses has no connection, and so TCP answers with a reset; one that does not answer takes
//!   no packet, and its client gives up silently when it has tried for as long as the original's.
//! * From the end of the plan on neither end begins anything: what is open stays so. TCP continues.

use alloc::sync::Arc;

use nilometer_conversation::{Opening, Side};
use nilometer_tcp::segment::RST;
use nilometer_tcp::{Config, Connection, State};
use nilometer_traffic::script::{Next, Script, Speaker};
use nilometer_wire::{Node, Port, Rate, Span, Time};

use crate::endpoint::IP_HEADER_BYTES;
use crate::packet::{Packet, Protocol, Route};

/// Bytes that time stamps take of each segment.
const TIME_STAMPS_BYTES: u16 = 12;
/// The least segment that a connection is given, bytes.
const MSS_MIN: u16 = 64;

/// Which end of which script, and when.
#[derive(Clone, Debug)]
pub struct Part {
    /// What both ends do.
    pub script: Arc<Script>,
    /// Which of them this is.
    pub side: Side,
    /// When the client connects.
    pub start: Time,
    /// From when on no step is begun.
    pub end: Time,
}

/// How far an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is a client before its start.
    Early,
    /// It connects, or waits for a client to connect.
    Opening,
    /// It follows its script.
    Speaking,
    /// It says nothing more.
    Over,
}

/// What TCP has taken and not wholly sent: the step that it is the last of is not over.
#[derive(Clone, Copy, Debug)]
enum Handed {
    Bytes(u64),
    Fin,
}

/// One end of a scripted connection.
#[derive(Debug)]
pub struct Scripted {
    part: Part,
    route: Route,
    connection: Connection,
    speaker: Speaker,
    stage: Stage,
    handed: Option<Handed>,
    /// When a paced bulk may continue.
    paced_until: Time,
    /// When the application's next step is due.
    wake: Option<Time>,
    finished: Option<Time>,
    was_established: bool,
}

/// The stack of an end: `stack`, but small segments do not wait, and time stamps, acknowledgements and the largest
/// segment are the script's, as far as that is no larger than the stack's.
pub fn config(stack: Config, script: &Script, side: Side) -> Config {
    let options = if script.has_time_stamps { TIME_STAMPS_BYTES } else { 0 };
    let mss = match script.segment_bytes {
        0 => stack.mss,
        bytes => bytes.saturating_add(options).clamp(MSS_MIN, stack.mss.max(MSS_MIN)),
    };
    let ack_every = if script.acks_each[side.index()] { 1 } else { stack.ack_every };
    let timestamps = script.has_time_stamps;
    Config { mss, timestamps, ack_every, nagle: false, auto_read: true, ..stack }
}

impl Scripted {
    /// The end that `part` says, which sends on `route` with the stack that [`config`] makes of `stack`.
    pub fn new(part: Part, stack: Config, route: Route, initial_sequence: u32) -> Scripted {
        let Part { ref script, side, start, .. } = part;
        let opening = script.opening;
        let config = config(stack, script, side);
        let mut connection = match side {
            Side::Client => Connection::connect(config, initial_sequence),
            Side::Server => Connection::listen(config, initial_sequence),
        };
        let is_absent = side == Side::Server && !is_answered(opening);
        if is_absent {
            connection.close();
        }
        let speaker = Speaker::new(script, side, start.as_nanos());
        let mut scripted = Scripted {
            part,
            route,
            connection,
            speaker,
            stage: if is_absent { Stage::Over } else { Stage::Opening },
            handed: None,
            paced_until: Time::ZERO,
            wake: None,
            finished: is_absent.then_some(start),
            was_established: false,
        };
        if side == Side::Client {
            scripted.stage = Stage::Early;
            scripted.start_if_due(Time::ZERO);
        }
        scripted
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// When the client was to connect.
    pub fn start(&self) -> Time {
        self.part.start
    }

    /// When it had done all of its steps and received all that the other end's send; a client that is refused
    /// or not answered, when it gave up.
    pub fn finished(&self) -> Option<Time> {
        self.finished
    }

    /// Whether the connection stood at some time.
    pub fn was_established(&self) -> bool {
        self.was_established
    }

    fn start_if_due(&mut self, now: Time) {
        if self.part.start <= now {
            self.stage = Stage::Opening;
            if self.part.script.opening == Opening::Unanswered {
                let tried = Span(self.part.script.tried_ns.saturating_mul(1_000));
                self.wake_at(Time(now.0.saturating_add(tried.0)));
            }
        }
    }

    /// A client that got no answer has tried for long enough.
    fn give_up(&mut self, now: Time) {
        self.connection.abort();
        self.stage = Stage::Over;
        self.finished = Some(now);
    }

    /// Notes what TCP has made of a packet or of the time: a connection that stands, bytes, the end.
    fn look(&mut self, now: Time) {
        let state = self.connection.state();
        let now_ns = now.as_nanos();
        if self.stage == Stage::Opening && state.is_synchronized() {
            self.stage = Stage::Speaking;
            self.was_established = true;
            self.wake = None;
            if self.part.side == Side::Server {
                self.speaker = Speaker::new(&self.part.script, Side::Server, now_ns);
            }
            self.speaker.stands(now_ns);
        }
        let has_fin =
            matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
        let received = self.connection.delivered() + u64::from(has_fin);
        let more = received.saturating_sub(self.speaker.received());
        if more > 0 {
            self.speaker.hear(&self.part.script, more, now_ns);
        }
        if state == State::Closed && self.stage != Stage::Over {
            // TCP may give up sooner than the original did.
            if self.stage == Stage::Opening && !is_answered(self.part.script.opening) {
                self.finished = Some(now);
            }
            self.stage = Stage::Over;
            self.wake = None;
        }
    }

    /// Does its own steps as far as they are due.
    fn speak(&mut self, now: Time) {
        self.wake = None;
        let now_ns = now.as_nanos();
        while now < self.part.end && self.settle(now_ns) {
            match self.speaker.next(&self.part.script, now_ns) {
                Next::Listen => return,
                Next::Wait(due_ns) => return self.wake_at(Time(due_ns.saturating_mul(1_000))),
                Next::Write { pace: Some(_), .. } if now < self.paced_until => {
                    return self.wake_at(self.paced_until);
                }
                Next::Write { bytes, pace, .. } => self.write(bytes, pace, now),
                Next::Close => {
                    self.connection.close();
                    self.handed = Some(Handed::Fin);
                }
                Next::Reset => {
                    self.connection.abort();
                    self.speaker.closed(&self.part.script, now_ns);
                    self.stage = Stage::Over;
                    return self.finish(now);
                }
                // What comes now makes it a reset; then nothing is there.
                Next::Leave => return self.finish(now),
                Next::Done => return self.finish(now),
            }
        }
    }

    /// Whether TCP has sent all that it took; the step is then marked as sent.
    fn settle(&mut self, now_ns: u64) -> bool {
        let Some(handed) = self.handed else { return true };
        if self.connection.unsent() > 0 {
            return false;
        }
        self.handed = None;
        match handed {
            Handed::Bytes(bytes) => self.speaker.wrote(&self.part.script, bytes, now_ns),
            Handed::Fin => self.speaker.closed(&self.part.script, now_ns),
        }
        true
    }

    /// Passes `bytes` to TCP, or the first segment of them if they are paced; and the FIN, if it is due.
    fn write(&mut self, bytes: u64, pace: Option<u64>, now: Time) {
        let mut piece = bytes;
        if let Some(rate) = pace.and_then(|bytes_s| Rate::new(bytes_s.saturating_mul(8))) {
            piece = bytes.min(u64::from(self.connection.window().mss));
            self.paced_until = Time(now.0.saturating_add(rate.span_of(piece).0));
        }
        self.connection.write(piece);
        let (script, now_ns) = (&self.part.script, now.as_nanos());
        let mut after = self.speaker;
        after.wrote(script, piece, now_ns);
        if after.next(script, now_ns) == Next::Close {
            self.speaker = after;
            self.connection.close();
            self.handed = Some(Handed::Fin);
        } else {
            self.handed = Some(Handed::Bytes(piece));
        }
    }

    /// Its steps are done; it has finished if it has received everything, too.
    fn finish(&mut self, now: Time) {
        let expects = self.part.script.awaited(self.part.side);
        if self.finished.is_none() && self.speaker.received() >= expects {
            self.finished = Some(now);
        }
    }

    /// Sets the application's timer to `at`, unless the plan is over by then.
    fn wake_at(&mut self, at: Time) {
        self.wake = (at < self.part.end).then_some(at);
    }
}

/// Whether a connection's server is there.
fn is_answered(opening: Opening) -> bool {
    matches!(opening, Opening::Seen | Opening::Unseen)
}

impl Node<Packet> for Scripted {
    fn receive(&mut self, now: Time, _port: Port, packet: &Packet, _: &mut ()) {
        let is_deaf =
            self.part.side == Side::Server && self.part.script.opening == Opening::Unanswered;
        // An end with more under way does not process a reset before that has gone.
        let overhears = packet.segment.has(RST) && self.speaker.is_deaf(&self.part.script);
        if !is_deaf && !overhears {
            self.connection.receive(now, &packet.segment, packet.ecn);
            self.look(now);
        }
    }

    fn handle_timeout(&mut self, now: Time, _: &mut ()) {
        if self.stage == Stage::Early {
            return self.start_if_due(now);
        }
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = None;
            if self.stage == Stage::Opening {
                return self.give_up(now);
            }
        }
        self.connection.handle_timeout(now);
        self.look(now);
    }

    fn poll_transmit(&mut self, now: Time, packet: &mut Packet, _: &mut ()) -> Option<Port> {
        match self.stage {
            Stage::Early => return None,
            Stage::Speaking => self.speak(now),
            Stage::Opening | Stage::Over => {}
        }
        packet.ecn = self.connection.poll_transmit_into(now, &mut packet.segment)?;
        let headers = IP_HEADER_BYTES + packet.segment.header_bytes() as u16;
        packet.bytes = headers + packet.segment.length;
        packet.route = self.route;
        packet.protocol = Protocol::Tcp;
        Some(Port(0))
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.stage == Stage::Early {
            return Some(self.part.start);
        }
        let timers = [self.connection.poll_timeout(), self.wake];
        timers.into_iter().flatten().min()
    }
}
