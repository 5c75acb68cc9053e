//! The plan: every connection that will be made, known before the first one is made.
//!
//! A plan is a function of a model and a seed. It combines three independent choices: *when* (arrivals of
//! slots, and the slots that each interval switches on), *how much* (files distributed so that each interval
//! carries its bytes) and *which hosts* (address pairs). The arrivals are the only costly part and each slot
//! has its own stream of random numbers, so they may be drawn by any number of threads; the plan, and its
//! digest, stay the same.
//!
//! A model that is driven by sessions (Harpoon's own) has the stated number of them active in each interval;
//! connections are those that they make. They carry the interval's bytes, because they were counted for these bytes
//! (Harpoon, Figure 4), or more in proportion if more sessions are stated.

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::ops::Range;

use nilometer_stat::{Alias, Empirical};
use nilometer_wire::{Span, Time};
use sha2::{Digest, Sha256};

use crate::activity::{self, Activity};
use crate::arrivals::{self, Arrivals, Window};
use crate::connections::{ConnectionLaw, ConnectionVolume};
use crate::intended_load;
use crate::model::{Interval, LoadDriver, ModelError, TrafficModel};
use crate::pool::{Family, Pool};
use crate::script::Script;
use crate::spatial::{Pair, Spatial};
use crate::volume::{self, Item, Load};

/// The most connections of a plan.
pub const CONNECTIONS_MAX: u64 = 50_000_000;
/// The most slots of a plan.
pub const SLOTS_MAX: usize = 4_000_000;

/// One connection of the plan: at `start` the client at `source` requests a file of `size_bytes` from the
/// server at `destination`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedConnection {
    /// When the client connects, since the traffic began.
    pub start: Time,
    /// The session that makes it.
    pub session: u32,
    /// The interval in which it starts, and to which its bytes belong.
    pub interval: u32,
    /// The client's address.
    pub source: IpAddr,
    /// The server's address.
    pub destination: IpAddr,
    /// Payload bytes that the server sends.
    pub size_bytes: u64,
    /// Payload bytes that the client sends first; fewer than the generator's shortest request are padded to
    /// that.
    pub request_bytes: u64,
    /// Payload bytes of a full segment; 0 for as many as the path allows.
    pub segment_bytes: u16,
    /// The client's port; 0 for any.
    pub source_port: u16,
    /// What both ends do: an index into the plan's scripts. If it is `None`, the client sends one request and
    /// the server one answer.
    pub script: Option<u32>,
}

/// One session: an address pair and the connections made between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The interval in which it began.
    pub interval: u32,
    /// Rank of its source, from 0.
    pub source_rank: u32,
    /// Rank of its destination, from 0.
    pub destination_rank: u32,
}

/// The plan of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedInterval {
    /// Its first moment.
    pub start: Time,
    /// The first moment of the next one.
    pub end: Time,
    /// Connections that start in it.
    pub connections: u64,
    /// Payload bytes of those connections, both ways.
    pub bytes: u64,
    /// The volume intended by the model.
    pub asked: ConnectionVolume,
    /// Mean number of sessions switched on during it; where sessions drive, of active sessions, including those
    /// that still wait from before.
    pub sessions: f64,
}

/// Every connection that will be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// By start, then session.
    pub connections: Vec<PlannedConnection>,
    /// For each connection, the one before it in its slot if the gap between them is a draw of
    /// P(InterConnection): an index into `connections`.
    pub previous: Vec<Option<u32>>,
    /// By number.
    pub sessions: Vec<Session>,
    /// By time.
    pub intervals: Vec<PlannedInterval>,
    /// Connections (indices) after which a wait was cut by the end of the run.
    pub censored: Vec<u32>,
    /// Sessions that share their pair with another active one because the pools are too small.
    pub collisions: u64,
    /// Ranks that have an address in the pools: sources, destinations.
    pub ranks: (usize, usize),
    /// P(InterConnection) as played, in seconds.
    pub gaps: Empirical,
    /// P(FileSize) as played, in bytes: of what servers send or, if whole connections are played, of what
    /// either side sends.
    pub file_size: Empirical,
    /// Whether whole connections are played: requests and answers, with segment sizes of their own.
    pub is_joint: bool,
    /// What both ends of connections do, where that is known step by step.
    pub scripts: Vec<Script>,
    /// Hosts that share an address with another because the pools are too small, as far as that is counted.
    pub hosts_folded: u64,
    /// When the traffic ends.
    pub end: Time,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanError {
    /// The model is invalid.
    Model(ModelError),
    /// Its intervals hold no connection at all.
    NoConnections,
    /// An exact plan was requested, but the model has no connections of its own.
    NoVectors,
    /// More connections than [`CONNECTIONS_MAX`].
    TooManyConnections(u64),
    /// More slots than [`SLOTS_MAX`] would be needed.
    TooManySlots,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Model(error) => error.fmt(f),
            PlanError::NoConnections => f.write_str("the model's intervals hold no connection"),
            PlanError::NoVectors => f.write_str(
                "exact plays the connections of a capture, and the model has none: it was estimated \
                 from records, or specified",
            ),
            PlanError::TooManyConnections(asked) => {
                write!(f, "{asked} connections are requested, the limit is {CONNECTIONS_MAX}")
            }
            PlanError::TooManySlots => write!(
                f,
                "more than {SLOTS_MAX} sessions at a time would be needed: the gaps are too long \
                 for the connections asked for, or as many sessions are stated; lower \
                 generation.time_divisor, or the sessions"
            ),
        }
    }
}

