//! NetFlow v9 and IPFIX of real exporters, against the counts of other programs.

use std::fs;
use std::path::Path;

use nilometer_flow::FlowRecord;
use nilometer_flow::counts::{Counts, Skip};
use nilometer_flow::template::{Limits, Session};

use crate::capture::{datagrams, shared, somebody};

/// The results of the datagrams of some files, in their order.
fn decode(files: &[Vec<u8>]) -> (Vec<FlowRecord>, Counts) {
    let (mut session, mut counts) = (Session::new(Limits::default()), Counts::default());
    let mut flows = Vec::new();
    for file in files {
        let received = match file.get(..4) {
            Some([0xd4, 0xc3, 0xb2, 0xa1] | [0x0a, 0x0d, 0x0d, 0x0a]) => datagrams(file),
            _ => vec![crate::capture::Datagram {
                exporter: somebody(),
                stamp_ns: 0,
                payload: file.clone(),
            }],
        };
        for datagram in received {
            let (exporter, payload) = (datagram.exporter, &datagram.payload);
            let taken =
                session.receive(exporter, payload, &mut counts, &mut |record| flows.push(record));
            counts.malformed += u64::from(taken.is_err());
            counts.assert_balanced();
        }
    }
    session.finish(&mut counts);
    counts.assert_balanced();
    assert_eq!(counts.given(), flows.len() as u64);
    assert_eq!(counts.bytes.held, 0);
    (flows, counts)
}

fn sums(flows: &[FlowRecord]) -> [u64; 2] {
    [flows.iter().map(|flow| flow.packets).sum(), flows.iter().map(|flow| flow.octets).sum()]
}

fn skips(counts: &Counts) -> String {
    let met: Vec<_> = counts.skips.met().map(|(skip, n)| format!("{}={n}", skip.name())).collect();
    if met.is_empty() { "-".to_owned() } else { met.join(",") }
}

#[test]
fn every_exporter_has_its_counts_in_any_order_of_files() {
    let Some(folder) = shared("NetFlow v9 and IPFIX of forty exporters") else { return };
    let folder = folder.join("logstash-codec-netflow");
    let mut rows = 0;
    for line in include_str!("exporters.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> =
            line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        let mut files: Vec<_> = (words[6..].iter())
            .map(|name| fs::read(folder.join(format!("{name}.dat"))).unwrap())
            .collect();
        let (flows, counts) = decode(&files);
        let [packets, octets] = sums(&flows);
        let found = [counts.flows, counts.reverse_flows, counts.options, packets, octets];
        let expected = words[..5].iter().map(|word| word.parse().unwrap()).collect::<Vec<u64>>();
        assert_eq!((&found[..], &*skips(&counts)), (&expected[..], words[5]), "{line}");
        for flow in &flows {
            let day_ns = 86_400_000_000_000;
            assert!(flow.end_ns - flow.start_ns <= day_ns, "{line}: {flow:?}");
        }
        // Templates last: everything waits for them, and the result is the same.
        files.reverse();
        let (late_flows, late) = decode(&files);
        assert_eq!((late.flows, late.skips), (counts.flows, counts.skips), "{line}");
        assert_eq!(sums(&late_flows), [packets, octets], "{line}");
        rows += 1;
    }
    assert_eq!(rows, 40);
}

