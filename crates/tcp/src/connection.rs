//! One end of a connection: receiver, sender, handshake and teardown behind one interface.
//!
//! Nothing here waits or calls back. The caller passes in each segment that arrives
//! ([`Connection::receive`]) and each deadline that passes ([`Connection::poll_timeout`],
//! [`Connection::handle_timeout`]), and after either takes segments from
//! [`Connection::poll_transmit`] until there is none. A deadline may move later without notice; a
//! timer that fires early finds nothing to do.

use nilometer_wire::{Ecn, Span, Time};

use crate::config::Config;
use crate::controller::Window;
use crate::receiver::{Due, Receiver};
use crate::segment::{ACK, CWR, ECE, FIN, PSH, RST, SYN, Segment};
use crate::sender::{Arrival, NEVER, Sender};
use crate::sequence::{unwrap, wrap};
use crate::state::State;
use crate::statistics::Statistics;
use crate::timestamps;
use crate::transmit::Chunk;

/// How long the peer's newest timestamp is good for comparison (RFC 7323, 5.5).
const TIMESTAMP_LIFE: Span = Span::from_secs(24 * 86_400);

/// A segment to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The segment; its ports are the caller's affair.
    pub segment: Segment,
    /// The ECN bits of its IP header.
    pub ecn: Ecn,
}

/// What must leave before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgent {
    Nothing,
    /// Our SYN, with an ACK if the peer's has come.
    Syn,
    /// A reset with this sequence number, and an ACK of that one if there is one.
    Reset(u32, Option<u32>),
}

/// One end of a connection.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Connection {
    pub(crate) state: State,
    pub(crate) urgent: Urgent,
    pub(crate) has_timestamps: bool,
    /// Whether both ends support ECN.
    pub(crate) has_ecn: bool,
    /// Whether a congestion mark is to be echoed.
    pub(crate) echoes_mark: bool,
    /// Shift of the peer's window field.
    pub(crate) peer_scale: u8,
    pub(crate) was_passive: bool,
    /// The peer's newest timestamp (TS.Recent), and when it came.
    pub(crate) recent_timestamp: u32,
    pub(crate) recent_at: Time,
    pub(crate) receiver: Receiver,
    pub(crate) statistics: Statistics,
    pub(crate) sender: Sender,
    pub(crate) config: Config,
}

impl Connection {
    /// An active open: the first segment from [`Connection::poll_transmit`] is a SYN with the number
    /// `initial_sequence`.
    pub fn connect(config: Config, initial_sequence: u32) -> Connection {
        let mut connection = Connection::listen(config, initial_sequence);
        connection.state = State::SynSent;
        connection.urgent = Urgent::Syn;
        connection.was_passive = false;
        connection
    }

    /// A passive open: waits for a SYN.
    pub fn listen(config: Config, initial_sequence: u32) -> Connection {
        Connection {
            state: State::Listen,
            urgent: Urgent::Nothing,
            has_timestamps: false,
            has_ecn: false,
            echoes_mark: false,
            peer_scale: 0,
            was_passive: true,
            recent_timestamp: 0,
            recent_at: Time::ZERO,
            sender: Sender::new(&config, initial_sequence),
            receiver: Receiver::new(&config),
            statistics: Statistics::default(),
            config,
        }
    }

    /// `segment` arrived at `now` in a packet with the bits `ecn`.
    #[inline(always)]
    pub fn receive(&mut self, now: Time, segment: &Segment, ecn: Ecn) {
        self.statistics.segments_received += 1;
        if !self.receive_predicted(now, segment, ecn) {
            self.receive_unusual(now, segment, ecn);
        }
    }

    #[inline(never)]
    fn receive_unusual(&mut self, now: Time, segment: &Segment, ecn: Ecn) {
        self.sender.is_spent = false;
        match self.state {
            State::Closed => self.receive_closed(segment),
            State::Listen => self.receive_listening(now, segment),
            State::SynSent => self.receive_syn_sent(now, segment),
            _ => self.receive_synchronized(now, segment, ecn),
        }
    }

