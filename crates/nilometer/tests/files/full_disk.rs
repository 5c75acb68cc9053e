//! A full disk: whatever its size, a command ends with complete results, or in one line and with
//! nothing left.
//!
//! Each command writes into a tmpfs of its own in a mount namespace of its own, a page at first and
//! then twice as large again and again, until it ends well. So the disk is full at another moment each
//! time: at the first file, in the middle of one, between two.

use crate::common;
use std::process::{Command, Output};

use common::{BINARY, Room, capture, text};
use serde_json::Value;

/// Mounts a disk of `$1` bytes, runs the rest of the words in it, and lists what is left on it.
const SCRIPT: &str = "mount -t tmpfs -o size=$1,nr_inodes=1024 none disk || exit 99
shift
(cd disk && \"$@\")
status=$?
ls -A disk > left
exit $status";

/// More than any of these commands writes.
const ENOUGH_BYTES: u64 = 64 << 20;

/// Runs the binary on a disk of `bytes`; returns what is left on it.
fn on_disk(room: &Room, bytes: u64, words: &[&str]) -> (Output, Vec<String>) {
    std::fs::create_dir_all(room.path("disk")).expect("a place to mount it");
    let mut command = Command::new("unshare");
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-c", SCRIPT, "sh", &bytes.to_string(), BINARY]).args(words);
    let output = command.current_dir(room.path("")).output().expect("unshare of util-linux");
    let left = room.read("left").lines().map(str::to_owned).collect();
    (output, left)
}

/// Whether disks can be mounted here; prints what is skipped if not.
fn can_mount(room: &Room) -> bool {
    std::fs::create_dir_all(room.path("disk")).expect("a place to mount it");
    let mut command = Command::new("unshare");
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-c", SCRIPT, "sh", "4096", "true"]);
    let tried = command.current_dir(room.path("")).output();
    let can = tried.as_ref().is_ok_and(|output| output.status.success());
    if !can {
        println!("skipped: full disks: no disk of our own can be mounted here: {tried:?}");
    }
    can
}

/// Plays `words` on disks of `from` bytes and up, and expects `left` of the one that is large enough;
/// at least `failures` are not.
fn fills(room: &Room, words: &[&str], from: u64, failures: u32, left: &[&str]) {
    let (mut bytes, mut failed) = (from, 0);
    loop {
        let (output, found) = on_disk(room, bytes, words);
        let stderr = text(&output.stderr);
        if output.status.code() == Some(0) {
            assert_eq!(found, left, "{words:?} on {bytes} bytes: {stderr}");
            break;
        }
        assert_eq!(output.status.code(), Some(2), "{words:?} on {bytes} bytes: {stderr}");
        let line = stderr.lines().last().expect("a reason");
        // Measurements are kept as far as they could be written.
        let kept = line.contains("kept in ").then(|| format!("{}.partial", left[0]));
        assert_eq!(found, Vec::from_iter(kept), "{words:?} on {bytes} bytes: {stderr}");
        assert_eq!(line.matches("No space left on device").count(), 1, "{words:?}: {line}");
        let names_it = left.iter().any(|name| line.contains(name));
        assert!(line.starts_with("nilometer: ") && names_it, "{words:?}: {line}");
        failed += 1;
        bytes *= 2;
        assert!(bytes <= ENOUGH_BYTES, "{words:?} fill any disk: {line}");
    }
    assert!(failed >= failures, "{words:?}: full only {failed} times");
}

#[test]
fn a_full_disk_leaves_no_half_of_a_file() {
    let room = Room::new("full-files");
    if !can_mount(&room) {
        return;
    }
    room.write("small.pcap", capture(300, |number| 200 + 37 * number as usize));
    let input = room.path("small.pcap");
    let input = input.to_str().expect("UTF-8");
    for name in ["flows.parquet", "flows.csv", "flows.ndjson"] {
        fills(&room, &["flows", input, "-o", name], 4096, 2, &[name]);
    }
    fills(&room, &["model", input, "-o", "model.json"], 4096, 1, &["model.json"]);
    fills(&room, &["model", input, "--part", "part.parquet"], 4096, 1, &["part.parquet"]);
    room.done(&["model", input, "-o", "model.json"]);
    let model = room.path("model.json");
    let model = model.to_str().expect("UTF-8");
    let pair = ["pair_tcpclient.xml", "pair_tcpserver.xml"];
    fills(&room, &["model", "export", model, "--harpoon", "pair"], 4096, 1, &pair);
    for form in ["--csv", "--parquet"] {
        fills(&room, &["model", "export", model, form, "tables"], 4096, 2, &["tables"]);
    }
}

#[test]
fn a_full_disk_leaves_no_half_of_the_manual_pages() {
    let room = Room::new("full-pages");
    if !can_mount(&room) {
        return;
    }
    fills(&room, &["man", "--out", "pages"], 4096, 4, &["pages"]);
    fills(&room, &["man", "--out", "share/man/man1"], 65_536, 1, &["share"]);
}

#[test]
fn a_full_disk_leaves_no_half_of_a_simulation() {
    let room = Room::new("full-simulation");
    if !can_mount(&room) {
        return;
    }
    let sets = ["--set", "flows=4", "--set", "duration_s=1", "--set", "discipline=red,qsdrr"];
    let words = [&["simulate", "qsdrr", "--seeds", "1", "--out", "run"], &sets[..]].concat();
    fills(&room, &words, 4096, 4, &["run"]);
    let traced = [&words[..], &["--trace", "bottleneck"]].concat();
    fills(&room, &traced, 16_384, 2, &["run"]);
    fills(&room, &["simulate", "distributed-queueing", "--out", "run"], 65_536, 2, &["run"]);
}

/// A lab is slow, so its disks are few: full at the first files, while packets come, at the tables.
#[test]
fn a_full_disk_leaves_no_half_of_a_run() {
    if !common::privileged("a lab run on a full disk") {
        return;
    }
    let room = Room::new("full-run");
    if !can_mount(&room) {
        return;
    }
    let model: Value = room.small_model("model.json");
    let wanted: u64 = model["intervals"]
        .as_array()
        .expect("intervals")
        .iter()
        .map(|i| i["bytes"].as_u64().expect("bytes"))
        .sum();
    let model = room.path("model.json");
    let model = model.to_str().expect("UTF-8");
    let words = [
        "lab",
        "run",
        "--model",
        model,
        "--duration",
        "2",
        "--calibration",
        "0.5",
        "--pcap",
        "--out",
        "run",
    ];
    let mut ended = Vec::new();
    for bytes in [4_096, 262_144, wanted, ENOUGH_BYTES] {
        let (output, left) = on_disk(&room, bytes, &words);
        let stderr = text(&output.stderr);
        let status = output.status.code();
        if status == Some(0) {
            assert_eq!(left, ["run"], "{bytes} bytes: {stderr}");
        } else {
            let line = stderr.lines().last().expect("a reason");
            let kept = line.contains("; what was measured is kept in /").then_some("run.partial");
            assert_eq!(status, Some(2), "{bytes} bytes: {stderr}");
            assert_eq!(left, kept.into_iter().collect::<Vec<_>>(), "{bytes} bytes: {stderr}");
            assert!(line.starts_with("nilometer: ") && line.contains("run.partial/"), "{line}");
            assert_eq!(line.matches("No space left on device").count(), 1, "{line}");
        }
        ended.push(status);
    }
    assert_eq!(ended, [Some(2), Some(2), Some(2), Some(0)]);
}
