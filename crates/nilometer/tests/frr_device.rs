//! `lab run --dut frr` leaves nothing, however it ends, and needs no root.

mod common;

use nilometer_stat::Rng;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use common::{Room, privileged, text};
use nilometer_linux::frr::is_installed;

const KILLS: u64 = 14;
/// By then a run of two seconds is over on a machine that has time for it.
const RUN_MS: u64 = 6_000;
/// By then all that should end has ended.
const PATIENCE: Duration = Duration::from_secs(20);
/// An environment variable that a run's processes inherit.
const MARK: &str = "NILOMETER_TEST_RUN";

fn possible(what: &str) -> bool {
    if !privileged(what) {
        return false;
    }
    if !is_installed() {
        println!("skipped: {what}: FRR is not installed (Debian: apt-get install frr)");
    }
    is_installed()
}

/// The commands of all processes that were started, directly or not, with this mark.
fn processes(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}\0");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("a table of processes").flatten() {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if String::from_utf8_lossy(&environment).contains(&wanted) {
            found.push(fs::read_to_string(entry.path().join("comm")).unwrap_or_default());
        }
    }
    found
}

/// Where FRR's daemons put files outside their configured folders, and where a run has its scratch
/// files.
fn places(scratch: &Path) -> BTreeSet<PathBuf> {
    let folders = [scratch, &Path::new("/var/tmp").join("frr"), Path::new("/run/frr")];
    let entries = folders.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

fn words(seconds: &str) -> [&str; 12] {
    let run = ["lab", "run", "--out", "run", "--seed", "3", "--dut", "frr", "--calibration", "0"];
    let [a, b, c, d, e, f, g, h, i, j] = run;
    [a, b, c, d, e, f, g, h, i, j, "--duration", seconds]
}

#[test]
fn a_run_that_is_killed_leaves_no_folder_process_or_mount() {
    if !possible("FRR after SIGKILL") {
        return;
    }
    let mounted = || fs::read_to_string("/proc/self/mountinfo").expect("mounts").lines().count();
    let mut rng = Rng::new(24, 0, 0);
    let mut with_daemons = 0;
    for turn in 0..KILLS {
        let room = Room::new(&format!("frr-killed-{turn}"));
        let scratch = room.path("scratch");
        fs::create_dir(&scratch).expect("a folder");
        let (before, mounts) = (places(&scratch), mounted());
        let mark = format!("{}-{turn}", std::process::id());
        let mut command = room.command(&words("2"));
        command.env(MARK, &mark).env("TMPDIR", &scratch);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs");
        // The first turns are for the daemons' beginning, the others for any moment.
        let span = if turn < KILLS / 2 { RUN_MS / 4 } else { RUN_MS };
        thread::sleep(Duration::from_millis(rng.below(span)));
        let is_daemon = |name: &String| name.contains("zebra") || name.contains("staticd");
        with_daemons += u32::from(processes(&mark).iter().any(is_daemon));
        child.kill().expect("ours");
        child.wait().expect("ours");
        let began = Instant::now();
        while !processes(&mark).is_empty() {
            assert!(began.elapsed() < PATIENCE, "turn {turn}: {:?} stay", processes(&mark));
            thread::sleep(Duration::from_millis(20));
        }
        let after = places(&scratch);
        let left: Vec<_> = after.difference(&before).collect();
        assert!(left.is_empty(), "turn {turn} left {left:?}");
        assert_eq!(mounted(), mounts, "turn {turn} left a mount");
    }
    assert!(with_daemons >= 3, "{with_daemons} of {KILLS} runs had daemons when they were killed");
}

#[test]
fn an_ordinary_user_runs_it_or_gets_a_reason() {
    if !possible("FRR as an ordinary user") {
        return;
    }
    let room = Room::new("frr-nobody-runs");
    let Some(as_unprivileged) = room.as_unprivileged() else { return };
    let output = as_unprivileged(&words("1"));
    let stderr = text(&output.stderr);
    match output.status.code() {
        // Where user namespaces are forbidden, that is the reason, and nothing was written.
        Some(2) => {
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
            assert!(stderr.contains("sudo"), "{stderr}");
            assert!(!room.path("home/run").exists());
        }
        Some(0) => assert_eq!(room.json("home/run/result.json")["dut"], "frr"),
        code => panic!("{code:?} {:?}: {stderr}", output.status.signal()),
    }
}

#[test]
fn the_doctor_has_tried_it() {
    if !possible("FRR by the doctor") {
        return;
    }
    let room = Room::new("frr-doctor");
    let mut answers = vec![room.run(&["doctor", "--json"])];
    answers.extend(
        room.as_unprivileged().map(|as_unprivileged| as_unprivileged(&["doctor", "--json"])),
    );
    for output in answers {
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
        let findings = answer["findings"].as_array().expect("findings");
        let find = |name: &str| findings.iter().find(|finding| finding["name"] == name);
        if find("namespaces").is_some_and(|finding| finding["state"] == "ok") {
            let finding = find("FRR").expect("it was looked at");
            assert_eq!(finding["state"], "ok", "{finding}");
        }
    }
}
