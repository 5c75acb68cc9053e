//! Random states of a directory that `--out` may name, and whether each may be replaced.

use std::cell::RefCell;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Chance with a seed (splitmix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    pub fn one_in(&mut self, limit: usize) -> bool {
        self.below(limit) == 0
    }
}

/// Copies plain files, as `cp -r` would.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("results") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

/// Whether mounts can be made for this thread and its children alone.
pub fn may_mount() -> bool {
    // SAFETY: the call takes no pointers; it gives this thread alone mounts of its own.
    let apart = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    let private = || Command::new("mount").args(["--make-rprivate", "/"]).status();
    let may = apart && private().is_ok_and(|status| status.success());
    if !may {
        println!("skipped: mounts among the random directories: none can be made here");
    }
    may
}

/// Mounts one place over another.
fn bind(from: &Path, to: &Path, around: &Around<'_>) {
    let status = Command::new("mount").arg("--bind").args([from, to]).status();
    assert!(status.expect("mount of util-linux").success());
    around.mounts.borrow_mut().push(to.to_owned());
}

/// The surroundings of a case's directory: a user's file, a folder, and results of ours.
pub struct Around<'a> {
    pub outside: &'a Path,
    pub results: &'a Path,
    pub may_mount: bool,
    /// The mounts, which last until this is dropped.
    pub mounts: RefCell<Vec<PathBuf>>,
}

impl Drop for Around<'_> {
    fn drop(&mut self) {
        for mount in self.mounts.borrow().iter().rev() {
            let status = Command::new("umount").arg("--lazy").arg(mount).status();
            assert!(status.expect("umount of util-linux").success() || std::thread::panicking());
        }
    }
}

/// Makes `path` something that `--force` may replace or not; returns whether it may.
pub fn make(path: &Path, chance: &mut Chance, around: &Around<'_>) -> bool {
    match chance.below(12) {
        0 => true,
        1 => {
            fs::create_dir(path).expect("a folder");
            true
        }
        2 => {
            fs::write(path, "a file of somebody's").expect("a file");
            false
        }
        3 => {
            symlink("nowhere/at all", path).expect("a link");
            false
        }
        4 => {
            // A user's folder with names that results have.
            fs::create_dir(path).expect("a folder");
            for name in ["model.json", "result.json"] {
                fs::write(path.join(name), "{\"mine\": true}").expect("a file");
            }
            spoil(path, chance, around);
            false
        }
        5 => {
            // As earlier versions left them: without a list.
            copy(around.results, path);
            let _ = fs::remove_file(path.join(".nilometer-results"));
            false
        }
        6 | 7 => {
            copy(around.results, path);
            true
        }
        8 => {
            // Links from elsewhere to files of ours are nothing to us.
            copy(around.results, path);
            let kept = around.outside.join(format!("kept-{}", chance.below(usize::MAX)));
            fs::hard_link(path.join("result.json"), kept).expect("a link");
            true
        }
        _ => {
            copy(around.results, path);
            for _ in 0..=chance.below(3) {
                spoil(path, chance, around);
            }
            false
        }
    }
}

/// Puts something foreign into a folder that holds `result.json`, or makes something in it foreign.
fn spoil(path: &Path, chance: &mut Chance, around: &Around<'_>) {
    let name =
        |chance: &mut Chance, ending: &str| path.join(format!("{}{ending}", chance.below(1 << 40)));
    let outside = around.outside;
    let result = path.join("result.json");
    let is_plain = result.symlink_metadata().is_ok_and(|about| about.is_file());
    match chance.below(if around.may_mount { 14 } else { 12 }) {
        0 => fs::write(name(chance, ".txt"), "notes").expect("a file"),
        1 => {
            let folder = name(chance, "-src");
            fs::create_dir(&folder).expect("a folder");
            fs::write(folder.join("main.rs"), "fn main() {}").expect("a file");
        }
        2 => symlink(outside.join("precious"), name(chance, "-to-file")).expect("a link"),
        3 => symlink(outside, name(chance, "-to-folder")).expect("a link"),
        4 => symlink("nowhere", name(chance, "-dangling")).expect("a link"),
        5 => fs::hard_link(outside.join("precious"), name(chance, "-hard")).expect("a link"),
        6 if is_plain => {
            let mut text = fs::read(&result).expect("a file");
            text.push(b'\n');
            fs::write(&result, text).expect("a file");
        }
        7 if is_plain => {
            let mut text = fs::read(&result).expect("a file");
            let at = chance.below(text.len());
            text[at] ^= 1;
            fs::write(&result, text).expect("a file");
        }
        8 if is_plain => {
            let moved = outside.join(format!("moved-{}", chance.below(1 << 40)));
            // (Not where something is mounted over it, which makes it foreign as well.)
            if fs::rename(&result, &moved).is_ok() {
                symlink(moved, &result).expect("a link");
            }
        }
        9 if is_plain => {
            if fs::remove_file(&result).is_ok() {
                fs::create_dir(&result).expect("a folder");
            }
        }
        10 => fs::create_dir(name(chance, "-empty")).expect("a folder"),
        11 => {
            let fifo = CString::new(name(chance, "-fifo").as_os_str().as_bytes()).expect("a name");
            // SAFETY: the name ends with NUL and outlives the call.
            assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        }
        12 => {
            let folder = name(chance, "-mounted");
            fs::create_dir(&folder).expect("a folder");
            bind(outside, &folder, around);
        }
        13 if is_plain => {
            // Another program's file with the same content as ours.
            let twin = outside.join(format!("twin-{}", chance.below(1 << 40)));
            fs::copy(&result, &twin).expect("a copy");
            bind(&twin, &result, around);
        }
        _ => fs::write(name(chance, ".rs"), "mine").expect("a file"),
    }
}
