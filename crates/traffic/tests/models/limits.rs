//! Input just beyond a limit of the estimate is refused, and input at the limit makes the same model as without
//! it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nilometer_flow::record::{TCP, UDP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::Rng;
use nilometer_traffic::TrafficModel;
use nilometer_traffic::estimate::{EstimateError, EstimateOptions, estimate_partitioned};
use nilometer_traffic::limits::Limits;
use nilometer_traffic::model::Origin;
use nilometer_traffic::partitioner::{MemoryBudget, Partitioner};
use nilometer_traffic::runner::Sequential;
use nilometer_traffic::spill::SpillStore;

const ORIGIN_NS: u64 = 1_767_225_600_000_000_000;
const MILLI_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MILLI_NS;
const DAY_NS: u64 = 86_400 * SECOND_NS;
const ALL: usize = usize::MAX;

fn options() -> EstimateOptions {
    EstimateOptions {
        interval_s: None,
        bound_s: 60.0,
        keep_addresses: true,
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: true, inputs: Vec::new() },
        span_ns: None,
        clients: vec!["198.18.0.0/16".parse().expect("a prefix")],
        servers: vec!["198.19.0.0/16".parse().expect("a prefix")],
        harpoon: false,
    }
}

/// A spill store in memory, which counts how often it was read.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<usize, Vec<u8>>>, AtomicUsize);

impl SpillStore for Kept {
    fn append(&self, partition: usize, bytes: &[u8]) -> Result<(), String> {
        self.0.lock().expect("nobody panics").entry(partition).or_default().extend(bytes);
        Ok(())
    }

    fn len_bytes(&self, partition: usize) -> u64 {
        self.0.lock().expect("nobody panics").get(&partition).map_or(0, |bytes| bytes.len() as u64)
    }

    fn read(&self, partition: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        self.1.fetch_add(1, Ordering::Relaxed);
        each(&self.0.lock().expect("nobody panics").get(&partition).cloned().unwrap_or_default());
        Ok(())
    }
}

type Made = Result<(TrafficModel, Vec<String>), EstimateError>;

/// The model of records, of which `together` may be processed together.
fn model(records: &[FlowRecord], together: usize, limits: Limits) -> Made {
    model_beside(&Kept::default(), records, together, limits)
}

fn model_beside(spill: &Kept, records: &[FlowRecord], together: usize, limits: Limits) -> Made {
    let mut partitioner =
        Partitioner::with_limits(MemoryBudget { packed: ALL, batch: together }, limits);
    records.iter().for_each(|record| partitioner.push(record.clone()));
    let made = estimate_partitioned(partitioner, spill, &options(), &Sequential)?;
    Ok((made.model, made.warnings))
}

/// A limit, and the error that names it.
struct Limit {
    of: fn(usize) -> Limits,
    error: fn(usize) -> EstimateError,
    /// The error's text, with a `#` for the limit.
    line: &'static str,
}

const ADDRESSES: Limit = Limit {
    of: |addresses| Limits { addresses, ..Limits::default() },
    error: EstimateError::TooManyAddresses,
    line: "more than # clients or servers; give a part of the input",
};
const HOST_TIMES: Limit = Limit {
    of: |host_times| Limits { host_times, ..Limits::default() },
    error: EstimateError::TooManyTimes,
    line: "hosts of records without TCP flags came and went more than # times; give a part of the input",
};
const DOUBTFUL: Limit = Limit {
    of: |doubtful| Limits { doubtful, ..Limits::default() },
    error: EstimateError::TooManyDoubtful,
    line: "more than # records without TCP flags have impossible timestamps; give a part of the input",
};
const PAIR_EVENTS: Limit = Limit {
    of: |pair_events| Limits { pair_events, ..Limits::default() },
    error: EstimateError::TooManyOfPair,
    line: "more than # starts and answers of connections of one address pair; give a part of the input, \
           or hold more flow records",
};
const PER_SOCKET_PAIR: Limit = Limit {
    of: |per_socket_pair| Limits { per_socket_pair, ..Limits::default() },
    error: EstimateError::TooManyOfSockets,
    line: "more than # flow records of one pair of sockets; give a part of the input",
};

impl Limit {
    /// Checks a limit with records that have exactly `most` of the limited thing.
    fn assert_is(&self, most: usize, mut records: Vec<FlowRecord>, together: usize) {
        Rng::new(1, 0x6c69_6d69, 0).shuffle(&mut records);
        let usual = model(&records, together, Limits::default()).expect("a model");
        assert_eq!(model(&records, ALL, Limits::default()), Ok(usual.clone()));
        assert_eq!(model(&records, together, (self.of)(most)), Ok(usual), "{together} together");
        let refused = model(&records, together, (self.of)(most - 1));
        let error = refused.map(|_| ()).expect_err("there is one too many");
        assert_eq!(error, (self.error)(most - 1), "{together} together");
        assert_eq!(error.to_string(), self.line.replace('#', &(most - 1).to_string()));
    }

