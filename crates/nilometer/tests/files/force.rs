//! `--force` with all commands that write, against random directories: nothing foreign is ever
//! touched, and own results are always replaced.

mod places;
mod router;
mod snapshot;
mod states;

use crate::common;
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{BINARY, Room, capture, text};
use snapshot::{Entry, litter, losses, snapshot};
use states::{Around, Chance, copy, make, may_mount};

/// Random directories of `--out` that a command meets at rest.
const RESTING: usize = 420;
/// Random files of `-o` and of commands that have such an output.
const FILES: usize = 140;
/// Runs that are killed at a random moment, or into whose directory a file is put meanwhile.
const DISTURBED: usize = 60;
/// Pairs of runs with one `--out`.
const PAIRS: usize = 20;

/// A run of some milliseconds.
const TINY: &str = r#"
version = 1
name = "tiny"
duration_s = 0.2
seed = 4
[[host]]
name = "source"
[[host]]
name = "sink"
[[link]]
name = "line"
from = "source"
to = "sink"
rate = "10 Mb/s"
delay = "1 ms"
queue = { discipline = "tail_drop", buffer_packets = 5 }
[[datagrams]]
from = "source"
to = "sink"
rate = "5 Mb/s"
size_bytes = 1500
arrivals = "poisson"
[measure]
bottleneck = "line"
"#;

/// The binary under test, or another one: `NILOMETER_UNDER_TEST`.
fn binary() -> PathBuf {
    std::env::var_os("NILOMETER_UNDER_TEST").map_or_else(|| BINARY.into(), PathBuf::from)
}

fn run(room: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.current_dir(room).args(words).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

fn done(room: &Path, words: &[&str]) {
    let output = run(room, words);
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
}

/// A room with a scenario, a capture, a model and results of ours.
fn furnished(name: &str) -> Room {
    let room = Room::new(name);
    room.write("tiny.toml", TINY);
    let slow = TINY.replace("seed = 4", "seed = 4\nseeds = 40");
    room.write("slow.toml", slow.replace("duration_s = 0.2", "duration_s = 20"));
    room.write("in.pcap", capture(40, |_| 500));
    router::start(&room.path("ctl.sock"));
    room.write("table", "10.0.0.0/8\n192.0.2.0/24\n");
    let at = room.path("");
    done(&at, &["model", "in.pcap", "-o", "m.json"]);
    done(&at, &["simulate", "tiny.toml", "--out", "results"]);
    room
}

/// Commands that leave a directory: their words, DIR for its name.
const DIRECTORIES: [&str; 5] = [
    "simulate ../tiny.toml --out DIR --force",
    "simulate ../tiny.toml --out DIR --force --trace line",
    "model export ../m.json --csv DIR --force",
    "model export ../m.json --parquet DIR --force",
    "lab run --model ../m.json --out DIR --force",
];

#[test]
fn random_directories_lose_nothing_and_own_results_are_replaced() {
    let room = furnished("force-resting");
    let may_mount = may_mount();
    let (mut replaced, mut refused) = (0, 0);
    for number in 0..RESTING {
        let mut chance = Chance(number as u64);
        let case = room.path(&format!("case-{number}"));
        let outside = case.join("outside");
        fs::create_dir_all(&outside).expect("a folder");
        fs::write(outside.join("precious"), "precious").expect("a file");
        fs::write(case.join("DIR.txt"), "beside it").expect("a file");
        let results = room.path("results");
        let mounts = RefCell::default();
        let around = Around { outside: &outside, results: &results, may_mount, mounts };
        // A link to the place leads there, and stays.
        let is_linked = chance.one_in(6);
        let place = if is_linked { "REAL" } else { "DIR" };
        let mut may_replace = make(&case.join(place), &mut chance, &around);
        if is_linked {
            symlink("REAL", case.join("DIR")).expect("a link");
            may_replace &= case.join("REAL").is_dir();
        }
        let partial = format!("{place}.partial");
        if chance.one_in(3) {
            may_replace &= make(&case.join(&partial), &mut chance, &around);
        }
        // (A lab that may run takes seconds and privileges: it is only tried on directories that it
        // must refuse.)
        let commands = if may_replace { 4 } else { DIRECTORIES.len() };
        let line = DIRECTORIES[chance.below(commands)];
        let before = snapshot(&case);
        let output = run(&case, &line.split(' ').collect::<Vec<_>>());
        let after = snapshot(&case);
        let stderr = text(&output.stderr);
        let ours = [PathBuf::from(place), PathBuf::from(&partial)];
        let ours = if may_replace { &ours[..] } else { &[] };
        let (lost, left) = (losses(&before, &after, ours), litter(&before, &after, ours));
        assert!(
            lost.is_empty() && left.is_empty(),
            "{number}: `{line}` {lost:?} {left:?}: {stderr}"
        );
        let status = output.status.code();
        if may_replace {
            assert_eq!(status, Some(0), "{number}: `{line}` on what it may replace: {stderr}");
            let names: Vec<_> = after.keys().filter(|path| path.starts_with(place)).collect();
            assert!(names.len() > 3, "{number}: {names:?}");
            assert!(!after.contains_key(Path::new(&partial)), "{number}: {partial} is left");
            assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{number}: {names:?}");
            replaced += 1;
        } else {
            assert_eq!(status, Some(2), "{number}: `{line}` on what it may not replace: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{number}: {stderr}");
            refused += 1;
        }
    }
    println!("{replaced} directories replaced, {refused} left alone");
    assert!(replaced > RESTING / 6 && refused > RESTING / 4, "{replaced}, {refused}");
}

/// Commands that write a file: their words, OUT for its name; they recognise our files by their
/// beginnings.
const OUTPUTS: [&str; 14] = [
    "flows in.pcap -o OUT.csv --force",
    "flows in.pcap -o OUT.ndjson --force",
    "flows in.pcap -o OUT.parquet --force",
    "model in.pcap -o OUT --force",
    "model embedded -o OUT --force",
    "model in.pcap --part OUT --force",
    "model new -o OUT --force --sessions 1 --file-size exponential:mean=9000 \
     --inter-connection exponential:mean=1",
    "model export m.json --harpoon OUT --force",
    "lab init OUT --force",
    "report run -o OUT",
    "man --out OUT",
    "route bench fib --table table --rounds 1 --engine tree_bitmap --plot OUT",
    "route ctl --socket ctl.sock save OUT --force",
    "route ctl --socket ctl.sock trace -w OUT --force",
];

/// Files of a user that begin as files of ours might.
const LOOKALIKES: [&str; 9] = [
    "notes",
    "{\n  \"name\": \"a package\"\n}\n",
    "{}",
    "#!/bin/sh\nexit 0\n",
    "<!doctype html>\n<title>mine</title>\n",
    "PAR1 of somebody else's PAR1",
    "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n",
    ".TH nilometer 1 \"mine\"\n",
    "\n\r\r\n of a capture",
];

/// The file that a command leaves for OUT.
fn left_by(line: &str) -> &'static str {
    match line {
        _ if line.contains("OUT.csv") => "OUT.csv",
        _ if line.contains("OUT.ndjson") => "OUT.ndjson",
        _ if line.contains("OUT.parquet") => "OUT.parquet",
        _ if line.contains("--harpoon") => "OUT_tcpclient.xml",
        _ if line.starts_with("man ") => "OUT/nilometer.1",
        _ => "OUT",
    }
}

