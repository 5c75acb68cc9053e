//! The collector: formats mixed, refused, and counted together.

use std::fs;

use nilometer_flow::collector::{Collector, Error, Format};
use nilometer_flow::counts::{Counts, Skip};
use nilometer_flow::template::{Exporter, Limits};
use nilometer_flow::{FlowRecord, netflow5};

use crate::capture::{datagrams, shared, somebody};
use crate::template::{iana, ipfix, set, template, v9};

fn hear(received: &[(Exporter, Vec<u8>)]) -> (Vec<FlowRecord>, Counts, usize) {
    let mut collector = Collector::new(Limits::default());
    let mut flows = Vec::new();
    for (exporter, payload) in received {
        let _ = collector.receive(*exporter, 1, payload, &mut |flow| flows.push(flow));
    }
    collector.finish();
    (flows, collector.counts(), collector.exporters())
}

#[test]
fn formats_are_detected_by_their_first_bytes() {
    let table: [(&[u8], Option<Format>); 8] = [
        (&[0, 5, 0, 1], Some(Format::NetFlow5)),
        (&[0, 7, 0, 1], Some(Format::NetFlow7)),
        (&[0, 9, 0, 1], Some(Format::NetFlow9)),
        (&[0, 10, 0, 16], Some(Format::Ipfix)),
        (&[0, 0, 0, 5], Some(Format::Sflow5)),
        (&[0, 0, 0, 4], None),
        (&[0, 5, 0], None),
        (b"GET / HTTP/1.1", None),
    ];
    for (bytes, format) in table {
        assert_eq!(Format::of(bytes), format, "{bytes:?}");
    }
    let mut collector = Collector::new(Limits::default());
    let refused = collector.receive(somebody(), 1, b"GET / HTTP/1.1", &mut |_| {}).unwrap_err();
    assert_eq!((refused, collector.counts().malformed), (Error::NoExport, 1));
    assert!(refused.to_string().contains("not an export"));
}

#[test]
fn every_format_is_accepted_from_every_address() {
    let of = [iana(8, 4), iana(12, 4), iana(2, 4), iana(1, 4)];
    let least = set(256, &[10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3, 0, 0, 5, 0]);
    let nine = v9(1, 0, &[set(0, &template(256, &of)), least.clone()]);
    let ten = ipfix(0, 0, &[set(2, &template(256, &of)), least.clone(), least]);
    let (flows, _, _) = hear(&[(somebody(), nine.clone())]);
    let header = |flow_sequence| netflow5::Header {
        unix_secs: 1_700_000_000,
        flow_sequence,
        ..netflow5::Header::default()
    };
    let mut flow = flows[0].clone();
    flow.key.protocol = 1;
    let five = |sequence| netflow5::encode(&header(sequence), std::slice::from_ref(&flow)).unwrap();
    let received = [five(0), nine, ten, five(9), b"\0\x05".to_vec()];
    let (flows, counts, exporters) = hear(&received.map(|payload| (somebody(), payload)));
    assert_eq!((flows.len(), counts.datagrams, counts.malformed), (5, 4, 1));
    assert_eq!((counts.records_lost, exporters), (8, 3), "one address, three formats");
    assert!(flows.iter().all(|flow| (flow.packets, flow.octets) == (3, 1_280)));
}

#[test]
fn repeated_datagrams_do_not_hide_a_loss() {
    let of = [iana(8, 4), iana(12, 4), iana(2, 4), iana(1, 4)];
    let records = set(256, &[10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3, 0, 0, 5, 0]);
    let sent = |sequence| v9(sequence, 0, &[set(0, &template(256, &of)), records.clone()]);
    let mirrored = [1, 1, 2, 2, 4, 4].map(|sequence| (somebody(), sent(sequence)));
    let (flows, counts, _) = hear(&mirrored);
    assert_eq!((flows.len(), counts.datagrams, counts.datagrams_repeated), (6, 6, 3));
    assert_eq!(counts.datagrams_lost, 1, "the third");
}

#[test]
fn captures_of_several_formats_are_understood() {
    let Some(folder) = shared("captures of several formats") else { return };
    let read = |name: &str| {
        let file = fs::read(folder.join(name)).unwrap();
        datagrams(&file).into_iter().map(|found| (found.exporter, found.payload))
    };
    let mixed = read("tcpdump/tests/sflow_multiple_counter_30_pdus.pcap").collect::<Vec<_>>();
    let (flows, counts, _) = hear(&mixed);
    assert_eq!((flows.len(), counts.datagrams, counts.malformed), (7, 30, 0));
    assert_eq!(counts.skips.of(Skip::CounterSample), 144);
    let mix = "pmacct/111-IPFIXv10-NFv9-IPv6-IPv4-mix_sources/traffic-0";
    let (one, other) = (read(&format!("{mix}0.pcap")), read(&format!("{mix}1.pcap")));
    let (flows, counts, exporters) = hear(&one.chain(other).collect::<Vec<_>>());
    assert_eq!((flows.len(), counts.flows, exporters), (24, 24, 2));
}

#[test]
fn formats_have_their_names() {
    let all = [Format::NetFlow5, Format::NetFlow7, Format::NetFlow9, Format::Ipfix, Format::Sflow5];
    let wanted = ["NetFlow v5", "NetFlow v7", "NetFlow v9", "IPFIX", "sFlow v5"];
    assert_eq!(all.map(Format::name), wanted);
}

/// The numbering of only as many exporters as the limit is followed; the flows of all are read.
#[test]
fn the_number_of_followed_exporters_is_limited() {
    let limits = Limits { domains_max: 2, ..Limits::default() };
    let mut collector = Collector::new(limits);
    let mut flow = hear(&[(somebody(), v9_of_one(1))]).0.remove(0);
    flow.key.protocol = 1;
    let mut flows = 0;
    for (host, sequence) in [(1, 0), (2, 0), (3, 0), (1, 5), (2, 7), (3, 9)] {
        let header = netflow5::Header {
            unix_secs: 1_700_000_000,
            flow_sequence: sequence,
            ..netflow5::Header::default()
        };
        let sent = netflow5::encode(&header, std::slice::from_ref(&flow)).unwrap();
        let exporter = Exporter { address: [198, 18, 0, host].into(), port: 9_995 };
        collector.receive(exporter, 1, &sent, &mut |_| flows += 1).unwrap();
    }
    assert_eq!((flows, collector.exporters()), (6, 2));
    // Four between 1 and 5, six between 1 and 7; the third is not followed.
    assert_eq!(collector.counts().records_lost, 4 + 6);
}

/// A template and one record of it.
fn v9_of_one(sequence: u32) -> Vec<u8> {
    let of = [iana(8, 4), iana(12, 4), iana(2, 4), iana(1, 4)];
    let record = set(256, &[10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 3, 0, 0, 5, 0]);
    v9(sequence, 0, &[set(0, &template(256, &of)), record])
}
