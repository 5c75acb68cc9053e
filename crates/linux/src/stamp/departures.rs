//! The record ring of departures, read: stamps in the order of sequence numbers.
//!
//! A record's place is its sequence number modulo the ring, so the program claims nothing and never waits. A reader
//! that is a whole ring behind finds a later number in the place of the one it expects, and counts that one as lost.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};

use super::layout::{RECORD_BYTES, RECORD_STAMP, SLOTS};
use super::program::load_departures;
use crate::bpf::{SharedMap, attach};
use crate::interface::Interface;

/// `BPF_TCX_EGRESS`, the place that the link attaches to.
const ATTACH_TCX_EGRESS: u32 = 47;

/// The ring, and the program at tc egress that fills it unless another does.
pub struct DepartureRing {
    // Dropped in this order: the program first.
    _link: Option<OwnedFd>,
    shared: SharedMap,
    slots: usize,
    next: u64,
    lost: u64,
}

impl DepartureRing {
    pub(super) fn open(interface: &str, run: u32, slots: usize) -> Result<DepartureRing> {
        let step = || format!("cannot stamp what leaves by {interface}");
        let index = Interface::open(interface, true).with_context(step)?.index();
        let ring = DepartureRing::unattached(slots).with_context(step)?;
        let program = load_departures(&ring.shared, run, slots).with_context(step)?;
        let link = attach(&program, index, ATTACH_TCX_EGRESS, 0)
            .context("the traffic control hook takes no program (Linux 6.6)")
            .with_context(step)?;
        Ok(DepartureRing { _link: Some(link), ..ring })
    }

    /// A ring that another program fills.
    pub(super) fn unattached(slots: usize) -> Result<DepartureRing> {
        ensure!(
            slots.is_power_of_two() && (64..=1 << 22).contains(&slots),
            "a ring of {slots} stamps: choose a power of two from 64 to 4194304"
        );
        let shared = SharedMap::new(SLOTS + slots * RECORD_BYTES)?;
        Ok(DepartureRing { _link: None, shared, slots, next: 0, lost: 0 })
    }

    /// The ring's memory, for the program that fills it.
    pub(super) fn shared(&self) -> &SharedMap {
        &self.shared
    }

    pub(super) fn drain(&mut self, mut each: impl FnMut(u64, u64)) -> usize {
        let mut count = 0;
        while count < self.slots {
            let record = SLOTS + (self.next as usize & (self.slots - 1)) * RECORD_BYTES;
            let number = self.shared.word(record).load(Ordering::Acquire);
            if number <= self.next {
                break;
            }
            let stamp_ns = self.shared.word(record + RECORD_STAMP).load(Ordering::Acquire);
            if number == self.next + 1 && stamp_ns == 0 {
                break;
            }
            // (A whole ring later the program takes the stamp away before it writes another number.)
            if number != self.next + 1 || self.shared.word(record).load(Ordering::Acquire) != number
            {
                self.lost += 1;
            } else {
                each(self.next, stamp_ns);
            }
            self.next += 1;
            count += 1;
        }
        count
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}
