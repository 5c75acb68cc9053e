//! sFlow version 5 (sflow.org, "sFlow Version 5", 2004): sampled packets to flow records of one
//! packet each.
//!
//! A datagram carries samples, each of its own length: of packets (flow samples) and of interface counters,
//! which are counted and skipped. A flow sample holds records about one packet, mostly its first bytes; the
//! first record that describes an IP packet becomes the flow record (`sample`). It counts one packet, the
//! sampled one; `sampling_interval` states the 1 in N.
//!
//! The datagram has its agent's uptime and no wall clock. A packet is dated by the moment at which the
//! datagram was received, since agents may hold a sample for at most a second (section 4.2). Where that is
//! not known, as in files of nothing but datagrams, the uptime keeps packets as far apart as they were.
//!
//! Numbers have 32 bits, big-endian, and everything is padded to multiples of that (XDR, RFC 4506).

mod sample;

use alloc::collections::BTreeMap;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{array, be32};
use crate::counts::{Counts, Skip};
use crate::record::FlowRecord;
use crate::sequence::{Numbered, Numbering};

const VERSION: u32 = 5;
/// An uptime farther behind than this is a restart, not a datagram that was overtaken. Milliseconds.
const OVERTAKEN_MAX_MS: i32 = 60_000;
/// Data sources of an agent whose drops are followed; there is one for each interface.
const SOURCES_MAX: usize = 4_096;

/// What a datagram's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The agent's address, whatever address the datagram came from.
    pub agent: IpAddr,
    /// Which process of the agent sent it.
    pub sub_agent: u32,
    /// Datagrams that this sub-agent sent before.
    pub sequence: u32,
    /// Milliseconds since the sub-agent started.
    pub uptime_ms: u32,
    /// Samples that follow.
    pub samples: u32,
}

/// Why bytes are not a version 5 datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They end before the header does.
    #[error("the sFlow datagram ends in its header, after {found_bytes} bytes: it was cut")]
    Cut {
        /// Bytes that are there.
        found_bytes: usize,
    },
    /// Another version.
    #[error("version {0} of sFlow, where 5 is read: set the agent to version 5")]
    Version(u32),
    /// The agent's address is neither IPv4 (1) nor IPv6 (2).
    #[error(
        "an agent's address of kind {0}, neither IPv4 (1) nor IPv6 (2): the sFlow datagram is \
         damaged"
    )]
    AgentAddress(u32),
}

/// All known agents.
#[derive(Clone, Debug)]
pub struct Agents {
    agents_max: usize,
    agents: BTreeMap<(IpAddr, u32), Agent>,
}

#[derive(Clone, Debug, Default)]
struct Agent {
    uptime_ms: u32,
    numbering: Numbering,
    /// The last reported count of dropped packets, by data source.
    drops: BTreeMap<(u32, u32), u32>,
}

impl Agents {
    /// Without agents yet; the numbering of at most `agents_max` agents is followed.
    pub fn new(agents_max: usize) -> Agents {
        Agents { agents_max, agents: BTreeMap::new() }
    }

    /// Number of known agents.
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Is no agent known?
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// Takes a datagram received at `received_ns` (ns since 1970; 0 where that is unknown); records go to
    /// `out`. Damage behind the header is a count, not an error.
    ///
    /// # Errors
    /// When it is no such datagram; then nothing of it was taken.
    pub fn receive(
        &mut self,
        received_ns: u64,
        datagram: &[u8],
        counts: &mut Counts,
        out: &mut impl FnMut(FlowRecord),
    ) -> Result<Header, Error> {
        let (header, mut rest) = open(datagram)?;
        let (is_dated, uptime_ns) = (received_ns > 0, u64::from(header.uptime_ms) * 1_000_000);
        let seen_ns = if is_dated { received_ns } else { uptime_ns };
        counts.datagrams += 1;
        let key = (header.agent, header.sub_agent);
        let is_followed = self.agents.len() < self.agents_max || self.agents.contains_key(&key);
        // An agent beyond the limit is decoded like the others, and forgotten again.
        let mut forgotten = Agent::default();
        let agent = if is_followed { self.agents.entry(key).or_default() } else { &mut forgotten };
        // The drops that an overtaken datagram reports are outdated.
        let mut is_news = true;
        if is_followed {
            is_news = agent.follow(&header, counts) != Numbered::Late;
        } else {
            counts.skips.add(Skip::DomainLimit);
        }
        for _ in 0..header.samples {
            counts.records += 1;
            let Some((kind, body, after)) = part(rest) else {
                // The number of further announced samples means nothing once their positions are lost.
                counts.skips.add(Skip::RecordDamaged);
                break;
            };
            rest = after;
            match sample::decode(kind, body, seen_ns) {
                Ok((flow, drops)) => {
                    if is_news {
                        agent.note_drops(drops, counts);
                    }
                    counts.flows += 1;
                    counts.times_absent += u64::from(!is_dated);
                    out(flow);
                }
                Err((reason, drops)) => {
                    let drops = drops.into_iter().filter(|_| is_news);
                    drops.for_each(|drops| agent.note_drops(drops, counts));
                    counts.skips.add(reason);
                }
            }
        }
        Ok(header)
    }
}

