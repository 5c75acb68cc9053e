//! Timed threads run first, where the system allows it, and a run reports whether they did.

use std::fs;

use nilometer_linux::scheduling::refusal;
use serde_json::Value;

use crate::common::{Room, privileged, text};

const SHORT: [&str; 7] = ["lab", "run", "--duration", "1", "--calibration", "0", "--json"];
const REFUSED: &str = "The system refused a real-time class";

/// Class and grant of each role.
fn classes(result: &Value) -> Vec<(&str, &str, bool)> {
    let threads = result["scheduling"].as_array().expect("scheduling");
    let of = |thread: &'_ Value| -> bool { thread["granted"].as_bool().expect("a truth") };
    threads
        .iter()
        .map(|thread| {
            let word = |key: &str| thread[key].as_str().expect("text");
            (word("role"), word("class"), of(thread))
        })
        .collect()
}

fn is_refused(result: &Value) -> bool {
    let warnings = result["warnings"].as_array().expect("warnings");
    warnings.iter().any(|warning| warning.as_str().is_some_and(|text| text.contains(REFUSED)))
}

fn of_all(class: &str, granted: bool) -> Vec<(&str, &str, bool)> {
    ["router", "client", "server"].map(|role| (role, class, granted)).to_vec()
}

#[test]
fn timed_threads_run_in_the_real_time_class_where_permitted() {
    if !privileged("scheduling classes of a run") {
        return;
    }
    let room = Room::new("scheduling");
    let run = |more: &[&str]| room.counted(&[&SHORT[..], more].concat());
    let result = run(&[]);
    let is_allowed = refusal().is_none();
    for thread in result["scheduling"].as_array().expect("scheduling") {
        let number = |key: &str| thread[key].as_f64().expect("a number");
        assert!((0.0..=1.0).contains(&number("beyond_limit")) && number("run_queue_s") >= 0.0);
    }
    assert_eq!(classes(&result), of_all("real-time", is_allowed));
    assert_eq!(is_refused(&result), !is_allowed, "{}", result["warnings"]);
    for percent in ["stolen_percent", "others_percent"] {
        let percent = result[percent].as_f64().expect("a number");
        assert!((0.0..=100.0).contains(&percent), "{percent}");
    }
    let may = fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency").is_ok();
    let idle = |result: &Value| result["idle_processors"].as_str().expect("text").to_owned();
    assert_eq!(idle(&result) == "kept awake", may, "{}", idle(&result));
    let result = run(&["--scheduling", "ordinary", "--force"]);
    assert_eq!(classes(&result), of_all("ordinary", true));
    assert_eq!(idle(&result), "halted");
    let page = room.read("nilometer-run/report.html");
    assert!(page.contains("router ordinary, waited "), "the page says so");
    room.write("lab.toml", "scheduling = \"ordinary\"\n");
    let result = run(&["lab.toml", "--force"]);
    assert_eq!(classes(&result), of_all("ordinary", true));
}

/// The threads of a process in the class of `SCHED_FIFO`: the priority of each, and how often it slept.
fn real_time_threads(pid: u32) -> Vec<(u32, u64)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        // Behind the name in brackets come the fields from the third on; proc(5) counts from 1.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u32>().ok();
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let slept =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let is_first = field(41)? == libc::SCHED_FIFO as u32;
        is_first.then_some((field(40)?, slept.trim().parse().ok()?))
    };
    tasks.filter_map(of).collect()
}

/// Guard, router, client and server, and each of them works.
#[test]
fn the_real_time_threads_are_those_that_work() {
    if !privileged("the threads of a run") {
        return;
    }
    if let Some(why) = refusal() {
        println!("skipped: threads that go first: {why}");
        return;
    }
    let room = Room::new("first");
    let mut lab = room.start(&["lab", "run", "--duration", "8", "--calibration", "0"]);
    let pid = lab.pid();
    lab.wait_for("four threads that work", || {
        let mut threads = real_time_threads(pid);
        threads.sort_unstable();
        threads.iter().map(|thread| thread.0).eq([1, 1, 2, 3])
            && threads.iter().all(|thread| thread.1 > 10)
    });
    lab.signal(libc::SIGINT);
    lab.end();
}

/// An ordinary user has a user namespace, in which no thread may go first.
#[test]
fn a_run_without_real_time_priority_continues_with_a_warning() {
    let room = Room::new("refused");
    let Some(as_unprivileged) = room.as_unprivileged() else { return };
    let doctor = as_unprivileged(&["doctor"]);
    let report = text(&doctor.stdout);
    assert!(report.contains("the ordinary class alone"), "{report}");
    let run = as_unprivileged(&SHORT);
    if run.status.code() == Some(2) && text(&run.stderr).contains("sudo") {
        println!("skipped: a lab of an ordinary user: {}", text(&run.stderr).trim());
        return;
    }
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let result: Value = serde_json::from_slice(&run.stdout).expect("a result");
    assert_eq!(classes(&result), of_all("real-time", false));
    assert!(is_refused(&result), "{}", result["warnings"]);
}
