//! One end of an open connection: its socket, and how far it is in its script.
//!
//! Two measures reproduce the original's packets. The last bytes before a close without a pause are handed
//! over with "more follows", so that they carry the FIN as the original's did. And a step after which the
//! same end pauses is over when TCP has sent the last byte, not when it has accepted it: otherwise a paced
//! bulk transfer would run into its pause, and a reset would discard the bytes that it was to follow.
//!
//! An end that is deaf ([`Speaker::is_deaf`]) ignores resets up to its last segment, by a filter on its
//! socket: the other end's kernel answers each of its segments, and bytes under way are sent as if it could
//! not know yet.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use nilometer_conversation::{Act, Opening, Side};
use nilometer_traffic::script::{Next, Script, Speaker};
use socket2::Socket;

use super::Clock;
use crate::generate::client::Outcome;
use crate::generate::client_loop::outcome_of;
use crate::generate::pattern::PATTERN_BYTES;
use crate::generate::socket::{self, Sink};
use nilometer_linux::epoll::{BROKEN, PEER_CLOSED, READABLE, WRITABLE};

/// How soon to check again whether TCP has sent all it accepted, ns.
const LOOK_NS: u64 = 250_000;
/// That time doubles so often at most.
const LOOK_DOUBLINGS_MAX: u32 = 6;

/// A deaf end whose congestion window stays shut stops ignoring resets after this many checks: half a second
/// at most.
const DEAF_LOOKS_MAX: u32 = 32;
/// A full segment where the script names none.
const SEGMENT_BYTES: u64 = 1_448;

/// What a connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It waits for the socket.
    Listen,
    /// It waits for the socket, or until then.
    Wait(u64),
    /// It is over.
    Ended(Outcome),
}

/// Bytes that TCP has taken and not sent: the step that they are the last of is not over.
#[derive(Clone, Copy, Debug)]
struct Unsent {
    bytes: u64,
    looks: u32,
}

/// One end of an open connection.
pub(super) struct ScriptedEnd<'a> {
    pub socket: Socket,
    /// Its number among those of the loop's owner.
    pub owner: u32,
    /// The client's port, once it is connected.
    pub local_port: u16,
    /// When the loop wakes it.
    pub wake_ns: Option<u64>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    script: &'a Script,
    side: Side,
    speaker: Speaker,
    is_connected: bool,
    began_ns: u64,
    pace: Option<u64>,
    unsent: Option<Unsent>,
    /// The other end has announced its end of file.
    is_heard_out: bool,
    /// This end has announced its end of file.
    is_closed: bool,
    /// It has had its first turn as an established connection.
    has_begun: bool,
    /// Its socket ignores resets.
    is_deaf: bool,
}