    /// Does what is due at `now`; harmless when nothing is.
    pub fn handle_timeout(&mut self, now: Time) {
        self.sender.is_spent = false;
        if now >= self.receiver.delayed_until {
            self.receiver.delayed_until = NEVER;
            self.receiver.acknowledge_now();
        }
        if now < self.sender.deadline {
            return;
        }
        self.sender.deadline = NEVER;
        match self.state {
            State::Closed | State::Listen => {}
            State::TimeWait => self.state = State::Closed,
            State::SynSent | State::SynReceived => self.repeat_syn(),
            _ if self.sender.retries >= self.config.retries => self.abort(),
            _ if self.sender.is_persisting => self.sender.on_persist(now),
            _ if self.sender.una < self.sender.max => {
                self.sender.on_timeout(now, &mut self.statistics);
            }
            _ => {}
        }
    }

    /// The next segment to send at `now`, if any.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        let mut segment = Segment::default();
        let ecn = self.poll_transmit_into(now, &mut segment)?;
        Some(Outgoing { segment, ecn })
    }

    /// As [`Connection::poll_transmit`], into a segment of the caller's. Returns the ECN bits of
    /// the segment's IP header; if it returns `None`, the content of `segment` is unspecified.
    #[inline(always)]
    pub fn poll_transmit_into(&mut self, now: Time, segment: &mut Segment) -> Option<Ecn> {
        if self.is_quiet() { None } else { self.compose(now, segment) }
    }

    /// Whether a quick check shows that there is nothing to send.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.urgent == Urgent::Nothing && self.receiver.due != Due::Now && self.sender.is_silent()
    }

    #[inline(never)]
    fn compose(&mut self, now: Time, segment: &mut Segment) -> Option<Ecn> {
        if self.urgent != Urgent::Nothing {
            return self.transmit_urgent(now, segment);
        }
        // Data out of order is reported in a segment of its own, so that it counts as a duplicate.
        let is_due = self.receiver.due == Due::Now;
        if is_due && self.receiver.has_blocks() {
            self.selective_acknowledgement(now, segment);
            return Some(Ecn::NotCapable);
        }
        if is_due && self.sender.is_silent() {
            self.sender.is_spent = true;
            self.acknowledgement(now, segment);
            return Some(Ecn::NotCapable);
        }
        if self.state.sends() {
            if let Some(start) = self.sender.transmit_plain(now, &mut self.statistics) {
                let flags = if self.sender.next == self.sender.end { PSH } else { 0 };
                self.header(now, start, self.sender.window.mss, flags, segment);
                return Some(if self.has_ecn { Ecn::Capable0 } else { Ecn::NotCapable });
            }
            if let Some(chunk) = self.sender.transmit(now, &mut self.statistics) {
                return Some(self.packet(now, &chunk, segment));
            }
            if self.sender.probe {
                return Some(self.window_probe(now, segment));
            }
        }
        if !is_due {
            return None;
        }
        self.acknowledgement(now, segment);
        Some(Ecn::NotCapable)
    }

    /// When [`Connection::handle_timeout`] and then [`Connection::poll_transmit`] are to be called
    /// next, if nothing arrives before.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        let mut at = self.sender.deadline.min(self.receiver.delayed_until);
        if self.sender.is_paced {
            at = at.min(self.sender.paced_until);
        }
        (at != NEVER).then_some(at)
    }

    #[inline(never)]
    pub(crate) fn receive_synchronized(&mut self, now: Time, segment: &Segment, ecn: Ecn) {
        let start = self.receiver.offset(segment.sequence);
        if self.has_timestamps && segment.has_timestamps() && !self.is_timely(now, segment) {
            return self.refuse(start, segment);
        }
        let fits = self.receiver.accepts(start, segment.sequence_length());
        if !fits && start != Some(self.receiver.next) {
            return self.receive_outside(now, start, segment);
        }
        let start = start.unwrap_or(0);
        if segment.flags & (RST | SYN | ACK) != ACK {
            return self.receive_exception(start, segment);
        }
        if !self.acknowledged_by(now, start, segment) {
            return;
        }
        if self.has_timestamps && segment.has_timestamps() {
            self.keep_timestamp(now, start, segment);
        }
        if !fits {
            // The window is closed: its acknowledgement counts, its payload does not.
            self.receiver.acknowledge_now();
            return;
        }
        if segment.length > 0 || segment.has(FIN) {
            self.take(now, start, segment, ecn);
        }
    }

    /// Enters the acknowledgement; whether the segment's payload is to be looked at, too.
    #[inline]
    fn acknowledged_by(&mut self, now: Time, start: u64, segment: &Segment) -> bool {
        let ack = unwrap(self.sender.initial, self.sender.una, segment.acknowledgement);
        if self.state == State::SynReceived && !self.complete_handshake(now, ack, segment) {
            return false;
        }
        let Some(ack) = ack else { return true };
        if ack > self.sender.max {
            if self.config.answers_unsent {
                self.receiver.acknowledge_now();
            }
            self.statistics.refused_segments += 1;
            return false;
        }
        let window = u64::from(segment.window) << self.peer_scale;
        let is_new_window = ack >= self.sender.una && self.sender.update_window(start, ack, window);
        if ack >= self.sender.una && self.sender.edge <= self.sender.una {
            self.sender.hear_of_no_room();
        }
        if self.has_ecn && segment.has(ECE) && ack >= self.sender.una {
            self.sender.on_mark(ack, now, &mut self.statistics);
        }
        let is_bare = segment.length == 0 && !segment.has(FIN) && !is_new_window;
        let echoed = if self.has_timestamps && self.sender.timed.is_none() {
            self.echoed(now, segment)
        } else {
            None
        };
        let arrival = Arrival { now, segment, echoed, is_bare };
        if self.state != State::TimeWait {
            self.sender.on_ack(ack, &arrival, &mut self.statistics);
        }
        self.sender.nagle.on_ack();
        if self.sender.has_fin && self.sender.una > self.sender.end {
            self.fin_acknowledged(now);
        }
        true
    }

    #[inline]
    fn take(&mut self, now: Time, start: u64, segment: &Segment, ecn: Ecn) {
        if !self.state.receives() {
            // A FIN sent again: its acknowledgement was lost.
            self.receiver.acknowledge_now();
            self.restart_time_wait(now);
            return;
        }
        if self.has_ecn {
            if segment.has(CWR) {
                self.echoes_mark = false;
            }
            if ecn == Ecn::Congestion {
                self.statistics.marks_received += 1;
                self.echoes_mark = true;
            }
        }
        self.receiver.take(now, start, segment, &mut self.statistics);
        if self.receiver.has_fin {
            self.fin_received(now);
        }
    }

    /// The round-trip time by the echoed timestamp.
    pub(crate) fn echoed(&self, now: Time, segment: &Segment) -> Option<Span> {
        let echo = segment.timestamps[1];
        if !segment.has_timestamps() || echo == 0 {
            return None;
        }
        timestamps::since(now, echo)
    }

    /// Whether the timestamp is not older than the newest, as far as can be determined.
    #[inline]
    fn is_recent(&self, now: Time, segment: &Segment) -> bool {
        let age = self.recent_timestamp.wrapping_sub(segment.timestamps[0]) as i32;
        age <= 0 || now.since(self.recent_at) > TIMESTAMP_LIFE
    }

    /// Protection against wrapped sequence numbers (RFC 7323, 5.3).
    #[inline]
    pub(crate) fn is_timely(&self, now: Time, segment: &Segment) -> bool {
        self.is_recent(now, segment) || segment.has(RST)
    }

    /// Keeps the timestamp of an acceptable segment, if it is to be echoed (RFC 7323, 4.3).
    #[inline]
    pub(crate) fn keep_timestamp(&mut self, now: Time, start: u64, segment: &Segment) {
        if start <= self.receiver.acknowledged && self.is_recent(now, segment) {
            self.recent_timestamp = segment.timestamps[0];
            self.recent_at = now;
        }
    }

    /// A segment with this sequence offset, acknowledging what there is to acknowledge.
    #[inline(always)]
    fn header(&mut self, now: Time, offset: u64, length: u32, flags: u8, segment: &mut Segment) {
        let sequence = wrap(self.sender.initial, offset);
        let (acknowledgement, window) = self.receiver.acknowledge(self.sender.window.mss);
        let flags = if self.echoes_mark { flags | ECE } else { flags };
        segment.acknowledge([sequence, acknowledgement], length as u16, window, flags);
        if self.has_timestamps {
            segment.set_timestamps(timestamps::at(now), self.recent_timestamp);
        }
        if length > 0 {
            self.receiver.on_data_sent(now);
        }
        self.statistics.segments_sent += 1;
    }

    #[inline(always)]
    fn packet(&mut self, now: Time, chunk: &Chunk, segment: &mut Segment) -> Ecn {
        let mut flags = if chunk.has_fin { FIN } else { 0 };
        if chunk.has_cwr && self.has_ecn {
            flags |= CWR;
        }
        if chunk.length > 0 && chunk.start + u64::from(chunk.length) == self.sender.end {
            flags |= PSH;
        }
        self.header(now, chunk.start, chunk.length, flags, segment);
        let is_marked = self.has_ecn && !chunk.is_repeat && chunk.length > 0;
        if is_marked { Ecn::Capable0 } else { Ecn::NotCapable }
    }

    /// A segment without payload.
    #[inline(always)]
    fn acknowledgement(&mut self, now: Time, segment: &mut Segment) {
        self.header(now, self.sender.max, 0, 0, segment);
    }

    /// A segment that reports data received out of order or twice.
    #[inline(never)]
    fn selective_acknowledgement(&mut self, now: Time, segment: &mut Segment) {
        self.acknowledgement(now, segment);
        if self.sender.has_sack {
            self.receiver.push_blocks(segment);
        } else {
            self.receiver.forget_duplicate();
        }
    }

    /// A segment below the window, which every peer must answer with its window (RFC 9293, 3.8.6.1
    /// and 3.10.7.4): what deployed stacks send instead of a byte of new data.
    fn window_probe(&mut self, now: Time, segment: &mut Segment) -> Ecn {
        self.sender.probe = false;
        self.header(now, self.sender.una - 1, 0, 0, segment);
        Ecn::NotCapable
    }
}

