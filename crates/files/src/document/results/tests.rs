//! Tests of what directories of results keep, replace, refuse and leave alone.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn scratch(name: &str) -> PathBuf {
    let path =
        std::env::temp_dir().join(format!("nilometer-results-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("scratch");
    path
}

/// The names in a directory, sorted.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Results of one file, done.
fn made(out: &Path, text: &str) {
    let directory = Directory::create(out, true).expect("new");
    directory.file("result.json").write(text.as_bytes()).expect("write");
    directory.finish().expect("done");
}

fn refusal(out: &Path, force: bool) -> String {
    let checked = format!("{:#}", Directory::check(out, force).expect_err("refused"));
    let created = format!("{:#}", Directory::create(out, force).expect_err("refused"));
    assert_eq!(checked, created);
    assert!(!checked.contains('\n'), "{checked}");
    checked
}

#[test]
fn results_appear_whole_and_are_not_overwritten() {
    let scratch = scratch("whole");
    let out = scratch.join("results");
    let directory = Directory::create(&out, false).expect("new");
    directory.file("result.json").write(b"{}").expect("write");
    assert!(!out.exists());
    directory.finish().expect("done");
    assert_eq!(names(&out), [MARKER, "result.json"]);
    assert!(refusal(&out, false).contains("--force"));
    let again = Directory::create(&out, true).expect("forced");
    assert!(out.join("result.json").exists(), "the old results stay until the new are done");
    again.finish().expect("done");
    assert_eq!(names(&out), [MARKER]);
    assert_eq!(names(&scratch), ["results"]);
    fs::remove_dir_all(scratch).expect("clean");
}

const MARKER: &str = marker::MARKER_FILE;

#[test]
fn a_failed_run_leaves_nothing_and_an_interrupted_one_its_results() {
    let scratch = scratch("failed");
    let out = scratch.join("results");
    let directory = Directory::create(&out, false).expect("new");
    directory.file("result.json").write(b"{").expect("write");
    let mut live = directory.file("live.ndjson").create().expect("a log");
    live.write_all(b"{}\n").expect("write");
    drop(directory);
    assert_eq!(names(&scratch), Vec::<String>::new());
    let directory = Directory::create(&out, false).expect("new");
    directory.file("result.json").write(b"{}").expect("write");
    let mut live = directory.file("live.ndjson").create().expect("a log");
    live.write_all(b"{}\n").expect("write");
    let kept = directory.keep();
    assert_eq!(kept, scratch.join("results.partial"));
    assert!(kept.join("result.json").exists());
    assert!(refusal(&out, false).contains("results.partial exists already"));
    let again = Directory::create(&out, true).expect("forced");
    again.file("model.json").write(b"{}").expect("write");
    let done = again.finish().expect("done");
    assert_eq!((done, names(&scratch)), (out, vec!["results".to_owned()]));
    fs::remove_dir_all(scratch).expect("clean");
}

/// An hour of measurements is not lost because of a name.
#[test]
fn results_that_cannot_take_their_place_are_kept() {
    let scratch = scratch("placeless");
    let out = scratch.join("results");
    let directory = Directory::create(&out, true).expect("new");
    directory.file("result.json").write(b"{}").expect("write");
    fs::create_dir(&out).expect("by somebody else");
    let error = directory.finish().expect_err("refused").to_string();
    assert!(error.contains("results.partial") && error.contains("made while"), "{error}");
    assert!(scratch.join("results.partial/result.json").exists() && out.exists());
    fs::remove_dir(&out).expect("clean");
    let directory = Directory::create(&out, true).expect("new");
    fs::write(&out, "a file").expect("write");
    assert!(directory.finish().is_err() && scratch.join("results.partial").exists());
    fs::remove_file(&out).expect("clean");
    made(&out, "old");
    let directory = Directory::create(&out, true).expect("new");
    directory.file("result.json").write(b"new").expect("write");
    fs::write(out.join("notes.txt"), "mine").expect("write");
    let error = directory.finish().expect_err("refused").to_string();
    assert!(error.contains("notes.txt") && error.contains("results.partial"), "{error}");
    assert_eq!(fs::read(out.join("result.json")).expect("there"), b"old");
    assert_eq!(fs::read(scratch.join("results.partial/result.json")).expect("there"), b"new");
    fs::remove_dir_all(scratch).expect("clean");
}

#[test]
fn only_listed_files_are_replaced() {
    let scratch = scratch("foreign");
    let out = scratch.join("results");
    let cases: [(&str, &dyn Fn()); 8] = [
        ("files that no run wrote: notes.txt;", &|| fs::write(out.join("notes.txt"), "").unwrap()),
        ("src (a directory)", &|| fs::create_dir(out.join("src")).unwrap()),
        ("result.json (changed since", &|| fs::write(out.join("result.json"), "edited").unwrap()),
        ("result.json (changed since", &|| fs::write(out.join("result.json"), "edit").unwrap()),
        ("result.json (a symbolic link)", &|| {
            fs::rename(out.join("result.json"), scratch.join("moved.json")).unwrap();
            symlink("../moved.json", out.join("result.json")).unwrap();
        }),
        ("result.json (a directory)", &|| {
            fs::remove_file(out.join("result.json")).unwrap();
            fs::create_dir(out.join("result.json")).unwrap();
        }),
        (".nilometer-0123456789abcdef.tmp", &|| {
            fs::write(out.join(".nilometer-0123456789abcdef.tmp"), "").unwrap();
        }),
        ("a, b, c and 2 more", &|| {
            for name in ["a", "b", "c", "d", "e"] {
                fs::write(out.join(name), "").unwrap();
            }
        }),
    ];
    for (message, spoil) in cases {
        made(&out, "kept");
        spoil();
        let line = refusal(&out, true);
        assert!(line.contains(message) && line.contains("left alone"), "{message}: {line}");
        assert!(refusal(&out, false).contains("exists already"));
        fs::remove_dir_all(&out).expect("clean");
    }
    fs::remove_dir_all(scratch).expect("clean");
}

#[test]
fn foreign_directories_are_left_alone() {
    let scratch = scratch("others");
    let out = scratch.join("photos");
    fs::create_dir(&out).expect("make");
    Directory::check(&out, false).expect("nothing can be lost");
    fs::write(out.join("cat.jpg"), "").expect("write");
    let line = refusal(&out, true);
    assert!(line.contains("cat.jpg") && line.contains("left alone"), "{line}");
    fs::write(out.join("result.json"), "{}").expect("write");
    let line = refusal(&out, true);
    assert!(line.contains("earlier versions") && line.contains("remove it yourself"), "{line}");
    fs::write(out.join(MARKER), "mine\n").expect("write");
    let line = refusal(&out, true);
    assert!(line.contains("left alone"), "{line}");
    fs::remove_file(out.join(MARKER)).expect("ours");
    fs::remove_file(out.join("result.json")).expect("ours");
    // A file of that name that is not a list is kept, even if there is nothing else.
    let mine = scratch.join("mine");
    for text in ["my notes", "{}", "my notes\n"] {
        fs::create_dir(&mine).expect("make");
        fs::write(mine.join(MARKER), text).expect("write");
        assert!(refusal(&mine, false).contains("exists already"));
        assert!(refusal(&mine, true).contains("left alone"));
        assert_eq!(fs::read_to_string(mine.join(MARKER)).expect("there"), text);
        fs::remove_dir_all(&mine).expect("clean");
    }
    assert_eq!(names(&out), ["cat.jpg"]);
    fs::write(scratch.join("file"), "").expect("write");
    assert!(refusal(&scratch.join("file"), true).contains("is not a directory"));
    symlink("nowhere", scratch.join("dangling")).expect("a link");
    assert!(refusal(&scratch.join("dangling"), true).contains("leads nowhere"));
    symlink("file", scratch.join("to-file")).expect("a link");
    assert!(refusal(&scratch.join("to-file"), true).contains("is not a directory"));
    assert!(refusal(&scratch.join("no/such"), true).contains("does not exist"));
    symlink("photos", scratch.join("new.partial")).expect("a link");
    assert!(refusal(&scratch.join("new"), true).contains("new.partial is not a directory"));
    assert!(refusal(&scratch.join("x".repeat(250)), true).contains("too long"));
    fs::remove_dir_all(scratch).expect("clean");
}

#[test]
fn a_link_stays_and_its_directory_is_replaced() {
    let scratch = scratch("links");
    let out = scratch.join("real");
    made(&out, "old");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o750)).expect("a mode");
    symlink("real", scratch.join("latest")).expect("a link");
    made(&scratch.join("latest"), "new");
    assert_eq!(fs::read(out.join("result.json")).expect("there"), b"new");
    assert_eq!(fs::read_link(scratch.join("latest")).expect("a link"), Path::new("real"));
    assert_eq!(names(&scratch), ["latest", "real"]);
    let mode = fs::metadata(&out).expect("there").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o750, "a private directory stays private");
    fs::remove_dir_all(scratch).expect("clean");
}

