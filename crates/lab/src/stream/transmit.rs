//! How the frames of a stream are sent: by a packet socket, or as XDP live frames, which a program makes.
//!
//! A packet socket sends any pattern, some 0.3 to 0.9 million frames a second. Live frames ([`nilometer_linux::stamp::live`])
//! are of one size and evenly spaced or in bursts, and go up to some millions. With constant spacing several
//! leave together where the rate is high: the slip of all but the last is part of `pacing_ns`.

use anyhow::{Result, ensure};
use nilometer_linux::stamp::live::LIVE_BATCH_MAX;
use nilometer_linux::stamp::{Stamping, live::LivePace};
use nilometer_profile::stream::{Even, StreamSettings};
use serde::{Deserialize, Serialize};

nilometer_wire::named! {
    /// How frames are transmitted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
    #[serde(rename_all = "lowercase")]
    pub enum TransmitChoice {
        /// XDP live frames if more than 500,000 frames/s are offered and the pattern allows it, otherwise a packet
        /// socket.
        Best = "best",
        /// Through a packet socket.
        Socket = "socket",
        /// As XDP live frames.
        Live = "live",
    }
}

/// Above this rate, both directions together, live frames are chosen.
const LIVE_FROM_PPS: f64 = 500_000.0;
/// Batches a second of constant spacing that a processor makes with time to spare.
const BATCHES_PPS: f64 = 250_000.0;

/// How frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// By a packet socket.
    Socket,
    /// As live frames, so many handed over together.
    Live {
        /// How many, a power of two.
        batch: u32,
    },
}

/// How frames are sent, for the result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transmission {
    /// `socket` or `live`.
    pub by: String,
    /// Frames of constant spacing that leave together.
    pub batch: u32,
    /// The consequence, or why live frames were not chosen although the rate calls for them.
    pub note: String,
}

/// Why a stream cannot be sent as live frames.
fn impossible(stream: &StreamSettings, stamping: Stamping) -> Option<&'static str> {
    if Even::of(stream).is_none() {
        return Some("live frames are of one size, at constant spacing or in bursts");
    }
    (stamping != Stamping::Driver)
        .then_some("the program that makes live frames stamps them itself")
}

/// Chooses for streams that differ in their direction alone.
///
/// # Errors
/// When live frames are chosen for a pattern that they cannot send.
pub fn transmit(
    choice: TransmitChoice,
    streams: &[StreamSettings],
    stamping: Stamping,
) -> Result<(Transmit, Transmission)> {
    let offered: f64 = streams.iter().map(|stream| stream.pps).sum();
    let why_not = impossible(&streams[0], stamping);
    let is_fast = offered > LIVE_FROM_PPS;
    let is_live = match choice {
        TransmitChoice::Socket => false,
        TransmitChoice::Best => is_fast && why_not.is_none(),
        TransmitChoice::Live => {
            ensure!(why_not.is_none(), "transmit = live: {}", why_not.unwrap_or_default());
            true
        }
    };
    if !is_live {
        let note = match why_not.filter(|_| is_fast && choice == TransmitChoice::Best) {
            Some(why) => format!("not as live frames: {why}"),
            None => "packet socket; several frames per call if the sender is late".to_owned(),
        };
        return Ok((Transmit::Socket, Transmission { by: "socket".to_owned(), batch: 1, note }));
    }
    let batch = batch(&streams[0]);
    let note = match batch {
        1 => "XDP live frames, each at its time".to_owned(),
        _ => format!("XDP live frames, {batch} together when the last of them is due"),
    };
    Ok((Transmit::Live { batch }, Transmission { by: "live".to_owned(), batch, note }))
}

/// How many frames are handed over together: more the faster they follow one another, as a batch costs twice what a
/// frame does.
fn batch(stream: &StreamSettings) -> u32 {
    match stream.spacing.group() {
        Some(1) => {
            let least = (stream.pps / BATCHES_PPS).ceil() as u32;
            least.next_power_of_two().clamp(1, LIVE_BATCH_MAX)
        }
        Some(group) => group.next_power_of_two().min(LIVE_BATCH_MAX),
        None => 1,
    }
}

/// When groups of live frames go: how long after the beginning the first does, ns, and the pace.
pub(super) fn pace(even: &Even, batch: u32) -> (u64, LivePace) {
    let Even { group, gap_ns, frames, .. } = *even;
    // Evenly spaced frames go when the last of a batch is due, and a burst when it is.
    let together = if group == 1 { batch } else { group };
    let first_ns = if group == 1 { even.due_ns(u64::from(batch - 1)) + 1 } else { 0 };
    (first_ns, LivePace { frames, group: together, period_ns: gap_ns * f64::from(together), batch })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::config::StreamConfig;

    fn chosen(words: (f64, &str), choice: TransmitChoice, stamping: Stamping) -> Result<Transmit> {
        let pattern = words.1.parse().expect("a pattern");
        let config = StreamConfig { pps: Some(words.0), pattern, ..StreamConfig::default() };
        Ok(transmit(choice, &config.streams()?, stamping)?.0)
    }

    #[test]
    fn live_frames_are_chosen_where_the_rate_asks_for_them_and_the_pattern_allows_it() {
        use TransmitChoice::{Best, Live, Socket};
        let live = |batch| Transmit::Live { batch };
        for (words, choice, expected) in [
            ((5e5, "constant"), Best, Transmit::Socket),
            ((1e6, "constant"), Best, live(4)),
            ((1e6, "constant"), Socket, Transmit::Socket),
            ((1e4, "constant"), Live, live(1)),
            ((1e7, "constant"), Best, live(64)),
            ((1e6, "burst:100"), Best, live(64)),
            ((1e6, "burst:5"), Best, live(8)),
            ((1e6, "poisson"), Best, Transmit::Socket),
            ((1e6, "imix"), Best, Transmit::Socket),
        ] {
            let one = chosen(words, choice, Stamping::Driver).expect("a way");
            assert_eq!(one, expected, "{words:?}");
        }
        for (words, stamping) in
            [((1e6, "poisson"), Stamping::Driver), ((1e6, "constant"), Stamping::Socket)]
        {
            let why = chosen(words, Live, stamping).expect_err("not possible").to_string();
            assert!(why.starts_with("transmit = live: ") && !why.contains('\n'), "{why}");
        }
    }
}
