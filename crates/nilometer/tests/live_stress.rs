//! Table 4 on a running router: the stages, backlogs and rates of the simulator, by the machine's clock.
//!
//! `L` is 7 Mb/s and `D` 5 ms where the paper has 70 Mb/s and 500 us: the same bytes in a period. Where
//! the machine delays broadcasts, it is repeated at a quarter of the speed, at most twice. If broadcasts
//! are still late then, the test is skipped only if the kernel reports that the router's thread waited for
//! a processor; `NILOMETER_QUIET=1` allows no skips. Section 5.2 is treated likewise (`wave_video`).

mod common;
#[path = "common/links.rs"]
mod links;
#[path = "common/quiet.rs"]
mod quiet;
#[path = "live_stress/wave_video.rs"]
mod wave_video;

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use links::link;
use nilometer_linux::namespace::Namespace;
use nilometer_routerd::config::{Queueing, RouterConfig};
use nilometer_routerd::control::command_channel::CommandChannel;
use nilometer_routerd::control::stress::StressReport;
use nilometer_routerd::running::Running;
use nilometer_routerd::stress::StressBody;
use quiet::Moment;

/// Tests here measure time, so one runs at once.
static ALONE: Mutex<()> = Mutex::new(());
/// Ports with links; three more stand idle.
const PORTS: u8 = 5;
/// How many times slower it is played, one after the other, while broadcasts are late.
const SLOWER: [u64; 3] = [1, 4, 4];
/// The name of the router's thread.
const ROUTER: &str = "router";
/// A broadcast is late when it comes half a period late; the machine explains that if the thread waited for
/// half of this at least.
const EXPLAINED: f64 = 0.25;
const PATIENCE: Duration = Duration::from_secs(90);

fn description(queueing: Queueing, slower: u64) -> RouterConfig {
    let (kilobits, period_ms) = (7_000 / slower, 5 * slower);
    let mut text = format!(
        "[memory]\nbuffers = 65536\n[tables]\nroutes_v4 = 1000\nroutes_v6 = 1000\nfilters = 100\n\
         [fabric]\nlink_rate = \"{kilobits} kb/s\"\nperiod = \"{period_ms} ms\"\nminimum_backlog_bytes = 520\n\
         input_packets = 100000\nspare_ports = 3\n",
    );
    for port in 0..PORTS {
        text += &format!(
            "[[port]]\ninterface = \"p{port}\"\naddresses = [\"198.18.{port}.1/24\"]\n\
             rate = \"{kilobits} kb/s\"\nqueue = {{ discipline = \"tail_drop\", buffer_packets = 20000 }}\n\
             [[neighbour]]\ninterface = \"p{port}\"\naddress = \"198.18.{port}.2\"\n\
             mac = \"02:00:00:00:{port:02}:02\"\n"
        );
    }
    let mut config: RouterConfig = toml::from_str(&text).expect("a description");
    config.fabric.queueing = queueing;
    config
}

/// The router's namespace, and one in which its links end.
fn site() -> Result<[Namespace; 2]> {
    let (router, sink) = (Namespace::new()?, Namespace::new()?);
    for number in 0..PORTS {
        link(&router, &format!("p{number}"), &sink, &format!("peer-{number}"), number)?;
    }
    Ok([router, sink])
}

/// A run, and whether the machine explains the broadcasts that were late in it.
struct Run {
    report: StressReport,
    is_explained: bool,
}

fn played(queueing: Queueing, slower: u64) -> Result<Run> {
    let [namespace, _sink] = site()?;
    let config = description(queueing, slower);
    let router = Running::start(Some(&namespace), config.clone(), false)?;
    router.wait_until_up()?;
    let before = Moment::now(ROUTER);
    let commands = CommandChannel::new(&router, &config)?;
    commands.start_stress(StressBody::default()).expect("it begins");
    let again = commands.start_stress(StressBody::default()).expect_err("one is being played");
    assert_eq!(again.status.as_u16(), 409, "{again:?}");
    let began = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(200));
        let report = commands.stress().expect("it was begun");
        if report.live.is_over {
            let waited = before.waited_since(ROUTER).as_secs_f64();
            let late_s = report.live.late_broadcasts as f64 * 0.005 * slower as f64;
            let is_explained = waited >= EXPLAINED * late_s;
            println!("late for {late_s:.3} s, waited for a processor for {waited:.3} s");
            let tally = router.stop()?;
            assert!(tally.balances && tally.dropped == 0, "{tally:?}");
            return Ok(Run { report, is_explained });
        }
        assert!(began.elapsed() < PATIENCE, "{report:?}");
    }
}

/// Played as fast as the machine lets it be; nothing where it never lets it.
fn unhurried(queueing: Queueing) -> Option<StressReport> {
    for slower in SLOWER {
        let Run { report, is_explained } = played(queueing, slower).expect("it is played");
        println!("{}, {slower} times slower: {:?}", report.queueing, report.live);
        assert_eq!(report.live.starved_packets, 0, "there are buffers for all: {report:?}");
        if report.live.is_valid {
            return Some(report);
        }
        let is_let_off = is_explained && !quiet::is_declared_quiet();
        assert!(is_let_off, "broadcasts were late though the thread had its processor: {report:?}");
    }
    None
}

/// Whether the two agree within `percent`.
fn near(live: f64, simulated: f64, percent: f64) -> bool {
    (live - simulated).abs() <= simulated.abs() * percent / 100.0
}

#[test]
fn table_4_is_played_as_in_the_simulator() {
    if !common::privileged("Table 4 on the live router") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let all = [Queueing::Original, Queueing::Reserved, Queueing::DqPlus];
    let mut skipped = 0;
    for queueing in all {
        let Some(report) = unhurried(queueing) else {
            skipped += 1;
            continue;
        };
        let (live, simulated) = (&report.live, &report.simulated);
        println!("{}: the simulator: {simulated:?}", report.queueing);
        assert_eq!(live.stages.len(), simulated.stages.len(), "{report:?}");
        for (ours, theirs) in live.stages.iter().zip(&simulated.stages) {
            assert!(near(*ours as f64, *theirs as f64, 3.0), "{report:?}");
        }
        let bytes = [
            (live.output_backlog_bytes_at_t1, simulated.output_backlog_bytes_at_t1),
            (live.input_backlog_bytes_at_t1, simulated.input_backlog_bytes_at_t1),
        ];
        for (ours, theirs) in bytes {
            assert!(near(ours as f64, theirs as f64, 5.0), "{report:?}");
        }
        assert!(near(live.idle_voq_mbps, simulated.idle_voq_mbps, 5.0), "{report:?}");
        assert!(near(live.last_stage_mbps, simulated.last_stage_mbps, 5.0), "{report:?}");
    }
    if skipped > 0 {
        println!(
            "skipped: {skipped} of {} equations: the router's thread had no processor",
            all.len()
        );
    }
}
