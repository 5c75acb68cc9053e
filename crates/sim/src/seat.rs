//! A member's place in a network: the state that the engine keeps beside it.
//!
//! A member's deadline is polled once after each of its events; nothing else changes it. It is cached
//! here, beside what every delivery needs, so that the next delivery compares two moments and does
//! not visit the member. The moment for which the calendar is set is here, too: most deliveries move
//! a deadline later, and then the calendar is left alone.

use nilometer_wire::{Node, Time};

use crate::packet::Packet;
use crate::tournament::NEVER;

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A member and its state in the engine, the latter in front and with the former's first fields in one
/// cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Seat<M> {
    /// The moment of the last packet delivered to the member.
    pub until: Time,
    /// The member's deadline, as last polled, or [`NEVER`].
    pub due: Time,
    /// What its timer in the calendar is set to, or [`NEVER`]: `due`, or before it.
    pub alarm: Time,
    /// A mix of its deliveries.
    digest: u64,
    /// The link at its first port.
    pub link: u32,
    /// Where its ports begin in the network's list of them.
    pub first_port: u32,
    pub member: M,
}

impl<M> Seat<M> {
    /// `member` with nothing pending.
    pub fn new(member: M, link: u32, first_port: u32) -> Seat<M> {
        Seat { until: Time::ZERO, due: NEVER, alarm: NEVER, digest: 0, link, first_port, member }
    }

    /// `packet` is delivered at `now`.
    #[inline]
    pub fn delivered(&mut self, now: Time, packet: &Packet) {
        let what = u64::from(packet.route.0) << 32 | u64::from(packet.segment.sequence);
        let mixed = now.0 ^ what.wrapping_mul(ODD);
        self.digest = (self.digest.rotate_left(23) ^ mixed).wrapping_mul(ODD);
        self.until = now;
    }

    /// `digest` with the member's deliveries mixed in.
    pub fn mixed_into(&self, digest: u64) -> u64 {
        (digest.rotate_left(23) ^ self.digest.wrapping_mul(ODD)).wrapping_mul(ODD)
    }
}

impl<M: Node<Packet>> Seat<M> {
    /// Polls the member's deadline.
    #[inline]
    pub fn ask(&mut self) {
        self.due = self.member.poll_timeout().unwrap_or(NEVER);
    }
}
