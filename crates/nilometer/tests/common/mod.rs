//! Shared parts of the command-line tests: a scratch folder, the binary run in it, captures as input.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nilometer_linux::privilege::{Privilege, privilege};
use nilometer_wire::build::{self, Tcp};
use serde_json::Value;

pub const BINARY: &str = env!("CARGO_BIN_EXE_nilometer");
/// No command of a test may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A scratch folder that goes when the test ends; commands run in it, so that names stay short.
pub struct Room(PathBuf);

impl Room {
    pub fn new(name: &str) -> Room {
        static ROOMS: AtomicU32 = AtomicU32::new(0);
        let number = ROOMS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("nilometer-room-{name}-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a scratch folder");
        Room(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A copy of the binary where every user may run it, as the build's own folder may be closed to others. (By a
    /// process of its own: a file that this one has open for writing, in whatever child another thread starts
    /// meanwhile, cannot be executed.)
    pub fn own_binary(&self) -> PathBuf {
        let copy = self.path("nilometer");
        let copied = Command::new("cp").arg(BINARY).arg(&copy).status().expect("cp runs");
        assert!(copied.success(), "a copy of the binary");
        copy
    }

    /// Runs this binary as an unprivileged user, in a folder of that user's, `home`; none, and a line that says
    /// so, where this process may not become another user.
    pub fn as_unprivileged(&self) -> Option<impl Fn(&[&str]) -> Output> {
        const NOBODY: u32 = 65_534;
        let (binary, home) = (self.own_binary(), self.path("home"));
        fs::create_dir(&home).expect("a folder");
        if chown(&home, Some(NOBODY), Some(NOBODY)).is_err() {
            println!("skipped: only root can become an ordinary user");
            return None;
        }
        fs::set_permissions(self.path(""), fs::Permissions::from_mode(0o755)).expect("a mode");
        Some(move |words: &[&str]| {
            let mut command = Command::new(&binary);
            command.current_dir(&home).gid(NOBODY).uid(NOBODY).args(words);
            command.output().expect("the binary runs")
        })
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("a scratch file");
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn read_bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Every file below, with its length and the time of its last change.
    pub fn listing(&self) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
        let (mut found, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a readable folder") {
                let path = entry.expect("a readable entry").path();
                let about = fs::metadata(&path).expect("a readable entry");
                if about.is_dir() {
                    folders.push(path.clone());
                }
                found.push((path, about.len(), about.modified().expect("a time")));
            }
        }
        found.sort();
        found
    }

    /// The binary with these arguments, not yet started.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.current_dir(&self.0).args(words).stdin(Stdio::null());
        command
    }

    /// Starts the binary with both its outputs piped.
    pub fn start(&self, words: &[&str]) -> Running {
        let mut command = self.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the binary runs");
        Running { child: Some(child), words: format!("{words:?}") }
    }

    /// Runs the binary to its end with a limit on mapped memory, KiB.
    pub fn run_within(&self, memory_kib: u32, words: &[&str]) -> Output {
        let limited = format!("ulimit -v {memory_kib}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.current_dir(&self.0).args(["-c", &limited, BINARY]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("a shell runs");
        Running { child: Some(child), words: format!("{words:?}") }.end()
    }

    /// Runs the binary to its end.
    pub fn run(&self, words: &[&str]) -> Output {
        self.start(words).end()
    }

    /// Runs the binary, which must succeed, and returns what it printed.
    pub fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    }

