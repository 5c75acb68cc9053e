//! How several queues share a buffer: a reserve for each, and dynamic thresholds for the rest.
//!
//! Of a buffer of `C` packets each of `n` queues has a reserve of `R`; the `S = C - nR` that are left
//! are shared. A queue that holds `q` packets uses `max(q - R, 0)` of the shared part. A packet comes in
//! if its queue holds less than `R`, or if what the queue uses of the shared part is less than `a` times
//! what is free of it (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998), with `a` a power of
//! two.
//!
//! # What the reserve promises
//!
//! A queue that would never hold more than `R` packets if it had the buffer to itself loses none,
//! whatever comes for the others. For the buffer is never too small: a packet beyond the reserve comes in
//! only if some of the shared part is free, so that no more than `S` of it is ever used, and all queues
//! together hold at most `nR + S = C`. Hence a packet whose queue holds less than `R` always finds room,
//! and whether it is taken depends on its own queue and on nothing else. By induction over its packets,
//! the queue then holds at each moment what it would hold alone.
//!
//! What a queue holds depends on how fast it is emptied as well; for virtual output queues that is
//! answered in [`crate::voq`].
//!
//! # Why dynamic thresholds for the rest
//!
//! With *complete sharing* the first queue that is overloaded takes all, and those which become busy after
//! it get nothing until it drains: one slow output stops its neighbours, which virtual output queues exist
//! to prevent. With a *static partition* a queue that is busy alone has `C/n` of a buffer that stands
//! empty. A dynamic threshold is between them, without a list or a timer: with `k` queues that want more
//! than they get, each stops at `T = a(S - kT)`, that is `T = aS/(1 + ka)`, and `S/(1 + ka)` stay free. So
//! queues that are alike get alike; a queue alone gets `a/(1 + a)` of the shared part, two thirds for
//! `a = 2`; and what stays free is what the next one to become busy finds on arrival, before those in
//! front of it have drained to the new threshold. A large `a` wastes less and keeps less for newcomers.
//! With a reserve underneath, newcomers have the promise already, so that `a` only says how fair the
//! shared part is to several that are overloaded.
//!
//! *Push-out* (the longest queue loses a packet to each arrival) leaves nothing free and needs no `a`, but
//! takes back what it has accepted, has to know the longest queue, and touches two queues for a packet just
//! when there is no time. *ABM* (Addanki and others, 2022) makes thresholds proportional to how fast a
//! queue drains, to bound the time in which a burst finds room again; here the reserve bounds it, and the
//! rates of distributed queueing are already in proportion to what waits. A reserve and a threshold cost
//! one comparison for a packet within the reserve and two beyond it.

use alloc::vec;
use alloc::vec::Vec;

use crate::discipline::Reason;

/// The most packets of a buffer.
const PACKETS_MAX: u64 = u32::MAX as u64;

/// `a` of the dynamic thresholds: a power of two from 1/128 to 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alpha(i8);

impl Alpha {
    /// The usual one: a queue that is busy alone may use two thirds of the shared part.
    pub const TWO: Alpha = Alpha(1);
    /// The largest exponent, and minus the smallest.
    const EXPONENT_MAX: i8 = 7;

    /// `2^exponent`, from -7 to 7.
    pub const fn of_exponent(exponent: i8) -> Option<Alpha> {
        if exponent.unsigned_abs() > Alpha::EXPONENT_MAX as u8 {
            return None;
        }
        Some(Alpha(exponent))
    }

    /// The one that is `value`, if that is a power of two from 1/128 to 128.
    pub fn new(value: f64) -> Option<Alpha> {
        let all = (-Alpha::EXPONENT_MAX..=Alpha::EXPONENT_MAX).map(Alpha);
        all.into_iter().find(|alpha| alpha.value() == value)
    }

    /// Its value.
    pub fn value(self) -> f64 {
        let power = f64::from(1u32 << self.0.unsigned_abs());
        if self.0 < 0 { 1.0 / power } else { power }
    }

    /// Whether `used` is less than `a` times `free`; both are below 2³².
    #[inline]
    fn allows(self, used: u64, free: u64) -> bool {
        match self.0 {
            up @ 0.. => used < free << up,
            down => used << -down < free,
        }
    }
}

/// How a buffer is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Packets that each queue has for itself; without a number, half of the buffer is divided.
    pub reserve_packets: Option<u64>,
    /// How much of what is free of the rest a queue may use.
    pub alpha: Alpha,
}

