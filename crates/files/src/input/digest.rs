//! The SHA-256 of a stream, computed on a thread beside the reading.
//!
//! A digest takes several times as long as reading from the page cache, so it is not computed between one
//! read and the next. The bytes are copied into buffers, which go through a short channel to a thread that
//! digests and returns them; the reader waits only if the digest is the slower of the two. Small files are
//! digested in place, since starting a thread takes longer than digesting them.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use sha2::{Digest as _, Sha256};

/// Bytes of a buffer: longer streams get a thread.
const BUFFER_BYTES: usize = 256 * 1024;
/// Buffers on their way at most.
const BUFFERS: usize = 8;

/// A digest being made.
#[derive(Debug, Default)]
pub(super) struct Digest {
    filling: Vec<u8>,
    /// The digest in place, where there is no thread.
    here: Sha256,
    worker: Worker,
}

#[derive(Debug, Default)]
enum Worker {
    /// Too few bytes so far.
    #[default]
    Idle,
    Busy {
        /// Channel of full buffers.
        to: SyncSender<Task>,
        /// Channel of emptied buffers.
        back: Receiver<Vec<u8>>,
    },
    /// The system cannot start a thread.
    None,
}

#[derive(Debug)]
enum Task {
    Digest(Vec<u8>),
    Tell(SyncSender<Sha256>),
}

impl Digest {
    /// Adds bytes of the stream.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = BUFFER_BYTES - self.filling.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.filling.extend_from_slice(now);
            if self.filling.len() == BUFFER_BYTES {
                self.hand_over();
            }
            bytes = later;
        }
    }

    /// The digest of the bytes so far, in hexadecimal.
    pub(super) fn so_far(&self) -> String {
        let mut digest = match &self.worker {
            Worker::Busy { to, .. } => {
                let (sender, receiver) = mpsc::sync_channel(1);
                to.send(Task::Tell(sender)).expect("the thread ends when this does");
                receiver.recv().expect("it answers whatever it is asked")
            }
            Worker::Idle | Worker::None => self.here.clone(),
        };
        digest.update(&self.filling);
        digest.finalize().iter().map(|octet| format!("{octet:02x}")).collect()
    }

    /// Hands over the full buffer, and takes an empty one.
    fn hand_over(&mut self) {
        if matches!(self.worker, Worker::Idle) {
            self.worker = Worker::start();
        }
        match &self.worker {
            Worker::Busy { to, back } => {
                let empty = back.try_recv().unwrap_or_else(|_| Vec::with_capacity(BUFFER_BYTES));
                let full = std::mem::replace(&mut self.filling, empty);
                to.send(Task::Digest(full)).expect("the thread ends when this does");
            }
            Worker::Idle | Worker::None => {
                self.here.update(&self.filling);
                self.filling.clear();
            }
        }
    }
}

impl Worker {
    fn start() -> Worker {
        let (to, tasks) = mpsc::sync_channel(BUFFERS);
        let (give_back, back) = mpsc::sync_channel(BUFFERS);
        let work = move || {
            let mut digest = Sha256::new();
            for task in tasks {
                match task {
                    Task::Digest(mut buffer) => {
                        digest.update(&buffer);
                        buffer.clear();
                        // A buffer beyond the capacity of the channel is not needed.
                        let _ = give_back.try_send(buffer);
                    }
                    // The receiver may be gone.
                    Task::Tell(sender) => {
                        let _ = sender.try_send(digest.clone());
                    }
                }
            }
        };
        match thread::Builder::new().name("digest".to_owned()).spawn(work) {
            Ok(_) => Worker::Busy { to, back },
            Err(_) => Worker::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_once(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|octet| format!("{octet:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_whole_however_it_comes() {
        let bytes: Vec<u8> =
            (0..40 * BUFFER_BYTES as u64 + 7).map(|n| ((n * n) >> 9) as u8).collect();
        let longest = bytes.len();
        for length in [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, longest] {
            for step in [1_000, BUFFER_BYTES, 3 * BUFFER_BYTES + 5, longest] {
                for worker in [Worker::Idle, Worker::None] {
                    let mut digest = Digest { worker, ..Digest::default() };
                    bytes[..length].chunks(step).for_each(|chunk| digest.update(chunk));
                    assert_eq!(digest.so_far(), at_once(&bytes[..length]), "{length} by {step}");
                }
            }
        }
    }

    #[test]
    fn an_intermediate_digest_leaves_hashing_to_go_on() {
        let bytes = vec![7; 3 * BUFFER_BYTES];
        let mut digest = Digest::default();
        for (number, chunk) in bytes.chunks(100_000).enumerate() {
            digest.update(chunk);
            let passed = (100_000 * (number + 1)).min(bytes.len());
            assert_eq!(digest.so_far(), at_once(&bytes[..passed]));
        }
    }
}
