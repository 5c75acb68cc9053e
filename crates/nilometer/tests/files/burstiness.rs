//! Hurst's parameter of captures, from the command line: found where it was put, and equal to an offline
//! computation.

use crate::common;
use std::path::Path;

use common::{Room, pcap_header, text};
use nilometer_files::input::open::{Input, open};
use nilometer_stat::log_scale_diagram::Diagram;
use nilometer_stat::{Pyramid, Rng, Scaling};
use nilometer_wire::build::{self, Tcp};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, parse};
use serde_json::Value;

/// Bins of a synthetic capture, a millisecond each, and when the first begins.
const BINS: usize = 1 << 14;
const BEGIN_MS: u64 = 1_700_000_000_000;
const NOISE: u32 = 0x6275_7266;

/// Fractional Gaussian noise of variance 1, value by value from what all before it foretell (Hosking,
/// *Water Resources Research* 20(12), 1984): exact, in the square of its length.
fn noise(hurst: f64, length: usize, rng: &mut Rng) -> Vec<f64> {
    let power = |x: f64| x.abs().powf(2.0 * hurst);
    let covariance = |k: f64| 0.5 * (power(k + 1.0) - 2.0 * power(k) + power(k - 1.0));
    let covariances: Vec<f64> = (0..length).map(|k| covariance(k as f64)).collect();
    let (mut weights, mut before) = (Vec::with_capacity(length), Vec::new());
    let (mut series, mut variance) = (vec![rng.normal()], 1.0);
    for n in 1..length {
        let reversed = weights.iter().zip(covariances[1..n].iter().rev());
        let foretold: f64 =
            reversed.map(|(weight, covariance): (&f64, &f64)| weight * covariance).sum();
        let last = (covariances[n] - foretold) / variance;
        before.clone_from(&weights);
        let mirrored = before.iter().zip(before.iter().rev());
        weights = mirrored.map(|(weight, other)| weight - last * other).collect();
        weights.push(last);
        variance *= 1.0 - last * last;
        let mean: f64 = weights.iter().zip(series.iter().rev()).map(|(w, x)| w * x).sum();
        series.push(mean + variance.sqrt() * rng.normal());
    }
    series
}

/// A pcap file of these frames; the length on the link may be more than what was captured.
fn record(file: &mut Vec<u8>, at_us: u64, frame: &[u8], length: usize) {
    let head = [at_us / 1_000_000, at_us % 1_000_000, frame.len() as u64, length as u64];
    file.extend(head.into_iter().flat_map(|word| (word as u32).to_le_bytes()));
    file.extend(frame);
}