#[test]
fn random_files_are_replaced_only_if_they_are_ours() {
    let room = furnished("force-files");
    let at = room.path("");
    fs::create_dir(room.path("run")).expect("a folder");
    room.write("run/report.json", "{\"format\":\"nilometer-report 1\"}");
    for (number, line) in (0..FILES).map(|number| (number, OUTPUTS[number % OUTPUTS.len()])) {
        let mut chance = Chance(1_000 + number as u64);
        let words: Vec<&str> = line.split(' ').collect();
        let path = room.path(left_by(line));
        if line.starts_with("man ") {
            fs::create_dir_all(room.path("OUT")).expect("a folder");
        }
        room.write("precious", "precious");
        let mut may_replace = true;
        match number / OUTPUTS.len() {
            0 => {}
            1 => done(&at, &words),
            2 => fs::write(&path, "").expect("a file"),
            // Two names of one file of ours: the other keeps what it had.
            3 => {
                done(&at, &words);
                fs::hard_link(&path, room.path("kept")).expect("a link");
            }
            4 => {
                done(&at, &words);
                fs::rename(&path, room.path("real")).expect("a name");
                symlink(room.path("real"), &path).expect("a link");
            }
            5 => {
                symlink(room.path("precious"), &path).expect("a link");
                may_replace = false;
            }
            6 => {
                symlink("nowhere/at all", &path).expect("a link");
                may_replace = false;
            }
            _ => {
                let like = LOOKALIKES[chance.below(LOOKALIKES.len())];
                fs::write(&path, like).expect("a file");
                may_replace = false;
            }
        }
        let before = snapshot(&at);
        let output = run(&at, &words);
        let after = snapshot(&at);
        let stderr = text(&output.stderr);
        let ours = ["OUT", "OUT.csv", "OUT.ndjson", "OUT.parquet", "OUT_tcpclient.xml"];
        let mut ours: Vec<PathBuf> = ours.map(PathBuf::from).into();
        ours.push("OUT_tcpserver.xml".into());
        if number / OUTPUTS.len() == 4 {
            // The link is not ours, but its target is.
            ours.retain(|one| at.join(one) != path);
            ours.push("real".into());
        }
        let ours = if may_replace { &ours[..] } else { &[] };
        let (lost, left) = (losses(&before, &after, ours), litter(&before, &after, ours));
        assert!(
            lost.is_empty() && left.is_empty(),
            "{number}: `{line}` {lost:?} {left:?}: {stderr}"
        );
        let status = if may_replace { 0 } else { 2 };
        assert_eq!(output.status.code(), Some(status), "{number}: `{line}`: {stderr}");
        let _ = fs::remove_dir_all(room.path("OUT"));
        for path in after.keys().filter(|path| path.to_string_lossy().starts_with("OUT")) {
            let _ = fs::remove_file(at.join(path));
        }
        let _ = (fs::remove_file(room.path("kept")), fs::remove_file(room.path("real")));
    }
}

