//! Streams while something goes wrong: trials that invalidate themselves, devices that fail in mid-trial; and live frames.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::external::{Bench, INTERFACES, ip};
use crate::common::{BINARY, Room, privileged, text};

const COMMON: [&str; 5] = ["stream", "run", "--json", "--calibration", "0"];

/// A stream that is under way.
struct Stream(Child);

impl Stream {
    fn start(room: &Room, words: &[&str]) -> Stream {
        let mut command = Command::new(BINARY);
        command.current_dir(room.path("")).args(COMMON).args(words);
        Stream::of(command)
    }

    fn of(mut command: Command) -> Stream {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Stream(command.spawn().expect("it starts"))
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the call takes numbers; the process is our child, not yet waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as libc::pid_t, signal) }, 0);
    }

    /// Waits until its threads have used half a second of CPU time, as a sender does.
    fn wait_for_traffic(&self) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            if self.cpu_s() > 0.5 {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("no traffic");
    }

    fn cpu_s(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()));
        let stat = stat.unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|one| one.parse().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / 100.0
    }

    /// Its result: 1 is the status of one that is not valid.
    fn result(self) -> Value {
        let output = self.0.wait_with_output().expect("it ends");
        let result: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        assert_eq!(output.status.code(), Some(i32::from(result["valid"] != true)));
        for line in ["why", "warnings"].iter().flat_map(|key| lines(&result, key)) {
            assert!(text(&output.stderr).contains(&line), "{line:?} is not on stderr");
        }
        result
    }
}

fn lines(result: &Value, key: &str) -> Vec<String> {
    let lines = result[key].as_array().expect("a list").iter();
    lines.map(|line| line.as_str().expect("a line").to_owned()).collect()
}

fn count(of: &Value) -> u64 {
    of.as_u64().expect("a count")
}

/// The number in front of some words.
fn before(line: &str, words: &str) -> f64 {
    let at = line.find(words).unwrap_or_else(|| panic!("{words:?} in {line}"));
    let number = line[..at].trim_end().rsplit(' ').next().expect("a word");
    number.parse().unwrap_or_else(|_| panic!("a number before {words:?} in {line}"))
}

/// Spins on all processors in a real-time class that comes before the stream's.
fn take_all_processors(time: Duration) {
    let hogs: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from))
        .map(|processor| {
            thread::spawn(move || {
                // SAFETY: the set and the parameters are plain integers that live until the calls return.
                let taken = unsafe {
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(processor, &mut set);
                    libc::sched_setaffinity(0, size_of_val(&set), &set);
                    let first = libc::sched_param { sched_priority: 90 };
                    libc::sched_setscheduler(0, libc::SCHED_FIFO, &first)
                };
                let began = Instant::now();
                while taken == 0 && began.elapsed() < time {
                    std::hint::spin_loop();
                }
                taken == 0
            })
        })
        .collect();
    for hog in hogs {
        assert!(hog.join().expect("no panic"), "root may take a real-time class");
    }
}

#[test]
fn a_stopped_instrument_invalidates_the_trial_with_its_time() {
    if !privileged("stream run, stopped") {
        return;
    }
    let room = Room::new("stream-stopped");
    for transmit in ["socket", "live"] {
        let words = ["--dut", "wire", "--pps", "20000", "--seconds", "3", "--transmit", transmit];
        let stream = Stream::start(&room, &words);
        stream.wait_for_traffic();
        stream.signal(libc::SIGSTOP);
        thread::sleep(Duration::from_millis(400));
        stream.signal(libc::SIGCONT);
        let result = stream.result();
        assert_eq!(result["valid"], false, "{transmit}");
        let why = lines(&result, "why").join("; ");
        assert!(why.contains("pacer slip"), "{transmit}: {why}");
        assert!(before(&why, "µs at") > 300_000.0, "{transmit}: {why}");
        // A stop of the instrument is no fault of the device's.
        assert!(lines(&result, "warnings").is_empty(), "{transmit}: {}", result["warnings"]);
    }
}