/// A capture with `counts` UDP packets in each millisecond, and one small TCP connection at its beginning,
/// which makes it a model.
fn capture_of(counts: &[u64]) -> Vec<u8> {
    let mut file = pcap_header(1);
    let (client, server) = (([198, 51, 100, 1], 4_000).into(), ([203, 0, 113, 1], 80).into());
    let body = [7; 200];
    for (at, flags, sequence, payload) in
        [(0, 0x02, 9, &[][..]), (10, 0x18, 10, &body), (20, 0x11, 210, &[])]
    {
        let segment = Tcp { flags, sequence, payload, ..Tcp::new(client, server) };
        let frame = build::ethernet(&segment.ip_packet());
        record(&mut file, BEGIN_MS * 1_000 + at, &frame, frame.len());
    }
    let ip = build::udp(client, server, &[0; 972]);
    let frame = build::ethernet(&ip);
    for (ms, &count) in counts.iter().enumerate() {
        for at in 0..count {
            let at_us = (BEGIN_MS + ms as u64) * 1_000 + 50 + at * 900 / count;
            record(&mut file, at_us, &frame[..42], frame.len());
        }
    }
    file
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn the_command_recovers_the_hurst_parameter_of_a_capture() {
    let room = Room::new("hurst");
    for (round, hurst) in [0.5, 0.8].into_iter().enumerate() {
        let mut rng = Rng::new(6, NOISE, round as u64);
        let counts: Vec<u64> = noise(hurst, BINS, &mut rng)
            .iter()
            .map(|value| (9.0 + 2.5 * value).round().max(0.0) as u64)
            .collect();
        room.write("noise.pcap", capture_of(&counts));
        let name = format!("{round}.json");
        let model = room.counted(&["model", "noise.pcap", "-o", &name, "--json"]);
        let found = &model["hurst"];
        assert_eq!((&found["bin_s"], &found["bins"]), (&0.001.into(), &BINS.into()), "{found}");
        for series in ["bytes", "packets"] {
            let one = &found[series];
            let [h, low, high] = ["h", "low", "high"].map(|key| number(&one[key]));
            assert!(low < h && h < high && high - low < 0.1, "{one}");
            assert!((h - hurst).abs() < high - low, "{hurst}: {one}");
            assert_eq!(one["from_octave"], 4, "{one}");
            let octaves = found["diagram"][series].as_array().expect("octaves");
            assert!(octaves.len() as u64 >= one["to_octave"].as_u64().expect("an octave"));
        }
        let shown = room.done(&["model", "show", &name]);
        let line = shown.lines().find(|line| line.starts_with("Hurst of packets")).expect("a line");
        assert!(line.contains("95 %") && line.contains("bins of 1 ms"), "{line}");
    }
    let compared = room.done(&["model", "compare", "0.json", "1.json"]);
    let lines = compared.lines().skip_while(|line| !line.starts_with("Hurst of bytes"));
    let line = lines.clone().nth(1).expect("the intervals");
    assert!(line.starts_with("  95 % interval") && line.matches(" to ").count() == 2, "{line}");
    let compared = room.counted(&["model", "compare", "0.json", "1.json", "--json"]);
    let of = |side: &str, key: &str| number(&compared[side]["hurst"]["packets"][key]);
    assert!(of("a", "high") < of("b", "low"), "the intervals do not meet: {compared}");
}

/// The two series of a capture at a bin width, by an array over all bins.
fn offline(path: &Path, width_ns: u64) -> [Vec<f64>; 2] {
    let (_, Input::Capture(mut capture)) = open(path, false).expect("a capture") else {
        panic!("{} is not a capture", path.display())
    };
    let mut packets = Vec::new();
    while let Some(packet) = capture.next_packet().expect("readable") {
        let Some(link) = LinkType::from_dlt(packet.link_type) else { continue };
        if let Parsed::Ip(ip) = parse(link, packet.frame, packet.original_bytes) {
            packets.push((packet.stamp_ns.expect("a stamp") / width_ns, ip.ip_bytes));
        }
    }
    let first = packets.iter().map(|(bin, _)| *bin).min().expect("a packet");
    let last = packets.iter().map(|(bin, _)| *bin).max().expect("a packet");
    let mut series = [(); 2].map(|()| vec![0.0; (last - first + 1) as usize]);
    for (bin, bytes) in packets {
        series[0][(bin - first) as usize] += f64::from(bytes);
        series[1][(bin - first) as usize] += 1.0;
    }
    series
}

fn line(series: &[f64]) -> Option<Scaling> {
    let mut pyramid = Pyramid::new();
    pyramid.extend(series.iter().copied());
    Diagram::from(&pyramid).choose()
}

/// Single traces, as their networks had them; composites have the pauses of their composition.
#[test]
fn the_estimate_of_a_trace_is_that_of_its_series() {
    let Some(data) = std::env::var_os("NILOMETER_DATA") else {
        println!("skipped: Hurst's parameter of public captures: NILOMETER_DATA is not set");
        return;
    };
    let room = Room::new("hurst-traces");
    let (mut estimated, mut widths) = (0, Vec::new());
    for name in
        ["PcapPlusPlus/example.pcap", "nDPI/pcap/netflix.pcap", "nDPI/pcap/alexa-app.pcapng"]
    {
        let path = Path::new(&data).join("pcap").join(name);
        let input = path.to_str().expect("UTF-8");
        let model = room.counted(&["model", input, "-o", "m.json", "--force", "--json"]);
        let found = &model["hurst"];
        let width_ns = (number(&found["bin_s"]) * 1e9).round() as u64;
        let series = offline(&path, width_ns);
        assert_eq!(found["bins"], series[0].len(), "{name}");
        assert!(series[1].iter().sum::<f64>() >= series[1].len() as f64, "{name}: a packet each");
        let finer = offline(&path, width_ns / 2);
        assert!(finer[1].iter().sum::<f64>() < finer[1].len() as f64, "{name}: and no coarser");
        for (series, key) in series.iter().zip(["bytes", "packets"]) {
            let one = &found[key];
            let Some(line) = line(series) else {
                assert!(one.is_null(), "{name}: {one}");
                continue;
            };
            estimated += 1;
            let [low, high] = line.interval().ends();
            let expected = [("h", line.hurst), ("low", low), ("high", high)];
            assert!(
                expected.iter().all(|(key, value)| number(&one[key]) == *value),
                "{name}: {one}"
            );
            assert_eq!([&one["from_octave"], &one["to_octave"]], line.octaves.each_ref(), "{name}");
        }
        widths.push(width_ns);
    }
    assert!(estimated >= 5, "{estimated} of six series scale");
    assert!(widths.iter().all(|width| width % 1_000_000 == 0), "{widths:?}");
}

#[test]
fn flow_records_and_short_captures_give_a_reason_for_no_estimate() {
    let room = Room::new("hurst-none");
    let busy = noise(0.5, 2_048, &mut Rng::new(6, NOISE, 9));
    let counts: Vec<u64> = busy.iter().map(|value| (4.0 + value).max(0.0) as u64).collect();
    room.write("long.pcap", capture_of(&counts));
    room.write("short.pcap", capture_of(&counts[..200]));
    room.done(&["flows", "long.pcap", "-o", "flows.parquet"]);
    for (inputs, why) in [
        (&["short.pcap"][..], "too short"),
        (&["flows.parquet"], "flow records do not contain them"),
        (&["long.pcap", "flows.parquet"], "a part of the input is flow records"),
    ] {
        let words = [&["model"], inputs, &["-o", "m.json", "--force", "--json"]].concat();
        let output = room.run(&words);
        let stderr = text(&output.stderr);
        assert!(output.status.success() && stderr.contains("hurst is left out"), "{stderr}");
        assert!(stderr.contains(why), "{inputs:?}: {stderr}");
        assert!(room.json("m.json")["hurst"].is_null());
        assert!(room.done(&["model", "show", "m.json"]).contains("Hurst of bytes"));
    }
    let model = room.counted(&["model", "long.pcap", "-o", "m.json", "--force", "--json"]);
    assert_eq!(model["hurst"]["bins"], 2_048);
}
