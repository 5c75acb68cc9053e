//! `nilometer video compare`: a clip through three routers, by plain queueing, active dropping and layered multicast.

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use nilometer_files::document::results::Directory;
use nilometer_files::say;
use nilometer_files::terminal::shown;
use nilometer_lab::trial::config::Clock;
use nilometer_lab::trial::signals::stop_flag;
use nilometer_lab::wave_video::clip::FRAMES_MAX;
use nilometer_lab::wave_video::page::{VideoPage, render};
use nilometer_lab::wave_video::result::VideoComparison;
use nilometer_lab::wave_video::{Clip, PACING, RunOutcome, VideoPlan, run as run_all, run_live};
use nilometer_linux::privilege;
use nilometer_report::PAGE_FILE;
use nilometer_report::format::significant;
use nilometer_sim::quantity;
use nilometer_video::{Frame, FrameSize, SyntheticClip};
use nilometer_wire::Rate;

use super::super::table::Side::{Left, Right};
use super::super::table::{fact, row, table};
use super::super::{Exit, VERSION};
use super::encode::parse_rate;
use super::raw::RawReader;

/// Frames of the clip that is made where none is given: it then begins again without a jump.
const SYNTHETIC_FRAMES: u32 = 96;
const RESULT_FILE: &str = "result.json";

/// Run the experiment of the DER's section 5.2: a clip through three of our routers, in virtual time or live.
///
/// The video is multicast to D1, whose link carries nothing else, D2, whose link also carries one stream of cross
/// traffic during the burst, and D3, with two streams. It is played three times: through plain queues (deficit round
/// robin, drop from front), with the plugin wave-video, and as layered multicast whose receivers leave layers on loss.
/// Reports PSNR of every frame, sub-bands as in figure 8, and a page with one frame side by side.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The clip: consecutive I420 frames (.yuv), played in a loop; a synthetic one by default.
    #[arg(value_name = "CLIP.yuv")]
    input: Option<PathBuf>,
    /// Width and height of its frames.
    #[arg(long, value_name = "WxH", default_value_t = FrameSize::QCIF)]
    size: FrameSize,
    /// Frames per second.
    #[arg(long, value_name = "F", default_value = "12", value_parser = parse_rate)]
    fps: u32,
    /// Rate of the receivers' links; 3 Mb/s in the paper. By default 3/2.6 of the clip's rate, so that the shares are
    /// those of Foreman in the paper.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    link: Option<Rate>,
    /// Share of a frame's time over which its packets are sent; 0 sends them back to back.
    #[arg(long, value_name = "SHARE", default_value_t = PACING, value_parser = parse_share)]
    pacing: f64,
    /// Duration in seconds.
    #[arg(long, value_name = "S", default_value_t = 36.0)]
    seconds: f64,
    /// Start of cross traffic.
    #[arg(long, value_name = "S", default_value_t = 6.0)]
    burst_from: f64,
    /// End of cross traffic.
    #[arg(long, value_name = "S", default_value_t = 24.0)]
    burst_to: f64,
    /// Clock of the run: `virtual`, or `real` with routers in network namespaces. A run by the real clock in which a
    /// thread was late is invalid (exit status 1).
    #[arg(long, value_name = "CLOCK", default_value_t = Clock::Virtual)]
    clock: Clock,
    /// Seed of the synthetic clip's noise, of gaps in cross traffic and of join timers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Directory for results (result.json, report.html); DIR.partial until the run is done.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace results of an earlier run.
    #[arg(long)]
    force: bool,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "give a share, as in 0.75".to_owned())?;
    (0.0..=1.0).contains(&share).then_some(share).ok_or("0 to 1 are possible".to_owned())
}

