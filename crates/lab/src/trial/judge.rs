//! The judge: the meter's observations joined to the engine's actions, and both compared with the
//! plan.
//!
//! The engine knows which connection was which session's and when it called `connect`; the meter
//! knows what passed. The five-tuple joins them (and, where a port was used again, the start). Sizes
//! and volumes are the meter's; gaps are the engine's, because a gap belongs to a session and only
//! the engine knows sessions.

use std::collections::HashMap;
use std::net::IpAddr;

use nilometer_conversation::Side;
use nilometer_flow::FlowRecord;
use nilometer_flow::record::TCP;
use nilometer_traffic::connections::ConnectionVolume;
use nilometer_traffic::fidelity::{Gap, Measured};
use nilometer_traffic::{Plan, TrafficModel};

use crate::generate::protocol::Request;
use crate::generate::{Execution, Outcome};

/// A record may begin this much before the engine's own stamp of `connect`, or after it, and still
/// be that connection's: clocks differ, and SYNs are retransmitted.
const JOIN_WITHIN_NS: u64 = 10_000_000_000;

/// A connection seen by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its index in the plan.
    pub index: u32,
    /// When its SYN was seen, ns since the traffic began.
    pub syn_ns: u64,
    /// Payload bytes that the server sent, by the meter.
    pub payload: u64,
    /// Payload bytes that the client sent, likewise.
    pub request: u64,
    /// Packets of both directions.
    pub packets: u64,
    /// IP bytes of these packets.
    pub octets: u64,
    /// It ended by itself, or failed; it was not the run's end that cut it off.
    pub is_whole: bool,
}

/// All that was seen of one run.
pub struct RunObservations<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The engine's executions, by plan index.
    pub executions: &'a [Execution],
    /// What the client's meter saw.
    pub records: &'a [FlowRecord],
    /// The wall clock at the traffic's beginning, ns since 1970.
    pub origin_ns: u64,
    /// Port of the servers.
    pub port: u16,
    /// When the traffic ended, ns after it began: the plan's end, or the interruption.
    pub end_ns: u64,
}

/// The endpoints of a request: client, server, client's port.
type Ends = (IpAddr, IpAddr, u16);