impl core::error::Error for PlanError {}

impl From<ModelError> for PlanError {
    fn from(error: ModelError) -> PlanError {
        PlanError::Model(error)
    }
}

/// Makes plans.
#[derive(Clone, Debug)]
pub struct Planner {
    seed: u64,
    gaps: Empirical,
    file_size: Empirical,
    law: Option<ConnectionLaw>,
    windows: Vec<Window>,
    asked: Vec<ConnectionVolume>,
    /// Intended payload bytes of each window.
    bytes: Vec<u64>,
    spatial: Spatial,
    clients: Pool,
    servers: Pool,
    ranks: (usize, usize),
}

/// Hosts of the smaller family that `share` uses.
fn usable(pool: &Pool, share: f64) -> u64 {
    match share {
        s if s <= 0.0 => pool.hosts(Family::V4),
        s if s >= 1.0 => pool.hosts(Family::V6),
        _ => pool.hosts(Family::V4).min(pool.hosts(Family::V6)),
    }
}

/// The share of IPv6 that the pools allow.
pub(crate) fn ipv6_share(clients: &Pool, servers: &Pool, asked: f64) -> Result<f64, ModelError> {
    let both = |family| clients.hosts(family) > 0 && servers.hosts(family) > 0;
    match (both(Family::V4), both(Family::V6)) {
        (true, true) => Ok(asked),
        (true, false) => Ok(0.0),
        (false, true) => Ok(1.0),
        (false, false) => Err(crate::pool::PoolError::NoCommonFamily.into()),
    }
}

impl Planner {
    /// Prepares the plan of `model` under `seed`.
    ///
    /// # Errors
    /// Where the model is invalid, or exceeds the limits.
    pub fn new(model: &TrafficModel, seed: u64) -> Result<Planner, PlanError> {
        model.check()?;
        let expected =
            model.intervals.iter().map(|interval| intended_load::connections(model, interval));
        match expected.clone().fold(0, u64::saturating_add) {
            0 => return Err(PlanError::NoConnections),
            flows if flows > CONNECTIONS_MAX => return Err(PlanError::TooManyConnections(flows)),
            _ => {}
        }
        let generation = &model.generation;
        let divisor = generation.time_divisor;
        let moment = |seconds: f64| Time::ZERO + Span::from_secs_f64(seconds / divisor);
        let clients = Pool::new(&generation.clients).map_err(ModelError::from)?;
        let servers = Pool::new(&generation.servers).map_err(ModelError::from)?;
        let share = ipv6_share(&clients, &servers, generation.ipv6_share)?;
        let kept = |ranks: &crate::model::Ranks, pool: &Pool| {
            ranks.counts.len().min(usable(pool, share).min(1 << 20) as usize)
        };
        let ranks = (kept(&model.sources, &clients), kept(&model.destinations, &servers));
        let alias = |shares: Vec<f64>| Alias::new(&shares).expect("checked counts are positive");
        let spatial = Spatial::new(
            alias(model.sources.shares(ranks.0)),
            alias(model.destinations.shares(ranks.1)),
            share,
            seed,
        );
        let windows = model.intervals.iter().zip(expected).map(|(interval, connections)| Window {
            start: moment(interval.start_s),
            end: moment(interval.start_s + interval.duration_s),
            connections,
            sessions: (generation.driver == LoadDriver::Sessions).then_some(interval.sessions),
        });
        let (law, file_size) = (model.connection_law.clone(), model.file_size.clone());
        Ok(Planner {
            seed,
            gaps: model.inter_connection.scaled(1.0 / divisor),
            file_size: law.as_ref().and_then(ConnectionLaw::file_size).unwrap_or(file_size),
            law,
            windows: windows.collect(),
            asked: model.intervals.iter().map(Interval::to_perform).collect(),
            bytes: (0..model.intervals.len())
                .map(|at| intended_load::payload_bytes(model, at))
                .collect(),
            spatial,
            clients,
            servers,
            ranks,
        })
    }

