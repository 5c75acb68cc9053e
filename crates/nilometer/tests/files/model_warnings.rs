//! Warnings of `nilometer model`: a model of next to nothing, and inputs that are years apart.

use crate::common;
use std::net::Ipv4Addr;

use common::{Room, text};
use nilometer_flow::netflow5::{self, Header};
use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};

/// A NetFlow v5 export of that second: twenty flows of 8 MB in all, `ended` of which ended.
fn export(unix_secs: u32, ended: u16) -> Vec<u8> {
    let flow = |number: u16| {
        let start_ns =
            (u64::from(unix_secs) - 100) * 1_000_000_000 + u64::from(number) * 900_000_000;
        let end = if number < ended { tcp_flags::FIN } else { 0 };
        FlowRecord {
            key: FlowKey {
                source: Ipv4Addr::new(198, 19, 0, 1).into(),
                destination: Ipv4Addr::new(198, 18, 0, 1).into(),
                source_port: 443,
                destination_port: 2_000 + number,
                protocol: TCP,
            },
            start_ns,
            end_ns: start_ns + 2_000_000_000,
            packets: 400,
            octets: 400_000,
            tcp_flags: tcp_flags::SYN | tcp_flags::ACK | end,
            payload_octets: None,
            opened: None,
            end_reason: EndReason::Unknown,
            sampling_interval: 0,
        }
    };
    let header = Header {
        uptime_ms: 900_000,
        unix_secs,
        unix_nsecs: 0,
        flow_sequence: 0,
        engine_type: 0,
        engine_id: 0,
        sampling_mode: 0,
        sampling_interval: 0,
    };
    netflow5::encode(&header, &(0..20).map(flow).collect::<Vec<_>>()).expect("it fits")
}

/// The warnings of a command that must succeed.
fn warnings(room: &Room, words: &[&str]) -> Vec<String> {
    let output = room.run(words);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {stderr}");
    let warnings = stderr.lines().filter_map(|line| line.strip_prefix("nilometer: warning: "));
    warnings.map(str::to_owned).collect()
}

#[test]
fn a_model_of_few_flows_names_the_main_reason() {
    let room = Room::new("little");
    room.write("one.nf5", export(1_700_000_000, 1));
    room.write("two.nf5", export(1_700_000_000, 2));
    let little = [
        "the model covers 1 of the input's 20 flows and 5 % of its bytes; the most, 19 flows with 95 % \
         of the bytes, was left out for \"no FIN or RST seen\": these flows continued after the input, \
         or their exporter ended them by timeout; add later captures or exports (fragments of a flow are joined), or an export with cumulative TCP flags",
    ];
    assert_eq!(warnings(&room, &["model", "one.nf5", "-o", "one.json"]), little);
    assert_eq!(warnings(&room, &["model", "one.nf5", "--part", "one.parquet"]), [""; 0]);
    let merged = ["model", "merge", "one.parquet", "-o", "merged.json"];
    assert_eq!(warnings(&room, &merged), little, "of parts as of inputs");
    assert_eq!(warnings(&room, &["model", "two.nf5", "-o", "two.json"]), [""; 0], "a tenth");
    assert_eq!(warnings(&room, &["model", "embedded", "-o", "embedded.json"]), [""; 0]);
}

#[test]
fn inputs_years_apart_make_a_model_and_one_line_names_the_gap() {
    let room = Room::new("apart");
    room.write("2005.nf5", export(1_115_000_000, 20));
    room.write("2019.nf5", export(1_565_000_000, 20));
    room.write("soon.nf5", export(1_565_000_060, 20));
    let apart = [
        "the inputs are far apart: nothing from 2005-05-02 02:11:59 UTC (2005.nf5) to 2019-08-05 10:11:40 \
         UTC (2019.nf5), 5208 days; 100 % of the model's time is empty; make a model of each, or give inputs \
         that follow one another",
    ];
    let both = ["model", "2019.nf5", "2005.nf5", "-o", "both.json"];
    assert_eq!(warnings(&room, &both), apart);
    let intervals = room.json("both.json")["intervals"].as_array().expect("intervals").clone();
    let empty = intervals.iter().filter(|interval| interval["bytes"] == 0).count();
    assert_eq!((intervals.len(), empty), (372, 370), "that is what it did to the model");
    for year in ["2005", "2019"] {
        let (input, part) = (format!("{year}.nf5"), format!("{year}.parquet"));
        assert_eq!(warnings(&room, &["model", &input, "--part", &part]), [""; 0]);
    }
    let merge = ["model", "merge", "2005.parquet", "2019.parquet", "-o", "merged.json"];
    let of_parts = apart[0].replace(".nf5", ".parquet");
    assert_eq!(warnings(&room, &merge), [of_parts]);
    let follows = ["model", "2019.nf5", "soon.nf5", "-o", "follows.json"];
    assert_eq!(warnings(&room, &follows), [""; 0]);
}
