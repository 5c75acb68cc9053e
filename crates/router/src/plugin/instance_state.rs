//! A plugin instance as the operator sees it.

use alloc::string::String;
use alloc::vec::Vec;

use nilometer_wire::Time;

use super::{ClassFacts, Fault, OnFault};

/// What an instance has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceCounters {
    /// Packets that it processed.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Of those, packets that it dropped.
    pub dropped: u64,
    /// Packets that it emitted.
    pub emitted: u64,
    /// Packets that it wanted to emit and could not: too many, too long, or not of IP.
    pub not_emitted: u64,
    /// Packets that were dropped because it was cut off.
    pub fault_dropped: u64,
    /// Packets that passed it by because it was cut off.
    pub bypassed: u64,
    /// Calls that failed.
    pub faults: u64,
}

/// An instance as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceState {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: ClassFacts,
    /// What becomes of its flows when it is cut off.
    pub on_fault: OnFault,
    /// When and why it was cut off, if it was.
    pub fault: Option<(Time, Fault)>,
    /// What it has done.
    pub counters: InstanceCounters,
    /// Its own counters.
    pub own_counters: Vec<(String, u64)>,
    /// Bytes of memory that it has.
    pub memory_bytes: usize,
    /// Chains that it stands in.
    pub chains: usize,
}