#[test]
fn taken_processors_invalidate_the_trial() {
    if !privileged("stream run on taken processors") {
        return;
    }
    let room = Room::new("stream-taken");
    let stream = Stream::start(&room, &["--dut", "wire", "--pps", "50000", "--seconds", "3"]);
    stream.wait_for_traffic();
    take_all_processors(Duration::from_millis(300));
    let result = stream.result();
    assert_eq!(result["valid"], false);
    let why = lines(&result, "why").join("; ");
    assert!(why.contains("pacer slip"), "{why}");
    assert!(before(&why, "µs at") > 100_000.0, "{why}");
}

/// Bursts larger than the ring come while no thread reads it.
#[test]
fn a_starved_receiver_invalidates_the_trial() {
    if !privileged("stream run with a starved receiver") {
        return;
    }
    let room = Room::new("stream-starved");
    let words = ["--dut", "wire", "--pps", "100000", "--seconds", "2", "--ring", "64"];
    let stream = Stream::start(&room, &words);
    stream.wait_for_traffic();
    take_all_processors(Duration::from_millis(200));
    let result = stream.result();
    assert_eq!(result["valid"], false);
    let why = lines(&result, "why").join("; ");
    assert!(why.contains("receiver loss"), "{why}");
    assert_eq!(result["packets"]["lost"], result["packets"]["meter_lost"], "a wire loses nothing");
    assert!(lines(&result, "warnings").is_empty(), "{}", result["warnings"]);
}

#[test]
fn a_processor_quota_throttles_the_pacer_and_invalidates_the_trial() {
    let group = format!("/sys/fs/cgroup/nilometer-{}", std::process::id());
    let quota = || {
        std::fs::create_dir(&group).ok()?;
        // (Where no control groups are mounted the directory is an ordinary one, without the kernel's files.)
        let file = format!("{group}/cpu.max");
        std::fs::exists(&file).ok()?.then(|| std::fs::write(&file, "20000 100000").ok())?
    };
    if !privileged("stream run with a quota") {
        return;
    }
    if quota().is_none() {
        println!("skipped: a quota of the processor: no control group with cpu.max here");
        let _ = std::fs::remove_dir(&group);
        return;
    }
    let room = Room::new("stream-throttled");
    let words = ["--dut", "wire", "--pps", "20000", "--seconds", "2"];
    let stream = Stream::start(&room, &words);
    let moved = std::fs::write(format!("{group}/cgroup.procs"), stream.0.id().to_string());
    let result = stream.result();
    let expected = std::fs::read_to_string(format!("{group}/cpu.stat")).unwrap_or_default();
    let _ = std::fs::remove_dir(&group);
    // How long the kernel throttled its threads, which are in the ordinary class meanwhile.
    let throttled_us = expected.lines().find_map(|line| line.strip_prefix("throttled_usec "));
    let throttled_us: u64 = throttled_us.and_then(|us| us.parse().ok()).unwrap_or(0);
    if moved.is_err() || throttled_us < 300_000 {
        println!("skipped: a quota of the processor: {moved:?}, throttled for {throttled_us} µs");
        return;
    }
    assert_eq!(result["valid"], false, "throttled for {throttled_us} µs: {result}");
    let why = lines(&result, "why").join("; ");
    assert!(why.contains("pacer slip") || why.contains("behind"), "{why}");
}

/// Trials that are made before none of them is said to be valid.
const TRIES: u32 = 4;