impl RunObservations<'_> {
    /// Connections that both the engine and the meter know.
    pub fn joined(&self) -> Vec<Joined> {
        let mut opened: HashMap<Ends, Vec<&FlowRecord>> = HashMap::new();
        let mut answered: HashMap<Ends, Vec<&FlowRecord>> = HashMap::new();
        for record in self.records.iter().filter(|record| record.key.protocol == TCP) {
            let key = &record.key;
            // A client's own port may be the servers' port too: only the opening side distinguishes them.
            if key.destination_port == self.port && record.opened != Some(false) {
                let ends = (key.source, key.destination, key.source_port);
                opened.entry(ends).or_default().push(record);
            } else if key.source_port == self.port {
                let ends = (key.destination, key.source, key.destination_port);
                answered.entry(ends).or_default().push(record);
            }
        }
        let mut joined = Vec::with_capacity(self.executions.len());
        for execution in self.executions {
            let planned = &self.plan.connections[execution.index as usize];
            let ends = (planned.source, planned.destination, execution.local_port);
            let at = self.origin_ns + execution.started_ns;
            let Some(syn) = nearest(opened.get(&ends), at) else { continue };
            let answer = nearest(answered.get(&ends), syn.start_ns);
            let of_both = |part: fn(&FlowRecord) -> u64| part(syn) + answer.map_or(0, part);
            joined.push(Joined {
                index: execution.index,
                syn_ns: syn.start_ns.saturating_sub(self.origin_ns),
                payload: answer.and_then(|record| record.payload_octets).unwrap_or(0),
                request: syn.payload_octets.unwrap_or(0),
                packets: of_both(|record| record.packets),
                octets: of_both(|record| record.octets),
                is_whole: !matches!(execution.outcome, Outcome::Unfinished),
            });
        }
        joined
    }

    /// The data for the fidelity figures.
    pub fn measured(&self, joined: &[Joined]) -> Measured {
        let mut source_uses = vec![0; self.plan.ranks.0];
        let mut destination_uses = vec![0; self.plan.ranks.1];
        let mut seen = vec![false; self.plan.sessions.len()];
        for joined in joined {
            let session = self.plan.connections[joined.index as usize].session as usize;
            if !std::mem::replace(&mut seen[session], true) {
                let ranks = &self.plan.sessions[session];
                source_uses[ranks.source_rank as usize] += 1;
                destination_uses[ranks.destination_rank as usize] += 1;
            }
        }
        Measured { sizes: self.files(joined), gaps: self.gaps(), source_uses, destination_uses }
    }

    /// Sizes of files: all that servers sent or, of whole connections, what either side did, from the smallest size of
    /// the plan's law on (Harpoon's files have at least 100 bytes, those of connection vectors one).
    fn files(&self, joined: &[Joined]) -> Vec<f64> {
        let least =
            if self.plan.is_joint { self.plan.file_size.quantile(0.0).max(1.0) as u64 } else { 1 };
        let whole = || joined.iter().filter(|joined| joined.is_whole);
        let requests = whole().filter(|_| self.plan.is_joint).map(|joined| joined.request);
        let sizes = whole().map(|joined| joined.payload).chain(requests);
        sizes.filter(|&size| size >= least).map(|size| size as f64).collect()
    }

    /// When each planned connection was started, ns after the beginning; none where it was not.
    fn starts(&self) -> Vec<Option<u64>> {
        let mut starts = vec![None; self.plan.len()];
        for execution in self.executions {
            if !matches!(execution.outcome, Outcome::NotStarted) {
                starts[execution.index as usize] = Some(execution.started_ns);
            }
        }
        starts
    }

    /// Gaps of each session: observed where both connections were started, censored where the run
    /// ended during the wait.
    fn gaps(&self) -> Vec<Gap> {
        let starts = self.starts();
        let seconds = |ns: u64| ns as f64 / 1e9;
        let mut gaps = Vec::new();
        for (index, before) in self.plan.previous.iter().enumerate() {
            let Some(began) = before.and_then(|before| starts[before as usize]) else { continue };
            let limit_s = seconds(self.end_ns.saturating_sub(began));
            gaps.push(match starts[index] {
                Some(start) => {
                    Gap { waited_s: seconds(start.saturating_sub(began)), observed: true, limit_s }
                }
                None => Gap { waited_s: limit_s, observed: false, limit_s },
            });
        }
        for &index in &self.plan.censored {
            if let Some(began) = starts[index as usize] {
                let limit_s = seconds(self.end_ns.saturating_sub(began));
                gaps.push(Gap { waited_s: limit_s, observed: false, limit_s });
            }
        }
        gaps
    }

    /// The volume of the connections of each interval, booked where the SYN was seen.
    pub fn volumes(&self, joined: &[Joined]) -> Vec<ConnectionVolume> {
        let mut volumes = vec![ConnectionVolume::default(); self.plan.intervals.len()];
        for joined in joined {
            let interval = self
                .plan
                .intervals
                .partition_point(|interval| interval.end.as_nanos() <= joined.syn_ns)
                .min(volumes.len() - 1);
            let planned = &self.plan.connections[joined.index as usize];
            let volume = &mut volumes[interval];
            volume.connections += 1;
            // Padding of a short request is not payload of either side.
            volume.bytes += joined.payload + joined.request.min(planned.request_bytes);
            volume.packets += joined.packets;
            volume.octets += joined.octets;
        }
        volumes
    }

    /// Every completed connection moved its planned bytes, by the engine's count and, with
    /// `by_meter`, by the sequence numbers that the meter saw.
    pub fn sizes_exact(&self, joined: &[Joined], by_meter: bool) -> bool {
        let planned = |index: u32| &self.plan.connections[index as usize];
        let request =
            |index: u32| Request::new(planned(index).request_bytes, planned(index).size_bytes);
        // A client that is gone before the server's last byte receives less.
        let hears = |index: u32| {
            let script = planned(index).script.map(|script| &self.plan.scripts[script as usize]);
            let is_gone = script.is_some_and(|script| script.is_gone(Side::Client));
            let all = planned(index).size_bytes;
            if is_gone { 0..=all } else { all..=all }
        };
        let mut completed = vec![false; self.plan.len()];
        for execution in self.executions {
            if matches!(execution.outcome, Outcome::Completed) {
                completed[execution.index as usize] = true;
                if !hears(execution.index).contains(&execution.received_bytes) {
                    return false;
                }
            }
            if matches!(execution.outcome, Outcome::SizeMismatch) {
                return false;
            }
        }
        let mut metered = joined.iter().filter(|joined| completed[joined.index as usize]);
        let is_exact = |joined: &Joined| {
            let planned_request = request(joined.index);
            let request_bytes = match planned(joined.index).script {
                Some(_) => planned(joined.index).request_bytes,
                None => planned_request.bytes,
            };
            joined.payload == planned_request.size_bytes && joined.request == request_bytes
        };
        !by_meter || metered.all(is_exact)
    }

    /// Gaps of each directed address pair as the meter saw them, seconds; none beyond `bound_s`.
    pub fn gaps_by_pair(&self, joined: &[Joined], bound_s: f64) -> Vec<f64> {
        let mut pairs: HashMap<(IpAddr, IpAddr), Vec<u64>> = HashMap::new();
        for joined in joined {
            let planned = &self.plan.connections[joined.index as usize];
            pairs.entry((planned.source, planned.destination)).or_default().push(joined.syn_ns);
        }
        let mut gaps = Vec::new();
        for starts in pairs.values_mut() {
            starts.sort_unstable();
            let between = starts.windows(2).map(|two| (two[1] - two[0]) as f64 / 1e9);
            gaps.extend(between.filter(|&gap| gap <= bound_s));
        }
        gaps.sort_unstable_by(f64::total_cmp);
        gaps
    }

    /// Lateness of every started connection, ns, rising.
    pub fn lateness_ns(&self) -> Vec<u64> {
        let started =
            self.executions.iter().filter(|done| !matches!(done.outcome, Outcome::NotStarted));
        let mut late: Vec<u64> = started
            .map(|done| {
                let planned = self.plan.connections[done.index as usize].start.as_nanos();
                done.started_ns.saturating_sub(planned)
            })
            .collect();
        late.sort_unstable();
        late
    }
}

/// The record that begins nearest to `at`, within [`JOIN_WITHIN_NS`].
fn nearest<'a>(records: Option<&Vec<&'a FlowRecord>>, at: u64) -> Option<&'a FlowRecord> {
    let nearest = records?.iter().min_by_key(|record| record.start_ns.abs_diff(at))?;
    (nearest.start_ns.abs_diff(at) <= JOIN_WITHIN_NS).then_some(*nearest)
}

/// The laws that a plan follows, for the fidelity figures.
pub fn laws<'a>(model: &'a TrafficModel, plan: &'a Plan) -> nilometer_traffic::fidelity::Laws<'a> {
    nilometer_traffic::fidelity::Laws {
        file_size: &plan.file_size,
        inter_connection: &plan.gaps,
        sources: model.sources.shares(plan.ranks.0),
        destinations: model.destinations.shares(plan.ranks.1),
    }
}
