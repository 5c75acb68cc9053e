//! What a port is to do for groups, and why it cannot.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::multicast::{Settings, SettingsError, StaticError};

/// What a port does for groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MulticastPlan {
    /// Timers and limits of IGMP.
    pub igmp: Settings,
    /// Timers and limits of MLD.
    pub mld: Settings,
    /// Packets leave only if they came with a greater time to live or hop limit than this.
    pub ttl_threshold: u8,
    /// Groups forwarded by the port whatever its hosts report.
    pub groups: Vec<StaticGroup>,
}

/// A group that is forwarded without membership reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticGroup {
    /// The group.
    pub group: IpAddr,
    /// From this source alone; without one, from all.
    pub source: Option<IpAddr>,
}

/// Why a port cannot do this for groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MulticastError {
    /// A timer or a limit.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// This group cannot be static.
    #[error("{group}: {why}", group = .0.group, why = .1)]
    Static(StaticGroup, StaticError),
    /// Multicast is off on the port.
    #[error("multicast is off on the port")]
    Off,
}