/// A user that knows which process writes next cannot place a link in its way.
#[test]
fn temporary_names_are_unpredictable() {
    let room = furnished("force-links");
    fs::create_dir(room.path("run")).expect("a folder");
    room.write("run/report.json", "{\"format\":\"nilometer-report 1\"}");
    fs::create_dir(room.path("OUT.d")).expect("a folder");
    // The shell becomes the program, so that its number is that of the writer.
    let script = "for end in tmp partial; do ln -s \"$VICTIM\" \"$PLACE/.$NAME.$$.$end\"; done; \
                  exec \"$@\"";
    for line in OUTPUTS {
        room.write("victim", "precious");
        let line = line.replace("--out OUT", "--out OUT.d");
        let path = room.path(&left_by(&line).replace("OUT/", "OUT.d/"));
        let mut command = Command::new("sh");
        command.current_dir(room.path("")).args(["-c", script, "sh"]).arg(binary());
        command.args(line.split(' ')).env("VICTIM", room.path("victim"));
        command.env("PLACE", path.parent().expect("a folder"));
        let output = command.env("NAME", path.file_name().expect("a name")).output().expect("sh");
        assert_eq!(output.status.code(), Some(0), "`{line}`: {}", text(&output.stderr));
        assert_eq!(room.read("victim"), "precious", "`{line}` wrote through a link");
        assert!(path.symlink_metadata().is_ok_and(|about| about.is_file()), "`{line}`");
        fs::remove_file(path).expect("it was written");
    }
}

/// Waits until there is `path`, a second at most; runs may be over before.
fn appears(path: &Path) -> bool {
    (0..1_000).any(|_| {
        path.exists() || {
            sleep(Duration::from_millis(1));
            false
        }
    })
}

#[test]
fn runs_that_are_killed_or_disturbed_lose_nothing() {
    let room = furnished("force-disturbed");
    let at = room.path("");
    let (mut killed, mut put) = (0, 0);
    for number in 0..DISTURBED {
        let mut chance = Chance(2_000 + number as u64);
        let (out, partial) = (room.path("out"), room.path("out.partial"));
        if chance.one_in(2) {
            copy(&room.path("results"), &out);
        }
        let before = snapshot(&at);
        let scenario = if chance.one_in(2) { "slow.toml" } else { "tiny.toml" };
        let mut command = Command::new(binary());
        command.current_dir(&at).args(["simulate", scenario, "--out", "out", "--force"]);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = quiet.spawn().expect("the binary runs");
        if chance.one_in(2) {
            sleep(Duration::from_micros(chance.below(60_000) as u64));
            running.kill().expect("ours");
            running.wait().expect("ours");
            killed += 1;
            let ours = ["out", "out.partial"].map(PathBuf::from);
            let (lost, left) =
                (losses(&before, &snapshot(&at), &ours), litter(&before, &snapshot(&at), &ours));
            assert!(lost.is_empty() && left.is_empty(), "{number}: {lost:?} {left:?}");
            // A dead process holds no lock, and its leftovers are ours.
            done(&at, &["simulate", "tiny.toml", "--out", "out", "--force"]);
            assert!(!partial.exists(), "{number}");
        } else {
            let seen = appears(&partial);
            let into = if chance.one_in(2) && out.exists() { &out } else { &partial };
            let mine = ["notes.txt", "result.json", "src"][chance.below(3)];
            let path = into.join(mine);
            let is_new = seen && !path.exists();
            let is_there = is_new
                && match mine {
                    "src" => {
                        fs::create_dir(&path).and_then(|()| fs::write(path.join("a.rs"), "mine"))
                    }
                    _ => fs::write(&path, "mine"),
                }
                .is_ok();
            // A long run is interrupted, as by Ctrl-C.
            sleep(Duration::from_millis(20));
            // SAFETY: the process is ours and has not been waited for.
            unsafe { libc::kill(running.id() as i32, libc::SIGINT) };
            running.wait().expect("ours");
            put += u32::from(is_there);
            let all = snapshot(&at);
            let is_mine = |path: &&PathBuf| {
                let folders = ["out", "out.partial"].map(|folder| Path::new(folder).join(mine));
                folders.iter().any(|folder| path.starts_with(folder))
            };
            let contents: Vec<_> = all
                .iter()
                .filter(|(path, _)| is_mine(path))
                .filter(
                    |(_, entry)| matches!(entry, Entry::File { content, .. } if content == b"mine"),
                )
                .collect();
            assert!(!is_there || contents.len() == 1, "{number}: {mine} put into {into:?} is gone");
            let ours = ["out", "out.partial"].map(PathBuf::from);
            let (lost, left) = (losses(&before, &all, &ours), litter(&before, &all, &ours));
            assert!(lost.is_empty() && left.is_empty(), "{number}: {lost:?} {left:?}");
        }
        for folder in [&out, &partial] {
            let _ = fs::remove_dir_all(folder);
        }
    }
    println!("{killed} runs killed, {put} files put in");
    assert!(killed > 10 && put > 5, "{killed}, {put}");
}