    fn end(&self) -> Time {
        self.windows.last().map_or(Time::ZERO, |window| window.end)
    }

    /// The arrivals of these slots; any thread may draw any part.
    pub fn arrivals(&self, slots: Range<u32>) -> Vec<Arrivals> {
        slots.map(|slot| arrivals::draw(&self.gaps, self.seed, slot, &self.windows)).collect()
    }

    /// Slots that the busiest interval is expected to need, with a margin.
    fn slots_expected(&self) -> usize {
        let needed = self.windows.iter().map(|window| {
            let by_rate = || 1.1 * window.connections as f64 * self.gaps.mean() / window.length_s();
            window.sessions.unwrap_or_else(by_rate)
        });
        needed.fold(0.0, f64::max) as usize + 16
    }

    /// The plan; `draw` returns [`Planner::arrivals`] of a range, and may share it among threads.
    ///
    /// # Errors
    /// [`PlanError::TooManySlots`] beyond the limit; [`PlanError::NoConnections`] where sessions make none.
    pub fn plan(
        &self,
        draw: &mut dyn FnMut(Range<u32>) -> Vec<Arrivals>,
    ) -> Result<Plan, PlanError> {
        let mut arrivals = Vec::new();
        let mut wanted = self.slots_expected();
        loop {
            if wanted > SLOTS_MAX {
                return Err(PlanError::TooManySlots);
            }
            arrivals.extend(draw(arrivals.len() as u32..wanted as u32));
            match activity::choose(&self.windows, &arrivals) {
                // A few sessions may make no connection at all.
                Ok(activity) if activity.made.is_empty() => return Err(PlanError::NoConnections),
                Ok(activity) => return Ok(self.assemble(activity)),
                Err(more) => wanted = more.wanted.max(wanted + 16),
            }
        }
    }

    fn assemble(&self, mut activity: Activity) -> Plan {
        activity.made.sort_by_key(|made| (made.at, made.slot));
        let (sessions, of_connection, collisions) = self.sessions(&activity);
        let sizes = self.sizes(&activity);
        let mut next_size = alloc::vec![0usize; self.windows.len()];
        let mut last_of_slot = alloc::collections::BTreeMap::new();
        let mut connections = Vec::with_capacity(activity.made.len());
        let mut previous = Vec::with_capacity(activity.made.len());
        for (index, made) in activity.made.iter().enumerate() {
            let interval = made.interval as usize;
            let (session, pair) = of_connection[index];
            let (request_bytes, size_bytes, segment_bytes) =
                self.parts(sizes[interval][next_size[interval]]);
            connections.push(PlannedConnection {
                start: made.at,
                session,
                interval: made.interval,
                source: self.clients.host(pair.family, u64::from(pair.source)),
                destination: self.servers.host(pair.family, u64::from(pair.destination)),
                size_bytes,
                request_bytes,
                segment_bytes,
                source_port: 0,
                script: None,
            });
            next_size[interval] += 1;
            let before = last_of_slot.insert(made.slot, index as u32);
            previous.push(before.filter(|_| made.follows));
        }
        let censored = activity.censored.iter().map(|slot| last_of_slot[slot]).collect();
        Plan {
            intervals: self.intervals(&activity, &sizes),
            connections,
            previous,
            sessions,
            censored,
            collisions,
            ranks: self.ranks,
            gaps: self.gaps.clone(),
            file_size: self.file_size.clone(),
            is_joint: self.law.is_some(),
            scripts: Vec::new(),
            hosts_folded: 0,
            end: self.end(),
        }
    }

    /// Sizes of files, or of whole connections, for each interval's connections, in random order.
    fn sizes(&self, activity: &Activity) -> Vec<Vec<Item>> {
        let mut loads: Vec<Load> =
            self.bytes.iter().map(|&bytes| Load { files: 0, bytes }).collect();
        for made in &activity.made {
            loads[made.interval as usize].files += 1;
        }
        match &self.law {
            None => volume::deal(&self.file_size, &loads, self.seed),
            Some(law) => law.deal(&loads, self.seed),
        }
    }

