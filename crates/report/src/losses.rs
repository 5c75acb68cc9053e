//! Tables of what our router reports about itself: losses by reason, queues, filters.

use super::format::{bytes, count, significant};
use super::story::{Queue, Story, Waiting};
use super::tables;

/// Losses by reason and direction, and last the unexplained ones; empty for other devices.
pub fn table(story: &Story) -> String {
    let rows = rows(story);
    if rows.is_empty() {
        return String::new();
    }
    let names = story.directions.iter().map(|direction| direction.name.as_str());
    let head: Vec<&str> = [""].into_iter().chain(names).chain(["both"]).collect();
    let note = "<p class=\"note\">The router counts its drops, the meter counts packets that never \
                left; the difference is the row “not explained”.</p>\n";
    tables::table("Losses by reason", &head, &rows) + note
}

fn rows(story: &Story) -> Vec<Vec<String>> {
    let Some(losses) = &story.losses else { return Vec::new() };
    let row = |what: &str, [to_servers, to_clients]: [i128; 2]| {
        let cells = [to_servers, to_clients, to_servers + to_clients].map(signed);
        [vec![what.to_owned()], cells.to_vec()].concat()
    };
    let mut rows: Vec<Vec<String>> =
        losses.rows.iter().map(|loss| row(&loss.what, loss.packets.map(i128::from))).collect();
    rows.push(row("not explained", losses.unexplained.map(i128::from)));
    let lost = |way: usize| story.directions.get(way).map_or(0, |it| i128::from(it.packets.lost));
    rows.push(row("lost, by the meter", [lost(0), lost(1)]));
    rows
}

fn signed(value: i128) -> String {
    let digits = count(u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX));
    if value < 0 { format!("−{digits}") } else { digits }
}

/// What waited at each port; empty for other devices.
pub fn queues(story: &Story) -> String {
    if story.queues.is_empty() {
        return String::new();
    }
    let row = |what: String, waited: &Waiting| {
        vec![
            what,
            significant(waited.mean_packets, 3),
            count(waited.max_packets),
            bytes(waited.mean_bytes),
            bytes(waited.max_bytes as f64),
        ]
    };
    let rows = story.queues.iter().flat_map(|queue: &Queue| {
        [
            row(format!("{}, before the link: {}", queue.port, queue.discipline), &queue.output),
            row(format!("{}, before the fabric", queue.port), &queue.input),
        ]
    });
    let head = ["", "mean packets", "most", "mean bytes", "most"];
    tables::table("Queues of the router", &head, &rows.collect::<Vec<_>>())
}

/// Packets and bytes that the filters matched; empty where there are no filters.
pub fn filters(story: &Story) -> String {
    let all = story.losses.iter().flat_map(|losses| &losses.filters);
    let row = |(what, packets, octets): &(String, u64, u64)| {
        vec![what.clone(), count(*packets), bytes(*octets as f64)]
    };
    let rows: Vec<Vec<String>> = all.map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => tables::table("Filters of the router", &["", "packets", "bytes"], &rows),
    }
}