#[test]
fn foreign_files_in_results_stay() {
    let scratch = scratch("put-in");
    let out = scratch.join("results");
    let partial = scratch.join("results.partial");
    // While the directory is being written.
    let directory = Directory::create(&out, true).expect("new");
    directory.file("result.json").write(b"ours").expect("write");
    fs::write(partial.join("notes.txt"), "mine").expect("write");
    directory.finish().expect("done");
    assert_eq!(names(&out), [MARKER, "notes.txt", "result.json"]);
    assert!(refusal(&out, true).contains("notes.txt"));
    fs::remove_file(out.join("notes.txt")).expect("clean");
    // When it fails.
    let directory = Directory::create(&out, true).expect("new");
    directory.file("result.json").write(b"ours").expect("write");
    fs::create_dir(partial.join("src")).expect("make");
    fs::write(partial.join("src/main.rs"), "mine").expect("write");
    fs::write(partial.join("model.json"), "mine").expect("write");
    assert!(directory.file("model.json").write(b"ours").is_err(), "the name is taken");
    drop(directory);
    assert_eq!(names(&partial), ["model.json", "src"]);
    assert_eq!(fs::read(partial.join("model.json")).expect("there"), b"mine");
    assert!(refusal(&out, true).contains("results.partial"));
    fs::remove_dir_all(&partial).expect("clean");
    // Where a kept run left off.
    let directory = Directory::create(&out, true).expect("new");
    let mut live = directory.file("live.ndjson").create().expect("a log");
    live.write_all(b"{}\n").expect("write");
    let kept = directory.keep();
    fs::write(kept.join("live.ndjson"), "mine").expect("write");
    let line = refusal(&out, true);
    assert!(line.contains("live.ndjson (changed since it was written)"), "{line}");
    fs::remove_dir_all(scratch).expect("clean");
}

