//! Wave Video through three routers: plain queueing, active dropping and layered multicast (DER, 5.2).
//!
//! ```text
//!   S ──── R1 ──── R2 ──── R3        S sends the video to a group that D1, D2 and D3 have joined by IGMP
//!          │       │ ╲     │ ╲       the links to D1, D2 and D3 are narrow, all others fast
//!          D1      D2 X2   D3 X3     X2 sends one stream of cross traffic to D2, X3 two to D3, in a burst
//! ```
//!
//! The paper's figure 7 shows what shares which links; the router of each receiver is our reading. The routers are the
//! pipeline itself, each with a ROUTER.toml, whose narrow port has deficit round robin for all flows and drops the
//! oldest packet of the longest queue. With *plain queueing* that is all. With *active dropping* the plugin
//! `wave-video` stands at that port. With *layered multicast* the routers are plain, and sub-bands are sent in seven
//! groups, which each receiver joins and leaves ([`layered`]).
//!
//! The clip's rate decides how much is too little, so the links are by default 3/2.6 of it: shares of 1.5/2.6 and 1.0/2.6, as
//! Foreman had in the paper.
//!
//! In virtual time ([`run`]) a run is a function of clip, plan and seed. By the real clock ([`run_live`]) the same hosts and the same
//! ROUTER.toml stand in network namespaces, and a contender's outcome is the same as long as no thread was late.

pub mod clip;
mod description;
mod hosts;
pub mod layered;
mod layers;
mod live;
mod network;
mod outcome;
pub mod page;
mod punctual;
pub mod result;
mod sources;
mod viewer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nilometer_linux::idle_states::AwakeProcessors;
use nilometer_linux::scheduling::{Class, Timed};
use nilometer_wire::{Rate, Span};

pub use clip::Clip;
pub use outcome::{RunOutcome, ViewerOutcome};
pub use punctual::ThreadPunctuality;
pub use viewer::FrameSeen;

/// Receivers, and routers: D1 at R1, and so on.
pub const RECEIVERS: usize = 3;
/// Seconds of a run at most: shorter than a group's membership lasts.
pub const SECONDS_MAX: f64 = 240.0;
/// Unless a plan says otherwise, packets of a frame are spread over three quarters of its time: losses of a queue then meet
/// all sub-bands by chance, as in the paper, and not always the first packets of a frame.
pub const PACING: f64 = 0.75;
/// From when all networks are up to the beginning of a run by the real clock: threads start meanwhile.
const LEAD: Duration = Duration::from_millis(200);
/// The paper's links and the rate of Foreman there, Mb/s.
const PAPER_LINK: f64 = 3.0;
const PAPER_RATE: f64 = 2.6;

/// The method that is to keep the picture whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Queues alone.
    Plain,
    /// The plugin `wave-video`.
    Active,
    /// Groups that receivers join and leave.
    Layered,
}

impl Contender {
    /// All, in the order of the paper.
    pub const ALL: [Contender; 3] = [Contender::Plain, Contender::Active, Contender::Layered];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Plain => "plain",
            Contender::Active => "active",
            Contender::Layered => "layered",
        }
    }
}

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VideoPlan {
    /// The rate of the narrow links; 3/2.6 of the clip's where absent.
    pub link: Option<Rate>,
    /// Frames that are sent, the clip as often as it takes.
    pub frames: u32,
    /// When cross traffic begins and ends, since the first frame.
    pub burst: (Span, Span),
    /// Over which share of a frame's time its packets are sent, evenly; 0 is one behind the other.
    pub pacing: f64,
    /// The frame that each receiver keeps as a picture.
    pub pictured: u32,
    /// Seed of gaps and join timers.
    pub seed: u64,
}

impl VideoPlan {
    /// A plan of `seconds` with a burst; the picture is taken in the middle of the burst.
    ///
    /// # Errors
    /// One line that names the invalid time.
    pub fn new(clip: &Clip, seconds: f64, burst_s: [f64; 2], seed: u64) -> Result<VideoPlan> {
        ensure!(
            seconds > 0.0 && seconds <= SECONDS_MAX,
            "{seconds} s: more than 0 and at most {SECONDS_MAX} are possible"
        );
        let [from, to] = burst_s;
        ensure!(
            0.0 <= from && from < to && to <= seconds,
            "a burst from {from} to {to} s is not within {seconds} s"
        );
        let at = |seconds: f64| (seconds * clip.frames_per_second()).floor() as u32;
        let frames = at(seconds).max(1);
        Ok(VideoPlan {
            link: None,
            pacing: PACING,
            frames,
            burst: (Span::from_secs_f64(from), Span::from_secs_f64(to)),
            pictured: at((from + to) / 2.0).min(frames - 1),
            seed,
        })
    }

    /// The rate of the narrow links.
    pub fn link(&self, clip: &Clip) -> Rate {
        let scaled = clip.rate().bits_per_second() as f64 * PAPER_LINK / PAPER_RATE;
        self.link.or(Rate::new(scaled.round() as u64)).unwrap_or(clip.rate())
    }
}

/// Runs all contenders in virtual time, each for itself, in the order of [`Contender::ALL`].
///
/// # Errors
/// When a scenario, or a router of it, cannot be made.
pub fn run(clip: &Clip, plan: &VideoPlan) -> Result<Vec<RunOutcome>> {
    thread::scope(|scope| {
        let runs = Contender::ALL
            .map(|contender| scope.spawn(move || network::run(clip, plan, contender)));
        let ended = runs.map(|run| run.join().map_err(|_| anyhow!("a run broke off")));
        ended.into_iter().map(|run| run.and_then(|run| run)).collect()
    })
}

/// Runs by the real clock.
#[derive(Clone, Debug)]
pub struct LiveRuns {
    /// Of each contender, in the order of [`Contender::ALL`].
    pub runs: Vec<RunOutcome>,
    /// Why the system refused the real-time class to timed threads, if it did.
    pub refused: Option<String>,
}

/// Runs all contenders by the real clock, at once, each in a network of its own; nothing where `stop` ended it. `progress` gets
/// the share that is over. They share nothing but processors, of which they use a part: the effects of that are counted
/// as lateness.
///
/// The process has the privilege to make namespaces ([`nilometer_linux::privilege::acquire`]).
///
/// # Errors
/// When a network cannot be made, a router cannot start, or a thread fails.
pub fn run_live(
    clip: &Clip,
    plan: &VideoPlan,
    stop: &AtomicBool,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Option<LiveRuns>> {
    let timed = Timed::new(Class::RealTime).guarded().context("cannot guard timed threads")?;
    let mut networks = Vec::new();
    for contender in Contender::ALL {
        if stop.load(Ordering::Acquire) {
            return Ok(None);
        }
        networks.push(live::Network::new(clip, plan, contender, &timed)?);
    }
    let _awake = AwakeProcessors::for_class(Class::RealTime);
    let origin = Instant::now() + LEAD;
    let playing = live::Playing { origin, timed: &timed, stop, progress };
    let played: Vec<Result<bool>> = thread::scope(|scope| {
        let threads: Vec<_> =
            networks.iter_mut().map(|network| scope.spawn(|| network.play(playing))).collect();
        let ended = threads.into_iter().map(|it| it.join());
        ended.map(|it| it.map_err(|_| anyhow!("a run broke off"))?).collect()
    });
    if !played.into_iter().try_fold(true, |all, one| anyhow::Ok(all & one?))? {
        return Ok(None);
    }
    let runs = networks.into_iter().map(live::Network::end).collect::<Result<_>>()?;
    Ok(Some(LiveRuns { runs, refused: timed.refused() }))
}
