//! What all instances of a class share: the module, what it may import, and its limits.

use super::Limits;
use super::engine::{Linker, Module};
use super::imports::Host;

/// What all instances of a class share.
pub(super) struct Shared {
    pub(super) module: Module,
    pub(super) linker: Linker<Host>,
    pub(super) limits: Limits,
    /// Whether its instructions are counted.
    pub(super) has_budget: bool,
    pub(super) counters: Vec<String>,
    pub(super) seen_bytes: u16,
}
