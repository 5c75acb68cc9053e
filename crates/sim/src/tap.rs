//! What sees packets pass.

use nilometer_queue::{Drops, Reason};
use nilometer_wire::Time;

use crate::packet::Packet;

/// Observes packets, for traces and tests. Events may be reported ahead of the clock, but those of
/// each link in order.
pub trait Tap {
    /// `packet` was given to `link`'s transmitter and reaches the far end at `arrival`.
    fn transmitted(&mut self, link: usize, arrival: Time, packet: &Packet);
    /// `packet` was dropped at `link`.
    fn dropped(&mut self, link: usize, now: Time, reason: Reason, packet: &Packet);
    /// `packet` was delivered to `member`.
    fn delivered(&mut self, member: usize, now: Time, packet: &Packet);
}

/// Sees nothing and costs nothing.
impl Tap for () {
    #[inline(always)]
    fn transmitted(&mut self, _link: usize, _arrival: Time, _packet: &Packet) {}
    #[inline(always)]
    fn dropped(&mut self, _link: usize, _now: Time, _reason: Reason, _packet: &Packet) {}
    #[inline(always)]
    fn delivered(&mut self, _member: usize, _now: Time, _packet: &Packet) {}
}

/// Drops of one link, on their way to the tap.
pub(crate) struct Dropping<'a, T> {
    pub tap: &'a mut T,
    pub link: usize,
    pub now: Time,
}

impl<T: Tap> Drops<Packet> for Dropping<'_, T> {
    #[inline]
    fn dropped(&mut self, reason: Reason, packet: Packet) {
        self.tap.dropped(self.link, self.now, reason, &packet);
    }
}