/// The files of a killed process are ours; a copy of them is not.
#[test]
fn results_of_a_killed_run_are_recognised_by_inode() {
    let scratch = scratch("killed");
    let out = scratch.join("results");
    let partial = scratch.join("results.partial");
    let killed = || {
        let mut directory = Directory::create(&out, true).expect("new");
        directory.file("model.json").write(b"{}").expect("write");
        let mut live = directory.file("live.ndjson").create().expect("a log");
        live.write_all(b"{}\n").expect("write");
        let hidden = ".nilometer-00000000deadbeef.tmp";
        directory.files.marker.temporary(hidden).expect("listed");
        fs::write(partial.join(hidden), "half").expect("write");
        // As if the process ended here: nothing is listed or deleted, and its lock is released.
        directory.is_settled = true;
    };
    killed();
    assert!(refusal(&out, false).contains("exists already"));
    made(&out, "new");
    assert_eq!(names(&scratch), ["results"]);
    // The intended content of an unfinished file is unknown.
    killed();
    fs::write(partial.join("live.ndjson"), "edited in place").expect("write");
    made(&out, "new");
    killed();
    fs::copy(partial.join("live.ndjson"), scratch.join("copy")).expect("a copy");
    fs::rename(scratch.join("copy"), partial.join("live.ndjson")).expect("in its place");
    let line = refusal(&out, true);
    assert!(line.contains("live.ndjson (changed since"), "{line}");
    fs::remove_dir_all(scratch).expect("clean");
}

