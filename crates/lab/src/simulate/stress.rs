//! The stress test of distributed queueing from the shell: Table 4's letters in, its figures out.

use anyhow::{Result, anyhow, bail};
use nilometer_queue::aal5::Framing;
use nilometer_sim::overload::Row;
use nilometer_sim::quantity;
use nilometer_sim::stress::{StressPlan, StressRun, VariantRow, run};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::points::points;
use super::result::Keys;
use super::template::{Parameters, Template};
use crate::trial::planning::hex;
use nilometer_files::tool;
use nilometer_linux::usage::usage;

/// Name and version of the format.
pub const FORMAT: &str = "nilometer-stress/1";

/// `[parameters]` of a scenario of the kind `stress`, by the letters of Table 4 (DER, section 8.1).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(non_snake_case, reason = "the letters of the paper's table")]
struct Letters {
    N: usize,
    S: f64,
    L: String,
    D: String,
    M: u32,
    K: usize,
    R: usize,
    t1_periods: u32,
    /// `B_min` of equations 5 and 6; one packet where absent.
    minimum_backlog_bytes: Option<u64>,
    /// Whether packets cross the fabric as ATM cells.
    #[serde(default)]
    cells: bool,
    /// The delay from an announcement to its reception.
    broadcast_delay: Option<String>,
}

impl Letters {
    fn plan(&self) -> Result<StressPlan> {
        let wrong = |what: String| anyhow!(what);
        let delay = self.broadcast_delay.as_deref().unwrap_or("0 s");
        Ok(StressPlan {
            ports: self.N,
            speedup: self.S,
            link: quantity::rate(&self.L).map_err(wrong)?,
            period: quantity::span(&self.D).map_err(wrong)?,
            packet_bytes: self.M,
            sources: self.K,
            stages: self.R,
            t1_periods: self.t1_periods,
            minimum_backlog_bytes: self.minimum_backlog_bytes.unwrap_or(u64::from(self.M)),
            framing: if self.cells { Framing::Cells } else { Framing::Whole },
            broadcast_delay: quantity::span(delay).map_err(wrong)?,
        })
    }
}

/// One point: equations 1 to 4 in full, the others beside them.
#[derive(Clone, Debug, Serialize)]
pub struct StressPoint {
    /// All parameters at this point.
    #[serde(flatten)]
    pub parameters: Keys,
    /// The periods at which stages 1 to R-1 ended.
    pub stages: Vec<u64>,
    /// Output 1's backlog at T1.
    pub output_backlog_bytes_at_t1: u64,
    /// Input 1's backlog for output 1 at T1.
    pub input_backlog_bytes_at_t1: u64,
    /// Periods in which an output idled though a period's worth was announced for it.
    pub idle_violations: u64,
    /// Bytes that outputs missed before their first announcements.
    pub idle_bytes_first_periods: f64,
    /// The largest sum of minimum rates that any input had, Mb/s.
    pub minimum_rates_most_mbps: f64,
    /// Packets wholly sent by a source or on an output's link, all variants together; none where the
    /// report has it of this point alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_hops: Option<u64>,
    /// All sets of equations.
    pub variants: Vec<VariantRow>,
    /// The state after every period, under equations 1 to 4; a file of its own.
    #[serde(skip)]
    pub series: Vec<Row>,
    /// What was run.
    #[serde(skip)]
    pub plan: StressPlan,
    /// Whether every packet is accounted for, in all variants.
    #[serde(skip)]
    pub is_balanced: bool,
}

/// The result of a stress test: the keys of its only point at the top, or a list of points.
#[derive(Debug, Serialize)]
pub struct StressReport {
    /// [`FORMAT`].
    pub format: &'static str,
    /// The scenario's name.
    pub scenario: String,
    /// What it is about.
    pub about: String,
    /// The program and its commit.
    pub tool: String,
    /// Of the file; nothing is left to chance.
    pub seed: u64,
    /// SHA-256 over the states after every period at every point; hexadecimal.
    pub digest: String,
    /// Packets wholly sent by a source or on an output's link, all points and variants together.
    pub packet_hops: u64,
    /// User and system time.
    pub cpu_seconds: f64,
    /// Most memory of the process.
    pub peak_rss_bytes: u64,
    /// The only point.
    #[serde(flatten)]
    pub single: Option<StressPoint>,
    /// Several points.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<StressPoint>,
}

