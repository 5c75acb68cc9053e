//! `[port.multicast]` of ROUTER.toml: groups that a port's hosts may join, and static groups.

use std::net::IpAddr;

use nilometer_router::multicast::{Settings, Version};
use nilometer_router::pipeline::groups::{MulticastPlan, StaticGroup};
use nilometer_sim::quantity::{de_span, ser_span};
use nilometer_wire::Span;
use serde::{Deserialize, Serialize};

/// `[port.multicast]`: the port serves groups. Hosts are queried by IGMP where the port has an IPv4
/// address, by MLD where it has IPv6.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MulticastSection {
    /// The newest version in use: `newest` (IGMPv3, MLDv2), `older` (IGMPv2, MLDv1), `oldest`
    /// (IGMPv1).
    pub version: VersionName,
    /// How many packets may be lost, less one, from 1 to 7.
    pub robustness: u8,
    /// From a general query to the next.
    #[serde(deserialize_with = "de_span", serialize_with = "ser_span")]
    pub query_interval: Span,
    /// Within which hosts answer.
    #[serde(deserialize_with = "de_span", serialize_with = "ser_span")]
    pub response_interval: Span,
    /// Within which hosts answer when a host has left.
    #[serde(deserialize_with = "de_span", serialize_with = "ser_span")]
    pub last_member_interval: Span,
    /// Most groups on the port.
    pub groups_max: usize,
    /// Packets leave only if they came with a greater time to live or hop limit than this.
    pub ttl_threshold: u8,
    /// Groups forwarded by the port whatever its hosts report.
    pub groups: Vec<GroupSection>,
}

/// A group that is forwarded without being requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSection {
    /// The group.
    pub group: IpAddr,
    /// From this source alone; without one, from all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
}

/// A version of the protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionName {
    /// IGMPv3, MLDv2.
    #[default]
    Newest,
    /// IGMPv2, MLDv1.
    Older,
    /// IGMPv1; MLDv1.
    Oldest,
}

impl Default for MulticastSection {
    /// RFC 3376, 8 and RFC 3810, 9.
    fn default() -> MulticastSection {
        let usual = Settings::default();
        MulticastSection {
            version: VersionName::Newest,
            robustness: usual.robustness,
            query_interval: usual.query_interval,
            response_interval: usual.response_interval,
            last_member_interval: usual.last_member_interval,
            groups_max: usual.groups_max,
            ttl_threshold: 0,
            groups: Vec::new(),
        }
    }
}

impl MulticastSection {
    /// As the pipeline takes it.
    pub fn plan(&self) -> MulticastPlan {
        let settings = Settings {
            version: match self.version {
                VersionName::Newest => Version::Newest,
                VersionName::Older => Version::Older,
                VersionName::Oldest => Version::Oldest,
            },
            robustness: self.robustness,
            query_interval: self.query_interval,
            response_interval: self.response_interval,
            last_member_interval: self.last_member_interval,
            groups_max: self.groups_max,
            ..Settings::default()
        };
        let fixed = |it: &GroupSection| StaticGroup { group: it.group, source: it.source };
        MulticastPlan {
            igmp: settings,
            mld: settings,
            ttl_threshold: self.ttl_threshold,
            groups: self.groups.iter().map(fixed).collect(),
        }
    }
}
