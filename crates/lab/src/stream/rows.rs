//! Rows of a stream's frames, written by a thread that no other waits for: rows that it cannot keep up with are
//! counted.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use nilometer_files::document::results::ResultFile;
use nilometer_files::table::packets::Fate;
use nilometer_files::table::stream_packets::{ROW_BYTES, StreamPacketRow, StreamPacketWriter};
use nilometer_linux::system_file::system_text;
use nilometer_profile::stream::Packet;
use nilometer_profile::{Direction, Fate as PacketFate};

use crate::doctor::machine::available_kib;

/// The table's name among the results.
pub const ROWS_FILE: &str = "packets.parquet";
/// Rows that are handed over at once.
const PIECE: usize = 4_096;
/// Rows that may wait for the writer: those of some seconds at a million a second, so that a busy machine makes it late and
/// costs no row. Their memory is used only as far as they do wait.
const WAITING_MAX_BYTES: u64 = 1 << 30;
/// And no more than this share of the free memory.
const WAITING_SHARE: u64 = 4;

/// Where rows are offered.
pub struct Rows {
    held: RefCell<Vec<StreamPacketRow>>,
    hand: Option<SyncSender<Vec<StreamPacketRow>>>,
    writer: Option<JoinHandle<Result<u64>>>,
    /// Rows that may be written.
    budget: u64,
    offered: AtomicU64,
    left_out: AtomicU64,
}

/// What became of the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsWritten {
    /// Rows in the table.
    pub written: u64,
    /// Rows that are not: beyond the budget of the disk, or faster than it took them.
    pub left_out: u64,
    /// Why there is no table, where it could not be written.
    pub failure: Option<String>,
}

/// The approximate size in bytes of a table of `frames` frames.
pub fn estimate_bytes(frames: u64) -> u64 {
    frames * ROW_BYTES
}

impl Rows {
    /// Begins the table, within a budget of disk in bytes.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn begin(
        file: &ResultFile,
        disk_bytes: u64,
        marks: Vec<(&'static str, String)>,
    ) -> Result<Rows> {
        let writer = StreamPacketWriter::on(file.draft()?)?;
        let (hand, handed) = sync_channel(pieces_max());
        let write = move || write_all(writer, &handed, &marks);
        let thread = thread::Builder::new().name("rows".into()).spawn(write);
        Ok(Rows {
            held: RefCell::new(Vec::with_capacity(PIECE)),
            hand: Some(hand),
            writer: Some(thread.context("cannot start the thread that writes rows")?),
            budget: disk_bytes / ROW_BYTES,
            offered: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        })
    }

    /// Offers the row of a frame; it does not wait.
    pub fn offer(&self, direction: Direction, packet: &Packet) {
        if self.offered.fetch_add(1, Relaxed) >= self.budget {
            self.left_out.fetch_add(1, Relaxed);
            return;
        }
        let mut held = self.held.borrow_mut();
        held.push(row(direction, packet));
        if held.len() == PIECE {
            let piece = std::mem::replace(&mut *held, Vec::with_capacity(PIECE));
            self.hand_over(piece);
        }
    }

    fn hand_over(&self, piece: Vec<StreamPacketRow>) {
        let rows = piece.len() as u64;
        let is_taken = self.hand.as_ref().is_some_and(|hand| hand.try_send(piece).is_ok());
        if !is_taken {
            self.left_out.fetch_add(rows, Relaxed);
        }
    }

    /// Completes the table. Where it cannot be written, as on a full disk, there is no table, and no row counts as
    /// written.
    ///
    /// # Panics
    /// Never: rows are finished once.
    pub fn finish(mut self) -> RowsWritten {
        let last = self.held.take();
        if let Some(hand) = self.hand.take() {
            // (Nothing is timed any more, so the last may wait for room.)
            let _ = hand.send(last);
        }
        let writer = self.writer.take().expect("rows are finished once");
        let written = writer.join().map_err(|_| anyhow!("the thread that writes rows panicked"));
        match written.and_then(|written| written) {
            Ok(written) => {
                RowsWritten { written, left_out: self.left_out.load(Relaxed), failure: None }
            }
            Err(why) => RowsWritten {
                written: 0,
                left_out: self.offered.load(Relaxed),
                failure: Some(format!("{why:#}")),
            },
        }
    }
}

/// How many pieces may wait.
fn pieces_max() -> usize {
    let free = system_text("/proc/meminfo").ok();
    let free = free.and_then(|text| available_kib(&text));
    let bytes = free.map_or(WAITING_MAX_BYTES / 16, |kib| kib * 1_024 / WAITING_SHARE);
    let piece_bytes = (PIECE * size_of::<StreamPacketRow>()) as u64;
    (bytes.min(WAITING_MAX_BYTES) / piece_bytes).max(16) as usize
}

fn write_all(
    mut writer: StreamPacketWriter,
    handed: &Receiver<Vec<StreamPacketRow>>,
    marks: &[(&str, String)],
) -> Result<u64> {
    while let Ok(piece) = handed.recv() {
        piece.iter().try_for_each(|row| writer.write(row))?;
    }
    writer.finish(marks)
}

fn row(direction: Direction, packet: &Packet) -> StreamPacketRow {
    StreamPacketRow {
        sequence: packet.sequence,
        direction: direction.index() as u8,
        flow: packet.scheduled.flow,
        frame_bytes: packet.scheduled.frame_bytes,
        scheduled_ns: packet.scheduled.at.as_nanos(),
        sent_ns: packet.sent.map(|at| at.as_nanos()),
        received_ns: packet.received.map(|at| at.as_nanos()),
        fate: match packet.fate {
            PacketFate::Forwarded => Fate::Passed,
            PacketFate::Corrupted => Fate::Corrupted,
            PacketFate::Lost => Fate::Lost,
            PacketFate::Consumed => Fate::Consumed,
            PacketFate::Originated => Fate::Originated,
            PacketFate::Duplicated => Fate::Duplicated,
        },
        reordered: packet.reordered,
    }
}