#[test]
fn faults_in_mid_trial_are_named_with_their_time() {
    if !privileged("stream run through a failing fault box") {
        return;
    }
    let room = Room::new("stream-faults");
    for (faults, expected) in [
        ("cut=0.5s-0.8s", vec!["the device passed nothing from 0."]),
        ("cut=0.7s-60s", vec!["the device died: from 0.7"]),
        (
            "duplicate=0.02,corrupt=0.02,reorder=0.02,reorder_by=5ms",
            vec!["the device duplicated from 0.", "the device corrupted", "the device reordered"],
        ),
        ("delay=1ms", vec![]),
    ] {
        let words = ["--fault", faults, "--pps", "5000", "--seconds", "1.5"];
        // (What an invalid trial measured does not count; it is repeated, as a calibration does.)
        let mut result = Value::Null;
        let is_valid = (0..TRIES).any(|_| {
            result = Stream::start(&room, &words).result();
            result["valid"] == true
        });
        if !is_valid {
            println!("skipped: {faults}: {TRIES} trials were not valid: {}", result["why"]);
            continue;
        }
        let warnings = lines(&result, "warnings");
        assert_eq!(warnings.len(), expected.len(), "{faults}: {warnings:?}");
        for (line, words) in warnings.iter().zip(expected) {
            assert!(line.contains(words), "{faults}: {line}");
        }
        if faults == "cut=0.5s-0.8s" {
            let [from, to] = [before(&warnings[0], "to 0."), before(&warnings[0], "s:")];
            assert!((0.4..0.6).contains(&from) && (0.7..0.9).contains(&to), "{}", warnings[0]);
        }
    }
}

/// Frames that the device has received so far.
fn received(bench: &Bench) -> u64 {
    let words = ["-n", &bench.device, "-j", "-s", "link", "show", "dc"];
    let output = Command::new("ip").args(words).output().expect("ip runs").stdout;
    let shown: Value = serde_json::from_slice(&output).expect("JSON");
    count(&shown[0]["stats64"]["rx"]["packets"])
}

#[test]
fn a_device_that_dies_or_loops_in_mid_trial_is_named() {
    let Some(bench) = Bench::new("stream run through a device that fails") else { return };
    bench.set_up();
    let words = [&COMMON[..], &INTERFACES, &["--pps", "4000", "--seconds", "3"]].concat();
    for (what, expected) in [
        ("net.ipv4.ip_forward=0", "the device died: from "),
        ("a route back", "the device looped from "),
    ] {
        let (stream, first) = (Stream::of(bench.nilometer(&words)), received(&bench));
        let began = Instant::now();
        while received(&bench) < first + 4_000 && began.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(20));
        }
        match what {
            "a route back" => {
                bench.in_device(&["route", "replace", "198.19.0.0/17", "via", "198.19.255.1"]);
            }
            _ => ip(&["netns", "exec", &bench.device, "sysctl", "-qw", what]),
        }
        let result = stream.result();
        let line = lines(&result, "warnings").into_iter().find(|line| line.starts_with(expected));
        let line = line.unwrap_or_else(|| panic!("{what}: {}", result["warnings"]));
        let from = before(&line, "s on");
        assert!((0.3..2.9).contains(&from), "{line}");
        println!("{line}");
        // As it was, for the next.
        ip(&["netns", "exec", &bench.device, "sysctl", "-qw", "net.ipv4.ip_forward=1"]);
        bench.in_device(&["route", "replace", "198.19.0.0/17", "via", "198.19.255.6"]);
    }
}

#[test]
fn live_frames_pass_every_device_and_have_a_row_each() {
    if !privileged("live frames") {
        return;
    }
    let room = Room::new("stream-live");
    for (dut, words) in [
        ("wire", ["--transmit", "live", "--pps", "20000", "--flows", "30"]),
        ("linux", ["--transmit", "live", "--pps", "20000", "--flows", "30"]),
        ("nilometer", ["--transmit", "live", "--pps", "5000", "--frame-bytes", "1518"]),
        ("wire", ["--transmit", "live", "--pps", "20000", "--pattern", "burst:100"]),
        ("wire", ["--transmit", "best", "--pps", "600000", "--flows", "7"]),
    ] {
        let common = ["--dut", dut, "--seconds", "0.5", "--out", "kept", "--force"];
        let result = Stream::start(&room, &[&common[..], &words].concat()).result();
        assert_eq!(result["transmit"]["by"], "live", "{dut} {words:?}");
        let why = result["why"].to_string();
        if ["receiver loss", "record ring overflow"].iter().any(|starved| why.contains(starved)) {
            println!("skipped: the receiver was starved: {why}");
            continue;
        }
        let packets = &result["packets"];
        let pps: f64 = words[3].parse().expect("a rate");
        assert_eq!(count(&packets["in"]) as f64, pps * 0.5, "{dut} {words:?}: {result}");
        assert_eq!(packets["in"], packets["out"], "{dut} {words:?}: {result}");
        for fate in ["lost", "duplicated", "corrupted", "originated"] {
            assert_eq!(count(&packets[fate]), 0, "{dut} {words:?}: {packets}");
        }
        let [written, left_out] = [0, 1].map(|at| count(&result["rows"][at]));
        assert_eq!(written + left_out, count(&packets["in"]), "a row for each, or counted");
        assert!(dut == "wire" && pps > 1e5 || left_out == 0, "{left_out} rows are missing");
    }
}

