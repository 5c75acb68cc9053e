//! `simulated` in `result.json`: what simulated hosts did, under names fixed for scripts.

use nilometer_linux::port::PortStatistics;
use nilometer_sim::host::{HostCounts, LATE};
use nilometer_stat::Histogram;
use serde::{Deserialize, Serialize};

use super::simulated_hosts::HostsSeen;
use crate::device::recording::Replayed;

/// How long after they were due events were handled, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Events.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: u64,
    /// The latest.
    pub max: u64,
}

impl From<&Histogram> for Lateness {
    fn from(all: &Histogram) -> Lateness {
        let quantile = |q| all.quantile(q).unwrap_or(0);
        Lateness {
            count: all.count(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: all.max().unwrap_or(0),
        }
    }
}

/// What simulated hosts did beside their connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SimulatedOutcome {
    /// An event that was handled later than this after it was due is late.
    pub late_bound_ns: u64,
    /// The clients' host.
    pub client: HostFrames,
    /// The servers' host.
    pub server: HostFrames,
    /// Frames that came to a host's interface and found no room at its port.
    pub unheard: u64,
    /// Frames that left a host and its port did not take.
    pub unsent: u64,
    /// The outcome of a replay of both hosts in virtual time, where one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayOutcome>,
}

/// Frames of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFrames {
    /// Frames that it received.
    pub received: u64,
    /// Frames that it sent.
    pub sent: u64,
    /// Received frames that are not TCP segments.
    pub not_tcp: u64,
    /// Those with a checksum that is wrong.
    pub corrupted: u64,
    /// Those for no connection.
    pub strays: u64,
    /// Segments for which its memory had no room.
    pub no_room: u64,
}

/// A replay of the inputs of simulated hosts in virtual time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayOutcome {
    /// Batches of frames and timeouts that were repeated.
    pub inputs: u64,
    /// Frames that were sent, and compared bit for bit.
    pub frames: u64,
    /// Inputs that the recording had no room for.
    pub left_out: u64,
    /// Decisions that were not the same.
    pub differences: u64,
    /// The first of them.
    pub first_difference: Option<String>,
}

impl From<&HostCounts> for HostFrames {
    fn from(counts: &HostCounts) -> HostFrames {
        let &HostCounts { received, sent, not_tcp, corrupted, strays, no_room, .. } = counts;
        HostFrames { received, sent, not_tcp, corrupted, strays, no_room }
    }
}

impl From<&Replayed> for ReplayOutcome {
    fn from(replayed: &Replayed) -> ReplayOutcome {
        let Replayed { inputs, frames, left_out, differences, first_difference } = replayed.clone();
        ReplayOutcome { inputs, frames, left_out, differences, first_difference }
    }
}

impl From<&HostsSeen> for SimulatedOutcome {
    fn from(seen: &HostsSeen) -> SimulatedOutcome {
        let [client, server] = &seen.counts;
        SimulatedOutcome {
            late_bound_ns: LATE.as_nanos(),
            client: client.into(),
            server: server.into(),
            unheard: seen.ports.iter().map(PortStatistics::rx_lost).sum(),
            unsent: seen.unsent + seen.ports.iter().map(|port| port.tx_invalid).sum::<u64>(),
            replay: seen.replayed.as_ref().map(Into::into),
        }
    }
}