/// Runs every point of `template`.
///
/// # Errors
/// Parameters that are missing, unknown or out of their ranges, before anything is run.
pub fn stress(template: &Template) -> Result<(StressReport, Vec<StressPoint>)> {
    let points = points(template)?;
    let about = |error: anyhow::Error| anyhow!("{}: {error}", template.label);
    let plan = |point: &Parameters| {
        let plan = template.stress::<Letters>(point)?.plan().map_err(about)?;
        let first = plan.variants()[0];
        plan.load().map_err(|error| about(error.into()))?;
        plan.switch(first).map_err(|error| about(error.into()))?;
        Ok(plan)
    };
    let plans: Vec<StressPlan> = points.iter().map(plan).collect::<Result<_>>()?;
    let before = usage()?;
    let mut sha = Sha256::new();
    let mut made = Vec::new();
    for (plan, parameters) in plans.iter().zip(&points) {
        made.push(point(plan, parameters, &mut sha).map_err(about)?);
    }
    let after = usage()?;
    let report = StressReport {
        format: FORMAT,
        scenario: template.name().to_owned(),
        about: template.about().to_owned(),
        tool: tool::tool(),
        seed: template.seed(),
        digest: hex(&sha.finalize()),
        packet_hops: made.iter().filter_map(|point| point.packet_hops).sum(),
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        peak_rss_bytes: after.peak_rss_bytes,
        single: match &made[..] {
            [only] => Some(StressPoint { packet_hops: None, ..only.clone() }),
            _ => None,
        },
        points: if made.len() == 1 { Vec::new() } else { made.clone() },
    };
    Ok((report, made))
}

fn point(plan: &StressPlan, parameters: &Parameters, sha: &mut Sha256) -> Result<StressPoint> {
    let mut runs: Vec<StressRun> = Vec::new();
    for variant in plan.variants() {
        runs.push(run(plan, variant)?);
    }
    for run in &runs {
        run.outcome.rows.iter().for_each(|row| words(row, &mut |word| sha.update(word)));
    }
    let variant = |run: &StressRun| VariantRow {
        name: run.name,
        stages: run.stages.clone(),
        idle_voq_mbps: run.idle_voq_mbps,
    };
    let variants = runs.iter().map(variant).collect();
    let hops = |run: &StressRun| run.outcome.in_packets + run.outcome.out_packets;
    let packet_hops = Some(runs.iter().map(hops).sum());
    let is_balanced = runs.iter().all(|run| run.outcome.balanced);
    let Some(first) = runs.into_iter().next() else { bail!("there are no equations") };
    Ok(StressPoint {
        parameters: Keys(parameters.clone()),
        stages: first.stages,
        output_backlog_bytes_at_t1: first.output_backlog_bytes_at_t1,
        input_backlog_bytes_at_t1: first.input_backlog_bytes_at_t1,
        idle_violations: first.outcome.missed.violations,
        idle_bytes_first_periods: first.outcome.missed.first_bytes,
        minimum_rates_most_mbps: first.outcome.minimum_rates_most_mbps,
        packet_hops,
        variants,
        series: first.outcome.rows,
        plan: *plan,
        is_balanced,
    })
}

/// A row as a digest takes it: every number in eight bytes, little-endian.
fn words(row: &Row, take: &mut dyn FnMut([u8; 8])) {
    take(row.period.to_le_bytes());
    for bytes in row.output_backlog_bytes.iter().chain(&row.input_backlog_bytes) {
        take(bytes.to_le_bytes());
    }
    for rate in row.rate_mbps.iter().chain(&row.minimum_rate_mbps) {
        take(rate.to_bits().to_le_bytes());
    }
}
