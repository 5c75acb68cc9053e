//! Tables: every number of the story, for those who want to read it off.

use super::format::{NOT_MEASURED, bytes, count, percent, significant, time_ns, time_ns_or, times};
use super::plot::svg::escape;
use super::story::{DelaySecond, Fidelity, PacketCounts, Percentiles, Story, Trait};
use super::verdict::{ALIKE_MAX, NEARLY_MAX, name};

/// The most rows that the table of seconds shows; the rest is in the Parquet tables.
const SECONDS_MAX: usize = 600;

/// A table with a caption; the first cell of each row is its heading. Cells are plain text.
pub fn table(caption: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    framed("", caption, head, rows, &|_, cell| format!("<td>{}</td>", escape(cell)))
}

/// A table of words rather than numbers.
pub fn words(caption: &str, rows: &[Vec<String>]) -> String {
    framed("words", caption, &[], rows, &|_, cell| format!("<td>{}</td>", escape(cell)))
}

pub(super) type Cell<'a> = &'a dyn Fn(usize, &str) -> String;

pub(super) fn framed(
    class: &str,
    caption: &str,
    head: &[&str],
    rows: &[Vec<String>],
    cell: Cell,
) -> String {
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table \
         class=\"{class}\"><caption>{0}</caption>",
        escape(caption)
    );
    if !head.is_empty() {
        let cells: String =
            head.iter().map(|h| format!("<th scope=\"col\">{}</th>", escape(h))).collect();
        out.push_str(&format!("<thead><tr>{cells}</tr></thead>"));
    }
    out.push_str("<tbody>");
    for row in rows {
        let Some((heading, cells)) = row.split_first() else { continue };
        out.push_str(&format!("<tr><th scope=\"row\">{}</th>", escape(heading)));
        cells.iter().enumerate().for_each(|(i, text)| out.push_str(&cell(i, text)));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// Distances beside their floors.
pub fn fidelity(story: &Story) -> String {
    let rows: Vec<Vec<String>> = story
        .fidelity
        .iter()
        .map(|f| {
            let what = match f.name {
                Trait::FileSize => "file sizes (KS)",
                Trait::InterConnection => "gaps (KS)",
                Trait::SourceRank => "sources (JSD)",
                Trait::DestinationRank => "destinations (JSD)",
            };
            let bound =
                |p: Option<f64>| p.map_or_else(|| NOT_MEASURED.to_owned(), |p| significant(p, 2));
            vec![
                what.to_owned(),
                f.ratio.map_or_else(|| NOT_MEASURED.to_owned(), times),
                significant(f.distance, 3),
                significant(f.floor, 3),
                format!("{}–{}", bound(f.floor_p5), bound(f.floor_p95)),
            ]
        })
        .collect();
    let head = ["", "× floor", "distance", "floor", "floor, 5–95\u{a0}%"];
    let judged = |i: usize, text: &str| {
        let ratio = if i == 0 { text.parse::<f64>().ok() } else { None };
        let class = match ratio {
            Some(ratio) if ratio <= ALIKE_MAX => "good",
            Some(ratio) if ratio > NEARLY_MAX => "bad",
            _ => "",
        };
        format!("<td class=\"{class}\">{}</td>", escape(text))
    };
    framed("", "Against the model", &head, &rows, &judged)
}

/// How many samples each distance is measured from.
pub fn samples(story: &Story) -> String {
    let row = |f: &Fidelity| vec![name(f.name).to_owned(), count(f.count)];
    let rows: Vec<Vec<String>> = story.fidelity.iter().map(row).collect();
    table("Samples behind each distance", &[], &rows)
}

/// How exactly the plan was carried out.
pub fn execution(story: &Story) -> String {
    let run = &story.execution;
    let sizes = match run.sizes_exact {
        Some(true) => "all",
        Some(false) => "not all",
        None => NOT_MEASURED,
    };
    let late = run.lateness.as_ref();
    let rows = [
        ["connections planned".to_owned(), count(run.planned)],
        ["completed".to_owned(), count(run.completed)],
        ["failed".to_owned(), count(run.failed)],
        ["sizes right to the byte".to_owned(), sizes.to_owned()],
        ["sessions sharing an address pair".to_owned(), count(run.collisions)],
        ["lateness, median".to_owned(), time_ns_or(late.map(|l| l.p50_ns))],
        ["lateness, p99".to_owned(), time_ns_or(late.map(|l| l.p99_ns))],
        ["lateness, latest".to_owned(), time_ns_or(late.map(|l| l.max_ns))],
    ];
    table("Execution", &[], &rows.map(Vec::from))
}

/// What became of the packets, by direction.
pub fn packets(story: &Story) -> String {
    let names = story.directions.iter().map(|d| d.name.as_str());
    let head: Vec<&str> = [""].into_iter().chain(names).chain(["both"]).collect();
    let sides: Vec<&PacketCounts> =
        story.directions.iter().map(|d| &d.packets).chain([&story.packets]).collect();
    type Count = fn(&PacketCounts) -> u64;
    let kinds: [(&str, Count); 9] = [
        ("in", |p| p.entered),
        ("out", |p| p.left),
        ("lost", |p| p.lost),
        ("originated", |p| p.originated),
        ("consumed", |p| p.consumed),
        ("out of order", |p| p.reordered),
        ("duplicated", |p| p.duplicated),
        ("corrupted", |p| p.corrupted),
        ("missed by the meter", |p| p.meter_lost),
    ];
    let row = |(kind, of): &(&str, Count)| {
        [(*kind).to_owned()].into_iter().chain(sides.iter().map(|p| count(of(p)))).collect()
    };
    let mut rows: Vec<Vec<String>> = kinds.iter().map(row).collect();
    let mean = |bytes: u64, packets: u64| match packets {
        0 => NOT_MEASURED.to_owned(),
        _ => format!("{:.0}\u{a0}B", bytes as f64 / packets as f64),
    };
    let all: u64 = story.directions.iter().map(|d| d.ip_bytes).sum();
    let entered: u64 = story.directions.iter().map(|d| d.packets.entered).sum();
    let sizes = story.directions.iter().map(|d| mean(d.ip_bytes, d.packets.entered));
    rows.push(
        ["mean size".to_owned()].into_iter().chain(sizes).chain([mean(all, entered)]).collect(),
    );
    table("Packets at the device", &head, &rows)
}

/// Delay in a few numbers, by direction, device and wire, and by the way through our router.
pub fn delay(story: &Story) -> String {
    let row = |name: String, delay: Option<Percentiles>| {
        let of = |value: fn(&Percentiles) -> f64| time_ns_or(delay.as_ref().map(value));
        vec![name, of(|d| d.p5), of(|d| d.mean), of(|d| d.p50), of(|d| d.p95), of(|d| d.p99)]
    };
    let both = ("both directions", story.delay_ns, story.wire_delay_ns);
    let each = story.directions.iter().map(|d| (d.name.as_str(), d.delay_ns, d.wire_delay_ns));
    let rows: Vec<Vec<String>> = [both]
        .into_iter()
        .chain(each)
        .flat_map(|(name, dut, wire)| {
            [row(name.to_owned(), dut), row(format!("{name}, wire"), wire)]
        })
        .chain(story.delay_by_path.iter().map(|path| {
            row(format!("{} ({} packets)", path.path, count(path.packets)), Some(path.delay_ns))
        }))
        .collect();
    table("Delay", &["", "p5", "mean", "p50", "p95", "p99"], &rows)
}

/// Delay by size of packet.
pub fn sizes(story: &Story) -> String {
    let rows: Vec<Vec<String>> = story
        .size_classes
        .iter()
        .map(|c| {
            vec![
                c.label.clone(),
                count(c.packets),
                count(c.lost),
                count(c.reordered),
                time_ns_or(c.p50_ns),
                time_ns_or(c.p99_ns),
                time_ns_or(c.wire_p50_ns),
            ]
        })
        .collect();
    let head = ["", "packets", "lost", "out of order", "p50", "p99", "wire p50"];
    table("By size of packet", &head, &rows)
}

/// Each interval, planned and generated.
pub fn intervals(story: &Story) -> String {
    let known = |v: Option<u64>| v.map_or_else(|| NOT_MEASURED.to_owned(), count);
    let mean = |bytes: Option<u64>, packets: Option<u64>| match (bytes, packets) {
        (Some(bytes), Some(packets)) if packets > 0 => {
            format!("{:.0}\u{a0}B", bytes as f64 / packets as f64)
        }
        _ => NOT_MEASURED.to_owned(),
    };
    let rows: Vec<Vec<String>> = story
        .intervals
        .iter()
        .map(|i| {
            vec![
                format!("{} – {} s", significant(i.start_s, 6), significant(i.end_s, 6)),
                count(i.bytes_target),
                count(i.bytes_generated),
                count(i.flows_target),
                count(i.flows_generated),
                count(i.sessions_target),
                count(i.sessions_generated),
                count(i.packets),
                known(i.packets_captured),
                mean(Some(i.ip_bytes), Some(i.packets)),
                mean(i.ip_bytes_captured, i.packets_captured),
            ]
        })
        .collect();
    let head = [
        "",
        "payload planned",
        "generated",
        "connections planned",
        "generated",
        "sessions planned",
        "generated",
        "packets",
        "as captured",
        "mean size",
        "as captured",
    ];
    table("Intervals", &head, &rows)
}

/// What did not enter the model, and why.
pub fn left_out(story: &Story) -> String {
    let c = &story.coverage;
    let entered = vec!["entered".to_owned(), count(c.flows_entered), bytes(c.bytes_entered as f64)];
    let reasons =
        c.left_out.iter().map(|l| vec![l.reason.clone(), count(l.flows), bytes(l.bytes as f64)]);
    let share = |part: u64, whole: u64| match whole {
        0 => NOT_MEASURED.to_owned(),
        _ => percent(part as f64 / whole as f64),
    };
    let mut rows: Vec<Vec<String>> = [entered].into_iter().chain(reasons).collect();
    rows.push(vec![
        "share that entered".to_owned(),
        share(c.flows_entered, c.flows_total),
        share(c.bytes_entered, c.bytes_total),
    ]);
    table("Input and model", &["", "flows", "bytes"], &rows)
}

/// Each second, what passed and how long it took.
pub fn seconds(story: &Story) -> String {
    let directions = &story.directions;
    let mut head: Vec<String> =
        ["", "payload", "packets", "connections"].map(str::to_owned).to_vec();
    for direction in directions {
        head.extend(
            ["p50", "p99", "lost", "out of order"].map(|h| format!("{h} {}", direction.name)),
        );
    }
    let row = |s: &super::story::Second| {
        let mut cells = vec![
            significant(s.start_s, 6),
            bytes(s.payload_bytes as f64),
            count(s.packets),
            count(s.flows),
        ];
        for direction in directions {
            let holds = |d: &&DelaySecond| (d.start_s..d.end_s()).contains(&s.start_s);
            let found = direction.seconds.iter().find(holds);
            let same = found.filter(|d| d.start_s == s.start_s);
            // A longer step stands in the row where it begins.
            let missing = || if found.is_some() { String::new() } else { NOT_MEASURED.to_owned() };
            cells.push(same.and_then(|d| d.p50_ns).map_or_else(missing, time_ns));
            cells.push(same.and_then(|d| d.p99_ns).map_or_else(missing, time_ns));
            cells.push(same.map_or_else(missing, |d| count(d.lost)));
            cells.push(same.map_or_else(missing, |d| count(d.reordered)));
        }
        cells
    };
    let rows: Vec<Vec<String>> = story.seconds.iter().take(SECONDS_MAX).map(row).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut out = table("Seconds", &head, &rows);
    if story.seconds.len() > SECONDS_MAX {
        out.push_str(&format!(
            "<p class=\"note\">The first {SECONDS_MAX} of {} seconds; all are in report.json.</p>\n",
            count(story.seconds.len() as u64)
        ));
    }
    out
}
