//! Section 5.2 of the DER through running routers: the same as in virtual time, and invalid runs say so.
//!
//! The clip is the paper's Foreman where it is available, or a synthetic one, with cross traffic for ten seconds.
//! Virtual time under several seeds shows the variation of the mean PSNR of each receiver under each contender, and of
//! the time at which the first layer is left. The run by the real clock is one more draw, and must lie where Student's
//! t expects it, with [`SURE`], or within a floor where seeds hardly differ. Of active dropping they do not differ at
//! all.
//!
//! A run in which threads were late is not valid and says so. It is repeated, and *skipped* only if the kernel reports
//! that processors were busy; `NILOMETER_QUIET=1` allows no skips.

use std::path::Path;
use std::process::Command;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use nilometer_stat::student::two_sided;
use serde_json::Value;

use crate::ALONE;
use crate::common::{self, BINARY, Room, Running, text};
use crate::quiet::{self, Moment};

const CONTENDERS: [&str; 3] = ["plain", "active", "layered"];
/// Seconds that are played, and when cross traffic begins and ends.
const PLAYED: [&str; 6] = ["--seconds", "14", "--burst-from", "2.02", "--burst-to", "12"];
const BURST_S: [f64; 2] = [2.02, 12.0];
/// Of the sentence that a run by the real clock is as one in virtual time.
const SURE: f64 = 0.999;
/// Smaller differences count as none: dB, where some tenths are invisible, and seconds until the first layer is left.
const FLOOR_DB: f64 = 0.3;
const FLOOR_S: f64 = 0.1;
/// Moments that each thread meets at least, which are a look at the clock every 10 ms or a link's packets.
const MOMENTS_LEAST: u64 = 1_000;
/// Virtual runs, by their seeds.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;
/// 50 ms, in which the plugin queries the scheduler once, and a frame.
const REACTION_MS: f64 = 50.0 + 1_000.0 / 12.0;
/// How often a run is repeated that the machine spoiled, and what of it was idle where it is no excuse.
const ROUNDS: usize = 3;
const IDLE_LEAST: f64 = 0.25;

/// The paper's Foreman, or a made clip; whether it is Foreman.
fn clip(room: &Room) -> bool {
    let folder = std::env::var_os("NILOMETER_DATA").unwrap_or_default();
    let path = Path::new(&folder).join("video/derived/foreman_qcif_100f.yuv.xz");
    let unpacked = Command::new("xz").arg("-dc").arg(path).output();
    match unpacked.ok().filter(|unpacked| unpacked.status.success()) {
        Some(unpacked) => {
            room.write("clip.yuv", unpacked.stdout);
            true
        }
        None => {
            println!("a made clip: Foreman is not there (NILOMETER_DATA), or xz is not");
            room.done(&["video", "synthetic", "-o", "clip.yuv", "--frames", "96"]);
            false
        }
    }
}

fn words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let clip: &[&str] = &["video", "compare", "clip.yuv", "--size", "176x144", "--json"];
    [clip, &PLAYED, more].concat()
}

fn receiver<'a>(result: &'a Value, contender: &str, receiver: usize) -> &'a Value {
    let of = result["contenders"].as_array().expect("contenders");
    let of = of.iter().find(|it| it["contender"] == contender).expect("this contender");
    &of["receivers"][receiver]
}

/// The mean PSNR of frames sent in the burst; one equal to the original counts as 60 dB, as on the page.
fn psnr_db(result: &Value, contender: &str, at: usize) -> f64 {
    let frames = receiver(result, contender, at)["psnr_db_by_frame"].as_array().expect("frames");
    let [from, to] = BURST_S.map(|second| (second * 12.0) as usize);
    let shown = frames[from..to].iter().map(|db| db.as_f64().unwrap_or(60.0).min(60.0));
    shown.sum::<f64>() / (to - from) as f64
}

/// When the first layer is left, seconds since the first frame.
fn left_s(result: &Value, at: usize) -> f64 {
    let layers = receiver(result, "layered", at)["layers"].as_array().expect("layers");
    let left = layers.iter().find(|step| step[1].as_u64() < Some(7)).expect("a layer is left");
    left[0].as_f64().expect("a time")
}

