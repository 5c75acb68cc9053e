//! Models written as Harpoon's XML: one file for its client, one for its server.
//!
//! Harpoon walks through its lists in circles, from a random place on. So a list holds the means of
//! equal strata of the law, which keep its mean, in random order: any stretch of it is a sample. An
//! address has as many lines as its share requires, at least one. Times are those of the generated
//! traffic, divided by the model's time divisor.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use nilometer_stat::{Empirical, Form, Rng};
use nilometer_traffic::TrafficModel;
use nilometer_traffic::model::Ranks;
use nilometer_traffic::pool::{Family, Pool};

/// Values of a list.
const VALUES: usize = 10_000;
/// Lines of a pool if every address had exactly its share.
const LINES: f64 = 2_000.0;
/// Addresses of a pool at most; less popular ones are left out.
const ADDRESSES_MAX: usize = 1_000;
/// The port on which Harpoon's examples serve.
const PORT: u16 = 10_000;
/// Purpose of the random order.
const ORDER: u32 = 0x6861_7270;

/// A model as Harpoon's configuration.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The client's file.
    pub client: String,
    /// The server's file.
    pub server: String,
    /// The length of an interval, seconds: Harpoon's option `-w`.
    pub interval_s: f64,
    /// What Harpoon's configuration cannot express, in plain words.
    pub warnings: Vec<String>,
}

/// Writes `model` as Harpoon's client and server.
///
/// # Errors
/// Where the model's pools have no IPv4 address.
pub fn export(model: &TrafficModel) -> Result<Exported> {
    let divisor = model.generation.time_divisor;
    let mut warnings = Vec::new();
    let interval_s = model.intervals[0].duration_s / divisor;
    if model.generation.ipv6_share > 0.0 {
        warnings.push("Harpoon knows IPv4 alone: all sessions are given IPv4 addresses".to_owned());
    }
    let last = model.intervals.last().map_or(interval_s, |last| last.duration_s / divisor);
    if (last - interval_s).abs() > 1e-6 * interval_s {
        warnings
            .push(format!("the last interval lasts {last:.3} s, and here as long as the others"));
    }
    let sessions: Vec<u64> =
        model.intervals.iter().map(|interval| interval.sessions.round() as u64).collect();
    let most = sessions.iter().copied().max().unwrap_or(0).max(1);
    let gaps = values(&model.inter_connection.scaled(1.0 / divisor), 0);
    let sizes = whole(values(&model.file_size, 1));
    let clients = addresses(&model.sources, &Pool::new(&model.generation.clients)?, 0)?;
    let servers = addresses(&model.destinations, &Pool::new(&model.generation.servers)?, PORT)?;
    let begin = |personality: &str| {
        let name = if personality == "client" { "TcpClient" } else { "TcpServer" };
        format!(
            "<harpoon_plugins>\n  <!-- by {}; intervals of {interval_s} s (harpoon -w) -->\n  \
             <plugin name=\"{name}\" objfile=\"tcp_plugin.so\" maxthreads=\"{most}\" \
             personality=\"{personality}\">\n",
            // So that it cannot end the comment.
            model.tool.replace(|c: char| c == '-' || c.is_control(), " ")
        )
    };
    let end = "  </plugin>\n</harpoon_plugins>\n";
    let mut client = begin("client");
    list(&mut client, "active_sessions", sessions.iter().map(u64::to_string));
    list(&mut client, "interconnection_times", gaps.iter().map(|gap| format!("{gap:.9}")));
    pool(&mut client, "client_source_pool", &clients);
    pool(&mut client, "client_destination_pool", &servers);
    let mut server = begin("server");
    list(&mut server, "active_sessions", [most.to_string()].into_iter());
    list(&mut server, "file_sizes", sizes.iter().map(u64::to_string));
    pool(&mut server, "server_pool", &[format!("ipv4=\"0.0.0.0\" port=\"{PORT}\"")]);
    Ok(Exported { client: client + end, server: server + end, interval_s, warnings })
}

