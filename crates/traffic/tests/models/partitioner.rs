//! An estimate of partitioned records depends neither on their order, nor on the runner, nor on what is spilled.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;

use nilometer_flow::record::{TCP, UDP, tcp_flags};
use nilometer_flow::repair::{HARPOON_GAP_MAX_NS, Screen, repair};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::{Empirical, Rng};
use nilometer_traffic::TrafficModel;
use nilometer_traffic::estimate::{EstimateOptions, estimate, estimate_partitioned, payload_bytes};
use nilometer_traffic::model::Origin;
use nilometer_traffic::partitioner::{MemoryBudget, Partitioner, is_screened};
use nilometer_traffic::runner::Runner;
use nilometer_traffic::sessions::{PairLifetime, direct};
use nilometer_traffic::spill::{NoSpill, SpillStore};

const ORIGIN_NS: u64 = 1_767_225_600_000_000_000;
const BOUND_S: f64 = 5.0;
const DAY_NS: u64 = 86_400_000_000_000;

fn options() -> EstimateOptions {
    options_of(Some(20.0))
}

fn options_of(interval_s: Option<f64>) -> EstimateOptions {
    EstimateOptions {
        interval_s,
        bound_s: BOUND_S,
        keep_addresses: true,
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: true, inputs: Vec::new() },
        span_ns: None,
        clients: vec!["198.18.0.0/16".parse().expect("a prefix")],
        servers: vec!["198.19.0.0/16".parse().expect("a prefix")],
        harpoon: false,
    }
}

/// Random records: both families and directions, split flows, doubles, and some that are not TCP or not
/// whole.
fn records(seed: u64, count: usize) -> Vec<FlowRecord> {
    let mut rng = Rng::new(seed, 0x6761_7468, 0);
    let mut made = Vec::new();
    while made.len() < count {
        let is_v6 = rng.below(4) == 0;
        let mut address = |side: u64| -> IpAddr {
            let host = rng.below(30) + 1;
            match is_v6 {
                true => IpAddr::V6((0x2001_0db8_u128 << 96 | u128::from(side << 32 | host)).into()),
                false => IpAddr::V4(((198 << 24 | (18 + side) << 16 | host) as u32).into()),
            }
        };
        let (source, destination) = (address(0), address(1));
        let key = FlowKey {
            source,
            destination,
            source_port: 1_024 + rng.below(500) as u16,
            destination_port: 80,
            protocol: if rng.below(6) == 0 { UDP } else { TCP },
        };
        let start_ns = ORIGIN_NS + rng.below(60_000) * 1_000_000;
        let end_ns = start_ns + rng.below(3_000) * 1_000_000;
        let packets = 1 + rng.below(40);
        let marks = [tcp_flags::SYN, tcp_flags::FIN, 0, tcp_flags::SYN | tcp_flags::FIN];
        let record = FlowRecord {
            key: if rng.below(3) == 0 { key.reversed() } else { key },
            start_ns,
            end_ns,
            packets,
            octets: packets * (40 + rng.below(1_400)),
            tcp_flags: tcp_flags::ACK | marks[rng.below(4).max(rng.below(4)) as usize],
            payload_octets: None,
            opened: [None, None, Some(true), Some(false)][rng.below(4) as usize],
            end_reason: EndReason::Unknown,
            sampling_interval: 0,
        };
        if rng.below(10) == 0 {
            let (start_ns, end_ns) = (end_ns + 5_000_000, end_ns + 900_000_000);
            made.push(FlowRecord { start_ns, end_ns, ..record.clone() });
        }
        if rng.below(20) == 0 {
            made.push(record.clone());
        }
        made.push(record);
    }
    made
}

/// Works on the last item first.
struct Backwards;

impl Runner for Backwards {
    fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        let mut results: Vec<R> = items.into_iter().rev().map(work).collect();
        results.reverse();
        results
    }
}

#[test]
fn the_model_does_not_depend_on_the_runner() {
    for seed in 0..5 {
        let records = records(seed, 5_000);
        let model = estimate(records.clone(), &options()).expect("a model").model;
        let mut partitioner = Partitioner::new();
        records.into_iter().for_each(|record| partitioner.push(record));
        let other = estimate_partitioned(partitioner, &NoSpill, &options(), &Backwards)
            .expect("a model")
            .model;
        assert_eq!(model, other);
    }
}

