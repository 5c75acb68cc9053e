//! Table 4 on the router that runs: the stages, backlogs and rates of the simulator, by the machine's
//! clock.
//!
//! `L` is 7 Mb/s and `D` 5 ms where the paper has 70 Mb/s and 500 us: the same bytes in a period. Where
//! the machine lets broadcasts wait, it is played again at half the speed, and so on.

mod common;
#[path = "common/links.rs"]
mod links;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use links::link;
use nilometer_lab::device::namespace::Namespace;
use nilometer_lab::route::config::{Queueing, RouterConfig};
use nilometer_lab::route::control::desk::Desk;
use nilometer_lab::route::control::stress::StressReport;
use nilometer_lab::route::running::Running;
use nilometer_lab::route::stress::StressBody;

/// Ports with links; three more stand idle.
const PORTS: u8 = 5;
/// How many times slower it is played, one after the other, while broadcasts are late.
const SLOWER: [u64; 2] = [1, 4];
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

fn played(queueing: Queueing, slower: u64) -> Result<StressReport> {
    let [namespace, _sink] = site()?;
    let config = description(queueing, slower);
    let router = Running::start(Some(&namespace), config.clone(), false)?;
    router.wait_until_up()?;
    let desk = Desk::new(&router, &config)?;
    desk.start_stress(StressBody::default()).expect("it begins");
    let again = desk.start_stress(StressBody::default()).expect_err("one is being played");
    assert_eq!(again.status.as_u16(), 409, "{again:?}");
    let began = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(200));
        let report = desk.stress().expect("it was begun");
        if report.live.is_over {
            let tally = router.stop()?;
            assert!(tally.balances && tally.dropped == 0, "{tally:?}");
            return Ok(report);
        }
        assert!(began.elapsed() < PATIENCE, "{report:?}");
    }
}

/// Played as fast as the machine lets it be, or at the slowest.
fn unhurried(queueing: Queueing) -> StressReport {
    let mut last = None;
    for slower in SLOWER {
        let report = played(queueing, slower).expect("it is played");
        println!("{}, {slower} times slower: {:?}", report.queueing, report.live);
        let is_valid = report.live.is_valid;
        last = Some(report);
        if is_valid {
            break;
        }
    }
    last.expect("it was played")
}

/// Within so many hundredths.
fn near(live: f64, simulated: f64, percent: f64) -> bool {
    (live - simulated).abs() <= simulated.abs() * percent / 100.0
}

#[test]
fn table_4_is_played_as_in_the_simulator() {
    if !common::privileged("Table 4 on the live router") {
        return;
    }
    for queueing in [Queueing::Original, Queueing::Reserved, Queueing::DqPlus] {
        let report = unhurried(queueing);
        let (live, simulated) = (&report.live, &report.simulated);
        println!("{}: the simulator: {simulated:?}", report.queueing);
        if !live.is_valid {
            println!("skipped: {}: the machine let broadcasts wait", report.queueing);
            continue;
        }
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
}
