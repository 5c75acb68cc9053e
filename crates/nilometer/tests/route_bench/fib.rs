//! `nilometer route bench fib` as scripts use it: files, figures, sums and refusals.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use crate::common::Room;
use flate2::Compression;
use flate2::write::GzEncoder;
use nilometer_bench::addresses::{Drawn, drawn, random};
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

/// Sums over both sets of addresses, each address compared with every route.
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
    let one = ["--engine", "tree_bitmap"];
    for (name, engines) in [("table.txt", &[][..]), ("table.gz", &one[..])] {
        let result = room.counted(&[&bench[..], &[name], engines].concat());
        hold(&result, 4, V4.len() - 1, sums::<u32>(&V4));
        assert_eq!((&result["prefixes"], &result["skipped"]), (&9.into(), &5.into()));
        let result = room.counted(&[&bench[..], &[name, "--family", "6"]].concat());
        hold(&result, 6, V6.len(), sums::<u128>(&V6));
        let names = result["engines"].as_array().expect("a list").iter().map(|e| &e["engine"]);
        assert!(names.eq(["lines", "wide_lines", "tree_bitmap"]), "{result}");
    }
    let tree = ["--rounds", "1", "--engine", "tree_bitmap"];
    let output =
        room.run(&[&["route", "bench", "fib", "--table", "table.txt"], &tree[..]].concat());
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(stderr, "nilometer: 5 prefixes of the other family were skipped\n");
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(shown.starts_with("9 prefixes of IPv4\nengine"), "{shown}");
}

/// Third-party tables take turns, and their answers count.
#[test]
fn a_peer_is_timed_compared_and_drawn() {
    let room = Room::new("route-bench-fib-peer");
    room.write("t", V4.join("\n"));
    let sums = sums::<u32>(&V4);
    let peer = |sums: [u64; 2]| {
        // Writes its input to a file, answers each round, and then prints the sums.
        let text = format!(
            "#!/bin/sh\nread -r count\nhead -n $count >told\necho 1\necho other 7.5\n\
             while read -r line; do echo 10.5 20.5; done\necho 1000 {} {}\n",
            sums[0], sums[1]
        );
        room.write("peer", text);
        let may_run = Permissions::from_mode(0o755);
        std::fs::set_permissions(room.path("peer"), may_run).expect("it is ours");
    };
    peer(sums);
    let words = "route bench fib --rounds 3 --engine lines --engine tree_bitmap --under-updates 1 \
                 --json --table t --plot fib.svg --peer ./peer";
    let words: Vec<&str> = words.split_whitespace().collect();
    let result = room.counted(&words);
    let names: Vec<&Value> = (0..2).map(|at| &result["engines"][at]["engine"]).collect();
    assert_eq!(names, ["lines", "tree_bitmap"]);
    let under = result["engines"][1]["under_updates"].as_array().expect("a list");
    let paces: Vec<&Value> = under.iter().map(|under| &under["updates_per_second"]).collect();
    assert_eq!(paces, [1_000, 10_000, 100_000]);
    assert!(under.iter().all(|under| under["mlookups"].as_f64() > Some(0.0)));
    let theirs = &result["peers"][0];
    assert_eq!(theirs["engine"], "other");
    assert_eq!(
        (&theirs["mlookups_random"], &theirs["mlookups_prefix"]),
        (&10.5.into(), &20.5.into())
    );
    assert_eq!(room.read("told"), V4.join("\n") + "\n");
    let svg = room.read("fib.svg");
    for name in [">lines ", ">tree_bitmap ", ">other 10<", ">other 20<", "9 prefixes of IPv4"] {
        assert!(svg.contains(name), "{name}: {svg}");
    }
    peer([sums[0], sums[1] + 1]);
    let output = room.run(&words);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(stderr.contains("lines and other disagree"), "{stderr}");
    room.write("peer", "#!/bin/sh\necho 1\n");
    room.refused(&words);
}

#[test]
fn invalid_tables_are_refused() {
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
        let stderr = refused(text, &[]);
        assert!(stderr.contains(&format!("t: line {line}: `")), "{stderr}");
    }
    assert!(refused("10.0.0.0/8\n", &["--family", "6"]).contains("no prefix of IPv6"));
    assert!(refused("", &[]).contains("no prefix of IPv4"));
    room.refused(&["route", "bench", "fib", "--table", "missing"]);
    room.refused(&["route", "bench", "fib", "--table", "t", "--family", "5"]);
    room.refused(&["route", "bench", "fib", "--table", "t", "--rounds", "0"]);
    room.refused(&["route", "bench", "fib", "--table", "t", "--engine", "linear"]);
}
