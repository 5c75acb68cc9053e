//! How popular each client and each server is: P(IPRange), as ranks.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::FlowRecord;

use crate::estimate::{File, ends};
use crate::model::{RANKS_MAX, Ranks};

/// Ranks of both sides, and the share of flows that are IPv6.
pub(crate) struct Popularity {
    pub sources: Ranks,
    pub destinations: Ranks,
    pub ipv6_share: f64,
}

impl Popularity {
    /// Counts each file once, and each sampled flow that began as many times as one packet in N was taken.
    pub fn of(files: &[File], sampled: &[FlowRecord], keep_addresses: bool) -> Popularity {
        let weights: Vec<(IpAddr, IpAddr, u64)> = files
            .iter()
            .map(|file| (file.client, file.server, 1))
            .chain(sampled.iter().filter(|record| record.has_start()).map(|record| {
                let (client, server) = ends(record);
                (client, server, record.sampling_interval.into())
            }))
            .collect();
        let of_v6 =
            |(client, _, weight): &(IpAddr, IpAddr, u64)| u64::from(client.is_ipv6()) * weight;
        let v6: u64 = weights.iter().map(of_v6).sum();
        let all: u64 = weights.iter().map(|(.., weight)| weight).sum();
        let (sources, destinations) = (
            weights.iter().map(|(client, _, weight)| (*client, *weight)),
            weights.iter().map(|(_, server, weight)| (*server, *weight)),
        );
        Popularity {
            sources: ranks(sources, keep_addresses),
            destinations: ranks(destinations, keep_addresses),
            ipv6_share: v6 as f64 / all as f64,
        }
    }
}

fn ranks(addresses: impl Iterator<Item = (IpAddr, u64)>, keep: bool) -> Ranks {
    let mut counts: BTreeMap<IpAddr, u64> = BTreeMap::new();
    for (address, flows) in addresses {
        *counts.entry(address).or_default() += flows;
    }
    let mut sorted: Vec<(IpAddr, u64)> = counts.into_iter().collect();
    sorted.sort_by_key(|&(address, count)| (core::cmp::Reverse(count), address));
    sorted.truncate(RANKS_MAX);
    let addresses =
        if keep { sorted.iter().map(|(address, _)| address.to_string()).collect() } else { vec![] };
    Ranks { counts: sorted.into_iter().map(|(_, count)| count).collect(), addresses }
}
