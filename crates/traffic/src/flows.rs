//! Measures of flows: each batch is measured by itself, and the measures are added.
//!
//! Little is kept of a flow: its length and, if it enters the model, its size, the interval of its start and its
//! addresses; for each address pair its gaps and how long it was active. All of that is counted in tallies, integer
//! sums and samples of bounded size, which depend neither on the order of the records nor on their batches. Memory
//! is bounded by the limits of the tallies, the number of addresses, and one batch for each worker.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashTable;
use nilometer_flow::record::UDP;
use nilometer_flow::repair::{HARPOON_GAP_MAX_NS, RepairCounts, settle_all};
use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_stat::Tally;

use crate::address_pairs::{self, PairFlow};
use crate::batches::{Batch, Batches};
use crate::biflows::{Biflows, WholeConnections};
use crate::coverage::Coverage;
use crate::estimate_error::EstimateError;
use crate::files::{enter, is_tcp};
use crate::first_pass::{FirstPass, Inferred};
use crate::grid::Grid;
use crate::intervals::Volume;
use crate::limits::Limits;
use crate::pending_pairs::{FlowSummary, PairObservations, PendingPairs};
use crate::popularity::Popular;
use crate::runner::Runner;
use crate::sampled::SampledFiles;
use crate::sessions::Alive;
use crate::spill::SpillStore;
use crate::thinned::Thinned;
use crate::udp::{self, PeriodicServices, Starts};

/// The most distinct sizes, gaps and lengths.
const VALUES_MAX: usize = 1 << 18;

/// The measures of flows; laws other than that of gaps are only of flows that were metered whole.
pub(crate) struct OfFlows {
    /// TCP flows, including those whose flags were inferred.
    pub tcp_flows: u64,
    /// Packets of a flow.
    pub lengths: Tally,
    /// Times between connections of one address pair, within the bound, ns.
    pub gaps: Tally,
    /// Payload bytes of flows that enter the model.
    pub sizes: Tally,
    /// The volume of these flows, by interval.
    pub volumes: Vec<Volume>,
    /// Active address pairs by interval, including those of sampled flows.
    pub active: Alive,
    /// Popularity of clients and servers.
    pub popular: Popular,
    /// Whole connections.
    pub whole: WholeConnections,
    /// Conversations of UDP, by class.
    pub udp: Vec<udp::Measure>,
    /// What enters the model, and what does not.
    pub coverage: Coverage,
    /// Counts of repairs.
    pub repairs: RepairCounts,
    /// Records without flags that were joined to earlier ones.
    pub joined: u64,
    /// Bytes and packets that sampled records represent, by interval, in [`UNITS`](crate::sampled::UNITS).
    pub sampled: Vec<(u128, u128)>,
    /// Evidence of sampled flows on gaps.
    pub thinned: Thinned,
    /// Observations to be measured pair by pair, for a partial batch.
    partial: PairObservations,
    /// Pairs with flows in later batches.
    pending: PendingPairs,
}

/// What to measure, and how.
pub(crate) struct Work<'a> {
    /// Repair the flows that have flags.
    pub repairs: bool,
    /// A connection has one file at most, its larger direction.
    pub one_file: bool,
    /// The results of the passes over ambiguous records.
    pub first_pass: &'a FirstPass,
    /// The files of sampled records.
    pub thinned: &'a SampledFiles,
    pub grid: Grid,
    pub limits: Limits,
}

impl OfFlows {
    fn new(grid: Grid) -> OfFlows {
        OfFlows {
            tcp_flows: 0,
            lengths: Tally::new(VALUES_MAX),
            gaps: Tally::new(VALUES_MAX),
            sizes: Tally::new(VALUES_MAX),
            volumes: vec![Volume::default(); grid.intervals],
            active: Alive::new(grid.intervals),
            popular: Popular::default(),
            whole: WholeConnections::new(grid),
            udp: udp::empty(grid),
            coverage: Coverage::default(),
            repairs: RepairCounts::default(),
            joined: 0,
            sampled: Vec::new(),
            thinned: Thinned::default(),
            partial: PairObservations::default(),
            pending: PendingPairs::default(),
        }
    }

