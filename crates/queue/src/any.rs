//! One type over all disciplines, made from settings and dispatched without a table.

use alloc::boxed::Box;

use nilometer_stat::Rng;
use nilometer_wire::Time;

use crate::blue::Blue;
use crate::codel::CoDel;
use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::drr::Drr;
use crate::fq_codel::FqCoDel;
use crate::pie::Pie;
use crate::qsdrr::Qsdrr;
use crate::red::Red;
use crate::round_robin::{LARGEST_MTU_BYTES, Layout, QueueState, WeightError};
use crate::settings::{DisciplineKind, Settings, SettingsError};
use crate::tail_drop::{TailDrop, VirtualTailDrop};
use crate::tdrr::Tdrr;

/// The purposes of what is drawn from a run's seed.
const RED_PURPOSE: u32 = u32::from_be_bytes(*b"qred");
const BLUE_PURPOSE: u32 = u32::from_be_bytes(*b"qblu");
const PIE_PURPOSE: u32 = u32::from_be_bytes(*b"qpie");
const HASH_PURPOSE: u32 = u32::from_be_bytes(*b"qhsh");

/// A discipline of any kind: three words, since the disciplines themselves are boxed.
#[derive(Clone, Debug)]
pub struct Any<P> {
    variant: Variant<P>,
    mtu_bytes: u32,
}

#[derive(Clone, Debug)]
enum Variant<P> {
    TailDrop(Box<TailDrop<P>>),
    Red(Box<Red<P>>),
    Blue(Box<Blue<P>>),
    Drr(Box<Drr<P>>),
    Tdrr(Box<Tdrr<P>>),
    Qsdrr(Box<Qsdrr<P>>),
    CoDel(Box<CoDel<P>>),
    FqCoDel(Box<FqCoDel<P>>),
    Pie(Box<Pie<P>>),
}

/// The same expression for whichever discipline it is.
macro_rules! each {
    ($variant:expr, $discipline:ident => $act:expr) => {
        match $variant {
            Variant::TailDrop($discipline) => $act,
            Variant::Red($discipline) => $act,
            Variant::Blue($discipline) => $act,
            Variant::Drr($discipline) => $act,
            Variant::Tdrr($discipline) => $act,
            Variant::Qsdrr($discipline) => $act,
            Variant::CoDel($discipline) => $act,
            Variant::FqCoDel($discipline) => $act,
            Variant::Pie($discipline) => $act,
        }
    };
}

impl<P: Packet> Any<P> {
    /// The discipline that `settings` describe, empty.
    ///
    /// # Errors
    /// When a setting that concerns its kind is out of its range.
    pub fn new(settings: &Settings) -> Result<Any<P>, SettingsError> {
        let &Settings { kind, capacity, queues, hashing, mtu_bytes, rate, seed, index, .. } =
            settings;
        if capacity.limit() == 0 {
            return Err(SettingsError::NoCapacity);
        }
        if !(1..=LARGEST_MTU_BYTES).contains(&mtu_bytes) {
            return Err(SettingsError::Mtu(mtu_bytes));
        }
        let rng = |purpose| Rng::new(seed, purpose, index);
        let hash_seed = rng(HASH_PURPOSE).next_u64();
        let layout = Layout { capacity, queues, hashing, hash_seed, mtu_bytes };
        let variant = match kind {
            DisciplineKind::TailDrop => Variant::TailDrop(Box::new(TailDrop::new(capacity))),
            DisciplineKind::Red => {
                Variant::Red(Box::new(Red::new(capacity, settings.red, rate, rng(RED_PURPOSE))?))
            }
            DisciplineKind::Blue => Variant::Blue(Box::new(Blue::new(
                capacity,
                settings.blue,
                rate,
                rng(BLUE_PURPOSE),
            )?)),
            DisciplineKind::Drr => {
                Variant::Drr(Box::new(Drr::new(&layout, settings.drr_drop_from)?))
            }
            DisciplineKind::Tdrr => Variant::Tdrr(Box::new(Tdrr::new(&layout, settings.tdrr)?)),
            DisciplineKind::Qsdrr => Variant::Qsdrr(Box::new(Qsdrr::new(&layout, settings.qsdrr)?)),
            DisciplineKind::CoDel => {
                Variant::CoDel(Box::new(CoDel::new(capacity, mtu_bytes, settings.codel)?))
            }
            DisciplineKind::FqCoDel => Variant::FqCoDel(Box::new(FqCoDel::new(
                capacity,
                mtu_bytes,
                settings.fq_codel,
                hash_seed,
            )?)),
            DisciplineKind::Pie => Variant::Pie(Box::new(Pie::new(
                capacity,
                mtu_bytes,
                settings.pie,
                rng(PIE_PURPOSE),
            )?)),
        };
        Ok(Any { variant, mtu_bytes })
    }

