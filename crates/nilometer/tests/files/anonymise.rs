//! `flows --anonymise` as a user sees it: other addresses of the same prefixes, and nothing else changed.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use common::{Room, capture};
use serde_json::Value;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
const ADDRESSES: [&str; 2] = ["sourceIPAddress", "destinationIPAddress"];

/// The records of a file of JSON lines, and the addresses in them.
fn records(room: &Room, name: &str) -> (Vec<Value>, Vec<IpAddr>) {
    let text = room.read(name);
    let mut records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut addresses = Vec::new();
    for record in &mut records {
        for name in ADDRESSES {
            let cell = record[name].take();
            addresses.push(cell.as_str().expect("text").parse().expect("an address"));
        }
    }
    (records, addresses)
}

#[test]
fn records_keep_everything_but_their_addresses_and_these_keep_their_prefixes() {
    let room = Room::new("anonymised");
    room.write("small.pcap", capture(60, |_| 500));
    room.write("key", KEY);
    room.done(&["flows", "small.pcap", "-o", "plain.ndjson"]);
    room.done(&["flows", "small.pcap", "-o", "other.ndjson", "--anonymise", "key"]);
    let (plain, before) = records(&room, "plain.ndjson");
    let (other, after) = records(&room, "other.ndjson");
    assert_eq!(plain, other);
    let mapped: BTreeMap<IpAddr, IpAddr> =
        before.iter().copied().zip(after.iter().copied()).collect();
    assert!(before.iter().zip(&after).all(|(one, two)| mapped[one] == *two), "one mapping for all");
    assert_eq!(mapped.len(), 8, "five clients and three servers");
    assert_eq!(mapped.values().collect::<BTreeSet<_>>().len(), 8, "one to one");
    assert!(mapped.iter().all(|(one, two)| one != two), "{mapped:?}");
    let bits = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(_) => panic!("no IPv6 here"),
    };
    for (one, mapped_one) in &mapped {
        for (two, mapped_two) in &mapped {
            let common = |a, b| (bits(a) ^ bits(b)).leading_zeros();
            assert_eq!(common(one, two), common(mapped_one, mapped_two), "{one} {two}");
        }
    }
}

#[test]
fn an_anonymised_table_reveals_no_inputs_and_gives_the_same_model() {
    let room = Room::new("anonymised-table");
    room.write("of-a-customer.pcap", capture(60, |number| 300 + number as usize));
    room.write("key", KEY);
    let words = ["flows", "of-a-customer.pcap", "-o", "plain.parquet"];
    room.done(&words);
    room.done(&["flows", "of-a-customer.pcap", "-o", "other.parquet", "--anonymise", "key"]);
    let holds = |name: &str, what: &str| {
        room.read_bytes(name).windows(what.len()).any(|window| window == what.as_bytes())
    };
    let digest = room.counted(&["flows", "of-a-customer.pcap", "--json", "--digests"])["inputs"][0]
        ["sha256"]
        .clone();
    let digest = digest.as_str().expect("a digest");
    for what in ["of-a-customer", "198.51.100.", digest] {
        assert!(holds("plain.parquet", what) && !holds("other.parquet", what), "{what}");
    }
    let mut models = ["plain", "other"].map(|name| {
        let input = format!("{name}.parquet");
        room.counted(&["model", &input, "-o", &format!("{name}.json"), "--json"])
    });
    models.iter_mut().for_each(|model| model["origin"] = Value::Null);
    let [plain, other] = models;
    assert_eq!(plain, other);
}

#[test]
fn invalid_keys_are_refused_in_one_line() {
    let room = Room::new("anonymised-refused");
    room.write("small.pcap", capture(10, |_| 500));
    room.write("key", KEY);
    room.write("raw", [7; 32]);
    room.write("short", &KEY[..63]);
    room.write("long", KEY.repeat(1_000));
    let words = |key| ["flows", "small.pcap", "-o", "out.csv", "--anonymise", key];
    for key in ["short", "long"] {
        let line = room.refused(&words(key));
        assert!(line.contains(key) && line.contains("64 hexadecimal digits"), "{line}");
    }
    assert!(room.refused(&words("absent")).contains("cannot read the key absent"));
    assert!(room.refused(&["flows", "small.pcap", "--anonymise", "key"]).contains("--output"));
    room.done(&words("raw"));
}