impl Sharing {
    /// The reserve of each of `queues` in a buffer of `packets`.
    pub fn reserve(&self, queues: usize, packets: u64) -> u64 {
        self.reserve_packets.unwrap_or_else(|| packets / 2 / (queues as u64).max(1))
    }
}

impl Default for Sharing {
    /// Half of the buffer is divided into reserves, and `a` is 2.
    fn default() -> Sharing {
        Sharing { reserve_packets: None, alpha: Alpha::TWO }
    }
}

/// The reserves are more than the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{queues} queues that reserve {reserve_packets} packets each need {}, and the buffer holds \
     {packets}: reserve at most {}, or let it hold more",
    self.needed(),
    self.most()
)]
pub struct ReserveError {
    /// How many queues there are.
    pub queues: usize,
    /// What each is to have for itself, packets.
    pub reserve_packets: u64,
    /// What the buffer holds, packets.
    pub packets: u64,
}

impl ReserveError {
    /// What the buffer would have to hold, packets.
    pub fn needed(&self) -> u64 {
        self.reserve_packets.saturating_mul(self.queues as u64)
    }

    /// The largest reserve that the buffer holds, packets.
    pub fn most(&self) -> u64 {
        self.packets / (self.queues as u64).max(1)
    }
}

/// The account of a shared buffer. The packets themselves are kept elsewhere.
#[derive(Clone, Debug)]
pub struct Shares {
    used: Vec<u32>,
    reserve: u32,
    total: u64,
    packets: u64,
    /// Of the shared part: how much there is of it, and how much is used.
    shared: u64,
    shared_used: u64,
    alpha: Alpha,
}

impl Shares {
    /// An empty buffer of `packets` (at most 2³² - 1, more count as that) for `queues`.
    ///
    /// # Errors
    /// When the reserves of all queues together are more than `packets`.
    pub fn new(queues: usize, packets: u64, sharing: Sharing) -> Result<Shares, ReserveError> {
        let packets = packets.min(PACKETS_MAX);
        let reserve_packets = sharing.reserve(queues, packets);
        let refused = ReserveError { queues, reserve_packets, packets };
        let shared = packets.checked_sub(refused.needed()).ok_or(refused)?;
        let reserve = u32::try_from(reserve_packets).map_err(|_| refused)?;
        let (used, alpha) = (vec![0; queues], sharing.alpha);
        Ok(Shares { used, reserve, total: 0, packets, shared, shared_used: 0, alpha })
    }

    /// Takes in a packet of `queue`, or says why not: [`Reason::Full`] where the whole buffer is,
    /// [`Reason::Share`] where this queue may not have more of it. Panics where there is no such queue,
    /// as a slice does.
    #[inline]
    pub fn admit(&mut self, queue: usize) -> Result<(), Reason> {
        let used = &mut self.used[queue];
        if *used >= self.reserve {
            let free = self.shared.saturating_sub(self.shared_used);
            if free == 0 || !self.alpha.allows(u64::from(*used - self.reserve), free) {
                return Err(self.refusal());
            }
            self.shared_used += 1;
        }
        *used += 1;
        self.total += 1;
        Ok(())
    }

    #[cold]
    fn refusal(&self) -> Reason {
        if self.total >= self.packets { Reason::Full } else { Reason::Share }
    }

    /// Takes in `packets` of `queue` whether there is room or not: they are in the buffer already. Panics
    /// where there is no such queue.
    pub fn impose(&mut self, queue: usize, packets: u32) {
        let before = self.beyond(queue);
        self.used[queue] += packets;
        self.total += u64::from(packets);
        self.shared_used += self.beyond(queue) - before;
    }

    /// `packets` of `queue` have left. Panics where there is no such queue, or where it holds fewer and
    /// overflows are checked.
    #[inline]
    pub fn leave(&mut self, queue: usize, packets: u32) {
        let before = self.beyond(queue);
        self.used[queue] -= packets;
        self.total -= u64::from(packets);
        self.shared_used -= before - self.beyond(queue);
    }

    /// What `queue` uses of the shared part.
    #[inline]
    fn beyond(&self, queue: usize) -> u64 {
        u64::from(self.used[queue].saturating_sub(self.reserve))
    }

    /// Packets that `queue` holds. Panics where there is no such queue.
    #[inline]
    pub fn used(&self, queue: usize) -> u32 {
        self.used[queue]
    }

    /// Packets that all queues hold.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Packets that each queue has for itself.
    pub fn reserve(&self) -> u32 {
        self.reserve
    }

    /// Packets of the shared part that no queue uses.
    pub fn shared_free(&self) -> u64 {
        self.shared.saturating_sub(self.shared_used)
    }
}
