//! `nilometer model new`: a model whose distributions are given by hand, by name or as a table.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use nilometer_stat::{Empirical, Form, Law, zipf_weights};
use nilometer_traffic::TrafficModel;
use nilometer_traffic::model::{Input, Origin, RANKS_MAX};
use nilometer_traffic::model_specification::ModelSpecification;
use sha2::{Digest, Sha256};

use super::VERSION;
use nilometer_files::document::bounded::{LINES_BYTES_MAX, read_text};
use nilometer_lab::trial::config::{default_clients, default_servers};

/// Knots of a table made from a list of values.
const KNOTS: usize = 2_048;
/// Counts that Zipf's shares are rounded to.
const ZIPF_COUNTS: f64 = 1e9;

/// Arguments of `nilometer model new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Output file.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Distribution of file sizes in bytes. LAW is exponential:mean=M, lognormal:mu=M,sigma=S, pareto:index=A,min=X,
    /// weibull:shape=K,scale=L, each with optional max=X, or table:FILE (lines of a value and its cumulative share,
    /// or of values alone).
    #[arg(long, value_name = "LAW")]
    file_size: String,
    /// Distribution of the seconds between connections of a session, likewise.
    #[arg(long, value_name = "LAW")]
    inter_connection: String,
    /// Active sessions of each interval.
    #[arg(long, value_name = "N,...", value_delimiter = ',', required = true)]
    sessions: Vec<f64>,
    /// IntervalDuration, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, allow_negative_numbers = true)]
    interval: f64,
    /// Number of clients, with Zipf popularity.
    #[arg(long, value_name = "N", default_value_t = 254, value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX as i64))]
    sources: u32,
    /// Number of servers, with Zipf popularity.
    #[arg(long, value_name = "N", default_value_t = 254, value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX as i64))]
    destinations: u32,
    /// Exponent of Zipf's law; with 0 all addresses are equally popular.
    #[arg(long, value_name = "S", default_value_t = 1.0, allow_negative_numbers = true)]
    zipf: f64,
    /// Replace an existing file.
    #[arg(long)]
    pub force: bool,
    /// Print the model as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The model that was asked for.
///
/// # Errors
/// Where a law or a number is not usable, or a table cannot be read.
pub fn model(args: &NewArgs) -> Result<TrafficModel> {
    let mut inputs = Vec::new();
    let file_size = law("--file-size", &args.file_size, Form::Step, &mut inputs)?;
    let gaps = law("--inter-connection", &args.inter_connection, Form::Linear, &mut inputs)?;
    if !(0.0..=10.0).contains(&args.zipf) {
        bail!("--zipf is {}, but must be from 0 to 10", args.zipf);
    }
    let stated = ModelSpecification {
        tool: format!("nilometer {VERSION}"),
        origin: Origin {
            description: format!(
                "stated: sizes {}, gaps {}",
                shown(&args.file_size),
                shown(&args.inter_connection)
            ),
            synthetic: true,
            inputs,
        },
        file_size,
        inter_connection: gaps,
        sources: popularity(args.sources, args.zipf),
        destinations: popularity(args.destinations, args.zipf),
        sessions: args.sessions.clone(),
        interval_s: args.interval,
        clients: default_clients(),
        servers: default_servers(),
    };
    stated.model().map_err(|error| anyhow!("no such model: {error}"))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|octet| format!("{octet:02x}")).collect()
}

/// A law as it was typed, a table without its folder.
fn shown(law: &str) -> String {
    law.strip_prefix("table:").map_or(law.to_owned(), |path| name(Path::new(path)))
}

fn popularity(count: u32, exponent: f64) -> Vec<u64> {
    let weights = zipf_weights(count as usize, exponent);
    weights.into_iter().map(|weight| ((weight * ZIPF_COUNTS).round() as u64).max(1)).collect()
}

/// The table of a law as it was typed.
fn law(option: &str, text: &str, form: Form, inputs: &mut Vec<Input>) -> Result<Empirical> {
    if let Some(path) = text.strip_prefix("table:") {
        let path = Path::new(path);
        let text = read_text(path, LINES_BYTES_MAX)?;
        inputs.push(Input { name: name(path), sha256: sha256(&text) });
        return table(&text, form).map_err(|error| anyhow!("{}: {error}", path.display()));
    }
    let (law, maximum) = named(text).with_context(|| format!("{option} '{text}'"))?;
    law.table(form, maximum).with_context(|| format!("{option} '{text}'"))
}

