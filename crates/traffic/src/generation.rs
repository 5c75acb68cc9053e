//! How a model is played: over which time, from which pools, and driven by connections or sessions.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model_error::{ModelError, positive};
use crate::pool::{Pool, Prefix};

/// How a model is played.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// Gaps and intervals of the original are divided by this; connections and bytes are kept.
    pub time_divisor: f64,
    /// Inter-connection times beyond this were left out, seconds of the original.
    pub inter_connection_bound_s: f64,
    /// Share of sessions that use IPv6 if both families have pools, 0 to 1.
    pub ipv6_share: f64,
    /// Client prefixes.
    pub clients: Vec<Prefix>,
    /// Server prefixes.
    pub servers: Vec<Prefix>,
    /// The target of each interval.
    #[serde(default, skip_serializing_if = "LoadDriver::is_connections")]
    pub driver: LoadDriver,
    /// Whether path delays of host pairs are those of the original. Pauses of the ends are then played without the
    /// network's share.
    #[serde(default, skip_serializing_if = "is_false")]
    pub round_trips: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// The target of each interval in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Driver"))]
#[serde(rename_all = "snake_case")]
pub enum LoadDriver {
    /// Its connections and bytes; the number of active sessions follows from them.
    #[default]
    Connections,
    /// Its active sessions; connections and bytes follow from them (Harpoon, sections 3 and 4.1).
    Sessions,
}

impl LoadDriver {
    fn is_connections(&self) -> bool {
        *self == LoadDriver::Connections
    }
}

impl Generation {
    /// Checks what was read for everything that the planner relies on.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        positive("generation.time_divisor", self.time_divisor)?;
        positive("1 / generation.time_divisor", 1.0 / self.time_divisor)?;
        if !(0.0..=1.0).contains(&self.ipv6_share) {
            return Err(ModelError::NotAShare("generation.ipv6_share", self.ipv6_share));
        }
        Pool::new(&self.clients)?;
        Pool::new(&self.servers)?;
        Ok(())
    }
}
