//! One output of the fabric: its discipline, the pace of its link, the length of its wire.

use alloc::collections::VecDeque;

use nilometer_queue::{
    Any, Backlog, Contract, ContractError, Discipline, Drops, Ledger, Packet, Reserved,
};
use nilometer_wire::{Rate, Span, Time};

use super::Counted;

/// The default burst of a link: as much as its rate carries in this time.
///
/// A thread that shares its processor with others waits a few of their time slices, of some 3 ms each on
/// Linux unless set otherwise, before it runs again.
pub const BURST: Span = Span::from_nanos(50_000_000);

/// A discipline and the link behind it.
///
/// The link is paced by when it will be free: a packet of `n` bytes that starts at `t` keeps it until
/// `t + 8n/L`. A packet is given out when its transmission starts.
///
/// # Late service
///
/// The driver calls the router only now and then, so what should have started between two calls
/// starts *as if* it had been on time, as long as the link does not lag behind by more than its burst:
/// what the rate carries in that time, the committed burst size of a token bucket (RFC 2697, 2). So while
/// packets wait, the link keeps its rate on the average whatever holds its driver up for less, and the
/// device behind it is never sent more in any time `t` than `L·t`, the burst, and one packet, which has
/// started and has not ended. A lag beyond the burst is lost.
///
/// Unlike the bucket's, this burst is not saved up by a link that stands idle: after that a packet starts
/// now, and the next when it has ended. A link whose service is always in time never sends two packets
/// closer than its rate allows, whatever its burst is.
#[derive(Debug)]
pub(super) struct Output<P> {
    discipline: Reserved<P, Any<P>>,
    /// This is the default discipline of a port ([`super::Fabric::set_usual`]).
    pub(super) is_usual: bool,
    /// The rate of the link; without one only the device limits it.
    pub(super) rate: Option<Rate>,
    /// The burst, as it was configured.
    pub(super) burst_bytes: Option<u64>,
    /// How far it may lag behind and still make up for it: the time that the burst takes.
    made_up: Span,
    /// Of the last packet: its bytes and how long it kept the link, which mostly is the next one's too.
    last: (u32, Span),
    /// How long the wire is.
    pub(super) delay: Span,
    free_at: Time,
    is_idle: bool,
    /// On the wire: when each packet comes out at its other end.
    wire: VecDeque<(Time, P)>,
    wire_bytes: u64,
    /// Given out once, and given back by a device that had no room.
    held: Option<P>,
    /// Packets that arrived, left and were dropped here.
    pub(super) ledger: Ledger,
}

impl<P: Packet> Output<P> {
    pub(super) fn new(discipline: Any<P>) -> Output<P> {
        Output {
            discipline: Reserved::new(discipline),
            is_usual: false,
            rate: None,
            burst_bytes: None,
            made_up: Span::ZERO,
            last: (0, Span::ZERO),
            delay: Span::ZERO,
            free_at: Time::ZERO,
            is_idle: true,
            wire: VecDeque::new(),
            wire_bytes: 0,
            held: None,
            ledger: Ledger::default(),
        }
    }

    /// Gives the link another rate; without one, only the device limits it.
    pub(super) fn set_rate(&mut self, rate: Option<Rate>) {
        self.rate = rate;
        self.set_burst(self.burst_bytes);
        // A packet of no bytes takes no time at any rate.
        self.last = (0, Span::ZERO);
    }

    /// Lets the link make up for a lag of `burst_bytes`; without a number, of what its rate carries in
    /// [`BURST`].
    pub(super) fn set_burst(&mut self, burst_bytes: Option<u64>) {
        self.burst_bytes = burst_bytes;
        self.made_up = match (self.rate, burst_bytes) {
            (None, _) => Span::ZERO,
            (Some(_), None) => BURST,
            (Some(rate), Some(bytes)) => rate.span_of(bytes),
        };
    }

    /// How far the link may lag behind and still make up for it; without a rate it never lags.
    pub(super) fn made_up(&self) -> Option<Span> {
        self.rate.map(|_| self.made_up)
    }