    /// The bytes of the request and of the answer, and the payload of a segment.
    fn parts(&self, item: Item) -> (u64, u64, u16) {
        self.law.as_ref().map_or((0, item.bytes, 0), |law| law.parts(item))
    }

    /// Sessions by number, the session and pair of each connection, and collisions.
    fn sessions(&self, activity: &Activity) -> (Vec<Session>, Vec<(u32, Pair)>, u64) {
        let mut slots_of = alloc::vec![Vec::new(); self.windows.len()];
        let mut last_of = alloc::collections::BTreeMap::new();
        for made in &activity.made {
            slots_of[made.session_interval as usize].push(made.slot);
            let last = last_of.entry((made.session_interval, made.slot)).or_insert(0);
            *last = made.interval.max(*last);
        }
        let mut numbers = alloc::collections::BTreeMap::new();
        let (mut sessions, mut pairs_of, mut collisions) = (Vec::new(), Vec::new(), 0);
        let mut alive: Vec<(u32, u32, Pair)> = Vec::new();
        for (interval, slots) in slots_of.iter_mut().enumerate() {
            slots.sort_unstable();
            slots.dedup();
            alive.retain(|&(last, ..)| last >= interval as u32);
            let busy: Vec<(u32, Pair)> =
                alive.iter().map(|&(_, slot, pair)| (slot, pair)).collect();
            let (pairs, collided) = self.spatial.pairs(interval as u32, slots, &busy);
            collisions += collided;
            for (&slot, pair) in slots.iter().zip(&pairs) {
                numbers.insert((interval as u32, slot), sessions.len() as u32);
                sessions.push(Session {
                    interval: interval as u32,
                    source_rank: pair.source,
                    destination_rank: pair.destination,
                });
                pairs_of.push(*pair);
                alive.push((last_of[&(interval as u32, slot)], slot, *pair));
            }
        }
        let of_connection = activity.made.iter().map(|made| {
            let number = numbers[&(made.session_interval, made.slot)];
            (number, pairs_of[number as usize])
        });
        (sessions, of_connection.collect(), collisions)
    }

    fn intervals(&self, activity: &Activity, sizes: &[Vec<Item>]) -> Vec<PlannedInterval> {
        let on = activity.active.iter().zip(&activity.waited_s);
        let planned = self.windows.iter().zip(on).zip(sizes).zip(&self.asked);
        planned
            .map(|(((window, (active, waited_s)), sizes), &asked)| PlannedInterval {
                start: window.start,
                end: window.end,
                connections: sizes.len() as u64,
                bytes: sizes.iter().map(|item| item.bytes).sum(),
                asked,
                sessions: active.mean(window)
                    + window.sessions.map_or(0.0, |_| waited_s / window.length_s().max(1e-12)),
            })
            .collect()
    }
}

fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl Plan {
    /// Connections planned.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether the plan is empty.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Payload bytes that servers will send.
    pub fn bytes(&self) -> u64 {
        self.connections.iter().map(|connection| connection.size_bytes).sum()
    }

    /// Payload bytes that clients will send.
    pub fn request_bytes(&self) -> u64 {
        self.connections.iter().map(|connection| connection.request_bytes).sum()
    }

    /// SHA-256 over every connection in order: start (picoseconds, u64), session (u32), source and
    /// destination (16 bytes each, IPv4 mapped), size (u64), for whole connections also request (u64) and
    /// segment (u16), all big-endian; and for those with a script its digest.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for connection in &self.connections {
            hash.update(connection.start.0.to_be_bytes());
            hash.update(connection.session.to_be_bytes());
            hash.update(sixteen(connection.source));
            hash.update(sixteen(connection.destination));
            hash.update(connection.size_bytes.to_be_bytes());
            if self.is_joint {
                hash.update(connection.request_bytes.to_be_bytes());
                hash.update(connection.segment_bytes.to_be_bytes());
            }
            if let Some(script) = connection.script {
                self.scripts[script as usize].digest(&mut hash);
            }
        }
        hash.finalize().into()
    }

    /// The part of the plan that starts before `end`, for the calibration.
    pub fn head(&self, end: Time) -> &[PlannedConnection] {
        &self.connections[..self.connections.partition_point(|c| c.start < end)]
    }
}