/// A spill store in memory, which returns its content in pieces of a given number of bytes.
struct Kept {
    partitions: Mutex<BTreeMap<usize, Vec<u8>>>,
    piece: usize,
}

impl Kept {
    fn keep(&mut self, partitioner: &mut Partitioner) {
        for (number, partition) in partitioner.drain().iter().enumerate() {
            self.append(number, partition).expect("there is room");
        }
        assert_eq!(partitioner.held(), 0);
    }

    fn partition(&self, partition: usize) -> Vec<u8> {
        self.partitions.lock().expect("nobody panics").get(&partition).cloned().unwrap_or_default()
    }
}

impl SpillStore for Kept {
    fn append(&self, partition: usize, bytes: &[u8]) -> Result<(), String> {
        self.partitions.lock().expect("nobody panics").entry(partition).or_default().extend(bytes);
        Ok(())
    }

    fn len_bytes(&self, partition: usize) -> u64 {
        self.partition(partition).len() as u64
    }

    fn read(&self, partition: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        self.partition(partition).chunks(self.piece).for_each(each);
        Ok(())
    }
}

/// One record in `bare` without flags and one in `sampled` of sampled packets; some with impossible stamps.
fn of_kinds(seed: u64, count: usize, bare: usize, sampled: usize) -> Vec<FlowRecord> {
    let mut rng = Rng::new(seed, 0x6b69_6e64, 0);
    let mut records = records(seed, count);
    for (number, record) in records.iter_mut().enumerate() {
        match number {
            number if bare > 0 && number % bare == 0 => {
                record.tcp_flags = 0;
                record.end_reason = [EndReason::Unknown, EndReason::IdleTimeout][number % 2];
                if rng.below(30) == 0 {
                    record.end_reason = EndReason::EndOfFlow;
                }
                if rng.below(40) == 0 {
                    record.start_ns -= 2 * DAY_NS + rng.below(DAY_NS);
                    record.packets = 1;
                }
            }
            number if sampled > 0 && number % sampled == 0 => {
                record.sampling_interval = [10, 10, 100][number % 3];
                record.packets = 1 + record.packets % 4;
            }
            _ => {}
        }
    }
    records
}

/// The model is the same under any budget, in any order of records and with another runner.
fn assert_the_budget_does_not_matter(seed: u64, mut records: Vec<FlowRecord>, largest_slot: usize) {
    let options = options_of(None);
    let whole = estimate(records.clone(), &options).expect("a model");
    let is_sampled = |record: &FlowRecord| record.sampling_interval >= 2;
    // For sampled records with impossible stamps the order matters.
    assert!(
        !records
            .iter()
            .any(|record| { is_sampled(record) && record.end_ns - record.start_ns > DAY_NS })
    );
    Rng::new(seed, 0x6f72_6465, 0).shuffle(&mut records);
    for (packed, batch, piece) in
        [(1_700, 700, 1 << 20), (1_000, 60, 100), (usize::MAX, 25, 48), (90, 1, 1_000)]
    {
        let budget = MemoryBudget { packed, batch };
        let mut partitioner = Partitioner::with_budget(budget);
        let mut kept = Kept { partitions: Mutex::default(), piece };
        for record in &records {
            partitioner.push(record.clone());
            assert!(partitioner.held() <= budget.packed);
            if partitioner.is_full() {
                kept.keep(&mut partitioner);
            }
        }
        let other =
            estimate_partitioned(partitioner, &kept, &options, &Backwards).expect("a model");
        assert_eq!((&whole.model, &whole.warnings), (&other.model, &other.warnings), "{budget:?}");
        let most = other.largest_batch;
        assert!(most <= batch.max(largest_slot), "{budget:?}: {most} in a batch");
    }
}

#[test]
fn the_model_depends_neither_on_the_order_of_records_nor_on_what_is_spilled() {
    for seed in 0..1 {
        // All of one kind, and of all kinds.
        for (bare, sampled) in [(0, 0), (1, 0), (0, 1), (9, 7), (2, 3)] {
            let records = of_kinds(200 + seed, 6_000, bare, sampled);
            assert_the_budget_does_not_matter(seed, records, 60);
        }
    }
}

