//! Streams that put the stress of a lab run on a device by other means: Harpoon's comparison with constant spacing (6.3).
//!
//! Harpoon's packets have the burstiness and the sizes that TCP and the files give them. An open-loop generator of the
//! same bit rate must be given both, so the settings span the possible values: bursts of 1, a quarter, a half, three
//! quarters and all of the 930 frames that RFC 2285 recommends at most, of 1,500 bytes; and evenly spaced packets of 40
//! and 1,500 bytes and of the trimodal mix.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use nilometer_files::document;

use super::config::{PPS_MAX, StreamConfig};
use crate::trial::config::DutKind;
use crate::trial::outcome::{IntervalOutcome, Outcome};

/// The settings: name, pattern, bytes of a frame where the pattern has no mix.
const SETTINGS: [(&str, &str, u16); 7] = [
    ("constant-1500", "constant", 1_518),
    ("burst-232", "burst:232", 1_518),
    ("burst-465", "burst:465", 1_518),
    ("burst-697", "burst:697", 1_518),
    ("burst-930", "burst:930", 1_518),
    ("constant-40", "constant", 64),
    ("constant-trimodal", "trimodal", 64),
];
/// Bytes of a frame besides its IP packet, its check sequence included.
const LINK_BYTES: f64 = 18.0;

/// A stream, and what to call it.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The name of its file, without the ending.
    pub name: &'static str,
    /// The stream.
    pub config: StreamConfig,
}

impl Derived {
    /// Its STREAM.toml.
    ///
    /// # Errors
    /// Never, unless a setting has no form in TOML.
    pub fn text(&self) -> Result<String> {
        toml::to_string(&self.config).context("a stream is TOML")
    }
}

/// What a run offered to its device, bits a second of frames with their check sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// On average.
    pub mean_bps: f64,
    /// In the busiest interval.
    pub peak_bps: f64,
    /// For so long, seconds.
    pub seconds: f64,
}

impl Load {
    /// Of a run, both directions together.
    ///
    /// # Errors
    /// When nothing was offered.
    pub fn of(intervals: &[IntervalOutcome]) -> Result<Load> {
        let bits = |packets: u64, bytes: u64| 8.0 * (bytes as f64 + LINK_BYTES * packets as f64);
        let intervals = || intervals.iter().filter(|one| one.end_s > one.start_s);
        let seconds: f64 = intervals().map(|one| one.end_s - one.start_s).sum();
        let all: f64 = intervals().map(|one| bits(one.packets, one.ip_bytes)).sum();
        ensure!(seconds > 0.0 && all > 0.0, "the run offered nothing to its device");
        let rate =
            |one: &IntervalOutcome| bits(one.packets, one.ip_bytes) / (one.end_s - one.start_s);
        let peak_bps = intervals().map(rate).fold(0.0, f64::max);
        Ok(Load { mean_bps: all / seconds, peak_bps, seconds })
    }
}

/// Reads the load that a lab run offered.
///
/// # Errors
/// When the directory has no result of a lab run.
pub fn read(results: &Path) -> Result<(Outcome, Load)> {
    let path = results.join("result.json");
    let outcome: Outcome = document::read_json(&path)
        .with_context(|| format!("{}: is not a directory of a lab run", results.display()))?;
    let load = Load::of(&outcome.intervals).with_context(|| path.display().to_string())?;
    Ok((outcome, load))
}

/// The streams of that bit rate, from the clients to the servers, for the device and by the seed of the run.
///
/// # Errors
/// When a rate is too high to be sent.
pub fn derive((dut, seed): (&str, u64), bps: f64, seconds: f64) -> Result<Vec<Derived>> {
    let derived = SETTINGS.map(|(name, pattern, frame_bytes)| {
        let mut config = StreamConfig {
            seed,
            pattern: pattern.parse().expect("a pattern"),
            frame_bytes,
            seconds,
            // (As many as one address of each source and a whole network of destinations give.)
            flows: 1_024,
            ..StreamConfig::default()
        };
        // A device that takes files or interfaces is named on the command line.
        let named = DutKind::ALL.into_iter().find(|one| one.name() == dut);
        let wants_more =
            [DutKind::Nftables, DutKind::Xdp, DutKind::Fault, DutKind::External, DutKind::Wire];
        config.dut = named.filter(|dut| !wants_more.contains(dut)).unwrap_or(config.dut);
        let mean_bytes = config.pattern.sizes(frame_bytes).mean_bytes();
        config.pps = Some(bps / (8.0 * mean_bytes));
        Derived { name, config }
    });
    for one in &derived {
        let pps = one.config.pps.unwrap_or(0.0);
        ensure!(pps <= PPS_MAX, "{}: {pps:.0} frames a second are more than can be sent", one.name);
        one.config.check().with_context(|| one.name.to_owned())?;
    }
    Ok(derived.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_a_run_is_that_of_its_frames() {
        let interval = |start_s: f64, packets, ip_bytes| IntervalOutcome {
            start_s,
            end_s: start_s + 2.0,
            packets,
            ip_bytes,
            ..IntervalOutcome::default()
        };
        let load = Load::of(&[interval(0.0, 100, 10_000), interval(2.0, 0, 0)]).expect("a load");
        let bits = 8.0 * (10_000.0 + 1_800.0);
        let expected = Load { mean_bps: bits / 4.0, peak_bps: bits / 2.0, seconds: 4.0 };
        assert_eq!(load, expected);
        assert!(Load::of(&[interval(0.0, 0, 0)]).is_err());
    }

    #[test]
    fn every_stream_has_the_bit_rate_of_the_run() {
        for one in derive(("bridge", 7), 50e6, 10.0).expect("streams") {
            let stream = &one.config.streams().expect("a stream")[0];
            let bps = 8.0 * stream.mean_bytes() * stream.pps;
            assert!((bps / 50e6 - 1.0).abs() < 1e-9, "{}: {bps}", one.name);
            assert_eq!((stream.length.as_secs_f64(), one.config.dut), (10.0, DutKind::Bridge));
        }
        let why = derive(("fault", 7), 50e9, 10.0).expect_err("too fast").to_string();
        assert!(why.contains("constant-40") && why.contains("more than can be sent"), "{why}");
    }
}
