//! `nilometer simulate`: a scenario in virtual time, swept over its parameters and seeds.

use nilometer_files::say;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use nilometer_sim::refusal::hint;
use nilometer_sim::scenario::ScenarioKind;

use super::Exit;
use super::table::{self, fact};
use nilometer_files::document::{bounded, results::Directory};
use nilometer_files::terminal;
use nilometer_lab::simulate::pages;
use nilometer_lab::simulate::perform::{Performed, Sweep};
use nilometer_lab::simulate::result::{
    PointResult, RESULT_FILE, RouterResult, SimulationResult, shown_value,
};
use nilometer_lab::simulate::shipped::{SHIPPED, find};
use nilometer_lab::simulate::stress::{self, StressPoint};
use nilometer_lab::simulate::template::Template;
use nilometer_lab::simulate::trace;
use nilometer_lab::trial::signals;

/// Arguments of `nilometer simulate`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = shipped_list())]
pub struct SimulateArgs {
    /// The name of a built-in scenario, a TOML file, or `list`.
    scenario: String,
    /// Set a parameter; several values make a sweep (repeat for several parameters). Also accepts duration_s, seeds
    /// and seed.
    #[arg(long, value_name = "KEY=VALUE[,VALUE...]")]
    set: Vec<String>,
    /// Number of runs at each point of the sweep, with successive seeds. (A stress test such as distributed-queueing
    /// has none: it is deterministic.)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seeds: Option<u32>,
    /// Seed of the first run.
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Number of threads; results do not depend on it. All cores by default.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<NonZeroUsize>,
    /// Directory for results, DIR.partial until all runs are done; nilometer-simulate-NAME without a value. Without
    /// this option nothing is written.
    #[arg(short, long, value_name = "DIR")]
    out: Option<Option<PathBuf>>,
    /// Replace results of an earlier run. A directory with other contents, or with a result file that was changed
    /// since, is refused.
    #[arg(long)]
    force: bool,
    /// Capture a link in the first run to LINK.pcapng in the directory of results, at most LIMIT packets (default
    /// 100000).
    #[arg(long, value_name = "LINK[:LIMIT]", requires = "out")]
    trace: Option<trace::TraceRequest>,
    /// Print the scenario's TOML with the changes of --set, and exit.
    #[arg(long)]
    print: bool,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

/// The built-in scenarios, one a line.
fn shipped_list() -> String {
    let mut text = "Built-in scenarios:\n".to_owned();
    for shipped in SHIPPED {
        let about = Template::read(shipped.name, shipped.text);
        let about = about.map(|template| template.about().to_owned()).unwrap_or_default();
        text += &fact(&format!("  {}", shipped.name), about);
    }
    text
}

/// Runs `nilometer simulate`.
pub fn run(args: SimulateArgs) -> Result<Exit> {
    if args.scenario == "list" {
        print!("{}", shipped_list());
        return Ok(Exit::Done);
    }
    let template = template(&args)?;
    if args.print {
        print!("{}", template.text);
        return Ok(Exit::Done);
    }
    match template.kind()? {
        ScenarioKind::Network => simulate(&args, template),
        ScenarioKind::Stress if args.trace.is_some() => {
            bail!("{}: a stress test has no links to trace", template.label)
        }
        ScenarioKind::Stress => stress(&args, &template),
    }
}

/// The scenario that was asked for, with all that `--set`, `--seeds` and `--seed` change.
fn template(args: &SimulateArgs) -> Result<Template> {
    let name = args.scenario.as_str();
    let mut template = match find(name) {
        Some(shipped) => Template::read(shipped.name, shipped.text)?,
        None => {
            let looks_like_file = name.contains(['/', '.']) || Path::new(name).exists();
            if !looks_like_file {
                let names = SHIPPED.iter().map(|shipped| shipped.name);
                bail!("no built-in scenario `{name}` and no such file{}", hint(name, names));
            }
            let text = bounded::read_text(Path::new(name), bounded::TOML_BYTES_MAX)?;
            Template::read(name, &text)?
        }
    };
    if args.seeds.is_some() && template.kind()? == ScenarioKind::Stress {
        bail!(
            "{}: a stress test is deterministic, so that all seeds give the same result; leave --seeds out",
            template.label
        );
    }
    let numbers = [
        args.seeds.map(|seeds| format!("seeds={seeds}")),
        args.seed.map(|seed| format!("seed={seed}")),
    ];
    for assignment in args.set.iter().cloned().chain(numbers.into_iter().flatten()) {
        template = template.set(&assignment)?;
    }
    Ok(template)
}

fn simulate(args: &SimulateArgs, template: Template) -> Result<Exit> {
    let sweep = Sweep::new(template)?;
    if let Some(request) = &args.trace {
        trace::check(request, &sweep.scenarios[0])?;
    }
    let directory = directory(args, &sweep.template)?;
    if let Some(directory) = &directory {
        directory.file("scenario.toml").write(sweep.template.text.as_bytes())?;
        for (name, text) in sweep.router_files() {
            directory.file(name).write(text.as_bytes())?;
        }
    }
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = args.threads.unwrap_or(cores).get();
    let stop = signals::stop_flag()?;
    let performed = sweep.perform(threads, &stop)?;
    let written = directory.map(|directory| save(args, &sweep, &performed, directory));
    let written = written.transpose()?;
    print(&sweep, &performed, written.as_deref(), args.json)?;
    if let Some(run) = performed.unbalanced.first() {
        say!(
            "{} of {} runs do not account for every packet, the first at point {} with \
             seed {}; this is a bug",
            performed.unbalanced.len(),
            performed.result.runs,
            run.point,
            run.seed
        );
        return Ok(Exit::Negative);
    }
    if performed.result.interrupted {
        let kept = written.map_or(String::new(), |path| format!(" in {}", path.display()));
        say!(
            "interrupted after {} of {} runs; partial results are kept{kept}",
            performed.result.runs,
            sweep.runs.len()
        );
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

/// Writes the results first and the packet trace last: a trace can be had again from the scenario and the
/// seed, while results take all runs. An interrupted sweep stays in `DIR.partial`.
fn save(
    args: &SimulateArgs,
    sweep: &Sweep,
    performed: &Performed,
    directory: Directory,
) -> Result<PathBuf> {
    let interrupted = performed.result.interrupted;
    let write = || -> Result<()> {
        sweep.write(performed, &directory)?;
        let Some(request) = args.trace.as_ref().filter(|_| !interrupted) else { return Ok(()) };
        let to = directory.file(&format!("{}.pcapng", request.link.replace('/', "-")));
        let (scenario, models) = (&sweep.scenarios[0], &sweep.models[0]);
        let parts = (&models[..], &sweep.routers[0]);
        trace::trace(request, scenario, parts, sweep.runs[0].seed, &to).map(drop)
    };
    match write() {
        Err(error) => Err(directory.keep_after(error, RESULT_FILE)),
        Ok(()) if interrupted => Ok(directory.keep()),
        Ok(()) => directory.finish(),
    }
}

/// The stress test of distributed queueing; nothing in it is left to chance or to threads.
fn stress(args: &SimulateArgs, template: &Template) -> Result<Exit> {
    let directory = directory(args, template)?;
    let (report, points) = stress::stress(template)?;
    let written = match directory {
        Some(directory) => match pages::write_stress(template, &report, &points, &directory) {
            Ok(()) => Some(directory.finish()?),
            Err(error) => return Err(directory.keep_after(error, RESULT_FILE)),
        },
        None => None,
    };
    if args.json {
        println!("{}", serde_json::to_string(&report).context("a result is JSON")?);
    } else {
        let axes: Vec<&str> = template.axes.iter().map(|(name, _)| name.as_str()).collect();
        print_stress(&points, &axes);
        if let Some(path) = written {
            print!("{}", fact("results", terminal::shown(&path)));
        }
    }
    let bad = points.iter().filter(|point| !point.is_balanced).count();
    if bad > 0 {
        say!("{bad} points do not account for every packet");
        return Ok(Exit::Negative);
    }
    Ok(Exit::Done)
}

fn print_stress(points: &[StressPoint], axes: &[&str]) {
    for point in points {
        let shown = |axis: &&str| format!("{axis} {}", shown_value(&point.parameters, axis));
        for line in axes.iter().map(shown) {
            println!("{line}");
        }
        for variant in &point.variants {
            let ends: Vec<String> = variant.stages.iter().map(u64::to_string).collect();
            let (ends, mbps) = (ends.join(", "), variant.idle_voq_mbps);
            let reported = format!("stages end at {ends}; an idle queue gets {mbps:.2} Mb/s");
            print!("{}", fact(variant.name, reported));
        }
        let (output, input) = (point.output_backlog_bytes_at_t1, point.input_backlog_bytes_at_t1);
        let backlog = format!("output 1 {output} bytes, input 1 {input} bytes");
        let idle = format!(
            "{} periods though work was announced; {:.0} bytes before the first announcement",
            point.idle_violations, point.idle_bytes_first_periods
        );
        print!("{}{}", fact("backlog at T1", backlog), fact("idle", idle));
    }
}

/// The directory that was asked for, or the usual one where no name was given.
fn directory(args: &SimulateArgs, template: &Template) -> Result<Option<Directory>> {
    let Some(out) = &args.out else { return Ok(None) };
    let usual = PathBuf::from(format!("nilometer-simulate-{}", template.name()));
    Directory::create(out.as_ref().unwrap_or(&usual), args.force).map(Some)
}

fn print(sweep: &Sweep, performed: &Performed, written: Option<&Path>, json: bool) -> Result<()> {
    let result = &performed.result;
    if json {
        println!("{}", serde_json::to_string(result).context("a result is JSON")?);
        return Ok(());
    }
    let axes: Vec<&str> = sweep.template.axes.iter().map(|(name, _)| name.as_str()).collect();
    print_table(result, &axes);
    for warning in &result.warnings {
        say!("warning: {warning}");
    }
    if let Some(path) = written {
        print!("{}", fact("results", terminal::shown(path)));
    }
    Ok(())
}

/// A value with its half-width, if it has one.
fn with_interval(value: Option<f64>, half: Option<f64>, decimals: usize) -> String {
    match (value, half) {
        (None, _) => "–".to_owned(),
        (Some(value), None) => format!("{value:.decimals$}"),
        (Some(value), Some(half)) => format!("{value:.decimals$} ± {half:.decimals$}"),
    }
}

/// What a router did, in a line.
fn routed(router: &RouterResult) -> String {
    let dropped = router.dropped.iter().map(|(reason, packets)| format!(", {packets} {reason}"));
    let RouterResult { received, sent, marked, .. } = router;
    format!(
        "{received} packets received, {sent} sent, {marked} marked{}",
        dropped.collect::<String>()
    )
}

fn print_table(result: &SimulationResult, axes: &[&str]) {
    let titles = ["fair share %", "sd / fair share", "loss %", "used %", "queue", "delay ms"];
    let mut rows = vec![axes.iter().copied().chain(titles).map(str::to_owned).collect::<Vec<_>>()];
    let cells = |point: &PointResult| {
        [
            with_interval(point.fair_share_percent, point.fair_share_percent_ci, 2),
            with_interval(point.stddev_over_fair_share, point.stddev_over_fair_share_ci, 4),
            with_interval(
                Some(100.0 * point.loss_ratio),
                point.loss_ratio_ci.map(|half| 100.0 * half),
                3,
            ),
            format!("{:.2}", 100.0 * point.utilisation),
            with_interval(Some(point.mean_queue_packets), point.mean_queue_packets_ci, 1),
            with_interval(point.datagram_delay_ms, point.datagram_delay_ms_ci, 3),
        ]
    };
    for point in &result.points {
        let shown = axes.iter().map(|axis| shown_value(&point.parameters, axis));
        rows.push(shown.chain(cells(point)).collect());
    }
    print!("{}", table::within(&rows, table::terminal_columns()));
    for (number, point) in result.points.iter().enumerate() {
        for router in &point.routers {
            let at =
                if result.points.len() > 1 { format!(" (point {number})") } else { String::new() };
            print!("{}", fact(&format!("router {}{at}", router.name), routed(router)));
        }
    }
    println!(
        "{} runs of {} s, {} packet-hops in {:.2} CPU-seconds, digest {}",
        result.runs,
        result.duration_s,
        result.packet_hops,
        result.cpu_seconds,
        &result.digest[..16]
    );
}