    /// Runs the binary, which must succeed, and returns the one JSON object it printed.
    pub fn counted(&self, words: &[&str]) -> Value {
        let printed = self.done(words);
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs the binary, which must refuse: status 2, one line on stderr that names the program, nothing
    /// on stdout, and no file made, changed or removed. Returns the line.
    pub fn refused(&self, words: &[&str]) -> String {
        let before = self.listing();
        let output = self.run(words);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{words:?}: {message}");
        assert!(message.starts_with("nilometer: "), "{words:?}: {message}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
        assert_eq!(self.listing(), before, "{words:?} changed files");
        message.trim_end().to_owned()
    }

    /// A model of two intervals of one second and some hundreds of flows, cut from the embedded one.
    pub fn small_model(&self, name: &str) -> Value {
        self.done(&["model", "embedded", "--harpoon", "-o", name, "--force"]);
        let mut model = self.json(name);
        // The number of connections is fixed, whatever the sessions.
        model["generation"]["driver"] = "connections".into();
        let intervals = model["intervals"].as_array_mut().expect("intervals");
        intervals.truncate(2);
        for (number, interval) in intervals.iter_mut().enumerate() {
            interval["start_s"] = (number as f64).into();
            interval["duration_s"] = 1.0.into();
            interval["flows"] = (100 + 150 * number).into();
            interval["bytes"] = (1_000_000 + 1_500_000 * number).into();
            interval["sessions"] = 20.0.into();
        }
        self.write(name, model.to_string());
        model
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A binary at work; ended by force where its test ends before it.
pub struct Running {
    child: Option<Child>,
    words: String,
}

impl Running {
    /// A program that a test started by itself.
    pub fn of(child: Child, words: &str) -> Running {
        Running { child: Some(child), words: words.to_owned() }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it runs")
    }

    pub fn pid(&mut self) -> u32 {
        self.child().id()
    }

    pub fn signal(&mut self, signal: libc::c_int) {
        let pid = self.pid() as libc::pid_t;
        // SAFETY: kill takes two integers; the child has not been waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "{}", self.words);
    }

    pub fn is_over(&mut self) -> bool {
        self.child().try_wait().expect("a child").is_some()
    }

    /// Reads stderr up to a line with `word`; the rest is no longer in the output.
    pub fn wait_for_line(&mut self, word: &str) -> BufReader<ChildStderr> {
        let mut lines = BufReader::new(self.child().stderr.take().expect("piped"));
        let mut received = String::new();
        while !received.contains(word) {
            let read = lines.read_line(&mut received).expect("text");
            assert!(read > 0, "{} ended before it said {word:?}: {received}", self.words);
        }
        lines
    }

    /// Reads stderr byte by byte up to the end of a line with `word`, and leaves the rest in the pipe.
    pub fn read_until(&mut self, word: &str) -> String {
        let pipe = self.child.as_mut().and_then(|child| child.stderr.as_mut()).expect("piped");
        let (mut received, mut byte) = (Vec::new(), [0]);
        while !(received.ends_with(b"\n") && text(&received).contains(word)) {
            let read = pipe.read(&mut byte).expect("a pipe");
            assert!(read > 0, "{} ended before it said {word:?}: {}", self.words, text(&received));
            received.push(byte[0]);
        }
        text(&received).to_owned()
    }

    /// Waits until `condition` holds while the binary works.
    pub fn wait_for(&mut self, what: &str, condition: impl Fn() -> bool) {
        let began = Instant::now();
        while !condition() {
            if self.is_over() {
                let child = self.child.take().expect("it was there");
                let output = child.wait_with_output().expect("its output");
                panic!("{} ended before {what}: {}", self.words, text(&output.stderr));
            }
            assert!(began.elapsed() < PATIENCE, "{}: no {what}", self.words);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end, with patience.
    pub fn end(mut self) -> Output {
        let mut child = self.child.take().expect("it runs");
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let out = thread::spawn(move || all(stdout));
        let err = thread::spawn(move || all(stderr));
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{} does not end", self.words);
            }
            thread::sleep(Duration::from_millis(5));
        };
        let [stdout, stderr] = [out, err].map(|read| read.join().expect("a reader"));
        Output { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn all(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
    }
    bytes
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

/// Whether a lab can be built here; prints what is skipped if not.
pub fn privileged(what: &str) -> bool {
    match privilege() {
        Privilege::None { why } => {
            println!("skipped: {what}: {why}");
            false
        }
        _ => true,
    }
}

/// Runs it for all of them at once: for work that waits for clocks more than it computes.
pub fn at_once<T: Copy + Send>(all: &[T], what: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for &one in all {
            let what = &what;
            scope.spawn(move || what(one));
        }
    });
}

/// A free port of loopback: another one each time, and below those that the kernel gives to connections, so that no test
/// beside this one takes it meanwhile.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let port = || {
        let number = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        10_000 + (number % 20_000) as u16
    };
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(port).take(1_000).find(is_free).expect("a free port")
}

/// The header of a pcap file, little-endian, microseconds.
pub fn pcap_header(link_type: u32) -> Vec<u8> {
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link_type];
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A pcap file of Ethernet frames with their times in microseconds.
pub fn pcap(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = pcap_header(1);
    for (at_us, frame) in frames {
        let length = frame.len() as u32;
        let head = [(at_us / 1_000_000) as u32, (at_us % 1_000_000) as u32, length, length];
        file.extend(head.into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

/// The pcap file without a clock: every stamp is 0.
pub fn timeless(pcap: &[u8]) -> Vec<u8> {
    let mut file = pcap.to_vec();
    let mut at = 24;
    while at < file.len() {
        let length = u32::from_le_bytes(file[at + 8..at + 12].try_into().expect("four bytes"));
        file[at..at + 8].fill(0);
        at += 16 + length as usize;
    }
    file
}

/// `count` TCP connections, one each 100 ms, between few hosts of 198.51.100.0/24 and 203.0.113.0/24;
/// each has its handshake, a request, an answer of `size(number)` bytes and both FINs.
pub fn capture(count: u64, size: impl Fn(u64) -> usize) -> Vec<u8> {
    talk(count, size, false)
}

/// A capture as [`capture`] makes; with acknowledgement numbers if `acknowledges`.
pub fn talk(count: u64, size: impl Fn(u64) -> usize, acknowledges: bool) -> Vec<u8> {
    let mut frames = Vec::new();
    for number in 0..count {
        let client = ([198, 51, 100, 1 + (number % 5) as u8], 20_000 + number as u16).into();
        let server = ([203, 0, 113, 1 + (number % 3) as u8], 80).into();
        let mut at_us = 1_000_000_000 + number * 100_000;
        let mut received = [0; 2];
        let mut send = |from_client: bool, flags: u8, sequence: u32, payload: &[u8]| {
            let (from, to) = if from_client { (client, server) } else { (server, client) };
            // The sequence number up to which the other end has sent.
            let acknowledgement = if acknowledges { received[usize::from(from_client)] } else { 0 };
            let segment = Tcp { flags, sequence, payload, acknowledgement, ..Tcp::new(from, to) };
            let unit = u32::from(flags & 0x03 != 0);
            received[usize::from(!from_client)] = sequence + payload.len() as u32 + unit;
            frames.push((at_us, build::ethernet(&segment.ip_packet())));
            at_us += 1_000;
        };
        send(true, 0x02, 100, &[]);
        send(false, 0x12, 900, &[]);
        send(true, 0x18, 101, b"GET /");
        let answer = vec![7; size(number)];
        let mut sequence = 901;
        for part in answer.chunks(1_400) {
            send(false, 0x18, sequence, part);
            sequence += part.len() as u32;
        }
        send(false, 0x11, sequence, &[]);
        send(true, 0x11, 106, &[]);
    }
    frames.sort_by_key(|(at_us, _)| *at_us);
    pcap(&frames)
}

/// The last line that a file has whole, if there is the file and a line.
pub fn last_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (whole, _) = text.rsplit_once('\n')?;
    whole.lines().last().map(str::to_owned)
}
