//! `nilometer route bench fib` as scripts meet it: files, figures, sums and refusals.

mod common;

use std::io::Write;

use common::Room;
use flate2::Compression;
use flate2::write::GzEncoder;
use nilometer_lab::route::bench::addresses::{Drawn, drawn, random};
use nilometer_router::{Fib, FibLinear, NextHop, Prefix};
use serde_json::Value;

/// Prefixes in the order of the file, one of them twice.
const V4: [&str; 9] = [
    "0.0.0.0/1",
    "128.0.0.0/2",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.128.0/17",
    "10.1.2.0/24",
    "10.1.2.128/25",
    "10.1.2.3/32",
    "10.0.0.0/8",
];
const V6: [&str; 5] = ["::/0", "2000::/3", "8000::/1", "fd00::/8", "2001:db8:1::/48"];

/// The table with everything in it that is to be skipped.
fn file() -> String {
    let mut text = "; a table\n# of our own\n\n".to_owned();
    for line in V4 {
        text += &format!("{line} via 192.0.2.1 65000\n");
    }
    text += "\n  \n";
    text + &V6.map(|line| format!("{line}\t7\r\n")).concat()
}

/// Sums over both sets of addresses, each address looked for in every route.
fn sums<A: Drawn>(lines: &[&str]) -> [u64; 2]
where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    let prefixes: Vec<Prefix<A>> = lines.iter().map(|line| line.parse().expect(line)).collect();
    let mut twin = FibLinear::new();
    for (number, &prefix) in prefixes.iter().enumerate() {
        twin.insert(prefix, NextHop(1 + number as u16 % 64)).expect("there is always room");
    }
    [random(), drawn(&prefixes)].map(|addresses: Vec<A>| {
        let next_hops = addresses.iter().filter_map(|address| twin.lookup(*address));
        next_hops.map(|next| u64::from(next.0)).sum()
    })
}

fn hold(result: &Value, family: u64, different: usize, sums: [u64; 2]) {
    assert_eq!(result["family"], family);
    let engines = result["engines"].as_array().expect("a list");
    assert!(engines.iter().any(|engine| engine["engine"] == "tree_bitmap"));
    for engine in engines {
        assert_eq!(engine["checksum_random"], sums[0], "{engine}");
        assert_eq!(engine["checksum_prefix"], sums[1], "{engine}");
        let bytes = engine["bytes_per_prefix"].as_f64().expect("a number") * different as f64;
        assert!(bytes >= 1.0 && (bytes - bytes.round()).abs() < 1e-3, "{engine}: {bytes}");
        for rate in ["mlookups_random", "mlookups_prefix", "updates_per_second"] {
            assert!(engine[rate].as_f64().is_some_and(|rate| rate > 0.0), "{engine}");
        }
    }
}

#[test]
fn all_tables_agree_with_a_search_of_every_route() {
    let room = Room::new("route-bench-fib");
    room.write("table.txt", file());
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(file().as_bytes()).expect("memory can be written");
    room.write("table.gz", packed.finish().expect("memory can be written"));
    let bench = ["route", "bench", "fib", "--rounds", "1", "--json", "--table"];
    for name in ["table.txt", "table.gz"] {
        let result = room.counted(&[&bench[..], &[name]].concat());
        hold(&result, 4, V4.len() - 1, sums::<u32>(&V4));
        assert_eq!((&result["prefixes"], &result["skipped"]), (&9.into(), &5.into()));
        let result = room.counted(&[&bench[..], &[name, "--family", "6"]].concat());
        hold(&result, 6, V6.len(), sums::<u128>(&V6));
    }
    let output = room.run(&["route", "bench", "fib", "--rounds", "1", "--table", "table.txt"]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said, "nilometer: 5 prefixes of the other family were skipped\n");
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(shown.starts_with("9 prefixes of IPv4\nengine"), "{shown}");
}

#[test]
fn what_is_no_table_is_refused() {
    let room = Room::new("route-bench-fib-refusals");
    let refused = |text: &str, more: &[&str]| {
        room.write("t", text);
        room.refused(&[&["route", "bench", "fib", "--json", "--table", "t"], more].concat())
    };
    for (text, line) in [
        ("10.0.0.0/8\n10.0.0.1/8\n", 2),
        ("# 1\n\n10.0.0.0\n", 3),
        ("fd00::/129\n", 1),
        ("10.0.0.0/8\nfd00::1/8 x\n", 2),
        ("10.0.0.0/8\n10.0.0.0/33\n", 2),
    ] {
        let said = refused(text, &[]);
        assert!(said.contains(&format!("t: line {line}: `")), "{said}");
    }
    assert!(refused("10.0.0.0/8\n", &["--family", "6"]).contains("no prefix of IPv6"));
    assert!(refused("", &[]).contains("no prefix of IPv4"));
    room.refused(&["route", "bench", "fib", "--table", "missing"]);
    room.refused(&["route", "bench", "fib", "--table", "t", "--family", "5"]);
    room.refused(&["route", "bench", "fib", "--table", "t", "--rounds", "0"]);
}
