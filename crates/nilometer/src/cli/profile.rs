//! `nilometer profile`: what the instrument itself adds to what it measures.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use nilometer_files::document::results::Directory;
use nilometer_files::say;
use nilometer_files::terminal::shown;
use nilometer_lab::stream::calibrate::{Calibration, Point, RATES, SIZES, Wanted, calibrate};
use nilometer_lab::stream::calibration_page::{render, sentence};
use nilometer_lab::stream::config::StampChoice;
use nilometer_lab::stream::transmit::TransmitChoice;
use nilometer_lab::trial::signals;
use nilometer_report::PAGE_FILE;
use nilometer_report::format::{count, significant, time_ns};

use super::Exit;
use super::table::{Side, continued, fact, row};

/// The calibration's name among its results.
const CALIBRATION_FILE: &str = "calibration.json";

/// Arguments of `nilometer profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    command: ProfileCommand,
}

#[derive(Debug, Subcommand)]
enum ProfileCommand {
    /// Measure the bare wire at several rates and frame sizes: the noise floor of every measurement through a device.
    Calibrate(CalibrateArgs),
}

#[derive(Debug, Args)]
struct CalibrateArgs {
    /// Rates in frames per second, comma-separated (500,10000,40000,70000,150000,300000,500000).
    #[arg(long, value_name = "N,...", value_delimiter = ',', allow_negative_numbers = true)]
    pps: Vec<f64>,
    /// Frame sizes including the check sequence, comma-separated (64,92,512,1518).
    #[arg(long, value_name = "N,...", value_delimiter = ',', allow_negative_numbers = true)]
    frame_bytes: Vec<u16>,
    /// Duration of each point, seconds.
    #[arg(long, value_name = "S", default_value_t = 2.0, allow_negative_numbers = true)]
    seconds: f64,
    /// Where frames are stamped: in the driver, at packet sockets, or the best that the system allows.
    #[arg(long, default_value = "best")]
    stamps: StampChoice,
    /// How frames are sent; see `stream run`.
    #[arg(long, default_value = "best")]
    transmit: TransmitChoice,
    /// Seed of the frames' addresses and ports.
    #[arg(long, value_name = "N", default_value_t = 7, allow_negative_numbers = true)]
    seed: u64,
    /// Directory for results (calibration.json, report.html); DIR.partial until done.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace results of an earlier calibration.
    #[arg(long)]
    force: bool,
    /// Print the calibration as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer profile`.
pub fn run(args: ProfileArgs) -> Result<Exit> {
    let ProfileCommand::Calibrate(args) = args.command;
    let or = |typed: &[f64], usual: &[f64]| if typed.is_empty() { usual } else { typed }.to_vec();
    let wanted = Wanted {
        pps: or(&args.pps, &RATES),
        frame_bytes: match args.frame_bytes.is_empty() {
            true => SIZES.to_vec(),
            false => args.frame_bytes.clone(),
        },
        seconds: args.seconds,
        stamps: args.stamps,
        transmit: args.transmit,
        seed: args.seed,
    };
    wanted.check()?;
    if let Some(out) = &args.out {
        Directory::check(out, args.force)?;
    }
    let stop = signals::stop_flag()?;
    let mut widths = WIDTHS.to_vec();
    let mut print = |row: Vec<String>| {
        if !args.json {
            print!("{}", continued(&[Side::Right], &[row], &mut widths));
        }
    };
    print(row(TITLES));
    let each = |point: &Point| print(cells(point));
    let calibration = calibrate(&wanted, each, &stop)?;
    let is_interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    let keep =
        |out: &PathBuf| keep(&calibration, Directory::create(out, args.force)?, is_interrupted);
    let kept = args.out.as_ref().map(keep);
    let kept = kept.transpose()?;
    if args.json {
        println!("{}", serde_json::to_string(&calibration).context("a calibration is JSON")?);
    } else {
        println!("\n{}", sentence(&calibration).replace('*', ""));
        let choice = &calibration.choice;
        print!(
            "{}",
            fact("receiver", format!("{}, a ring of {} frames", choice.reading, choice.ring))
        );
        print!("{}", fact("why", &choice.why));
        let [sent, received] = &calibration.stamps.pair;
        print!("{}", fact("stamps", format!("sent: {sent}; received: {received}")));
        if let Some(kept) = &kept {
            print!("{}", fact("results", shown(kept)));
        }
    }
    for why in &calibration.why {
        say!("not valid: {why}");
    }
    Ok(match (is_interrupted, calibration.valid) {
        (true, _) => Exit::Interrupted,
        (_, true) => Exit::Done,
        (_, false) => Exit::Negative,
    })
}

fn keep(calibration: &Calibration, directory: Directory, is_interrupted: bool) -> Result<PathBuf> {
    directory.file(CALIBRATION_FILE).write_json(calibration)?;
    directory.file(PAGE_FILE).write(render(calibration).as_bytes())?;
    if is_interrupted { Ok(directory.keep()) } else { directory.finish() }
}

/// Titles of the columns.
const TITLES: [&str; 10] =
    ["bytes", "fps", "sent", "received", "p5", "p50", "p95", "p99", "noise", "valid"];

/// What the first cells of a column may grow to, as its rows are printed one by one.
const WIDTHS: [usize; 10] = [5, 8, 10, 10, 8, 8, 8, 8, 8, 5];

fn cells(point: &Point) -> Vec<String> {
    let delay = point.delay_ns.unwrap_or_default();
    let mut cells = vec![
        point.frame_bytes.to_string(),
        significant(point.pps, 6),
        count(point.sent),
        count(point.received),
    ];
    cells.extend([delay.p5, delay.p50, delay.p95, delay.p99].map(|ns| time_ns(ns as f64)));
    cells.push(point.noise_ns.map_or("-".to_owned(), |noise| time_ns(noise as f64)));
    cells.push(if point.valid { "yes" } else { "no" }.to_owned());
    cells
}