    /// How often partitions were read until these records were refused for exceeding `most`.
    fn fetches(&self, most: usize, records: &[FlowRecord], together: usize) -> usize {
        let spill = Kept::default();
        let refused = model_beside(&spill, records, together, (self.of)(most));
        assert_eq!(refused.map(|_| ()), Err((self.error)(most)));
        spill.1.into_inner()
    }
}

/// The client (side 0) or server (side 1) with this number.
fn host(side: u32, number: u32, is_v6: bool) -> IpAddr {
    match is_v6 {
        true => IpAddr::V6(
            (0x2001_0db8_u128 << 96 | u128::from(side) << 32 | u128::from(number)).into(),
        ),
        false => IpAddr::V4((198 << 24 | (18 + side) << 16 | number).into()),
    }
}

/// A client and a server.
fn ends(client: u32, server: u32, is_v6: bool) -> [IpAddr; 2] {
    [host(0, client, is_v6), host(1, server, is_v6)]
}

/// Both directions of a connection from one port, opened `second` seconds after the origin and answered at
/// once.
fn connection([source, destination]: [IpAddr; 2], port: u16, second: u64) -> [FlowRecord; 2] {
    let start_ns = ORIGIN_NS + second * SECOND_NS;
    let request = FlowRecord {
        key: FlowKey {
            source,
            destination,
            source_port: port,
            destination_port: 80,
            protocol: TCP,
        },
        start_ns,
        end_ns: start_ns + SECOND_NS / 2,
        packets: 8,
        octets: 1_200,
        tcp_flags: tcp_flags::SYN | tcp_flags::ACK | tcp_flags::FIN,
        payload_octets: None,
        opened: Some(true),
        end_reason: EndReason::Unknown,
        sampling_interval: 0,
    };
    let answer = FlowRecord {
        key: request.key.reversed(),
        start_ns: request.start_ns + 5 * MILLI_NS,
        end_ns: request.end_ns + 5 * MILLI_NS,
        octets: 9_000,
        opened: Some(false),
        ..request.clone()
    };
    [request, answer]
}

/// Whole connections of a pair of addresses, which are in every model.
fn usual_ones() -> Vec<FlowRecord> {
    (0..8).flat_map(|number| connection(ends(1, 1, false), 2_000 + number, number.into())).collect()
}

fn without_flags(record: FlowRecord) -> FlowRecord {
    FlowRecord { tcp_flags: 0, opened: None, ..record }
}

fn sampled(record: FlowRecord) -> FlowRecord {
    FlowRecord { packets: 2, sampling_interval: 10, ..record }
}

fn of_udp(mut record: FlowRecord) -> FlowRecord {
    record.key.protocol = UDP;
    FlowRecord { tcp_flags: 0, opened: None, ..record }
}

#[test]
fn more_clients_or_servers_than_the_limit_are_refused() {
    for together in [ALL, 3] {
        for is_v6 in [false, true] {
            let clients = (1..=40).flat_map(|client| connection(ends(client, 1, is_v6), 99, 0));
            ADDRESSES.assert_is(40, clients.collect(), together);
            let servers = (1..=40).flat_map(|server| connection(ends(1, server, is_v6), 99, 0));
            ADDRESSES.assert_is(40, servers.collect(), together);
        }
        // Sampled ones and those without flags are counted with the others, each client once.
        let others = (21..=50).flat_map(|client| {
            let [request, answer] = connection(ends(client, 1, false), 99, 5);
            [sampled(request), sampled(answer)]
        });
        let clients = (1..=25).flat_map(|client| connection(ends(client, 1, false), 99, 0));
        let bare = (1..=60).map(|client| connection(ends(client, 1, false), 98, 60));
        let bare = bare.flatten().map(without_flags);
        let later = usual_ones().into_iter().map(|record| FlowRecord {
            start_ns: record.start_ns + 300 * SECOND_NS,
            end_ns: record.end_ns + 300 * SECOND_NS,
            ..record
        });
        ADDRESSES.assert_is(60, clients.chain(others).chain(bare).chain(later).collect(), together);
    }
}

#[test]
fn more_host_times_than_the_limit_are_refused() {
    let records: Vec<FlowRecord> = (1..=30)
        .flat_map(|client| connection(ends(client, 1, client % 3 == 0), 99, u64::from(client) % 20))
        // A client of either family and its server return; for the first, another connection soon after.
        .chain(connection(ends(1, 1, false), 99, 400))
        .chain(connection(ends(1, 1, false), 98, 420))
        .chain(connection(ends(3, 1, true), 99, 400))
        .map(without_flags)
        .chain(usual_ones())
        .collect();
    for together in [ALL, 3] {
        HOST_TIMES.assert_is(30 + 2 + 2 + 2, records.clone(), together);
    }
}

#[test]
fn more_impossible_stamps_than_the_limit_are_refused() {
    let bare = (1..=40).flat_map(|client| connection(ends(client, 1, client % 3 == 0), 99, 30));
    let mut records: Vec<FlowRecord> = bare.map(without_flags).chain(usual_ones()).collect();
    for record in records[..80].iter_mut().step_by(4) {
        record.start_ns -= 3 * DAY_NS;
        record.packets = 1;
    }
    // Records with flags are not looked up.
    records[80].start_ns -= 3 * DAY_NS;
    for together in [ALL, 3] {
        DOUBTFUL.assert_is(20, records.clone(), together);
    }
}

