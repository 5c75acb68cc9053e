//! Packets of chosen flows, as a capture that is streamed while it is written.
//!
//! A filter with `copy = true` has copies of its packets made. Where a client listens, the forwarding
//! thread passes each on and never waits: copies that find no room are counted and dropped. There is
//! one listener at a time; without one they go back to the memory at once. A stamp is the moment of the
//! turn at which the copy was handed over, so packets of one turn may have the same.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::answer::{Answer, Refused};
use super::command_channel::CommandChannel;
use super::events::{Stream, place};
use crate::driver::{Driver, Traced, Tracer};
use nilometer_files::table::capture::CaptureWriter;

/// Copies that may wait for the listener.
const COPIES_WAITING: usize = 4_096;
/// Pieces of the capture that may wait for the network.
const PIECES_WAITING: usize = 16;
/// How long a piece may stay with the listener before it is sent as it is.
const PIECE_WITHIN: Duration = Duration::from_millis(100);
/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// Chosen packets as pcapng, from now on.
///
/// # Errors
/// 409 when another client has them, 503 when there are too many streams.
pub async fn trace(commands: Arc<CommandChannel>, streams: &Arc<Semaphore>) -> Answer {
    let place = place(streams)?;
    let (to, packets) = channel(COPIES_WAITING);
    let handle = Arc::clone(&commands);
    let work = move || handle.ask(move |driver| begin(driver, to));
    let names = tokio::task::spawn_blocking(work).await.map_err(Refused::unavailable)??;
    let names = names.ok_or_else(|| Refused::conflict("another trace goes on; end it first"))?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let writer = CaptureWriter::begin(Vec::new(), &names).map_err(Refused::unavailable)?;
    let (say, pieces) = channel(PIECES_WAITING);
    tokio::spawn(write(writer, packets, say));
    Ok(Stream::new(pieces, place).answer("application/x-pcapng"))
}

/// Has copies handed on, unless others have them; the names of the ports.
fn begin(driver: &mut Driver, to: Sender<Traced>) -> Option<Vec<String>> {
    let names = driver.router().ports().iter().map(|port| port.plan().name.clone()).collect();
    driver.set_tracer(Tracer::new(to)).then_some(names)
}

/// Writes until the client stops reading.
async fn write(
    mut writer: CaptureWriter<Vec<u8>>,
    mut packets: Receiver<Traced>,
    say: Sender<Bytes>,
) {
    loop {
        let piece = std::mem::take(writer.writer_mut());
        if !piece.is_empty() && say.send(Bytes::from(piece)).await.is_err() {
            return;
        }
        // A piece is as much as came within the time, and not more than it may hold.
        while writer.writer_mut().len() < PIECE_BYTES {
            let Ok(packet) = tokio::time::timeout(PIECE_WITHIN, packets.recv()).await else {
                break;
            };
            let Some(packet) = packet else { return };
            let stamp = packet.stamp.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let stamp_ns = stamp.as_nanos() as u64;
            let bytes = packet.frame.len() as u32;
            let written =
                writer.write_at(packet.port as u32, (stamp_ns, false), bytes, &packet.frame);
            if written.is_err() || say.is_closed() {
                return;
            }
        }
        if say.is_closed() {
            return;
        }
    }
}
