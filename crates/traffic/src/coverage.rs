//! The part of the input that a model covers, and the part that it leaves out, in flows and bytes.

use serde::{Deserialize, Serialize};

/// How much of the input the model covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    /// Flows of the input.
    pub flows: u64,
    /// IP bytes of the input's flows.
    pub octets: u64,
    /// Flows that enter the model.
    pub flows_in_model: u64,
    /// IP bytes of the flows that enter the model.
    pub octets_in_model: u64,
    /// Payload bytes of the flows that enter the model.
    pub payload_in_model: u64,
    /// Records joined to the record from which they were split (flow surgery).
    pub records_joined: u64,
    /// TCP records without any flag.
    #[serde(default)]
    pub records_without_flags: u64,
    /// Flow starts inferred, because no flags were recorded.
    #[serde(default)]
    pub starts_inferred: u64,
    /// Flow ends inferred.
    #[serde(default)]
    pub ends_inferred: u64,
    /// Gaps between connections left out because they exceed the bound.
    pub gaps_beyond_bound: u64,
    /// One-way flows of the whole connections in the model, whether or not they enter as files.
    #[serde(default)]
    pub flows_in_connections: u64,
    /// IP bytes of those flows.
    #[serde(default)]
    pub octets_in_connections: u64,
    /// Flows left out, by reason.
    pub left_out: LeftOut,
}

impl Coverage {
    /// Adds the coverage of another part of the input.
    pub(crate) fn add(&mut self, other: &Coverage) {
        self.flows += other.flows;
        self.octets += other.octets;
        self.flows_in_model += other.flows_in_model;
        self.octets_in_model += other.octets_in_model;
        self.payload_in_model += other.payload_in_model;
        self.records_joined += other.records_joined;
        self.records_without_flags += other.records_without_flags;
        self.starts_inferred += other.starts_inferred;
        self.ends_inferred += other.ends_inferred;
        self.gaps_beyond_bound += other.gaps_beyond_bound;
        self.flows_in_connections += other.flows_in_connections;
        self.octets_in_connections += other.octets_in_connections;
        self.left_out.not_tcp.add(other.left_out.not_tcp);
        self.left_out.no_start_marker.add(other.left_out.no_start_marker);
        self.left_out.no_end_marker.add(other.left_out.no_end_marker);
        self.left_out.ack_flow.add(other.left_out.ack_flow);
        self.left_out.under_100_bytes.add(other.left_out.under_100_bytes);
        self.left_out.smaller_direction.add(other.left_out.smaller_direction);
    }
}

/// Flows left out of the model, by the first reason that applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Not TCP.
    pub not_tcp: Share,
    /// No SYN was seen: the start is missing.
    pub no_start_marker: Share,
    /// Neither FIN nor RST was seen: the end is missing.
    pub no_end_marker: Share,
    /// Acknowledgements only.
    pub ack_flow: Share,
    /// Fewer than 100 payload bytes.
    pub under_100_bytes: Share,
    /// The other direction of the connection was larger: a connection carries one file.
    #[serde(default)]
    pub smaller_direction: Share,
}

/// Flows and their IP bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Flows.
    pub flows: u64,
    /// IP bytes.
    pub octets: u64,
}

impl Share {
    /// Adds the flows of another part.
    pub(crate) fn add(&mut self, other: Share) {
        self.flows += other.flows;
        self.octets += other.octets;
    }

    /// Counts one flow.
    pub(crate) fn count(&mut self, octets: u64) {
        self.flows += 1;
        self.octets += octets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(of: impl Fn(u64) -> u64) -> Coverage {
        let share = |at: u64| Share { flows: of(at), octets: of(at + 1) };
        Coverage {
            flows: of(1),
            octets: of(2),
            flows_in_model: of(3),
            octets_in_model: of(4),
            payload_in_model: of(5),
            records_joined: of(6),
            records_without_flags: of(7),
            starts_inferred: of(8),
            ends_inferred: of(9),
            gaps_beyond_bound: of(10),
            flows_in_connections: of(11),
            octets_in_connections: of(12),
            left_out: LeftOut {
                not_tcp: share(13),
                no_start_marker: share(15),
                no_end_marker: share(17),
                ack_flow: share(19),
                under_100_bytes: share(21),
                smaller_direction: share(23),
            },
        }
    }

    #[test]
    fn coverage_is_added_part_by_part() {
        let mut sum = coverage(|at| 1_000 * at);
        sum.add(&coverage(|at| 3 + at));
        assert_eq!(sum, coverage(|at| 1_001 * at + 3));
        sum.add(&Coverage::default());
        assert_eq!(sum, coverage(|at| 1_001 * at + 3));
        let mut share = Share { flows: 4, octets: 100 };
        share.count(50);
        assert_eq!(share, Share { flows: 5, octets: 150 });
    }
}