#[test]
fn of_two_runs_with_one_place_one_is_refused() {
    let room = furnished("force-pairs");
    let at = room.path("");
    let (mut refused, mut both) = (0, 0);
    for number in 0..PAIRS {
        let mut chance = Chance(3_000 + number as u64);
        if chance.one_in(2) {
            copy(&room.path("results"), &room.path("out"));
        }
        // Short runs may follow each other within the time for which a lock is waited for; long ones not.
        let duration = if number % 5 == 0 { "duration_s=30000" } else { "duration_s=1000" };
        let start = |seed: &str| {
            let mut command = Command::new(binary());
            command.current_dir(&at).args(["simulate", "tiny.toml", "--out", "out", "--force"]);
            command.args(["--set", duration, "--seed", seed]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs")
        };
        let first = start("1");
        sleep(Duration::from_micros(chance.below(8_000) as u64));
        let ended = [first, start("2")].map(|one| one.wait_with_output().expect("ours"));
        let statuses = ended.each_ref().map(|one| one.status.code());
        assert!(statuses.contains(&Some(0)), "{number}: {statuses:?}");
        for one in ended.iter().filter(|one| one.status.code() != Some(0)) {
            let stderr = text(&one.stderr);
            assert_eq!((one.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
            assert!(stderr.contains("another run"), "{number}: {stderr}");
            refused += 1;
        }
        both += u32::from(statuses == [Some(0); 2]);
        // Whichever run won: all of it is of one run.
        let seed = room.json("out/result.json")["seed"].to_string();
        assert!(
            room.read("out/scenario.toml").contains(&format!("seed = {seed}")),
            "{number}: mixed"
        );
        assert!(!room.path("out.partial").exists(), "{number}");
        done(&at, &["simulate", "tiny.toml", "--out", "out", "--force"]);
        fs::remove_dir_all(room.path("out")).expect("results");
    }
    println!("{refused} refused, {both} pairs one after the other");
    assert!(refused > 0);
}

/// As long as a run writes, no other run does, in whatever way; then its results are free.
#[test]
fn a_place_is_locked_while_it_is_written_and_not_longer() {
    let room = furnished("force-locked");
    let words = ["simulate", "slow.toml", "--out", "out", "--set", "seeds=100000"];
    let mut first = room.start(&words);
    first.wait_for("its directory", || room.path("out.partial/scenario.toml").exists());
    for line in [
        "simulate tiny.toml --out out",
        "simulate tiny.toml --out out --force",
        "simulate tiny.toml --out out.partial --force",
        "lab run --out out --force",
        "model export m.json --csv out --force",
    ] {
        let output = run(&room.path(""), &line.split(' ').collect::<Vec<_>>());
        let stderr = text(&output.stderr);
        assert_eq!(
            (output.status.code(), stderr.lines().count()),
            (Some(2), 1),
            "{line}: {stderr}"
        );
        let process = format!("another run (process {}) is writing", first.pid());
        assert!(stderr.contains(&process) || stderr.contains("exists already"), "{line}: {stderr}");
        assert!(!line.contains("--force") || stderr.contains(&process), "{line}: {stderr}");
    }
    first.signal(libc::SIGKILL);
    first.end();
    assert!(room.refused(&["simulate", "tiny.toml", "--out", "out"]).contains("exists already"));
    room.done(&["simulate", "tiny.toml", "--out", "out", "--force"]);
    assert!(!room.path("out.partial").exists());
}