fn list(out: &mut String, name: &str, values: impl Iterator<Item = String>) {
    let _ = writeln!(out, "    <{name}>");
    values.for_each(|value| {
        let _ = writeln!(out, "{value}");
    });
    let _ = writeln!(out, "    </{name}>");
}

fn pool(out: &mut String, name: &str, entries: &[String]) {
    let _ = writeln!(out, "    <address_pool name=\"{name}\">");
    for entry in entries {
        let _ = writeln!(out, "      <address {entry} />");
    }
    let _ = writeln!(out, "    </address_pool>");
}

/// One line for each occurrence of an address in the pool.
fn addresses(ranks: &Ranks, pool: &Pool, port: u16) -> Result<Vec<String>> {
    let hosts = pool.hosts(Family::V4);
    if hosts == 0 {
        bail!("the model's pools have no IPv4 address, and Harpoon knows no other");
    }
    let kept = ranks.counts.len().min(ADDRESSES_MAX).min(usize::try_from(hosts)?);
    let lines = |(rank, share): (usize, f64)| {
        let host = pool.host(Family::V4, rank as u64);
        let times = (share * LINES).round().max(1.0) as usize;
        std::iter::repeat_n(format!("ipv4=\"{host}/32\" port=\"{port}\""), times)
    };
    Ok(ranks.shares(kept).into_iter().enumerate().flat_map(lines).collect())
}

/// Means of equal strata of a law, in random order.
fn values(law: &Empirical, index: u64) -> Vec<f64> {
    let mut values = strata(law, VALUES);
    Rng::new(1, ORDER, index).shuffle(&mut values);
    values
}

/// The means of `count` equal strata: every straight or flat piece of the table is divided among the
/// strata that it passes through.
fn strata(law: &Empirical, count: usize) -> Vec<f64> {
    let mut sums = vec![0.0; count];
    let (mut before, mut low) = (0.0, law.min());
    for &(cumulative, value) in law.knots() {
        let from_value = if law.form() == Form::Step { value } else { low };
        let width = cumulative - before;
        let at = |c: f64| from_value + (value - from_value) * ((c - before) / width);
        let mut from = before;
        while from < cumulative {
            let stratum = ((from * count as f64 + 1e-9) as usize).min(count - 1);
            let edge = if stratum + 1 == count { 1.0 } else { (stratum + 1) as f64 / count as f64 };
            let to = edge.min(cumulative);
            if to <= from {
                break;
            }
            sums[stratum] += (to - from) * 0.5 * (at(from) + at(to));
            from = to;
        }
        (before, low) = (cumulative, value);
    }
    sums.iter().map(|sum| sum * count as f64).collect()
}

/// Whole bytes with the same sum: the rounding error is carried to the next value.
fn whole(values: Vec<f64>) -> Vec<u64> {
    let mut over = 0.0;
    let round = |value: f64| {
        let rounded = (value + over).round().max(1.0);
        over += value - rounded;
        rounded as u64
    };
    values.into_iter().map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Law;

    #[test]
    fn strata_keep_the_mean_of_either_form() {
        for form in [Form::Step, Form::Linear] {
            let law = Law::Pareto { index: 1.4, minimum: 900.0 }.table(form, Some(1e8));
            let law = law.expect("a law");
            let means = strata(&law, 1_000);
            let mean = means.iter().sum::<f64>() / 1_000.0;
            assert!((mean / law.mean() - 1.0).abs() < 1e-6, "{form:?}: {mean} {}", law.mean());
            let rises = |two: &[f64]| two[1] >= two[0] * (1.0 - 1e-6);
            assert!(means.windows(2).all(rises), "{form:?}");
            let sum: u64 = whole(means).iter().sum();
            assert!((sum as f64 / 1_000.0 / mean - 1.0).abs() < 1e-6);
        }
    }
}
