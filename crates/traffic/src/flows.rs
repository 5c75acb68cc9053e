//! What the flows of all parts came to: each part is measured by itself, and the measures are added.
//!
//! Of each flow little is left: its length, and where it enters the model its size, its start and its
//! ends; of each pair of addresses its gaps and its lives. All of that is a multiset, so that it does not
//! matter which part was measured first; lives alone are summed as fractions, and are put into the order
//! of their pairs.

use alloc::vec::Vec;

use hashbrown::HashTable;
use nilometer_flow::{FlowKey, FlowRecord};

use crate::estimate::{File, enter};
use crate::model::Coverage;
use crate::pairs::Whole;
use crate::parts::{self, Part};
use crate::runner::Runner;
use crate::sessions::PairLife;
use crate::spans::{self, Pair, Span};
use crate::udp::Grid;

/// The measures of flows that were metered whole.
#[derive(Default)]
pub(crate) struct OfFlows {
    /// Packets of a flow, and how many flows have so many; a number perhaps more than once.
    pub lengths: Vec<(f64, u64)>,
    /// Seconds between connections of one address pair, within the bound.
    pub gaps: Vec<f64>,
    /// The lives of address pairs, in the order of the pairs; those of sampled flows among them.
    pub lives: Vec<PairLife>,
    /// Flows that enter the model.
    pub files: Vec<File>,
    /// Whole connections.
    pub whole: Whole,
    /// What enters, and what does not.
    pub coverage: Coverage,
}

/// A part to be measured: its flows, those whose flags were inferred, the spans of sampled ones.
type Work = (Part, Vec<FlowRecord>, Vec<Span>);

impl OfFlows {
    /// The measures of all parts and of `bare` flows, whose flags were inferred.
    pub fn measure(
        (parts, bare): (Vec<Part>, Vec<FlowRecord>),
        sampled: &[FlowRecord],
        grid: Grid,
        runner: &impl Runner,
    ) -> OfFlows {
        let bare = parts::dealt(bare);
        let mut spans: Vec<Vec<Span>> = bare.iter().map(|_| Vec::new()).collect();
        for record in sampled {
            spans[parts::part_of(&record.key)].push(Span::of(record));
        }
        let mut parts = parts;
        parts.resize_with(bare.len(), Part::default);
        let work: Vec<Work> =
            parts.into_iter().zip(bare).zip(spans).map(|((a, b), c)| (a, b, c)).collect();
        let measured = runner.map(work, |work| measure_part(work, grid));
        let mut sum = OfFlows::default();
        let mut lives = Vec::new();
        for (part, more) in measured {
            sum.lengths.extend(part.lengths);
            sum.gaps.extend(part.gaps);
            sum.files.extend(part.files);
            sum.whole.add(part.whole);
            sum.coverage.add(&part.coverage);
            lives.extend(more);
        }
        // Lives of one pair come from one part, in the order of their starts.
        lives.sort_by_key(|(pair, _)| *pair);
        sum.lives = lives.into_iter().map(|(_, life)| life).collect();
        sum
    }
}

fn measure_part((part, bare, sampled): Work, grid: Grid) -> (OfFlows, Vec<(Pair, PairLife)>) {
    let mut flows = part.unpack(bare.len());
    flows.extend(bare);
    let mut coverage = Coverage { flows: flows.len() as u64, ..Coverage::default() };
    let mut lengths: Vec<u64> = flows.iter().map(|flow| flow.packets).collect();
    lengths.sort_unstable();
    let runs = lengths.chunk_by(|one, other| one == other);
    let lengths = runs.map(|run| (run[0] as f64, run.len() as u64)).collect();
    let mut spans = spans::in_order(opening(&flows));
    let mut gaps: Vec<f64> = spans::gaps(&spans).collect();
    let found = gaps.len();
    gaps.retain(|gap| *gap <= grid.bound_s);
    coverage.gaps_beyond_bound = (found - gaps.len()) as u64;
    if !sampled.is_empty() {
        spans.extend(sampled);
        spans.sort_unstable();
    }
    let lives = spans::lives(&spans, grid.origin_ns, grid.bound_s);
    let whole = Whole::of(&flows, grid);
    let files = enter(flows, &mut coverage);
    (OfFlows { lengths, gaps, lives: Vec::new(), files, whole, coverage }, lives)
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