/// A valid run by the real clock; none where the machine never lets there be one.
fn live(room: &Room) -> Option<Value> {
    for _ in 0..ROUNDS {
        let before = Moment::now("");
        let output = room.run(&words(&["--clock", "real"]));
        let idle = before.idle_since();
        let stderr = text(&output.stderr);
        match output.status.code() {
            Some(0) => return serde_json::from_slice(&output.stdout).ok(),
            Some(1) => assert!(stderr.contains("the run is not valid"), "{stderr}"),
            _ => panic!("{stderr}"),
        }
        println!("{stderr}{:.1} % idle", 100.0 * idle);
        let is_let_off = idle < IDLE_LEAST && !quiet::is_declared_quiet();
        assert!(is_let_off, "threads were late though processors were idle: {stderr}");
    }
    None
}

/// Where the draw after these is expected, within `floor` at least.
fn expected(drawn: &[f64], floor: f64) -> [f64; 2] {
    let count = drawn.len() as f64;
    let mean = drawn.iter().sum::<f64>() / count;
    let squares: f64 = drawn.iter().map(|one| (one - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0) * (1.0 + 1.0 / count)).sqrt();
    [mean, (two_sided(count - 1.0, SURE) * deviation).max(floor)]
}

#[test]
fn section_5_2_live_is_as_in_virtual_time() {
    if !common::privileged("section 5.2 by the real clock") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let room = Room::new("wave-live");
    let is_foreman = clip(&room);
    let seeds = SEEDS.map(|seed| room.counted(&words(&["--seed", &seed.to_string()])));
    let seeds: Vec<Value> = seeds.collect();
    let Some(live) = live(&room) else {
        return println!("skipped: section 5.2 by the real clock: no processor was left");
    };
    let of_virtual = &seeds[0];
    assert_eq!((&live["clock"], &of_virtual["clock"]), (&"real".into(), &"virtual".into()));
    assert_eq!((&live["valid"], &of_virtual["valid"]), (&true.into(), &Value::Null));
    assert_eq!(live["frames"], of_virtual["frames"]);
    for (ours, theirs) in contenders(&live).iter().zip(contenders(of_virtual)) {
        assert_eq!(ours["sent_packets"], theirs["sent_packets"], "{}", ours["contender"]);
        let threads = ours["threads"].as_array().expect("threads");
        assert_eq!(threads.len(), 9);
        let met = |thread: &Value| thread["moments"].as_u64() >= Some(MOMENTS_LEAST);
        assert!(threads.iter().all(met), "{threads:?}");
    }
    CONTENDERS.iter().for_each(|contender| assert_undisturbed(&live, contender));
    for at in [1, 2] {
        let mut orders = [Vec::new(), Vec::new()];
        for contender in CONTENDERS {
            let drawn: Vec<f64> = seeds.iter().map(|it| psnr_db(it, contender, at)).collect();
            let ([mean, within], found) =
                (expected(&drawn, FLOOR_DB), psnr_db(&live, contender, at));
            println!("D{} {contender}: {found:.2} dB live, {mean:.2} ± {within:.2} dB", at + 1);
            assert!((found - mean).abs() <= within, "D{} {contender}", at + 1);
            orders[0].push((contender, found));
            orders[1].push((contender, mean));
        }
        let [of_live, of_virtual] = orders.map(|mut order| {
            order.sort_by(|one, other| one.1.total_cmp(&other.1));
            order.into_iter().map(|one| one.0).collect::<Vec<_>>()
        });
        assert_eq!(of_live, of_virtual, "the contenders' order at D{}", at + 1);
        assert_reactions(&live, at, is_foreman);
    }
    // (At D2, where half of the packets are lost and not two thirds, it is left sooner or later by chance.)
    let drawn: Vec<f64> = seeds.iter().map(|it| left_s(it, 2)).collect();
    let ([mean, within], found) = (expected(&drawn, FLOOR_S), left_s(&live, 2));
    println!("D3: a layer is left at {found:.2} s, {mean:.2} ± {within:.2} s");
    assert!((found - mean).abs() <= within && found > BURST_S[0] + 1.0, "D3");
}

fn contenders(result: &Value) -> &[Value] {
    result["contenders"].as_array().expect("contenders")
}

/// Nothing is lost where the share suffices: at D1, and before there is cross traffic.
fn assert_undisturbed(live: &Value, contender: &str) {
    let frames = |at: usize| receiver(live, contender, at)["psnr_db_by_frame"].as_array().unwrap();
    let sent = contenders(live).iter().find(|it| it["contender"] == contender).expect("it");
    let first = receiver(live, contender, 0);
    assert!(frames(0).iter().all(Value::is_null), "D1 {contender}");
    assert_eq!(first["used_packets"], sent["sent_packets"], "D1 {contender}");
    assert_eq!(first["dropped_by_queues"], 0, "D1 {contender}");
    let before = (BURST_S[0] * 12.0) as usize;
    for at in [1, 2] {
        assert!(frames(at)[..before].iter().all(Value::is_null), "D{} {contender}", at + 1);
    }
}

