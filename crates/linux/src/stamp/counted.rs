//! Arrivals that are only counted: the floor beside which it is seen what stamps cost.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result};

use super::Watched;
use super::layout::{HEAD, SLOTS};
use super::program::load_counting;
use crate::bpf::SharedMap;
use crate::interface::Interface;
use crate::xdp::{Attachment, Link, Program};

/// The counter and the program that counts.
pub struct CountedArrivals {
    // Dropped in this order: the program first.
    _link: Link,
    shared: SharedMap,
    read: u64,
}

impl CountedArrivals {
    pub(super) fn open(interface: &str, watched: Watched) -> Result<CountedArrivals> {
        let step = || format!("cannot count what comes in by {interface}");
        let index = Interface::open(interface, true).with_context(step)?.index();
        let shared = SharedMap::new(SLOTS).with_context(step)?;
        let program = Program::of(load_counting(&shared, watched).with_context(step)?);
        let link = program.attach(index, Attachment::Native);
        let link = link.or_else(|_| program.attach(index, Attachment::Generic));
        Ok(CountedArrivals { _link: link.with_context(step)?, shared, read: 0 })
    }

    /// Frames that have arrived since the last call.
    pub(super) fn drain(&mut self) -> usize {
        let came = self.shared.word(HEAD).load(Ordering::Acquire);
        let new = came - self.read;
        self.read = came;
        new as usize
    }
}