#[test]
fn a_large_address_pair_is_split_by_socket_pairs() {
    let one_pair = |mut record: FlowRecord| {
        let is_up = record.key.destination_port == 80;
        let ends: [IpAddr; 2] = ["198.18.0.1", "198.19.0.1"].map(|end| end.parse().expect("one"));
        let [client, server] = ends;
        (record.key.source, record.key.destination) =
            if is_up { (client, server) } else { (server, client) };
        record
    };
    for (seed, (bare, sampled)) in (0..).zip([(0, 0), (1, 0), (0, 1), (9, 7), (2, 3)]) {
        let mut records = of_kinds(300 + seed, 6_000, bare, sampled);
        // Some are unchanged, and some become periodic requests.
        for (number, record) in records.iter_mut().enumerate() {
            if number % 5 > 0 {
                *record = one_pair(record.clone());
            }
            if number % 11 == 0 && record.key.protocol == UDP {
                let port = 1_024 + number as u16 % 300;
                (record.key.source_port, record.key.destination_port) = (port, 9_999);
                record.start_ns = ORIGIN_NS + number as u64 * 9_000_000;
                record.end_ns = record.start_ns;
            }
        }
        assert_the_budget_does_not_matter(seed, records, 60);
    }
}

#[test]
fn a_failing_spill_store_is_an_error() {
    struct Lost;
    impl SpillStore for Lost {
        fn append(&self, _partition: usize, _bytes: &[u8]) -> Result<(), String> {
            Err("the disk is full".to_owned())
        }

        fn len_bytes(&self, _partition: usize) -> u64 {
            0
        }

        fn read(&self, partition: usize, _each: &mut dyn FnMut(&[u8])) -> Result<(), String> {
            if partition == 77 { Err("the disk is gone".to_owned()) } else { Ok(()) }
        }
    }
    let mut partitioner = Partitioner::new();
    records(3, 500).into_iter().for_each(|record| partitioner.push(record));
    let error =
        estimate_partitioned(partitioner, &Lost, &options(), &Backwards).expect_err("it is lost");
    assert_eq!(error.to_string(), "records that were set aside are lost: the disk is gone");
    let mut partitioner = Partitioner::with_budget(MemoryBudget { packed: 1_000, batch: 2 });
    records(3, 500).into_iter().for_each(|record| partitioner.push(record));
    let error = estimate_partitioned(partitioner, &NoSpill, &options(), &Backwards);
    let line = error.expect_err("there is no room").to_string();
    assert_eq!(line, "records that were set aside are lost: nothing can be set aside");
}

/// Whether a record is screened while it is read or when it is partitioned, the model and the counted repairs are
/// the same.
#[test]
fn records_screened_early_make_the_same_model() {
    let mut records = of_kinds(400, 3_000, 9, 7);
    for record in records.iter_mut().step_by(50) {
        record.start_ns -= 2 * DAY_NS;
        record.packets = 2;
    }
    let (mut taken, mut screened, mut screen) =
        (Partitioner::new(), Partitioner::new(), Screen::default());
    for mut record in records {
        taken.push(record.clone());
        if is_screened(&record) {
            screen.set_right(&mut record);
        }
        screened.push_screened(record);
        assert_eq!(taken.held(), screened.held());
    }
    let met: Vec<_> = screen.counts.met().collect();
    assert!(met.iter().map(|(_, times)| times).sum::<u64>() > 20, "{met:?}");
    met.into_iter().for_each(|(reason, times)| screened.note_screened(reason, times));
    let of = |partitioner| {
        let made = estimate_partitioned(partitioner, &NoSpill, &options(), &Backwards);
        made.expect("a model")
    };
    let (one, other) = (of(taken), of(screened));
    assert_eq!((one.model, one.warnings), (other.model, other.warnings));
}

/// The naive twin: all flows in one list, pairs in trees.
struct Naive {
    sizes: Vec<f64>,
    gaps: Vec<f64>,
    beyond: u64,
    lives: Vec<PairLifetime>,
}

fn opens(flow: &FlowRecord, flows: &[FlowRecord]) -> bool {
    let asks = |flow: &FlowRecord| flow.key.destination_port <= flow.key.source_port;
    let is_asked = |key: FlowKey| {
        let asking = |other: &&FlowRecord| other.has_start() && other.opened.is_none();
        flows.iter().filter(asking).any(|other| other.key == key && asks(other))
    };
    match flow.opened {
        Some(opened) => flow.has_start() && opened,
        None => flow.has_start() && (asks(flow) || !is_asked(flow.key.reversed())),
    }
}