/// Active dropping settles within 50 ms and a frame, and the lowest sub-bands always come; plain queueing never settles.
fn assert_reactions(live: &Value, at: usize, is_foreman: bool) {
    let active = receiver(live, "active", at);
    let reaction = active["burst"]["reaction_ms"].as_f64();
    println!("D{}: active dropping settles after {reaction:?} ms", at + 1);
    if is_foreman {
        assert!(reaction.is_some_and(|ms| ms <= REACTION_MS), "D{}: {reaction:?}", at + 1);
    }
    let rows = active["subbands_by_8_frames"].as_array().expect("rows");
    let lowest = |row: &Value| (0..3).all(|subband| row[subband] == 8);
    // (The last row of frames may be shorter.)
    assert!(rows[..rows.len() - 1].iter().all(lowest), "D{}: {rows:?}", at + 1);
    assert!(receiver(live, "plain", at)["burst"]["reaction_ms"].is_null());
}

/// Returns when a run by the real clock has been playing for half a second.
fn wait_until_it_plays(running: &mut Running) {
    let tasks = format!("/proc/{}/task", running.pid());
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    running.wait_for("thread that sends the video", || {
        let tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
        tasks.filter_map(|task| name(task).ok()).any(|name| name.trim_end() == "source")
    });
    thread::sleep(Duration::from_millis(700));
}

/// Three seconds of a small clip.
const SHORT: [&str; 10] = [
    "video",
    "compare",
    "--clock",
    "real",
    "--seconds",
    "3",
    "--burst-from",
    "1",
    "--burst-to",
    "2",
];

#[test]
fn a_run_with_late_threads_is_invalid_with_a_reason() {
    if !common::privileged("a run by the real clock that is held up") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let room = Room::new("wave-late");
    let mut running = room.start(&[&SHORT[..], &["--out", "late"]].concat());
    wait_until_it_plays(&mut running);
    running.signal(libc::SIGSTOP);
    thread::sleep(Duration::from_millis(300));
    running.signal(libc::SIGCONT);
    let output = running.end();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the run is not valid: source (plain) was late by "), "{stderr}");
    let kept = room.json("late/result.json");
    assert_eq!(kept["valid"], false);
    assert!(kept["why"].as_array().is_some_and(|why| !why.is_empty()), "{kept}");
    let page = room.read("late/report.html");
    assert!(page.contains("The run is not valid: source (plain) was late by "));
    assert!(page.contains("real clock"));
}

#[test]
fn an_interrupted_run_by_the_real_clock_ends_soon_and_keeps_nothing() {
    if !common::privileged("a run by the real clock that is interrupted") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let room = Room::new("wave-interrupted");
    let words = ["video", "compare", "--clock", "real", "--seconds", "200", "--out", "never"];
    let mut running = room.start(&words);
    wait_until_it_plays(&mut running);
    running.signal(libc::SIGINT);
    let began = Instant::now();
    let output = running.end();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert_eq!(room.listing(), [], "nothing is kept");
    // The namespaces went with the process: nothing holds them but its threads.
}

/// Root of a user namespace in which there can be no other, and no capability is left.
const NO_PRIVILEGE: &str = "echo 0 > /proc/sys/user/max_user_namespaces && \
                            exec setpriv --bounding-set -all --inh-caps -all \"$@\"";

#[test]
fn without_the_privilege_to_make_namespaces_it_is_refused_in_one_line() {
    let room = Room::new("wave-refused");
    let mut command = Command::new("unshare");
    command.args(["-U", "-r", "sh", "-c", NO_PRIVILEGE, "sh", BINARY]).args(SHORT);
    let Ok(output) = command.current_dir(room.path("")).output() else {
        return println!("skipped: there is no unshare, by which privileges are given up");
    };
    let stderr = text(&output.stderr);
    if !stderr.starts_with("nilometer: ") {
        return println!("skipped: privileges cannot be given up here: {stderr}");
    }
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("a lab needs root") && stderr.contains("sudo"), "{stderr}");
    assert_eq!(room.listing(), []);
}