#[test]
fn two_runs_cannot_write_to_one_place() {
    let scratch = scratch("two");
    let out = scratch.join("results");
    made(&out, "old");
    let first = Directory::create(&out, true).expect("new");
    for force in [false, true] {
        let line = Directory::create(&scratch.join("results.partial"), force);
        let line = line.expect_err("it is being written").to_string();
        assert!(line.contains("another run") && !line.contains('\n'), "{line}");
    }
    let line = refusal(&out, true);
    let process = format!("another run (process {}) is writing", std::process::id());
    assert!(line.contains(&process), "{line}");
    first.file("result.json").write(b"first").expect("write");
    first.finish().expect("done");
    assert_eq!(fs::read(out.join("result.json")).expect("there"), b"first");
    made(&out, "second");
    assert_eq!(names(&scratch), ["results"]);
    fs::remove_dir_all(scratch).expect("clean");
}

#[test]
fn of_many_that_begin_at_once_one_runs() {
    let scratch = scratch("many");
    let out = scratch.join("results");
    for round in 0..20 {
        let (out, force) = (&out, round % 2 == 0);
        let done = std::thread::scope(|scope| {
            let run = |number: usize| {
                move || -> bool {
                    let Ok(directory) = Directory::create(out, force) else { return false };
                    let text = format!("{number}");
                    for name in ["model.json", "result.json"] {
                        directory.file(name).write(text.as_bytes()).expect("it is ours alone");
                        std::thread::yield_now();
                    }
                    directory.finish().expect("done");
                    true
                }
            };
            let running: Vec<_> = (0..6).map(|number| scope.spawn(run(number))).collect();
            running.into_iter().map(|one| one.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(done.contains(&true), "{round}: nobody ran");
        let texts = ["model.json", "result.json"].map(|name| fs::read(out.join(name)).unwrap());
        assert_eq!(texts[0], texts[1], "{round}: results of two runs are mixed");
        assert_eq!(names(&scratch), ["results"], "{round}");
        fs::remove_dir_all(out).expect("clean");
    }
    fs::remove_dir_all(scratch).expect("clean");
}

#[test]
fn a_page_drawn_anew_is_still_ours() {
    let scratch = scratch("redrawn");
    let out = scratch.join("results");
    made(&out, "kept");
    assert!(redraw(&out, "report.html", b"first").expect("drawn"));
    assert!(redraw(&out, "report.html", b"second").expect("drawn again"));
    assert_eq!(names(&out), [MARKER, "report.html", "result.json"]);
    Directory::check(&out, true).expect("all of it is ours");
    fs::write(out.join("report.html"), "edited").expect("write");
    let line = redraw(&out, "report.html", b"third").expect_err("refused").to_string();
    assert!(line.contains("left alone"), "{line}");
    assert_eq!(fs::read(out.join("report.html")).expect("there"), b"edited");
    fs::remove_file(out.join("report.html")).expect("clean");
    let busy = Directory::create(&out.join("inner"), true).expect("new");
    assert!(redraw(busy.partial(), "report.html", b"x").is_err(), "a run writes there");
    drop(busy);
    fs::remove_file(out.join(MARKER)).expect("clean");
    assert!(!redraw(&out, "report.html", b"x").expect("without a list"));
    fs::remove_dir_all(scratch).expect("clean");
}