fn naive(flows: &[FlowRecord], origin_ns: u64) -> Naive {
    let mut pairs: BTreeMap<(IpAddr, IpAddr), Vec<(u64, u64)>> = BTreeMap::new();
    for flow in flows.iter().filter(|flow| opens(flow, flows)) {
        let pair = (flow.key.source, flow.key.destination);
        pairs.entry(pair).or_default().push((flow.start_ns, flow.end_ns));
    }
    let seconds = |ns: u64| (ns - origin_ns) as f64 / 1e9;
    let enters = |flow: &&FlowRecord| flow.has_start() && flow.has_end();
    let carries = |flow: &&FlowRecord| flow.octets > flow.packets * header_bytes(flow);
    let files = flows.iter().filter(enters).filter(carries).map(payload_bytes);
    let sizes = files.filter(|bytes| *bytes >= 100).map(|bytes| bytes as f64).collect();
    let mut found = Naive { sizes, gaps: Vec::new(), beyond: 0, lives: Vec::new() };
    for spans in pairs.values_mut() {
        spans.sort_unstable();
        let mut life =
            PairLifetime { first_start_s: seconds(spans[0].0), last_end_s: seconds(spans[0].1) };
        for two in spans.windows(2) {
            let gap_s = (two[1].0 - two[0].0) as f64 / 1e9;
            if gap_s <= BOUND_S {
                found.gaps.push(gap_s);
            } else {
                found.beyond += 1;
            }
            let (first_start_s, last_end_s) = (seconds(two[1].0), seconds(two[1].1));
            if first_start_s - life.last_end_s <= BOUND_S {
                life.last_end_s = life.last_end_s.max(last_end_s);
            } else {
                found.lives.push(life);
                life = PairLifetime { first_start_s, last_end_s };
            }
        }
        found.lives.push(life);
    }
    found
}

/// Headers and options of a packet that only acknowledges.
fn header_bytes(flow: &FlowRecord) -> u64 {
    if flow.key.source.is_ipv4() { 72 } else { 92 }
}

#[test]
fn the_partitioned_estimate_agrees_with_its_naive_twin() {
    for seed in 0..3 {
        let records = records(100 + seed, 4_000);
        let model: TrafficModel = estimate(records.clone(), &options()).expect("a model").model;
        let repaired = repair(records, HARPOON_GAP_MAX_NS);
        assert!(repaired.counts.joined() > 50 && repaired.counts.doubled.records > 20);
        assert_eq!(model.coverage.records_joined, repaired.counts.joined());
        assert_eq!(model.coverage.flows, repaired.records.len() as u64);
        let is_tcp = |flow: &FlowRecord| flow.key.protocol == TCP;
        let origin_ns = repaired.records.iter().map(|flow| flow.start_ns).min().expect("records");
        let flows: Vec<FlowRecord> = repaired.records.into_iter().filter(is_tcp).collect();
        let naive = naive(&flows, origin_ns);
        assert_eq!(model.coverage.flows_in_model, naive.sizes.len() as u64);
        assert_eq!(model.coverage.gaps_beyond_bound, naive.beyond);
        assert!(naive.sizes.len() > 100, "{} sizes", naive.sizes.len());
        assert!(naive.gaps.len() > 100 && naive.beyond > 30, "{} gaps", naive.gaps.len());
        assert_eq!(model.file_size, Empirical::step_from(naive.sizes, 2_048).expect("sizes"));
        assert_eq!(
            model.inter_connection,
            Empirical::linear_from(naive.gaps, 1_024).expect("gaps")
        );
        let sessions: Vec<f64> =
            model.intervals.iter().map(|interval| interval.sessions_direct).collect();
        // They are summed in whole nanoseconds.
        let lengths_s: Vec<f64> =
            model.intervals.iter().map(|interval| interval.duration_s).collect();
        for (found, naive) in sessions.iter().zip(direct(&naive.lives, 20.0, &lengths_s)) {
            assert!((found - naive).abs() < 1e-6 * naive, "{found} for {naive}");
        }
    }
}
