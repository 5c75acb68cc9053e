//! `[rfc1812]` of ROUTER.toml: settings that RFC 1812 requires of a router as a whole.

use nilometer_router::forward::limit::{Allowance, Allowances, KINDS, Limits};
use nilometer_router::forward::options::SourceRouting;
use nilometer_router::pipeline::Rfc1812Settings;
use serde::{Deserialize, Serialize};

/// `[rfc1812]`: what RFC 1812 requires to be configurable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rfc1812Section {
    /// Time to live of the packets that it originates (4.2.2.9).
    pub hop_limit: u8,
    /// Whether it answers echo requests (4.3.3.6).
    pub answers_echo: bool,
    /// Whether ICMP is rate-limited (4.3.2.8). Per second: 1,000 errors of each type, 10 per destination (100 for
    /// "packet too big"); 10,000 echo replies, 1,000 per destination. Unlimited is for measurements.
    pub limits_icmp: bool,
    /// What is done with source routes: `refuse`, `ignore` or `follow` (5.3.13.4).
    pub source_routing: SourceRoutes,
    /// Whether the sender of a packet that a route prohibits gets an ICMP "destination unreachable" (5.2.7.1).
    pub tells_prohibited: bool,
    /// Whether the sender of a packet that a filter denies gets one (5.3.9).
    pub tells_denied: bool,
}

/// What is done with source routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceRoutes {
    /// The packet is discarded and answered as prohibited.
    #[default]
    Refuse,
    /// The option is passed over.
    Ignore,
    /// They are followed.
    Follow,
}

impl Default for Rfc1812Section {
    fn default() -> Rfc1812Section {
        let usual = Rfc1812Settings::default();
        Rfc1812Section {
            hop_limit: usual.hop_limit,
            answers_echo: usual.answers_echo,
            limits_icmp: true,
            source_routing: SourceRoutes::Refuse,
            tells_prohibited: usual.tells_prohibited,
            tells_denied: usual.tells_denied,
        }
    }
}

impl Rfc1812Section {
    /// As settings of the pipeline.
    pub fn settings(&self) -> Rfc1812Settings {
        let unlimited =
            Allowances { router: Allowance::UNLIMITED, destination: Allowance::UNLIMITED };
        Rfc1812Settings {
            hop_limit: self.hop_limit,
            answers_echo: self.answers_echo,
            limits: if self.limits_icmp { Limits::default() } else { Limits([unlimited; KINDS]) },
            source_routing: match self.source_routing {
                SourceRoutes::Refuse => SourceRouting::Refuse,
                SourceRoutes::Ignore => SourceRouting::Ignore,
                SourceRoutes::Follow => SourceRouting::Follow,
            },
            tells_prohibited: self.tells_prohibited,
            tells_denied: self.tells_denied,
            ..Rfc1812Settings::default()
        }
    }
}