    /// The measures of all batches.
    ///
    /// # Errors
    /// Where a spilled partition cannot be read, as soon as there are too many addresses, and where one address pair
    /// has too many connections.
    pub fn measure<A: SpillStore>(
        work: &Work<'_>,
        batches: &mut Batches<'_, A>,
        runner: &impl Runner,
    ) -> Result<OfFlows, EstimateError> {
        let limits = &work.limits;
        let periodic = work.periodic_services(batches, runner)?;
        let measure =
            |batches: &Batches<'_, A>, batch: &Batch| work.measure(batches, batch, &periodic);
        let add = |sum: &mut OfFlows, batch: &Batch, more: OfFlows| {
            sum.add(more);
            let of_udp = sum.udp.iter().map(udp::Measure::pending).sum::<usize>();
            if sum.pending.count() + of_udp > limits.pair_events {
                return Err(EstimateError::TooManyOfPair(limits.pair_events));
            }
            if batch.is_last() {
                sum.settle(work.grid);
            }
            sum.check_addresses(limits.addresses)
        };
        let mut sum = batches.map_reduce_once(OfFlows::new(work.grid), runner, (measure, add))?;
        sum.popular.settle();
        sum.check_addresses(limits.addresses)?;
        Ok(sum)
    }

    fn check_addresses(&self, most: usize) -> Result<(), EstimateError> {
        let is_too_much = self.popular.is_more_than(most);
        if is_too_much { Err(EstimateError::TooManyAddresses(most)) } else { Ok(()) }
    }

    /// Measures the pending address pairs, all of whose flows are now here.
    fn settle(&mut self, grid: Grid) {
        let PendingPairs { summaries, answers, .. } = core::mem::take(&mut self.pending);
        let ends = summaries.iter().map(|(pair, summaries)| (pair.ends(), summaries));
        let all = ends.flat_map(|(ends, summaries)| summaries.iter().map(move |one| (ends, *one)));
        self.thinned.add(all, grid);
        for (_, summaries) in summaries {
            self.of_pair(summaries, grid);
        }
        for (_, nanos) in answers {
            self.whole.answered_pair(nanos);
        }
        self.udp.iter_mut().for_each(|measure| measure.settle(grid));
    }

    /// Measures one address pair, all of whose flows are here.
    fn of_pair(&mut self, mut summaries: Vec<FlowSummary>, grid: Grid) {
        summaries.sort_unstable();
        let opening = summaries.iter().filter(|summary| summary.opens && summary.interval == 0);
        let starts: Vec<u64> = opening.map(|summary| summary.start_ns).collect();
        for two in starts.windows(2) {
            match grid.is_within(two[1] - two[0]) {
                true => self.gaps.add(two[1] - two[0], 1),
                false => self.coverage.gaps_beyond_bound += 1,
            }
        }
        let times = summaries.iter().map(|summary| (summary.start_ns, summary.end_ns));
        let mut lifetimes = Vec::new();
        address_pairs::lifetimes_of_pair(times, grid.origin_ns, grid.bound_s, &mut lifetimes);
        self.active.add(&Alive::of(&lifetimes, grid.interval_s, grid.intervals));
    }

    fn add(&mut self, more: OfFlows) {
        self.tcp_flows += more.tcp_flows;
        self.lengths.merge(more.lengths);
        self.gaps.merge(more.gaps);
        self.sizes.merge(more.sizes);
        self.volumes.iter_mut().zip(&more.volumes).for_each(|(sum, more)| sum.add(more));
        self.active.add(&more.active);
        self.popular.merge(more.popular);
        self.whole.add(more.whole);
        self.udp.iter_mut().zip(more.udp).for_each(|(sum, more)| sum.add(more));
        self.coverage.add(&more.coverage);
        self.repairs.add(&more.repairs);
        self.joined += more.joined;
        self.sampled.resize(self.sampled.len().max(more.sampled.len()), (0, 0));
        for (sum, more) in self.sampled.iter_mut().zip(more.sampled) {
            *sum = (sum.0.saturating_add(more.0), sum.1.saturating_add(more.1));
        }
        self.thinned.merge(more.thinned);
        self.pending.add(more.partial);
    }