impl Agent {
    fn follow(&mut self, header: &Header, counts: &mut Counts) -> Numbered {
        let uptime_back_ms = self.uptime_ms.wrapping_sub(header.uptime_ms) as i32;
        if uptime_back_ms > OVERTAKEN_MAX_MS {
            *self = Agent::default();
        }
        self.uptime_ms = header.uptime_ms;
        let numbered = self.numbering.observe(header.sequence, Some(1), header.uptime_ms / 1_000);
        match numbered {
            Numbered::Follows | Numbered::Restarted => {}
            Numbered::Lost(datagrams) => counts.datagrams_lost += u64::from(datagrams),
            Numbered::Repeated => counts.datagrams_repeated += 1,
            Numbered::Late => counts.datagrams_lost = counts.datagrams_lost.saturating_sub(1),
        }
        numbered
    }

    fn note_drops(&mut self, drops: Drops, counts: &mut Counts) {
        if self.drops.len() == SOURCES_MAX && !self.drops.contains_key(&drops.source) {
            return;
        }
        let before = self.drops.insert(drops.source, drops.packets).unwrap_or(drops.packets);
        let more = drops.packets.wrapping_sub(before) as i32;
        counts.samples_dropped += more.max(0) as u64;
    }
}

/// How many packets a data source reports as dropped since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Drops {
    /// Class and index of the source.
    source: (u32, u32),
    packets: u32,
}

fn open(datagram: &[u8]) -> Result<(Header, &[u8]), Error> {
    let cut = Error::Cut { found_bytes: datagram.len() };
    let (head, rest) = datagram.split_at_checked(8).ok_or(cut)?;
    if be32(head, 0) != VERSION {
        return Err(Error::Version(be32(head, 0)));
    }
    let (agent, rest) = match be32(head, 4) {
        1 => rest.split_at_checked(4).map(|(v4, rest)| (v4_at(v4, 0), rest)).ok_or(cut)?,
        2 => rest.split_at_checked(16).map(|(v6, rest)| (v6_at(v6, 0), rest)).ok_or(cut)?,
        found => return Err(Error::AgentAddress(found)),
    };
    let (fixed, rest) = rest.split_at_checked(16).ok_or(cut)?;
    let header = Header {
        agent,
        sub_agent: be32(fixed, 0),
        sequence: be32(fixed, 4),
        uptime_ms: be32(fixed, 8),
        samples: be32(fixed, 12),
    };
    Ok((header, rest))
}

/// A part of a datagram or of a sample: its kind, its body, and what follows it.
fn part(rest: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (head, rest) = rest.split_at_checked(8)?;
    let (body, after) = rest.split_at_checked(usize::try_from(be32(head, 4)).ok()?)?;
    Some((be32(head, 0), body, after))
}

fn v4_at(bytes: &[u8], at: usize) -> IpAddr {
    Ipv4Addr::from_bits(be32(bytes, at)).into()
}

fn v6_at(bytes: &[u8], at: usize) -> IpAddr {
    Ipv6Addr::from_bits(u128::from_be_bytes(array(bytes, at))).into()
}
