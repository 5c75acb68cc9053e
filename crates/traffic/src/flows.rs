//! What the flows of all lots came to: each lot is measured by itself, and the measures are added.
//!
//! Of each flow little is left: its length, and where it enters the model its size, the interval of its start
//! and its ends; of each pair of addresses its gaps and how long it was active. All of that is counted
//! in tallies, sums of whole numbers and samples of bounded size, in which it does not matter what came
//! first, nor which lot it was in. So the measures depend on the records alone, and memory on
//! the limits of the tallies, on the number of addresses, and on what one lot for each worker takes.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashTable;
use nilometer_flow::record::{TCP, UDP};
use nilometer_flow::repair::{HARPOON_GAP_MAX_NS, RepairCounts, settle_all};
use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_stat::Tally;

use crate::estimate::EstimateError;
use crate::files::{count, enter, represented_octets};
use crate::gather::Aside;
use crate::intervals::Volume;
use crate::lots::{self, LOTS, Lot};
use crate::model::Coverage;
use crate::pairs::Whole;
use crate::popularity::Popular;
use crate::runner::Runner;
use crate::sessions::Alive;
use crate::spans::{self, Span};
use crate::udp::{self, Grid};

/// Different sizes, gaps and lengths that are told apart at most.
const VALUES_MAX: usize = 1 << 18;
/// Lots that are measured before their measures are added.
const AT_ONCE: usize = 16;

/// The measures of flows that were metered whole.
pub(crate) struct OfFlows {
    /// TCP flows; those whose flags were inferred among them.
    pub tcp_flows: u64,
    /// Packets of a flow.
    pub lengths: Tally,
    /// Times between connections of one address pair, within the bound, ns.
    pub gaps: Tally,
    /// Payload bytes of flows that enter the model.
    pub sizes: Tally,
    /// What these carried, by interval.
    pub volumes: Vec<Volume>,
    /// Active address pairs, by interval; those of sampled flows among them.
    pub active: Alive,
    /// Who asked and who served.
    pub popular: Popular,
    /// Whole connections.
    pub whole: Whole,
    /// Conversations of UDP, by class.
    pub udp: Vec<udp::Measure>,
    /// What enters, and what does not.
    pub coverage: Coverage,
    /// What repair came to.
    pub repairs: RepairCounts,
}

/// Everything that is to be measured.
pub(crate) struct Work<'a, A> {
    pub lots: Vec<Lot>,
    pub aside: &'a A,
    /// Repair the flows of the lots.
    pub repairs: bool,
    /// Flows whose flags were inferred.
    pub bare: Vec<FlowRecord>,
    /// Flows that were sampled.
    pub sampled: &'a [FlowRecord],
}

/// A lot to be measured: its number, its records, its flows of inferred flags, the spans of sampled ones.
type OfLot = (usize, Lot, Vec<FlowRecord>, Vec<Span>);

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
            whole: Whole::new(grid),
            udp: udp::nothing(grid),
            coverage: Coverage::default(),
            repairs: RepairCounts::default(),
        }
    }

    /// The measures of all lots.
    ///
    /// # Errors
    /// When a lot that was set aside cannot be had, and as soon as there are too many addresses.
    pub fn measure<A: Aside>(
        work: Work<'_, A>,
        grid: Grid,
        runner: &impl Runner,
    ) -> Result<OfFlows, EstimateError> {
        let bare = lots::dealt(work.bare);
        let mut spans: Vec<Vec<Span>> = (0..LOTS).map(|_| Vec::new()).collect();
        for record in work.sampled {
            spans[lots::lot_of(&record.key)].push(Span::of(record));
        }
        let lots = work.lots.into_iter().enumerate().zip(bare).zip(spans);
        let mut lots = lots.map(|(((number, lot), bare), spans)| (number, lot, bare, spans));
        let (aside, repairs) = (work.aside, work.repairs);
        let mut sum = OfFlows::new(grid);
        loop {
            let some: Vec<OfLot> = lots.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                return Ok(sum);
            }
            for measured in runner.map(some, |lot| measure(lot, aside, repairs, grid)) {
                sum.add(measured.map_err(EstimateError::Aside)?);
                if sum.popular.is_too_much() {
                    return Err(EstimateError::TooManyAddresses);
                }
            }
        }
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
    }

    /// Measures TCP flows.
    fn of_tcp(mut self, flows: Vec<FlowRecord>, sampled: Vec<Span>, grid: Grid) -> OfFlows {
        self.tcp_flows = flows.len() as u64;
        self.coverage.flows += self.tcp_flows;
        self.lengths = Tally::of(flows.iter().map(|flow| flow.packets).collect(), VALUES_MAX);
        let mut spans = spans::in_order(opening(&flows));
        let mut gaps: Vec<u64> = spans::gaps_ns(&spans).collect();
        let found = gaps.len();
        gaps.retain(|gap| *gap as f64 / 1e9 <= grid.bound_s);
        self.coverage.gaps_beyond_bound = (found - gaps.len()) as u64;
        self.gaps = Tally::of(gaps, VALUES_MAX);
        if !sampled.is_empty() {
            spans.extend(sampled);
            spans.sort_unstable();
        }
        let lives = spans::lives(&spans, grid.origin_ns, grid.bound_s);
        self.active = Alive::of(&lives, grid.interval_s, grid.intervals);
        self.whole = Whole::of(&flows, grid);
        let files = enter(flows, &mut self.coverage);
        self.sizes = Tally::of(files.iter().map(|file| file.payload).collect(), VALUES_MAX);
        for file in &files {
            let volume = &mut self.volumes[grid.at(file.start_ns)];
            volume.add(&Volume { bytes: file.payload, flows: 1, packets: file.packets });
        }
        self.popular = Popular::of(files.iter().map(|file| (file.client, file.server)).collect());
        self
    }
}

fn measure(
    (number, mut lot, bare, sampled): OfLot,
    aside: &impl Aside,
    repairs: bool,
    grid: Grid,
) -> Result<OfFlows, String> {
    lot.put(&aside.fetch(number)?);
    let mut made = OfFlows::new(grid);
    let mut flows = lot.unpack();
    if repairs {
        flows = settle_all(flows, HARPOON_GAP_MAX_NS, &mut made.repairs);
    }
    let (mut tcp, mut udp) = (Vec::with_capacity(flows.len() + bare.len()), Vec::new());
    for flow in flows {
        match (is_tcp(&flow, &mut made.coverage), flow.key.protocol) {
            (true, _) => tcp.push(flow),
            (false, UDP) => udp.push(flow),
            (false, _) => {}
        }
    }
    tcp.extend(bare);
    made.udp = udp::measure(&udp, grid);
    Ok(if tcp.is_empty() && sampled.is_empty() { made } else { made.of_tcp(tcp, sampled, grid) })
}

/// Is this flow one of TCP? Others are counted as left out.
pub(crate) fn is_tcp(flow: &FlowRecord, coverage: &mut Coverage) -> bool {
    let octets = represented_octets(flow);
    coverage.octets += octets;
    let is_tcp = flow.key.protocol == TCP;
    if !is_tcp {
        coverage.flows += 1;
        count(&mut coverage.left_out.not_tcp, octets);
    }
    is_tcp
}

/// The flows that opened connections, each connection once. Where an exporter does not say who opened,
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
