//! `nilometer route bench classify` as scripts use it: files, figures, sums and refusals.

use crate::common::Room;
use nilometer_bench::headers::{HEADERS, drawn};
use nilometer_router::classifier::classbench::read_rules;
use nilometer_router::{Key, Rule};
use serde_json::Value;

/// Filters that nest, overlap and leave fields open, with and without flags.
const RULES: &str = "\
@10.1.2.3/32\t20.0.0.0/8\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0200/0x1200\t
@10.1.0.0/16 20.1.0.0/16 1024 : 65535 0 : 1023 0x11/0xFF

@0.0.0.0/0\t20.1.2.0/24\t0 : 65535\t0 : 65535\t0x00/0x00\t0x0000/0x0000
@10.0.0.0/8\t0.0.0.0/0\t53 : 53\t0 : 65535\t0x10/0xF0
@128.0.0.0/1\t0.0.0.0/1\t0 : 65535\t7 : 9\t0x06/0xFF\t0x1000/0x1000
";
/// Headers; the last matches no filter.
const TRACE: &str = "\
167838211 335609856 1 80 6 33559040 0
167838211 335609856 1 80 6 301994496 0
167838211 335609856 2000 80 17 2
167838211 1 53 9 17
2147483648 1 1 1 1
";

const BENCH: [&str; 7] = ["route", "bench", "classify", "--rounds", "1", "--rules", "rules"];

/// The sum of the places of the first matching filters, from 1, computed from the format's
/// definition of the columns.
fn sum(rules: &[Rule<u32>], headers: &[Key<u32>]) -> u64 {
    let is_first = |rule: &Rule<u32>, header: &Key<u32>| {
        let differs = |address: u32, prefix: nilometer_router::Prefix<u32>| {
            u64::from(address ^ prefix.address()) >> (32 - prefix.length()) != 0
        };
        !differs(header.source, rule.source)
            && !differs(header.destination, rule.destination)
            && (rule.source_ports.first()..=rule.source_ports.last()).contains(&header.source_port)
            && (rule.destination_ports.first()..=rule.destination_ports.last())
                .contains(&header.destination_port)
            && (header.protocol ^ rule.protocol.value()) & rule.protocol.mask() == 0
            && (header.flags ^ rule.flags.value()) & rule.flags.mask() == 0
    };
    let place = |header| rules.iter().position(|rule| is_first(rule, header));
    headers.iter().map(|header| place(header).map_or(0, |place| place as u64 + 1)).sum()
}

#[test]
fn sums_are_those_of_a_search_from_the_first_filter_on() {
    let room = Room::new("route-bench-classify");
    room.write("rules", RULES);
    let result = room.counted(&[&BENCH[..], &["--json", "--flow-cache"]].concat());
    let parsed = read_rules(RULES).expect("five filters");
    let headers = drawn(&parsed);
    let expected = sum(&parsed, &headers);
    assert!(expected > HEADERS as u64, "most headers are of some filter");
    for checksum in ["checksum", "checksum_after_updates", "checksum_linear"] {
        assert_eq!(result[checksum], expected, "{checksum}");
    }
    for (count, expected) in [("rules", 5), ("headers", HEADERS), ("distinct_headers", HEADERS)] {
        assert_eq!(result[count], expected, "{count}");
    }
    let rates = ["mheaders_per_second", "mheaders_per_second_flow_cache", "updates_per_second"];
    for rate in rates {
        assert!(result[rate].as_f64().is_some_and(|rate| rate > 0.0), "{rate}: {result}");
    }
    assert_eq!(result["classifier"], "vectors");
    let shown = room.done(&BENCH);
    assert!(shown.starts_with("5 filters in "), "{shown}");
    for classifier in ["tuples", "linear"] {
        let args = ["--json", "--classifier", classifier];
        let result = room.counted(&[&BENCH[..], &args].concat());
        assert_eq!(result["classifier"], classifier);
        assert_eq!(result["checksum_after_updates"], expected, "{classifier}");
    }
}

#[test]
fn a_trace_is_taken_as_it_is() {
    let room = Room::new("route-bench-classify-trace");
    room.write("rules", RULES);
    room.write("trace", TRACE);
    let words = [&BENCH[..], &["--trace", "trace", "--json"]].concat();
    let result = room.counted(&words);
    // SYN: filter 1. SYN and ACK: none. UDP: filter 2. From port 53: filter 4. ICMP: none.
    assert_eq!((&result["checksum"], &result["headers"]), (&Value::from(1 + 2 + 4), &5.into()));
    let result = room.counted(&[&words[..], &["--without-flags"]].concat());
    assert_eq!(result["checksum"], 1 + 1 + 2 + 4, "the second too is of the first filter");
}

#[test]
fn malformed_files_are_refused_with_file_and_line() {
    let room = Room::new("route-bench-classify-refusals");
    room.write("rules", RULES);
    room.write("bad", RULES.to_owned() + "@10.0.0.0/8 1.2.3.4 0 : 1 0 : 1 0x0/0x0\n");
    room.write("empty", "\n");
    room.write("trace", "1 2 3 4 5\n1 2 3 4 256\n");
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--rules", "bad"], &["bad: line 7: ", "an IPv4 address, a slash and a length"]),
        (&["--rules", "empty"], &["empty: empty; give a file in ClassBench's format"]),
        (&["--rules", "nowhere"], &["cannot read nowhere"]),
        (&["--rules", "rules", "--trace", "trace"], &["trace: line 2: ", "decimal numbers"]),
        (&[], &["--rules"]),
    ];
    for (words, wanted) in cases {
        let message = room.refused(&[&BENCH[..3], words].concat());
        assert!(wanted.iter().all(|part| message.contains(part)), "{words:?}: {message}");
    }
}