#[test]
fn a_link_that_takes_no_live_frames_is_named() {
    let Some(bench) = Bench::new("live frames to a device that takes none") else { return };
    bench.set_up();
    let live = ["--pps", "4000", "--seconds", "20", "--transmit", "live"];
    let output = bench.nilometer(&[&COMMON[..], &INTERFACES, &live].concat()).output();
    let output = output.expect("it runs");
    let expected = text(&output.stderr);
    assert!(expected.contains("ethtool -K PORT gro on") && output.stdout.is_empty(), "{expected}");
}

#[test]
fn a_full_disk_costs_the_table_and_not_the_result() {
    if !privileged("stream run on a full disk") {
        return;
    }
    let room = Room::new("stream-disk");
    for (size, expected) in [("64k", "no table of frames: "), ("8k", "the results are not kept: ")]
    {
        let script = format!(
            "mkdir -p small && mount -t tmpfs -o size={size} tmpfs small && exec \"$0\" \"$@\""
        );
        let mut command = Command::new("unshare");
        command.current_dir(room.path("")).args(["-m", "sh", "-c", &script, BINARY]).args(COMMON);
        // (More rows than a group has, so that the disk is full before the end.)
        let words = ["--dut", "wire", "--pps", "150000", "--seconds", "1", "--flows", "50"];
        command.args(words).args(["--out", "small/kept"]);
        let result = Stream::of(command).result();
        let warnings = lines(&result, "warnings");
        assert!(warnings.iter().any(|line| line.starts_with(expected)), "{size}: {warnings:?}");
        let entered = count(&result["packets"]["in"]);
        assert_eq!((count(&result["rows"][0]), count(&result["rows"][1])), (0, entered), "{size}");
    }
}

#[test]
fn a_lab_run_names_faults_of_its_device() {
    if !privileged("lab run through a failing device") {
        return;
    }
    let room = Room::new("stream-lab-run");
    let words = ["lab", "run", "--json", "--duration", "3", "--calibration", "0"];
    let run = |more: &[&str]| room.counted(&[&words[..], more].concat());
    let warnings = lines(&run(&["--fault", "duplicate=0.05,cut_back=1s-1.6s"]), "warnings");
    for expected in [
        "During the trial the device duplicated from ",
        "During the trial the device passed nothing",
    ] {
        assert!(warnings.iter().any(|line| line.starts_with(expected)), "{expected}: {warnings:?}");
    }
    let warnings = lines(&run(&["--dut", "linux", "--out", "sound"]), "warnings").join("; ");
    assert!(!warnings.contains("During the trial"), "{warnings}");
    // The streams derived from the same load.
    let expected =
        room.done(&["stream", "derive", "sound", "--out", "streams", "--seconds", "0.2"]);
    assert!(expected.contains("offered load") && expected.contains("burst-465"), "{expected}");
    for name in ["constant-1500", "burst-232", "burst-930", "constant-40", "constant-trimodal"] {
        let file = format!("streams/{name}.toml");
        let result = Stream::start(&room, &[&file]).result();
        assert!(count(&result["packets"]["in"]) > 0, "{name}: {result}");
    }
    let line = room.refused(&["stream", "derive", "streams", "--out", "none"]);
    assert!(line.contains("is not a directory of a lab run"), "{line}");
}