/// Runs `nilometer video compare`.
pub(super) fn run(args: &CompareArgs) -> Result<Exit> {
    if args.clock == Clock::Real {
        privilege::acquire()?;
    }
    if let Some(out) = &args.out {
        Directory::check(out, args.force)?;
    }
    let (name, clip) = clip(args)?;
    let burst = [args.burst_from, args.burst_to];
    let plan = VideoPlan::new(&clip, args.seconds, burst, args.seed)?;
    let plan = VideoPlan { link: args.link, pacing: args.pacing, ..plan };
    let Some((runs, result)) = play(args.clock, &name, (&clip, &plan))? else {
        say!("interrupted; nothing is kept");
        return Ok(Exit::Interrupted);
    };
    let mut kept = None;
    if let Some(out) = &args.out {
        let directory = Directory::create(out, args.force)?;
        directory.file(RESULT_FILE).write_json(&result)?;
        let page =
            VideoPage { clip: &clip, plan: &plan, runs: &runs, result: &result, version: VERSION };
        directory.file(PAGE_FILE).write(render(&page).as_bytes())?;
        kept = Some(directory.finish()?);
    }
    let text = match args.json {
        true => serde_json::to_string(&result)? + "\n",
        false => figures(&result),
    };
    print!("{text}");
    if let Some(kept) = kept.filter(|_| !args.json) {
        print!("{}", fact("report", shown(&kept.join(PAGE_FILE))));
    }
    for why in &result.why {
        say!("the run is not valid: {why}");
    }
    Ok(if result.why.is_empty() { Exit::Done } else { Exit::Negative })
}

/// Plays all contenders by a clock, and what it came to; nothing where a signal ended it.
fn play(
    clock: Clock,
    name: &str,
    (clip, plan): (&Clip, &VideoPlan),
) -> Result<Option<(Vec<RunOutcome>, VideoComparison)>> {
    if clock == Clock::Virtual {
        let runs = run_all(clip, plan)?;
        let result = VideoComparison::of(name, clip, plan, &runs);
        return Ok(Some((runs, result)));
    }
    let stop = stop_flag()?;
    let shown = stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("{spinner} playing [{bar:20}] {eta}");
        ProgressBar::new(1_000).with_style(style.expect("a built-in template"))
    });
    let progress = |share: f64| {
        if let Some(bar) = &shown {
            bar.set_position((share.min(1.0) * 1e3) as u64);
        }
    };
    let live = run_live(clip, plan, &stop, &progress)?;
    if let Some(bar) = shown {
        bar.finish_and_clear();
    }
    Ok(live.map(|live| {
        let result = VideoComparison::live(name, clip, plan, &live);
        (live.runs, result)
    }))
}

/// The clip, and what it is called on the page: the name of its file.
fn clip(args: &CompareArgs) -> Result<(String, Clip)> {
    let Some(path) = &args.input else {
        let made = SyntheticClip::new(args.size, args.seed);
        let frames = (0..SYNTHETIC_FRAMES).map(|number| made.frame(number)).collect();
        return Ok(("a made clip".to_owned(), Clip::new(frames, args.fps)?));
    };
    let mut reader = RawReader::open(path, args.size)?;
    let (mut frames, mut frame) = (Vec::new(), Frame::flat(args.size, 0));
    while reader.next(&mut frame)? {
        let shown = path.display();
        ensure!(
            frames.len() < FRAMES_MAX,
            "{shown}: at most {FRAMES_MAX} frames are possible; shorten it"
        );
        frames.push(frame.clone());
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, Clip::new(frames, args.fps)?))
}

fn figures(result: &VideoComparison) -> String {
    let rate = |bits: u64| format!("{} Mb/s", significant(bits as f64 / 1e6, 4));
    let [from, to] = result.burst_s;
    let mut text =
        fact("clip", format_args!("{}, {}", result.clip, rate(result.clip_bits_per_second)));
    text += &fact("links", rate(result.link_bits_per_second));
    text += &fact("cross traffic", format_args!("from {from} to {to} s"));
    text += &fact("clock", result.clock);
    let titles =
        ["receiver", "contender", "share", "PSNR", "disturbed", "settled after", "packets"];
    let mut rows = vec![row(titles)];
    for contender in &result.contenders {
        for seen in &contender.receivers {
            let burst = &seen.burst;
            let psnr = burst.psnr_db.map_or("infinite".to_owned(), |db| format!("{db:.1} dB"));
            let settled = burst.reaction_ms.map_or("never".to_owned(), |ms| format!("{ms:.0} ms"));
            rows.push(row([
                &seen.receiver,
                contender.contender,
                &rate(seen.share_bits_per_second),
                &psnr,
                &format!("{} of {}", burst.disturbed_frames, burst.frames),
                &settled,
                &seen.packets.to_string(),
            ]));
        }
    }
    text + "\n" + &table(&[Left, Left, Right], &rows) + "\n"
}