    /// Measures TCP flows, and returns the observations to be measured pair by pair.
    fn of_tcp(&mut self, flows: Vec<FlowRecord>, one_file: bool, grid: Grid) -> PairObservations {
        self.tcp_flows = flows.len() as u64;
        self.coverage.flows += self.tcp_flows;
        self.lengths = Tally::of(flows.iter().map(|flow| flow.packets).collect(), VALUES_MAX);
        let opened = opening(&flows).map(PairFlow::of).collect();
        let Biflows { connections, mut is_smaller } = Biflows::of(&flows);
        if !one_file {
            is_smaller.fill(false);
        }
        let (whole, answers) = WholeConnections::of(connections, grid);
        self.whole = whole;
        let files = enter(flows, &is_smaller, &mut self.coverage);
        self.sizes = Tally::of(files.iter().map(|file| file.payload).collect(), VALUES_MAX);
        for file in &files {
            let volume = &mut self.volumes[grid.at(file.start_ns)];
            volume.add(&Volume { bytes: file.payload, flows: 1, packets: file.packets });
        }
        self.popular = Popular::of(files.iter().map(|file| (file.client, file.server)).collect());
        PairObservations { opened, answers, sampled: Vec::new() }
    }

    /// Measures sampled flows, except for what is measured pair by pair.
    fn of_sampled(&mut self, sampled: &[FlowRecord], thinned: &SampledFiles, grid: Grid) {
        self.popular.add_sampled(sampled);
        self.sampled.resize(if sampled.is_empty() { 0 } else { grid.intervals }, (0, 0));
        for record in sampled {
            let (bytes, packets) = thinned.volume(record);
            let sum = &mut self.sampled[grid.at(record.start_ns)];
            *sum = (sum.0.saturating_add(bytes), sum.1.saturating_add(packets));
        }
    }

    /// Measures address pairs, all of whose flows are here.
    fn of_pairs(&mut self, all: PairObservations, grid: Grid) {
        let mut pair_flows = all.opened;
        pair_flows.sort_unstable();
        let ends = |record: &FlowRecord| (record.key.source, record.key.destination);
        let summary = |record: &FlowRecord| (ends(record), FlowSummary::of_sampled(record));
        self.thinned.add(all.sampled.iter().map(summary), grid);
        let gaps = address_pairs::gaps_ns(&pair_flows);
        let (within, beyond): (Vec<u64>, Vec<u64>) = gaps.partition(|gap| grid.is_within(*gap));
        self.gaps = Tally::of(within, VALUES_MAX);
        self.coverage.gaps_beyond_bound = beyond.len() as u64;
        if !all.sampled.is_empty() {
            pair_flows.extend(all.sampled.iter().map(PairFlow::of));
            pair_flows.sort_unstable();
        }
        let lifetimes = address_pairs::lifetimes(&pair_flows, grid.origin_ns, grid.bound_s);
        self.active = Alive::of(&lifetimes, grid.interval_s, grid.intervals);
        self.whole.answered(all.answers);
    }
}

