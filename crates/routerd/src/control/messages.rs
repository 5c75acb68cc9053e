//! Messages of a running router, with a level, to stderr or a file, the latest kept.
//!
//! A thread that reports something hands it over and continues: the forwarding thread never waits
//! for a terminal or a disk. A separate thread writes, from a bounded queue; messages that find no
//! room there are counted, and so are those that the disk refuses. The latest [`KEPT`] messages stay
//! readable in any case.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use nilometer_files::terminal::plain;

/// Messages that stay readable.
pub const KEPT: usize = 1_024;
/// Messages that may wait to be written.
const WAITING_MAX: usize = 1_024;

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something differs from the configuration.
    Warning,
    /// Something was changed.
    Info,
    /// Everything else.
    Debug,
}

/// Where messages are sent besides the ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// Nowhere else.
    Ring,
    /// Standard error of the router process.
    Stderr,
    /// Appended to a file.
    File,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// Its number, from 1.
    pub number: u64,
    /// Seconds since 1970.
    pub time: f64,
    /// Severity.
    pub level: Level,
    /// Text of the message.
    pub text: String,
}

/// Logged messages, and messages lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MessagesView {
    /// Minimum severity that is logged.
    pub level: Level,
    /// Destination.
    pub destination: Destination,
    /// Messages lost because the queue to the destination was full.
    pub lost: u64,
    /// Messages that could not be written, for example because the disk was full.
    pub failed: u64,
    /// The requested messages, oldest first.
    pub messages: Vec<Message>,
}

enum Task {
    Write(String),
    To(Option<Box<dyn Write + Send>>),
}

struct Inner {
    level: Level,
    destination: Destination,
    ring: VecDeque<Message>,
    last_number: u64,
    lost: u64,
}

/// A receiver of messages; clones share it.
#[derive(Clone)]
pub struct Messages {
    inner: Arc<Mutex<Inner>>,
    writer: SyncSender<Task>,
    failed: Arc<AtomicU64>,
}

impl Messages {
    /// Messages of level info and above, to stderr.
    ///
    /// # Errors
    /// When there can be no thread to write them.
    pub fn new() -> Result<Messages> {
        let (writer, tasks) = sync_channel(WAITING_MAX);
        let failed = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&failed);
        thread::Builder::new()
            .name("messages".into())
            .spawn(move || write_down(&tasks, &counted))
            .context("cannot start the thread that writes messages")?;
        let inner = Inner {
            level: Level::Info,
            destination: Destination::Stderr,
            ring: VecDeque::new(),
            last_number: 0,
            lost: 0,
        };
        Ok(Messages { inner: Arc::new(Mutex::new(inner)), writer, failed })
    }

    /// Queues a message without waiting.
    pub fn say(&self, level: Level, text: impl Into<String>) {
        let mut inner = self.lock();
        if level > inner.level {
            return;
        }
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        inner.last_number += 1;
        let (number, text) = (inner.last_number, text.into());
        let line = format!("nilometer: {}\n", plain(&text));
        if inner.ring.len() == KEPT {
            inner.ring.pop_front();
        }
        inner.ring.push_back(Message { number, time: time.as_secs_f64(), level, text });
        let is_written = inner.destination != Destination::Ring;
        if is_written && self.writer.try_send(Task::Write(line)).is_err() {
            inner.lost += 1;
        }
    }

    /// Keeps messages from `level` on.
    pub fn set_level(&self, level: Level) {
        self.lock().level = level;
    }

    /// Lets messages go to stderr, to the end of a file, or nowhere but the ring. A file that is made
    /// has mode 0600; one that is there must be a regular file.
    ///
    /// # Errors
    /// When the file cannot be written; nothing has changed then.
    pub fn set_destination(&self, to: Destination, file: Option<&Path>) -> Result<()> {
        let to_file = match (to, file) {
            (Destination::File, Some(path)) => {
                let opened = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .mode(0o600)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .open(path)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                let is_plain = opened.metadata().is_ok_and(|about| about.is_file());
                ensure!(is_plain, "{} is not a regular file", path.display());
                Some(Box::new(opened) as Box<dyn Write + Send>)
            }
            (Destination::File, None) => anyhow::bail!("messages to a file need `file`"),
            (_, Some(_)) => anyhow::bail!("`file` goes with the destination `file`"),
            (_, None) => None,
        };
        let mut inner = self.lock();
        let changed = self.writer.try_send(Task::To(to_file));
        ensure!(changed.is_ok(), "messages are being written; try again");
        inner.destination = to;
        Ok(())
    }

    /// Which messages are kept and where they go, in a line.
    pub fn kept(&self) -> String {
        let inner = self.lock();
        let to = match inner.destination {
            Destination::Stderr => "stderr",
            Destination::Ring => "the ring alone",
            Destination::File => "a file",
        };
        format!("messages from level {:?} on are kept, and go to {to}", inner.level).to_lowercase()
    }

    /// The messages after number `after`, and how they are kept.
    pub fn view(&self, after: u64) -> MessagesView {
        let inner = self.lock();
        MessagesView {
            level: inner.level,
            destination: inner.destination,
            lost: inner.lost,
            failed: self.failed.load(Ordering::Relaxed),
            messages: inner.ring.iter().filter(|message| message.number > after).cloned().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes until no sender is left.
fn write_down(tasks: &Receiver<Task>, failed: &AtomicU64) {
    let mut file: Option<Box<dyn Write + Send>> = None;
    while let Ok(task) = tasks.recv() {
        match task {
            Task::To(to) => file = to,
            Task::Write(line) => {
                let written = match &mut file {
                    Some(file) => file.write_all(line.as_bytes()),
                    None => std::io::stderr().write_all(line.as_bytes()),
                };
                failed.fetch_add(u64::from(written.is_err()), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_by_level_and_number() {
        let messages = Messages::new().expect("a thread");
        messages.set_destination(Destination::Ring, None).expect("no file is needed");
        for number in 0..KEPT + 10 {
            messages.say(Level::Info, format!("number {number}"));
            messages.say(Level::Debug, "never kept");
        }
        let all = messages.view(0);
        assert_eq!(all.messages.len(), KEPT);
        assert_eq!(all.messages[0].text, "number 10");
        assert_eq!(messages.view(KEPT as u64 + 9).messages[0].text, "number 1033");
        messages.set_level(Level::Error);
        messages.say(Level::Info, "too unimportant now");
        assert_eq!(messages.view(KEPT as u64 + 10).messages, []);
    }

    #[test]
    fn a_disk_that_is_full_is_counted_and_nothing_stops() {
        let messages = Messages::new().expect("a thread");
        let full = messages.set_destination(Destination::File, Some(Path::new("/dev/full")));
        assert!(full.expect_err("no regular file").to_string().contains("regular"));
        messages.writer.send(Task::To(Some(Box::new(Full)))).expect("it runs");
        messages.say(Level::Info, "one");
        while messages.view(0).failed == 0 {
            thread::yield_now();
        }
        assert_eq!(messages.view(0).messages.len(), 1);
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::from_raw_os_error(libc::ENOSPC))
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
