//! Duplicate address detection: whether another node has an address that we are about to take (RFC 4862, 5.4).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

use super::own::{ADDRESSES_MAX, OwnError};

/// What became of an address that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectionOutcome {
    /// The address.
    pub address: u128,
    /// Whether it is ours now; else another has it or is trying it, too.
    pub is_ours: bool,
}

/// An address on trial.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    address: u128,
    length: u32,
    probes_left: u8,
    due: Time,
}

/// The next step for a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask for it once more.
    Probe(u128),
    /// No node has objected: it is ours, with a prefix of this length.
    Take(u128, u32),
}

/// The addresses on trial.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    verdicts: VecDeque<DetectionOutcome>,
}

impl Candidates {
    /// Starts duplicate detection for an address, unless it is under way.
    pub(super) fn add(
        &mut self,
        now: Time,
        address: u128,
        length: u32,
        probes: u8,
    ) -> Result<(), OwnError> {
        if self.has(address) {
            return Ok(());
        }
        if self.list.len() == ADDRESSES_MAX {
            return Err(OwnError::Full);
        }
        self.list.push(Candidate { address, length, probes_left: probes, due: now });
        Ok(())
    }

    pub(super) fn has(&self, address: u128) -> bool {
        self.list.iter().any(|candidate| candidate.address == address)
    }

    /// Ends a trial; whether there was one.
    pub(super) fn remove(&mut self, address: u128) -> bool {
        let before = self.list.len();
        self.list.retain(|candidate| candidate.address != address);
        self.list.len() < before
    }

    /// Another node has the address, or tries it.
    pub(super) fn object(&mut self, address: u128) {
        if self.remove(address) {
            self.say(address, false);
        }
    }

    /// Notes a verdict for the caller; of 64 unread verdicts, the oldest is dropped.
    pub(super) fn say(&mut self, address: u128, is_ours: bool) {
        if self.verdicts.len() == ADDRESSES_MAX {
            self.verdicts.pop_front();
        }
        self.verdicts.push_back(DetectionOutcome { address, is_ours });
    }

    pub(super) fn poll_verdict(&mut self) -> Option<DetectionOutcome> {
        self.verdicts.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.list.iter().map(|candidate| candidate.due).min()
    }

    /// What is to be done now, one step at a time.
    pub(super) fn step(&mut self, now: Time, retransmit: Span) -> Option<Step> {
        let at = self.list.iter().position(|candidate| candidate.due <= now)?;
        let candidate = &mut self.list[at];
        if candidate.probes_left == 0 {
            let Candidate { address, length, .. } = self.list.remove(at);
            return Some(Step::Take(address, length));
        }
        candidate.probes_left -= 1;
        candidate.due = now + retransmit;
        Some(Step::Probe(candidate.address))
    }
}