impl<'a> ScriptedEnd<'a> {
    /// A connection that begins now: which a client has begun to make, or a server has accepted.
    pub fn new(
        socket: Socket,
        owner: u32,
        script: &'a Script,
        side: Side,
        now_ns: u64,
    ) -> ScriptedEnd<'a> {
        ScriptedEnd {
            socket,
            owner,
            local_port: 0,
            wake_ns: None,
            received_bytes: 0,
            sent_bytes: 0,
            script,
            side,
            speaker: Speaker::new(script, side, now_ns),
            is_connected: side == Side::Server,
            began_ns: now_ns,
            pace: None,
            unsent: None,
            is_heard_out: false,
            is_closed: false,
            has_begun: false,
            is_deaf: false,
        }
    }

    /// By how much its steps began later than they were due, at most; ns.
    pub fn late_ns(&self) -> u64 {
        self.speaker.late_ns()
    }

    /// Whether the connection has been made.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Does what is due: by what epoll reports as `ready`, and by the clock.
    pub fn go_on(&mut self, ready: u32, sink: &mut Sink, pattern: &[u8], clock: Clock) -> Then {
        if !self.is_connected
            && let Some(then) = self.connect(ready, clock)
        {
            return then;
        }
        if ready & (READABLE | PEER_CLOSED | BROKEN) != 0
            && let Some(outcome) = self.listen(ready, sink, clock)
        {
            return Then::Ended(outcome);
        }
        if !self.has_begun {
            self.has_begun = true;
            self.overhear(self.speaker.is_deaf(self.script));
        }
        self.speak(pattern, clock)
    }

    /// Ignores resets from now on, or stops ignoring them. Where the kernel refuses, the first reset ends the
    /// connection.
    fn overhear(&mut self, overhears: bool) {
        if self.is_deaf != overhears {
            let done = socket::overhear_resets(&self.socket, overhears);
            self.is_deaf = overhears && done.is_ok();
        }
    }

    /// What becomes of a connection that is open when the time is over.
    pub fn outcome_at_end(&mut self, now_ns: u64) -> Outcome {
        let is_done = self.is_connected && self.speaker.next(self.script, now_ns) == Next::Done;
        match is_done && self.has_all() {
            true => Outcome::Completed,
            false => Outcome::Unfinished,
        }
    }

    /// Checks whether the connection is established; if not, returns what comes next.
    fn connect(&mut self, ready: u32, clock: Clock) -> Option<Then> {
        let opening = self.script.opening;
        let tried_until_ns = self.began_ns.saturating_add(self.script.tried_ns);
        if ready & (WRITABLE | BROKEN) == 0 {
            return Some(match opening {
                Opening::Unanswered if clock.now_ns() >= tried_until_ns => {
                    Then::Ended(Outcome::Completed)
                }
                Opening::Unanswered => Then::Wait(tried_until_ns),
                _ => Then::Listen,
            });
        }
        let failed = self.socket.take_error().unwrap_or_else(Some);
        match (opening, failed.as_ref().map(outcome_of)) {
            (Opening::Refused, Some(Outcome::Refused))
            | (Opening::Unanswered, Some(Outcome::TimedOut)) => {
                Some(Then::Ended(Outcome::Completed))
            }
            (_, Some(outcome)) => Some(Then::Ended(outcome)),
            // An answer comes where none is planned.
            (Opening::Refused | Opening::Unanswered, None) => {
                Some(Then::Ended(Outcome::Failed(libc::EISCONN)))
            }
            (Opening::Seen | Opening::Unseen, None) => {
                self.is_connected = true;
                self.speaker.stands(clock.now_ns());
                self.local_port = socket::local_port(&self.socket);
                None
            }
        }
    }

    /// Takes what has arrived; returns how the connection ended, if it was broken.
    fn listen(&mut self, ready: u32, sink: &mut Sink, clock: Clock) -> Option<Outcome> {
        let has_more = ready & (PEER_CLOSED | BROKEN) != 0;
        while !self.is_heard_out {
            match sink.discard(&self.socket) {
                Ok(0) => {
                    self.is_heard_out = true;
                    self.speaker.hear(self.script, 1, clock.now_ns());
                }
                Ok(bytes) => {
                    self.received_bytes += bytes as u64;
                    if self.script.acks_each[self.side.index()] {
                        // It lasts until TCP thinks otherwise; where it is refused, acknowledgements wait.
                        let _ = self.socket.set_tcp_quickack(true);
                    }
                    self.speaker.hear(self.script, bytes as u64, clock.now_ns());
                    // A short read took all there was; the next arrival is another event.
                    if bytes < sink.capacity() && !has_more {
                        return None;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Some(self.broken(&error)),
            }
        }
        // Behind the end of file nothing is read; a reset is an error of the socket alone.
        let failed = (ready & BROKEN != 0).then(|| self.socket.take_error().unwrap_or_else(Some));
        failed.flatten().map(|error| self.broken(&error))
    }

    /// If nothing is left to be sent after this, resets in answer to it count again.
    fn hear_of_the_last(&mut self, after: &Speaker) {
        if !after.is_deaf(self.script) {
            self.overhear(false);
        }
    }

    /// Does its own steps as far as they are due.
    fn speak(&mut self, pattern: &[u8], clock: Clock) -> Then {
        loop {
            let now_ns = clock.now_ns();
            if let Some(look_ns) = self.look(now_ns) {
                return Then::Wait(look_ns);
            }
            let done = match self.speaker.next(self.script, now_ns) {
                Next::Listen => return Then::Listen,
                Next::Wait(due_ns) => return Then::Wait(due_ns),
                Next::Write { bytes, pace, .. } => self.write(bytes, pace, pattern, now_ns),
                Next::Close => {
                    self.is_closed = true;
                    self.speaker.closed(self.script, now_ns);
                    let after = self.speaker;
                    self.hear_of_the_last(&after);
                    self.socket.shutdown(Shutdown::Write)
                }
                // Closed with its socket, but not before its last bytes have been sent.
                Next::Leave => match socket::unsent(&self.socket) {
                    Ok(0) | Err(_) => return Then::Ended(Outcome::Completed),
                    Ok(_) => return Then::Wait(now_ns + LOOK_NS),
                },
                Next::Reset => {
                    // The loop closes the socket of an ended connection.
                    let set = self.socket.set_linger(Some(Duration::ZERO));
                    self.speaker.closed(self.script, now_ns);
                    return Then::Ended(
                        set.map_or_else(|e| outcome_of(&e), |()| Outcome::Completed),
                    );
                }
                // Without a FIN of its own this end stays open, as the original did.
                Next::Done if !(self.is_heard_out && self.is_closed) => return Then::Listen,
                Next::Done if self.has_all() => return Then::Ended(Outcome::Completed),
                Next::Done => return Then::Ended(Outcome::SizeMismatch),
            };
            match done {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // It is never acknowledged: it is not to wait for ever.
                    self.overhear(false);
                    return Then::Listen;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Then::Ended(self.broken(&error)),
            }
        }
    }

    /// Hands over what fits of the first piece of `bytes`.
    fn write(
        &mut self,
        bytes: u64,
        pace: Option<u64>,
        pattern: &[u8],
        now_ns: u64,
    ) -> io::Result<()> {
        if pace != self.pace {
            socket::pace(&self.socket, pace)?;
            self.pace = pace;
        }
        let mut after = self.speaker;
        after.wrote(self.script, bytes, now_ns);
        let is_last = !after.is_deaf(self.script);
        let (mut piece_bytes, last_bytes) = (bytes.min(PATTERN_BYTES as u64), self.last(bytes));
        let holds_last = self.is_deaf && is_last && piece_bytes > last_bytes;
        if holds_last {
            // Its last segment waits until the others have gone.
            piece_bytes = piece_bytes.min(bytes - last_bytes);
        } else {
            self.hear_of_the_last(&after);
        }
        let after = after.next(self.script, now_ns);
        let piece_bytes = piece_bytes as usize;
        let more = (piece_bytes as u64) < bytes || after == Next::Close;
        let from = (self.sent_bytes % PATTERN_BYTES as u64) as usize;
        // One piece is one segment's at least: it never stops at the pattern's end.
        let from = if from + piece_bytes > pattern.len() { 0 } else { from };
        let sent = socket::send(&self.socket, &pattern[from..from + piece_bytes], more)? as u64;
        self.sent_bytes += sent;
        let pauses = sent == bytes && matches!(after, Next::Wait(_) | Next::Reset) || holds_last;
        match pauses {
            true => self.unsent = Some(Unsent { bytes: sent, looks: 0 }),
            false => self.speaker.wrote(self.script, sent, now_ns),
        }
        Ok(())
    }

    /// The bytes in the last segment of `bytes`.
    fn last(&self, bytes: u64) -> u64 {
        let full = match self.script.segment_bytes {
            0 => SEGMENT_BYTES,
            full => u64::from(full),
        };
        bytes - bytes.saturating_sub(1) / full * full
    }

    /// Checks whether TCP has sent all that it accepted, if that is awaited; returns when to check again.
    fn look(&mut self, now_ns: u64) -> Option<u64> {
        let Unsent { bytes, looks } = self.unsent?;
        // A socket that cannot be queried has none left, and an event that gives the reason.
        let left = socket::unsent(&self.socket).unwrap_or(0);
        if left == 0 {
            self.unsent = None;
            self.speaker.wrote(self.script, bytes, now_ns);
            return None;
        }
        if looks == DEAF_LOOKS_MAX {
            self.overhear(false);
        }
        let longest_ns = LOOK_NS << LOOK_DOUBLINGS_MAX;
        let wait_ns = match self.pace {
            // Half of the time that they take at that rate: TCP sends the last of them together, and so
            // sooner.
            Some(rate) => u128::from(left) * 500_000_000 / u128::from(rate),
            None => u128::from(LOOK_NS << looks.min(LOOK_DOUBLINGS_MAX)),
        };
        let wait_ns = wait_ns.clamp(LOOK_NS.into(), longest_ns.into()) as u64;
        self.unsent = Some(Unsent { bytes, looks: looks.saturating_add(1) });
        Some(now_ns + wait_ns)
    }

    /// How a connection ended that an error broke: as it was to, where the other end was to reset it.
    fn broken(&self, error: &io::Error) -> Outcome {
        let outcome = outcome_of(error);
        let other = self.side.other();
        let resets =
            |step: &nilometer_conversation::Step| step.by == other && step.act == Act::Reset;
        match outcome == Outcome::Reset && self.script.steps.iter().any(resets) {
            true => Outcome::Completed,
            false => outcome,
        }
    }

    /// Whether all that the other end sends has arrived.
    fn has_all(&self) -> bool {
        let sent_to_us = self.script.steps.iter().filter(|step| step.by != self.side);
        let bytes_of = |act: Act| if let Act::Send { bytes, .. } = act { bytes } else { 0 };
        sent_to_us.map(|step| bytes_of(step.act)).sum::<u64>() == self.received_bytes
    }
}