/// The application's interface.
impl Connection {
    /// Adds `bytes` to what is to be sent; without effect after [`Connection::close`]. A quarter of
    /// 2⁶⁴ stands for an application that never stops.
    pub fn write(&mut self, bytes: u64) {
        self.sender.nagle.on_write(false);
        self.sender.write(bytes);
    }

    /// Adds `bytes` to what is to be sent and announces that more follows at once: a small segment
    /// waits for the next write or acknowledgement.
    pub fn write_more(&mut self, bytes: u64) {
        self.sender.nagle.on_write(true);
        self.sender.write(bytes);
    }

    /// Whether small segments wait for acknowledgements (RFC 896). Switching it off releases what is held back.
    pub fn set_nagle(&mut self, is_on: bool) {
        self.sender.nagle.set_nagle(is_on);
    }

    /// Whether small segments wait until this is taken back.
    pub fn set_cork(&mut self, is_on: bool) {
        self.sender.nagle.set_cork(is_on);
    }

    /// Takes up to `bytes` that were received and returns how many there were; always 0 with
    /// [`Config::auto_read`].
    pub fn read(&mut self, bytes: u64) -> u64 {
        self.receiver.read(bytes, self.sender.window.mss)
    }

    /// Bytes received in order that wait for [`Connection::read`].
    pub fn readable(&self) -> u64 {
        self.receiver.readable()
    }

    /// Payload bytes received in order, each counted once.
    pub fn delivered(&self) -> u64 {
        self.receiver.delivered()
    }

    /// Payload bytes of ours that were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.sender.acknowledged()
    }

    /// The state (RFC 9293, 3.3.2).
    pub fn state(&self) -> State {
        self.state
    }

    /// The congestion window.
    pub fn window(&self) -> Window {
        self.sender.window
    }

    /// Bytes under way as loss recovery counts them.
    pub fn in_flight(&self) -> u64 {
        self.sender.in_flight()
    }

    /// Whether the sender repairs losses, by fast recovery or after a timeout.
    pub fn is_recovering(&self) -> bool {
        self.sender.phase != crate::sender::Phase::Open
    }

    /// The smoothed round-trip time, once there was a measurement.
    pub fn smoothed_rtt(&self) -> Option<Span> {
        self.sender.rtt.smoothed()
    }

    /// The retransmission timeout, back-off included.
    pub fn rto(&self) -> Span {
        self.sender.rtt.rto()
    }

    /// The parameters of this end.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What was counted.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }
}