#[test]
fn more_pending_events_of_an_address_pair_than_the_limit_are_refused() {
    let connections = |pair: u32, count: u16| {
        let pair = ends(2, pair, pair.is_multiple_of(2));
        (0..count).flat_map(move |number| connection(pair, 1_024 + number, number.into()))
    };
    let many = |records: Vec<FlowRecord>| [records, usual_ones()].concat();
    for together in [20, 3] {
        // Forty were opened, and as many answered.
        PAIR_EVENTS.assert_is(80, many(connections(1, 40).collect()), together);
        PAIR_EVENTS.assert_is(80, many(connections(2, 40).collect()), together);
        let of_samples = connections(1, 40).map(sampled).chain(connections(2, 30).map(sampled));
        PAIR_EVENTS.assert_is(80, many(of_samples.collect()), together);
        PAIR_EVENTS.assert_is(40, many(connections(1, 40).map(of_udp).collect()), together);
        // Address pairs wait one after the other.
        PAIR_EVENTS.assert_is(
            80,
            many((1..=9).flat_map(|pair| connections(pair, 40)).collect()),
            together,
        );
    }
    // A pair that is processed at once does not wait.
    let looked_at = many(connections(1, 40).collect());
    let usual = model(&looked_at, 80, Limits::default()).expect("a model");
    assert_eq!(model(&looked_at, 80, (PAIR_EVENTS.of)(0)), Ok(usual));
}

#[test]
fn conversations_are_counted_as_soon_as_their_address_pair_is_complete() {
    let of_pair = |number: u32| {
        let pair = ends(3, number, false);
        // Ten UDP conversations, and other flows whose opening and answer were not seen.
        (0..30).map(move |port| {
            let [request, _] = connection(pair, 1_024 + port, port.into());
            match port % 3 {
                0 => of_udp(request),
                _ => FlowRecord { tcp_flags: tcp_flags::ACK, ..request },
            }
        })
    };
    // Whole connections of pairs that do not wait.
    let whole = (1..=8).flat_map(|number| connection(ends(number, number, true), 99, 5));
    let records = (1..=20).flat_map(of_pair).chain(whole);
    PAIR_EVENTS.assert_is(10, records.collect(), 2);
}

#[test]
fn more_records_of_one_socket_pair_than_the_limit_are_refused() {
    for is_v6 in [false, true] {
        let pieces = (0..20).flat_map(|piece| {
            let flags = [tcp_flags::SYN, 0, tcp_flags::FIN][usize::from(piece > 0) + piece / 19];
            connection(ends(1, 1, is_v6), 99, piece as u64)
                .map(|record| FlowRecord { tcp_flags: tcp_flags::ACK | flags, ..record })
        });
        let records: Vec<FlowRecord> = pieces.chain(usual_ones()).collect();
        for together in [39, 3] {
            PER_SOCKET_PAIR.assert_is(40, records.clone(), together);
        }
        // As many as may be processed together in any case.
        let usual = model(&records, ALL, Limits::default()).expect("a model");
        assert_eq!(model(&records, 40, (PER_SOCKET_PAIR.of)(1)), Ok(usual));
        let refused = model(&records, 39, (PER_SOCKET_PAIR.of)(1));
        assert_eq!(refused, Err(EstimateError::TooManyOfSockets(39)));
    }
}

/// Memory grows until the input is refused, and no further.
#[test]
fn far_too_many_records_are_refused_before_all_are_read() {
    let clients = |count: u32| (1..=count).map(|client| connection(ends(client, 1, true), 99, 0));
    let request = |[request, _]: [FlowRecord; 2]| request;
    let flagged: Vec<FlowRecord> = clients(400_000).map(request).collect();
    let [early, late] = [1_000, 399_999].map(|most| ADDRESSES.fetches(most, &flagged, ALL));
    assert!(4 * early < 3 * late, "{early} of {late}");
    let bare: Vec<FlowRecord> = clients(100_000).map(request).map(without_flags).collect();
    let [early, late] = [1_000, 100_000].map(|most| HOST_TIMES.fetches(most, &bare, ALL));
    assert!(10 * early < 9 * late, "{early} of {late}");
    let pair = ends(1, 1, false);
    let of_pair: Vec<FlowRecord> =
        (1..=1_000).flat_map(|port| connection(pair, port, port.into())).collect();
    let [early, late] = [20, 1_999].map(|most| PAIR_EVENTS.fetches(most, &of_pair, 3));
    assert!(2 * early < late, "{early} of {late}");
}

#[test]
fn default_limits_are_as_documented() {
    let expected = Limits {
        addresses: 33_554_432,
        host_times: 33_554_432,
        doubtful: 4_194_304,
        pair_events: 67_108_864,
        per_socket_pair: 16_777_216,
    };
    assert_eq!(Limits::default(), expected);
}
