//! Writes hostile frames to a capture: the fuzz test's input, to be replayed to another router.
//!
//! `cargo run --release -p nilometer-router --example hostile_frames -- FILE [FRAMES [SEED [PORT]]]`
//! writes FRAMES frames (10,000) of SEED (1) as a classic capture of Ethernet frames, a microsecond
//! apart; with PORT only the frames that arrive at that port. This router and a kernel with the same
//! addresses ought to forward the same frames.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};

#[path = "../tests/pipeline/frames.rs"]
mod frames;

use frames::{Frames, PORTS};

/// The head of a capture with microseconds, little-endian, of Ethernet frames (libpcap's file format).
fn head() -> Vec<u8> {
    let words = [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 1];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number =
        |at: usize, usual: u64| arguments.get(at).map_or(Ok(usual), |text| text.parse::<u64>());
    let path = arguments.first().ok_or("which FILE is to be written?")?;
    let (count, seed, port) = (number(1, 10_000)?, number(2, 1)?, number(3, PORTS)?);
    if port > PORTS || arguments.len() > 4 {
        return Err(format!("PORT is 0 to {}, and the last argument", PORTS - 1).into());
    }
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&head())?;
    let mut frames = Frames::new(seed);
    let mut written = 0;
    while written < count {
        let (to, frame) = frames.next();
        if port < PORTS && to as u64 != port {
            continue;
        }
        let bytes = frame.len() as u64;
        for word in [written / 1_000_000, written % 1_000_000, bytes, bytes] {
            file.write_all(&(word as u32).to_le_bytes())?;
        }
        file.write_all(&frame)?;
        written += 1;
    }
    file.flush()?;
    Ok(())
}
