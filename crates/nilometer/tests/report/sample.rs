//! A story like that of a real run, drawn from a seed: the sample that the page's tests render.

use nilometer_report::story::{
    Comparison, Coverage, DelaySecond, Direction, Execution, Fact, Fidelity, FileNote, Header,
    Interval, Lateness, LatenessBin, LeftOut, PacketCounts, Percentiles, Ranks, Second, SizeClass,
    Story, Trait,
};
use nilometer_report::thin;
use nilometer_stat::Rng;

fn sorted(count: usize, mut draw: impl FnMut() -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = (0..count).map(|_| draw()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// A lognormal body with one draw in ten from a Pareto tail of index 1.2.
fn file_size(rng: &mut Rng) -> f64 {
    match rng.unit() < 0.9 {
        true => (8.4 + 1.3 * rng.normal()).exp().max(100.0).round(),
        false => (20_000.0 * rng.unit().powf(-1.0 / 1.2)).min(4e7).round(),
    }
}

fn gap(rng: &mut Rng) -> f64 {
    (-0.9 + 1.4 * rng.normal()).exp().clamp(0.001, 5.0)
}

/// Two samples of one law, and the band of what a second sample does.
fn comparison(rng: &mut Rng, count: usize, draw: fn(&mut Rng) -> f64) -> Comparison {
    let model = sorted(count * 4, || draw(rng));
    let measured = sorted(count, || draw(rng));
    let grid = thin::tail_grid(&model, 1_500);
    let model = thin::cumulative(&model, &grid);
    let wide = |share: f64| 1.645 * (share * (1.0 - share) / count as f64).sqrt();
    let band = model.iter().map(|[x, s]| [*x, -wide(*s), wide(*s)]).collect();
    Comparison { measured: thin::cumulative(&measured, &grid), model, band }
}

fn ranks(rng: &mut Rng, addresses: usize, drawn: f64) -> Ranks {
    let weight = |rank: usize| (rank as f64).powf(-0.95);
    let total: f64 = (1..=addresses).map(weight).sum();
    let model: Vec<[f64; 2]> =
        (1..=addresses).map(|r| [r as f64, weight(r) / total * drawn]).collect();
    let measured = model
        .iter()
        .map(|[rank, count]| [*rank, (count + count.sqrt() * rng.normal()).round().max(0.0)])
        .collect();
    Ranks { model, measured, counted: "sessions".into() }
}

fn percentiles(values: &[f64]) -> Percentiles {
    let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    Percentiles { p5: at(0.05), mean, p50: at(0.5), p95: at(0.95), p99: at(0.99) }
}

fn delays(rng: &mut Rng, count: usize, median_ns: f64, tail: f64) -> Vec<f64> {
    sorted(count, || {
        let body = median_ns * (0.22 * rng.normal()).exp();
        body + if rng.unit() < 0.06 { tail * -rng.unit().ln() } else { 0.0 }
    })
}

fn direction(rng: &mut Rng, name: &str, packets: u64, median_ns: f64) -> Direction {
    let through = delays(rng, 60_000, median_ns, 28_000.0);
    let wire = delays(rng, 20_000, 5_100.0, 1_500.0);
    let seconds = (0..60)
        .map(|s| {
            let busy = if (20..40).contains(&s) { 1.35 } else { 1.0 };
            let p50 = median_ns * busy * (0.05 * rng.normal()).exp();
            let stall = if s == 23 { 12.0 } else { 1.0 };
            DelaySecond {
                start_s: f64::from(s),
                length_s: 1.0,
                p50_ns: Some(p50),
                p99_ns: Some(p50 * 3.1 * (0.2 * rng.normal()).exp() * stall),
                packets: packets / 60,
                lost: 0,
                reordered: 0,
            }
        })
        .collect();
    Direction {
        name: name.into(),
        packets: PacketCounts { entered: packets, left: packets, ..PacketCounts::default() },
        ip_bytes: packets * if name == "to servers" { 92 } else { 1_204 },
        delay_ns: Some(percentiles(&through)),
        wire_delay_ns: Some(percentiles(&wire)),
        delay_cdf: thin::cumulative(&through, &thin::tail_grid(&through, 800)),
        wire_delay_cdf: thin::cumulative(&wire, &thin::tail_grid(&wire, 800)),
        seconds,
    }
}

fn intervals() -> Vec<Interval> {
    let plan = [(120_000_000_u64, 4_100_u64), (310_000_000, 11_200), (190_000_000, 8_112)];
    let off = [1.004, 0.991, 1.014];
    plan.iter()
        .zip(off)
        .enumerate()
        .map(|(i, (&(bytes, flows), off))| Interval {
            start_s: 20.0 * i as f64,
            end_s: 20.0 * (i + 1) as f64,
            bytes_target: bytes,
            bytes_generated: (bytes as f64 * off) as u64,
            flows_target: flows,
            flows_generated: flows - 3 * i as u64,
            sessions_target: flows / 12,
            sessions_generated: flows / 12 + 4 * i as u64,
            packets: bytes / 520,
            ip_bytes: bytes / 520 * 744,
            packets_captured: Some(bytes / 560),
            ip_bytes_captured: Some(bytes / 560 * 701),
        })
        .collect()
}

fn seconds(rng: &mut Rng, intervals: &[Interval]) -> Vec<Second> {
    (0..60)
        .map(|s| {
            let interval = &intervals[s / 20];
            let bytes = interval.bytes_target as f64 / 20.0 * (0.22 * rng.normal()).exp();
            Second {
                start_s: s as f64,
                payload_bytes: bytes as u64,
                packets: (bytes / 520.0) as u64,
                flows: (interval.flows_target as f64 / 20.0 * (0.18 * rng.normal()).exp()) as u64,
            }
        })
        .collect()
}

fn fidelity() -> Vec<Fidelity> {
    let row = |name, distance: f64, floor: f64| Fidelity {
        name,
        distance,
        floor,
        floor_p5: Some(floor * 0.65),
        floor_p95: Some(floor * 1.7),
        ratio: Some(distance / floor),
        count: 23_412,
    };
    vec![
        row(Trait::FileSize, 0.0052, 0.0058),
        row(Trait::InterConnection, 0.0091, 0.0070),
        row(Trait::SourceRank, 0.0121, 0.0118),
        row(Trait::DestinationRank, 0.0096, 0.0101),
    ]
}

fn execution() -> Execution {
    let bins = (0..24).map(|i| {
        let low = 1_000.0 * 10_f64.powf(f64::from(i) / 8.0);
        let off = (f64::from(i) - 13.0) / 3.2;
        let count = (4_000.0 * (-0.5 * off * off).exp()) as u64;
        LatenessBin { low_ns: low, high_ns: low * 10_f64.powf(0.125), count }
    });
    Execution {
        planned: 23_412,
        completed: 23_409,
        failed: 3,
        sizes_exact: Some(true),
        collisions: 17,
        lateness: Some(Lateness { p50_ns: 62_000.0, p99_ns: 330_000.0, max_ns: 830_000.0 }),
        lateness_histogram: bins.collect(),
    }
}

fn size_classes() -> Vec<SizeClass> {
    [("up to 127 B", 512_004, 13.1), ("128–511 B", 90_110, 13.6), ("512–1023 B", 71_009, 14.2)]
        .into_iter()
        .chain([("1024–1518 B", 530_989, 16.9)])
        .map(|(label, packets, p50_us)| SizeClass {
            label: label.into(),
            packets,
            lost: 0,
            reordered: 0,
            p50_ns: Some(p50_us * 1_000.0),
            p99_ns: Some(p50_us * 2_900.0),
            wire_p50_ns: Some(4_700.0 + p50_us * 40.0),
        })
        .collect()
}

/// A good run through the Linux kernel.
pub fn story() -> Story {
    let mut rng = Rng::new(7, 0, 0);
    let intervals = intervals();
    let directions = vec![
        direction(&mut rng, "to servers", 498_300, 14_200.0),
        direction(&mut rng, "to clients", 705_812, 15_400.0),
    ];
    let text = |text: &str| text.to_owned();
    Story {
        header: Header {
            input: text("embedded sample"),
            synthetic: true,
            dut: text("linux"),
            seed: 1,
            version: text("0.1.0"),
            commit: text("1a2b3c4d5e6f"),
            date: text("2026-11-21 03:20 UTC"),
            machine: text("2 cores, 24 GiB, Linux 6.18"),
            duration_s: 60.0,
            command: text("nilometer lab run --seed 1"),
            model_digest: text("9f31c7d2a0b84e55"),
            plan_digest: text("77ab10c9d3e2f481"),
            stamps: text("kernel, at the hosts' ends of the links"),
            ..Header::default()
        },
        warnings: vec![text(
            "The machine was busy from second 22 to 25. Delays of that time are drawn as they \
             were; repeat on a quiet machine for a tighter p99.",
        )],
        not_measured: vec![text("Delay between the device's own ports was not measured.")],
        coverage: Coverage {
            flows_total: 61_200,
            flows_entered: 46_824,
            bytes_total: 730_000_000,
            bytes_entered: 688_000_000,
            bytes_performed: Some(688_000_000),
            left_out: vec![
                LeftOut { reason: text("ACK flows"), flows: 9_100, bytes: 2_100_000 },
                LeftOut { reason: text("under 100 bytes"), flows: 5_276, bytes: 39_900_000 },
            ],
        },
        seconds: seconds(&mut rng, &intervals),
        intervals,
        execution: execution(),
        fidelity: fidelity(),
        file_size: comparison(&mut rng, 23_412, file_size),
        inter_connection: comparison(&mut rng, 21_000, gap),
        source_rank: ranks(&mut rng, 600, 21_000.0),
        destination_rank: ranks(&mut rng, 2_000, 21_000.0),
        packets: PacketCounts { entered: 1_204_112, left: 1_204_112, ..PacketCounts::default() },
        delay_ns: directions[1].delay_ns,
        wire_delay_ns: directions[1].wire_delay_ns,
        directions,
        size_classes: size_classes(),
        configuration: text("seed = 1\nduration_s = 60\n\n[dut]\nkind = \"linux\"\n"),
        machine: vec![
            Fact { name: text("congestion control"), value: text("cubic") },
            Fact { name: text("offloads"), value: text("TSO, GSO, GRO and TX checksums off") },
        ],
        files: vec![
            FileNote { name: text("result.json"), meaning: text("every figure, for scripts") },
            FileNote { name: text("model.json"), meaning: text("the traffic model") },
        ],
        ..Story::default()
    }
}

/// A bad one: loss, reordering, no wire, stopped halfway, time divided.
pub fn troubled() -> Story {
    let mut story = story();
    story.header.interrupted = true;
    story.header.synthetic = false;
    story.header.duration_s = 41.5;
    story.header.time_divisor = 5.02;
    story.header.input = "composite_<a>&.pcap.gz".into();
    story.wire_delay_ns = None;
    story.fidelity[1].ratio = Some(3.4);
    story.fidelity[2].ratio = None;
    story.packets = PacketCounts {
        lost: 1_290,
        left: 1_202_822,
        reordered: 40,
        meter_lost: 5,
        ..story.packets
    };
    for (i, direction) in story.directions.iter_mut().enumerate() {
        direction.wire_delay_ns = None;
        direction.wire_delay_cdf.clear();
        for second in direction.seconds.iter_mut().skip(21).take(6 - 3 * i) {
            second.lost = 150 - 20 * i as u64;
            second.reordered = 7;
        }
    }
    story
}