    /// Which discipline it is.
    pub fn kind(&self) -> DisciplineKind {
        match &self.variant {
            Variant::TailDrop(_) => DisciplineKind::TailDrop,
            Variant::Red(_) => DisciplineKind::Red,
            Variant::Blue(_) => DisciplineKind::Blue,
            Variant::Drr(_) => DisciplineKind::Drr,
            Variant::Tdrr(_) => DisciplineKind::Tdrr,
            Variant::Qsdrr(_) => DisciplineKind::Qsdrr,
            Variant::CoDel(_) => DisciplineKind::CoDel,
            Variant::FqCoDel(_) => DisciplineKind::FqCoDel,
            Variant::Pie(_) => DisciplineKind::Pie,
        }
    }

    /// For tail drop: a twin that decides as this discipline does when empty, on arrival and without
    /// keeping the packets.
    pub fn virtual_tail_drop(&self) -> Option<VirtualTailDrop> {
        match &self.variant {
            Variant::TailDrop(drop) => Some(VirtualTailDrop::new(drop.capacity(), self.mtu_bytes)),
            _ => None,
        }
    }

    /// Gives `queue` of DRR, TDRR or QSDRR a share of the link proportional to `weight`, from its
    /// next turn on.
    ///
    /// # Errors
    /// When the weight is out of range, there is no such queue, or the discipline has no weights.
    pub fn set_weight(&mut self, queue: u32, weight: u32) -> Result<(), WeightError> {
        match &mut self.variant {
            Variant::Drr(drr) => drr.set_weight(queue, weight),
            Variant::Tdrr(tdrr) => tdrr.set_weight(queue, weight),
            Variant::Qsdrr(qsdrr) => qsdrr.set_weight(queue, weight),
            _ => Err(WeightError::NoSuchQueue),
        }
    }

    /// The fraction of the link that a flow gets as long as the queues that are backlogged now stay so; `None` if
    /// the discipline does not share the link by flows.
    pub fn share(&self, flow: u32) -> Option<(u64, u64)> {
        match &self.variant {
            Variant::Drr(drr) => Some(drr.share(flow)),
            Variant::Tdrr(tdrr) => Some(tdrr.share(flow)),
            Variant::Qsdrr(qsdrr) => Some(qsdrr.share(flow)),
            _ => None,
        }
    }

    /// What `queue` is doing, if the discipline has queues and one of that number.
    pub fn queue_state(&self, queue: u32) -> Option<QueueState> {
        match &self.variant {
            Variant::Drr(drr) => drr.queue_state(queue),
            Variant::Tdrr(tdrr) => tdrr.queue_state(queue),
            Variant::Qsdrr(qsdrr) => qsdrr.queue_state(queue),
            Variant::FqCoDel(fq_codel) => fq_codel.queue_state(queue),
            _ => None,
        }
    }
}

impl<P: Packet> Discipline<P> for Any<P> {
    #[inline]
    fn expect(&self, packets: &[P]) {
        each!(&self.variant, discipline => discipline.expect(packets))
    }

    #[inline]
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) {
        if packet.bytes() > self.mtu_bytes {
            return drops.dropped(Reason::TooBig, packet);
        }
        each!(&mut self.variant, discipline => discipline.enqueue(now, packet, drops))
    }

    #[inline]
    fn enqueue_all(&mut self, now: Time, packets: &[P], drops: &mut impl Drops<P>)
    where
        P: Copy,
    {
        let mtu_bytes = self.mtu_bytes;
        if packets.iter().any(|packet| packet.bytes() > mtu_bytes) {
            return packets.iter().for_each(|packet| self.enqueue(now, *packet, drops));
        }
        each!(&mut self.variant, discipline => discipline.enqueue_all(now, packets, drops))
    }

    #[inline]
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        each!(&mut self.variant, discipline => discipline.dequeue(now, drops))
    }

    #[inline]
    fn dequeue_while(
        &mut self,
        now: Time,
        drops: &mut impl Drops<P>,
        give: impl FnMut(P) -> bool,
    ) -> bool {
        each!(&mut self.variant, discipline => discipline.dequeue_while(now, drops, give))
    }

    fn backlog(&self) -> Backlog {
        each!(&self.variant, discipline => discipline.backlog())
    }
}