    /// [`Discipline::expect`].
    #[inline]
    pub(super) fn expect(&self, packets: &[P]) {
        self.discipline.expect(packets);
    }

    #[inline]
    pub(super) fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) {
        self.ledger.in_packets += 1;
        self.ledger.in_bytes += u64::from(packet.bytes());
        let mut counted = Counted { tally: &mut self.ledger.drops, drops };
        self.discipline.enqueue(now, packet, &mut counted);
    }

    /// All of `packets`, of `bytes` together.
    #[inline]
    pub(super) fn enqueue_all(
        &mut self,
        now: Time,
        packets: &[P],
        bytes: u64,
        drops: &mut impl Drops<P>,
    ) where
        P: Copy,
    {
        self.ledger.in_packets += packets.len() as u64;
        self.ledger.in_bytes += bytes;
        let mut counted = Counted { tally: &mut self.ledger.drops, drops };
        self.discipline.enqueue_all(now, packets, &mut counted);
    }

    /// Gives out the packets that may go to the device at `now`, `most` at most; returns how many.
    #[inline]
    pub(super) fn transmit_all(
        &mut self,
        now: Time,
        most: usize,
        drops: &mut impl Drops<P>,
        mut give: impl FnMut(P),
    ) -> usize {
        let is_plain = self.delay == Span::ZERO && self.wire.is_empty() && self.held.is_none();
        if is_plain {
            return self.serve_all(now, most, drops, give);
        }
        let packets = core::iter::from_fn(|| self.transmit(now, drops)).take(most);
        packets.map(&mut give).count()
    }

    /// [`Output::serve`] of `most` packets at most.
    #[inline]
    fn serve_all(
        &mut self,
        now: Time,
        most: usize,
        drops: &mut impl Drops<P>,
        mut give: impl FnMut(P),
    ) -> usize {
        let rate = self.rate;
        if most == 0 || rate.is_some() && self.free_at > now {
            return 0;
        }
        let made_up = Time(now.0.saturating_sub(self.made_up.0));
        let (mut free_at, mut last, mut is_idle) = (self.free_at, self.last, self.is_idle);
        let (mut packets, mut bytes) = (0, 0);
        let mut counted = Counted { tally: &mut self.ledger.drops, drops };
        let waits = self.discipline.dequeue_while(now, &mut counted, |packet| {
            let packet_bytes = packet.bytes();
            packets += 1;
            bytes += u64::from(packet_bytes);
            if last.0 != packet_bytes {
                let span = |rate: Rate| rate.span_of(u64::from(packet_bytes));
                last = (packet_bytes, rate.map_or(Span::ZERO, span));
            }
            free_at = free_at.max(if is_idle { now } else { made_up }) + last.1;
            is_idle = false;
            give(packet);
            packets < most && (rate.is_none() || free_at <= now)
        });
        (self.free_at, self.last, self.is_idle) = (free_at, last, !waits);
        self.ledger.out_packets += packets as u64;
        self.ledger.out_bytes += bytes;
        packets
    }

    /// The packet that may go to the device at `now`.
    #[inline]
    pub(super) fn transmit(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        let packet = match self.held.take() {
            Some(packet) => packet,
            None if self.delay == Span::ZERO && self.wire.is_empty() => self.serve(now, drops)?,
            None => self.arrive(now, drops)?,
        };
        self.ledger.out_packets += 1;
        self.ledger.out_bytes += u64::from(packet.bytes());
        Some(packet)
    }

    /// The next packet to start on the link.
    #[inline]
    fn serve(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        if self.rate.is_some() && self.free_at > now {
            return None;
        }
        let mut counted = Counted { tally: &mut self.ledger.drops, drops };
        let Some(packet) = self.discipline.dequeue(now, &mut counted) else {
            self.is_idle = true;
            return None;
        };
        let earliest = if self.is_idle { now } else { Time(now.0.saturating_sub(self.made_up.0)) };
        self.is_idle = false;
        if self.last.0 != packet.bytes() {
            let span = |rate: Rate| rate.span_of(u64::from(packet.bytes()));
            self.last = (packet.bytes(), self.rate.map_or(Span::ZERO, span));
        }
        self.free_at = self.free_at.max(earliest) + self.last.1;
        Some(packet)
    }

    /// Puts on the wire packets that start by `now` and takes off it those that have arrived.
    fn arrive(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        while let Some(packet) = self.serve(now, drops) {
            self.wire_bytes += u64::from(packet.bytes());
            self.wire.push_back((self.free_at.max(now) + self.delay, packet));
        }
        self.wire.front().filter(|(due, _)| *due <= now)?;
        let (_, packet) = self.wire.pop_front()?;
        self.wire_bytes -= u64::from(packet.bytes());
        Some(packet)
    }

    pub(super) fn put_back(&mut self, packet: P) {
        self.ledger.out_packets -= 1;
        self.ledger.out_bytes -= u64::from(packet.bytes());
        debug_assert!(self.held.is_none(), "one packet is given out at a time");
        self.held = Some(packet);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        if self.held.is_some() {
            return Some(Time::ZERO);
        }
        let wire = self.wire.front().map(|(due, _)| *due);
        let waits = self.discipline.backlog().packets > 0;
        let link = waits.then(|| self.rate.map_or(Time::ZERO, |_| self.free_at));
        wire.into_iter().chain(link).min()
    }

    pub(super) fn set_discipline(
        &mut self,
        now: Time,
        discipline: Any<P>,
        drops: &mut impl Drops<P>,
    ) {
        self.is_usual = false;
        let mut old = core::mem::replace(self.discipline.inner_mut(), discipline);
        let mut counted = Counted { tally: &mut self.ledger.drops, drops };
        while let Some(packet) = old.dequeue(now, &mut counted) {
            self.discipline.inner_mut().enqueue(now, packet, &mut counted);
        }
    }

    /// Gives the reserved queue of this number a contract.
    pub(super) fn reserve(&mut self, queue: u32, contract: Contract) -> Result<(), ContractError> {
        self.discipline.set(queue, contract)
    }

    /// Ends the contract of a reserved queue; whether it had one.
    pub(super) fn release(&mut self, now: Time, queue: u32, drops: &mut impl Drops<P>) -> bool {
        let mut counted = Counted { tally: &mut self.ledger.drops, drops };
        self.discipline.remove(now, queue, &mut counted)
    }

    /// The reserved queues, and the discipline behind them.
    pub(super) fn reserved(&self) -> &Reserved<P, Any<P>> {
        &self.discipline
    }

    /// Whether a packet that arrives now leaves as if this output did not exist: the device alone limits
    /// the link, the wire has no length and is empty, nothing waits, and the discipline is the default.
    pub(super) fn is_transparent(&self) -> bool {
        self.is_usual
            && self.discipline.contracts() == 0
            && self.rate.is_none()
            && self.delay == Span::ZERO
            && self.wire.is_empty()
            && self.held.is_none()
            && self.discipline.backlog().packets == 0
    }

    /// Packets that came and are no longer here: given out, or dropped.
    #[inline]
    pub(super) fn left(&self) -> u64 {
        self.ledger.out_packets + self.ledger.drops.total_packets()
    }

    pub(super) fn backlog(&self) -> Backlog {
        self.discipline.backlog()
    }

    pub(super) fn discipline(&self) -> &Any<P> {
        self.discipline.inner()
    }

    /// All that is here, on the wire too.
    pub(super) fn ledger_waiting(&self) -> Backlog {
        let waiting = self.discipline.backlog();
        let held = self.held.as_ref().map(|packet| u64::from(packet.bytes()));
        Backlog {
            packets: waiting.packets + self.wire.len() as u64 + u64::from(held.is_some()),
            bytes: waiting.bytes + self.wire_bytes + held.unwrap_or(0),
        }
    }
}
