//! The flows of the pipeline's bench, and the order in which their frames arrive.
//!
//! A header is drawn as for `route bench classify`: three of four from filters, the others at random. In
//! every second one the destination is replaced by an address of a uniformly drawn prefix of the table:
//! filters name some hundred networks, and a lookup that finds the same ones in the cache over and over
//! would not be one in a full table. A header that no router would forward (a martian, a group, a
//! destination without a route) is left out, and so is one that was drawn before.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use nilometer_router::forward::martian::MartianFilter;
use nilometer_router::header::protocol;
use nilometer_router::pipeline::BATCH;
use nilometer_router::{Key, NextHop, Rule};

use super::super::addresses::{Drawn, SplitMix64};
use super::super::headers::one;
use super::machine::unlooked;
use super::tables::{NEXT_HOPS, Routes, below, gateway, stream};
use super::{Options, Variant};

/// Headers that are drawn for each one needed: outputs have unequal shares of them.
const DRAWN_PARTS: usize = 5;
const WANTED_PARTS: usize = 4;
/// Attempts for each.
const ATTEMPTS: usize = 64;
const FLOWS_PURPOSE: u64 = 0x666c_6f77;
const ORDER_PURPOSE: u64 = 0x6f72_6465;

/// A header and the next hop that the table has for it.
pub type Flow = (Key<u32>, NextHop);

/// Different headers, a quarter more than `wanted`.
///
/// # Errors
/// When hardly any header can be forwarded.
pub fn draw(routes: &Routes, rules: &[Rule<u32>], wanted: usize, seed: u64) -> Result<Vec<Flow>> {
    let mut stream = stream(seed, FLOWS_PURPOSE);
    let mut reader = routes.reader()?;
    let wanted = wanted * DRAWN_PARTS / WANTED_PARTS;
    let mut seen = HashSet::with_capacity(wanted);
    let mut flows = Vec::with_capacity(wanted);
    for _ in 0..wanted * ATTEMPTS / BATCH {
        let keys: [Key<u32>; BATCH] = std::array::from_fn(|_| header(&mut stream, routes, rules));
        let mut next_hops = [None; BATCH];
        reader.look_up(&keys.map(|key| key.destination), &mut next_hops);
        for (key, next_hop) in keys.into_iter().zip(next_hops) {
            if let Some(next_hop) = next_hop
                && flows.len() < wanted
                && is_forwarded(&key)
                && seen.insert(key)
            {
                flows.push((key, next_hop));
            }
        }
        if flows.len() == wanted {
            break;
        }
    }
    ensure!(flows.len() == wanted, "of {ATTEMPTS} headers not one is routed and new; see --table");
    Ok(flows)
}

/// A header as the pipeline will read it.
fn header(stream: &mut SplitMix64, routes: &Routes, rules: &[Rule<u32>]) -> Key<u32> {
    let mut key = one(stream, rules);
    let choice = stream.output();
    if choice & 1 == 1 {
        let prefix = routes.prefixes[below(stream, routes.prefixes.len())];
        key.destination = u32::within(prefix, u32::any(stream));
    }
    if !matches!(key.protocol, protocol::TCP | protocol::UDP | protocol::SCTP) {
        (key.source_port, key.destination_port) = (0, 0);
    }
    if key.protocol != protocol::TCP {
        key.flags = 0;
    }
    key
}

fn is_forwarded(key: &Key<u32>) -> bool {
    let filter = MartianFilter::Standard;
    filter.source_ipv4(key.source).is_none()
        && filter.destination_ipv4(key.destination).is_none()
        && key.destination >> 28 != 0xe
}

/// Headers in the order in which their frames arrive: a batch for each port, port by port, turn by turn.
#[derive(Clone, Debug)]
pub struct Sequence {
    keys: Arc<[Key<u32>]>,
}

impl Sequence {
    /// Every turn has as many frames for each output as for the others, in random order.
    ///
    /// # Errors
    /// When the flows of some output are too few for a turn.
    pub fn arrange(
        flows: &[Flow],
        routes: &Routes,
        variant: Variant,
        options: &Options,
    ) -> Result<Sequence> {
        let mut by_output = vec![Vec::new(); options.ports];
        for (key, next_hop) in flows {
            let next_hop = match variant {
                Variant::NoLookup => unlooked(&routes.numbers, key.destination),
                _ => *next_hop,
            };
            let number = routes.numbers.iter().position(|other| *other == next_hop).unwrap_or(0);
            by_output[usize::from(gateway(number as u16 % NEXT_HOPS, options.ports).0)].push(*key);
        }
        let fewest = by_output.iter().map(Vec::len).min().unwrap_or(0);
        let turns = (options.flows / options.turn()).min(fewest / options.batch);
        ensure!(turns > 0, "an output has no more than {fewest} flows: give a larger --table");
        let mut stream = stream(options.seed, ORDER_PURPOSE);
        let mut keys = Vec::with_capacity(turns * options.turn());
        for turn in 0..turns {
            let from = keys.len();
            for keys_of_output in &by_output {
                keys.extend_from_slice(&keys_of_output[turn * options.batch..][..options.batch]);
            }
            let of_turn = &mut keys[from..];
            for last in (1..of_turn.len()).rev() {
                of_turn.swap(last, below(&mut stream, last + 1));
            }
        }
        Ok(Sequence { keys: keys.into() })
    }

    /// The headers.
    pub fn keys(&self) -> &[Key<u32>] {
        &self.keys
    }
}