/// A law by name and parameters, and where it is cut off.
fn named(text: &str) -> Result<(Law, Option<f64>)> {
    const LAWS: &str = "exponential, lognormal, pareto, weibull and table";
    let (name, parameters) = text
        .split_once(':')
        .ok_or_else(|| anyhow!("write NAME:PARAMETER=VALUE,...; names are {LAWS}"))?;
    let mut given = Vec::new();
    for part in parameters.split(',') {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| anyhow!("'{part}' is not a parameter; write PARAMETER=VALUE"))?;
        let value: f64 = value
            .trim()
            .parse()
            .map_err(|_| anyhow!("{key} is '{value}', which is not a number"))?;
        given.push((key.trim(), value));
    }
    let wanted: [&str; 2] = match name {
        "exponential" => ["mean", "mean"],
        "lognormal" => ["mu", "sigma"],
        "pareto" => ["index", "min"],
        "weibull" => ["shape", "scale"],
        other => bail!("'{other}' is not a law; names are {LAWS}"),
    };
    let mut seen: Vec<&str> = given.iter().map(|(key, _)| *key).collect();
    seen.sort_unstable();
    if let Some(twice) = seen.windows(2).find(|two| two[0] == two[1]) {
        bail!("{} is given twice", twice[0]);
    }
    if let Some(other) = seen.iter().find(|key| !wanted.contains(key) && **key != "max") {
        bail!("'{other}' is not a parameter of {name}; its own are {} and max", wanted.join(", "));
    }
    let find = |key: &str| given.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let get = |key: &str| find(key).ok_or_else(|| anyhow!("{name} needs {key}"));
    let (one, two) = (get(wanted[0])?, get(wanted[1])?);
    let law = match name {
        "exponential" => Law::Exponential { mean: one },
        "lognormal" => Law::Lognormal { mu: one, sigma: two },
        "pareto" => Law::Pareto { index: one, minimum: two },
        _ => Law::Weibull { shape: one, scale: two },
    };
    Ok((law, find("max")))
}

/// A table of lines: a value and its cumulative share (to 1, or to 100), straight between them; or
/// values alone. What begins with `#` is a remark, and a first line without a number a heading.
fn table(text: &str, form: Form) -> Result<Empirical> {
    let mut rows: Vec<Vec<f64>> = Vec::new();
    let mut has_heading = false;
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let words = line.split([',', ';', ' ', '\t']).filter(|word| !word.is_empty());
        let row: Result<Vec<f64>, _> = words.map(str::parse).collect();
        match row {
            Ok(row) if row.len() > 2 => {
                bail!("line {at}: {} numbers; one or two are possible", row.len())
            }
            Ok(row) if rows.first().is_some_and(|first| first.len() != row.len()) => {
                bail!("line {at}: {} number(s), and others before it", row.len())
            }
            Ok(row) => rows.push(row),
            Err(_) if rows.is_empty() && !has_heading => has_heading = true,
            Err(_) => bail!("line {at}: '{line}' is not a value and its cumulative share"),
        }
    }
    let Some(last) = rows.last() else { bail!("holds no number") };
    if last.len() == 1 {
        let values: Vec<f64> = rows.into_iter().flatten().collect();
        return Ok(match form {
            Form::Step => Empirical::step_from(values, KNOTS)?,
            Form::Linear => Empirical::linear_from(values, KNOTS)?,
        });
    }
    let whole = if last[1] == 100.0 { 100.0 } else { 1.0 };
    let mut knots: Vec<(f64, f64)> = rows.iter().map(|row| (row[1] / whole, row[0])).collect();
    if knots[0].0 > 0.0 {
        knots.insert(0, (0.0, knots[0].1));
    }
    Ok(Empirical::new(Form::Linear, 0, knots)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_are_read_by_name_and_refused_with_a_reason() {
        let (law, maximum) = named("pareto:index=1.2,min=1500,max=1e9").expect("a law");
        assert_eq!((law, maximum), (Law::Pareto { index: 1.2, minimum: 1_500.0 }, Some(1e9)));
        assert_eq!(named("exponential:mean=0.5").expect("a law").0, Law::Exponential { mean: 0.5 });
        for (text, word) in [
            ("pareto", "NAME:PARAMETER"),
            ("zeta:s=1", "'zeta' is not a law"),
            ("pareto:index=1.2", "needs min"),
            ("pareto:index=1.2,min=x", "not a number"),
            ("pareto:index=1.2,min=1,mean=3", "'mean' is not a parameter"),
            ("exponential:mean=1,mean=2", "twice"),
            ("exponential:", "not a parameter"),
        ] {
            let error = named(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn tables_are_cumulative_shares_or_values() {
        let percent = table("# sizes\n0 0\n4000 20\n8000 100\n", Form::Step).expect("a table");
        let share =
            table("# sizes\n\nbytes,share\n0,0\n4000,0.2\n8000,1\n", Form::Step).expect("a table");
        assert_eq!(percent.knots(), share.knots());
        assert!((percent.mean() - (0.2 * 2_000.0 + 0.8 * 6_000.0)).abs() < 1e-9);
        let atom = table("10 0.5\n20 1\n", Form::Linear).expect("a table");
        assert_eq!((atom.cdf(10.0), atom.cdf(15.0)), (0.5, 0.75));
        let values = table("3\n1\n2\n", Form::Step).expect("values");
        assert_eq!((values.samples(), values.mean()), (3, 2.0));
        for (text, word) in [
            ("", "no number"),
            ("1 2 3\n", "line 1"),
            ("1\n2 0.5\n", "line 2"),
            ("0 0\nx 1\n", "line 2"),
            ("bytes\nbytes\n5 1\n", "line 2"),
            ("0 0\n5 0.9\n", "0.9"),
            ("0 0\n5 0.5\n4 1\n", "ascend"),
            ("-1 0\n5 1\n", "negative"),
        ] {
            let error = table(text, Form::Step).expect_err(text).to_string();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }
}