/// The sum of one field over the lines of a file of JSON objects.
fn json_sum(text: &str, name: &str) -> u64 {
    let name = format!("\"{name}\": ");
    let numbers = text.split(&name).skip(1);
    numbers.map(|rest| rest.split([',', '}']).next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn captures_have_the_sums_that_pmacct_found() {
    let Some(folder) = shared("captures of exports with pmacct's sums") else { return };
    let folder = folder.join("pmacct");
    // Captures, the file of pmacct's sums, flows, options, and the factor by which pmacct
    // multiplied.
    let table: [(&[&str], &str, u64, u64, u64); 8] = [
        (&["100-IPFIXv10-CISCO/traffic-00"], "100-IPFIXv10-CISCO", 12, 0, 1),
        (
            &["101-NFv9-CISCO-cust_primitives/traffic-00"],
            "101-NFv9-CISCO-cust_primitives",
            51,
            0,
            1,
        ),
        (
            &["102-NFv9-CISCO-f2rd-pretag-sampling-reload/traffic-00"],
            "102-NFv9-CISCO-f2rd-pretag-sampling-reload",
            35,
            0,
            1,
        ),
        (
            &["103-IPFIXv10-CISCO-pretag-JSON_encoding/traffic-00"],
            "103-IPFIXv10-CISCO-pretag-JSON_encoding",
            12,
            0,
            1,
        ),
        (
            &["104-IPFIXv10-IPv6-CISCO-sampling_option/traffic-00"],
            "104-IPFIXv10-IPv6-CISCO-sampling_option",
            3,
            1,
            256,
        ),
        (&["106-IPFIXv10-HUAWEI-vrf_name/traffic-00"], "106-IPFIXv10-HUAWEI-vrf_name", 3, 1, 1),
        (
            &[
                "111-IPFIXv10-NFv9-IPv6-IPv4-mix_sources/traffic-00",
                "111-IPFIXv10-NFv9-IPv6-IPv4-mix_sources/traffic-01",
            ],
            "111-IPFIXv10-NFv9-IPv6-IPv4-mix_sources",
            24,
            0,
            1,
        ),
        (
            &["112-IPFIXv10-CISCO-options-map-reassignment/traffic-00"],
            "112-IPFIXv10-CISCO-options-map-reassignment",
            9,
            76,
            1,
        ),
    ];
    for (captures, sums_in, flows_expected, options, scale) in table {
        let files: Vec<_> = (captures.iter())
            .map(|name| fs::read(folder.join(format!("{name}.pcap"))).unwrap())
            .collect();
        let (flows, counts) = decode(&files);
        let text = fs::read_to_string(folder.join(sums_in).join("output-flow-00.json")).unwrap();
        let expected = [json_sum(&text, "packets"), json_sum(&text, "bytes")];
        assert_eq!((counts.flows, counts.options), (flows_expected, options), "{sums_in}");
        assert_eq!(sums(&flows).map(|sum| sum * scale), expected, "{sums_in}");
        if scale > 1 {
            assert!(flows.iter().all(|flow| u64::from(flow.sampling_interval) == scale));
        }
    }
    // Test 110 plays the captures of 100, 101 and 102 together.
    let names = ["100-IPFIXv10-CISCO", "101-NFv9-CISCO-cust_primitives"];
    let third = "102-NFv9-CISCO-f2rd-pretag-sampling-reload";
    let files = [names[0], names[1], third].map(|name| capture_of(&folder, name));
    let text =
        fs::read_to_string(folder.join("110-IPFIXv10-NFv9-multiple-sources/output-flow-00.json"));
    let text = text.unwrap();
    let expected = [json_sum(&text, "packets"), json_sum(&text, "bytes")];
    assert_eq!(sums(&decode(&files).0), expected);
}

fn capture_of(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name).join("traffic-00.pcap")).unwrap()
}

#[test]
fn one_domain_may_export_from_several_ports() {
    let Some(folder) = shared("a router that exports from two ports") else { return };
    let name = "112-IPFIXv10-CISCO-options-map-reassignment";
    let (_, counts) = decode(&[capture_of(&folder.join("pmacct"), name)]);
    // Each port numbers its own records; mixed, a million would seem lost.
    assert!(counts.records_lost < 1_000, "{}", counts.records_lost);
    assert_eq!(counts.skips.of(Skip::NoTemplate), 4);
}

#[test]
fn the_malformed_end_in_an_error_or_a_count() {
    let Some(folder) = shared("malformed NetFlow v9") else { return };
    let mut files = 0;
    for below in ["testcases", "fuzz/corpus"] {
        for entry in fs::read_dir(folder.join("libnetflow9").join(below)).unwrap() {
            let path = entry.unwrap().path();
            let (flows, counts) = decode(&[fs::read(&path).unwrap()]);
            let is_sound = path.ends_with("1.pcap");
            assert_eq!(sums(&flows), if is_sound { [4, 220] } else { [0, 0] }, "{path:?}");
            assert_eq!(counts.flows, if is_sound { 2 } else { 0 }, "{path:?}");
            files += 1;
        }
    }
    assert_eq!(files, 23);
    let without_templates = decode(&[fs::read(folder.join("nDPI/pcap/netflowv9.pcap")).unwrap()]).1;
    assert_eq!(skips(&without_templates), "no_template=23");
    let templates_alone = decode(&[fs::read(folder.join("nDPI/pcap/netflow-fritz.pcap")).unwrap()]);
    assert_eq!((templates_alone.1.templates, templates_alone.1.records), (3, 0));
}