impl Work<'_> {
    /// The flagged flows of a batch.
    fn flagged<A: SpillStore>(
        &self,
        (batches, batch): (&Batches<'_, A>, &Batch),
        counts: &mut RepairCounts,
    ) -> Result<Vec<FlowRecord>, String> {
        let flows = batches.flagged(batch)?;
        Ok(if self.repairs { settle_all(flows, HARPOON_GAP_MAX_NS, counts) } else { flows })
    }

    /// The periodic services of address pairs whose records are in several batches.
    fn periodic_services<A: SpillStore>(
        &self,
        batches: &Batches<'_, A>,
        runner: &impl Runner,
    ) -> Result<PeriodicServices, EstimateError> {
        let pending_max = self.limits.pair_events;
        // Batches without UDP as well: one of them may be the last of its address pairs.
        let fractions = batches.all().iter().filter(|batch| batch.is_partial());
        let fractions: Vec<Batch> = fractions.cloned().collect();
        let starts = |_: &(Starts, PeriodicServices), batch: &Batch| {
            if !batch.has_udp() {
                return Ok(Starts::new());
            }
            let mut flows = self.flagged((batches, batch), &mut RepairCounts::default())?;
            flows.retain(|flow| flow.key.protocol == UDP);
            Ok(udp::starts_of(&flows))
        };
        let add =
            |(pending, periodic): &mut (Starts, PeriodicServices), batch: &Batch, more: Starts| {
                for (service, starts) in more {
                    pending.entry(service).or_default().extend(starts);
                }
                if pending.values().map(Vec::len).sum::<usize>() > pending_max {
                    return Err(EstimateError::TooManyOfPair(pending_max));
                }
                if batch.is_last() {
                    periodic.extend(udp::periodic_services(core::mem::take(pending)));
                }
                Ok(())
            };
        let (_, periodic) =
            batches.map_reduce(&fractions, Default::default(), runner, (starts, add))?;
        Ok(periodic)
    }

    fn measure<A: SpillStore>(
        &self,
        batches: &Batches<'_, A>,
        batch: &Batch,
        periodic: &PeriodicServices,
    ) -> Result<OfFlows, String> {
        let grid = self.grid;
        let mut made = OfFlows::new(grid);
        let flows = self.flagged((batches, batch), &mut made.repairs)?;
        let Inferred { marked, sampled } = self.first_pass.infer(batches, batch)?;
        let (mut tcp, mut udp) = (Vec::with_capacity(flows.len()), Vec::new());
        for flow in flows {
            match (is_tcp(&flow, &mut made.coverage), flow.key.protocol) {
                (true, _) => tcp.push(flow),
                (false, UDP) => udp.push(flow),
                (false, _) => {}
            }
        }
        made.coverage.starts_inferred = marked.starts;
        made.coverage.ends_inferred = marked.ends;
        made.joined = marked.joined;
        tcp.extend(marked.flows);
        made.udp = match batch.is_partial() {
            true => udp::measure_partial(&udp, periodic, grid),
            false => udp::measure(&udp, grid),
        };
        drop(udp);
        if !tcp.is_empty() || !sampled.is_empty() {
            let of_pairs = made.of_tcp(tcp, self.one_file, grid);
            made.of_sampled(&sampled, self.thinned, grid);
            let of_pairs = PairObservations { sampled, ..of_pairs };
            match batch.is_partial() {
                true => made.partial = of_pairs,
                false => made.of_pairs(of_pairs, grid),
            }
        }
        Ok(made)
    }
}

/// The flows that opened connections, each connection once. If an exporter does not state the opening side,
/// both directions have a SYN: the one from the lower port is left out if the other is there.
fn opening(flows: &[FlowRecord]) -> impl Iterator<Item = &FlowRecord> {
    let asks = |flow: &FlowRecord| flow.key.destination_port <= flow.key.source_port;
    let mut asking: HashTable<&FlowKey> = HashTable::new();
    let unsaid = |flow: &&FlowRecord| flow.has_start() && flow.opened.is_none();
    for flow in flows.iter().filter(unsaid).filter(|flow| asks(flow)) {
        let hash = flow.key.hash_word();
        asking.entry(hash, |key| **key == flow.key, |key| key.hash_word()).or_insert(&flow.key);
    }
    flows.iter().filter(move |flow| match flow.opened {
        Some(opened) => flow.has_start() && opened,
        None => {
            let reversed = flow.key.reversed();
            let is_there = || asking.find(reversed.hash_word(), |key| **key == reversed).is_some();
            flow.has_start() && (asks(flow) || !is_there())
        }
    })
}
