//! The configuration of a stream: the keys of a STREAM.toml, and every default.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nilometer_files::document;
use nilometer_profile::stream::flows::FLOWS_MAX;
use nilometer_profile::stream::frame::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use nilometer_profile::stream::{Spacing, StreamSettings};
use nilometer_wire::Span;
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use super::transmit::TransmitChoice;
use crate::device::rules::Rules;
use crate::device::spec::FaultSpec;
use crate::trial::config::{DutKind, check_program};
use crate::wiring::ExternalSection;

/// Frames a second at most.
pub const PPS_MAX: f64 = 10e6;
/// And at least.
pub const PPS_MIN: f64 = 0.1;
/// A stream lasts a day at most, seconds.
pub const SECONDS_MAX: f64 = 86_400.0;
/// Frames that a ring holds by default: at least, and at most.
const RING_MIN: usize = 1 << 12;
const RING_MAX: usize = 1 << 17;
/// The shortest stream, seconds.
pub const SECONDS_MIN: f64 = 0.01;

nilometer_wire::named! {
    /// Where frames are timestamped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
    #[serde(rename_all = "lowercase")]
    pub enum StampChoice {
        /// In the driver, by BPF programs, if the system allows loading them; otherwise at packet sockets.
        Best = "best",
        /// In the driver, by BPF programs.
        Driver = "driver",
        /// At packet sockets.
        Socket = "socket",
        /// Nowhere: frames are counted, without delays.
        None = "none",
    }
}

/// A STREAM.toml.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamConfig {
    /// Seed of everything drawn by chance.
    pub seed: u64,
    /// The device under test.
    pub dut: DutKind,
    /// The specification of the device `fault`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultSpec>,
    /// A ROUTER.toml for the device `nilometer`; in a STREAM.toml, seen from its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<PathBuf>,
    /// The rules of the device `nftables`; in a STREAM.toml, seen from its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Rules>,
    /// The ELF object of the device `xdp`; in a STREAM.toml, seen from its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// The interfaces of the device `external`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalSection>,
    /// The receiver at the servers' side of the device `external`, where that is another host's: HOST:PORT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<String>,
    /// Frames a second on average, in each direction. Of a capture its own rate where absent; 10,000 otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pps: Option<f64>,
    /// Bytes of a frame with its check sequence, as RFC 2544 counts them.
    pub frame_bytes: u16,
    /// How long the stream lasts.
    pub seconds: f64,
    /// Flows that take turns, with pseudorandom addresses and ports (RFC 4814).
    pub flows: u32,
    /// When frames are due, and which sizes they have.
    pub pattern: Pattern,
    /// Whether a second stream runs in the other direction.
    pub both: bool,
    /// What takes stamps.
    pub stamps: StampChoice,
    /// How frames are sent.
    pub transmit: TransmitChoice,
    /// How long the last frames are waited for, seconds, beyond the delays in the device's files (RFC
    /// 2544, 23): later frames count as lost.
    pub wait: f64,
    /// Seconds of calibration over a bare wire, by the same stream; 0 leaves it out.
    pub calibration: f64,
    /// Frames that the receiver's ring holds, a power of two; those of a tenth of a second where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<u32>,
    /// How much of the disk the table of frames may take, MiB.
    pub disk: u64,
}

impl Default for StreamConfig {
    fn default() -> StreamConfig {
        StreamConfig {
            seed: 7,
            dut: DutKind::Linux,
            fault: None,
            router: None,
            rules: None,
            program: None,
            external: None,
            receiver: None,
            pps: None,
            frame_bytes: 64,
            seconds: 10.0,
            flows: 1,
            pattern: Pattern::default(),
            both: false,
            stamps: StampChoice::Best,
            transmit: TransmitChoice::Best,
            wait: 2.0,
            calibration: 1.0,
            ring: None,
            disk: 1_024,
        }
    }
}

impl StreamConfig {
    /// Reads a STREAM.toml; paths in it are relative to its folder.
    ///
    /// # Errors
    /// When it cannot be read or has an unknown key; one line says what and where.
    pub fn read(path: &Path) -> Result<StreamConfig> {
        let mut config: StreamConfig = document::read_toml(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        config.router = config.router.map(|file| folder.join(file));
        config.program = config.program.map(|file| folder.join(file));
        config.pattern = config.pattern.seen_from(folder);
        if let Some(rules) = &mut config.rules {
            rules.load(folder).with_context(|| path.display().to_string())?;
        }
        if let Some(fault) = &mut config.fault {
            fault.load(folder).with_context(|| path.display().to_string())?;
        }
        Ok(config)
    }

    /// Checks the values.
    ///
    /// # Errors
    /// One line names the key and its valid values.
    pub fn check(&self) -> Result<()> {
        if let Some(pps) = self.pps {
            ensure!(
                (PPS_MIN..=PPS_MAX).contains(&pps),
                "pps = {pps}: choose {PPS_MIN} to {PPS_MAX}"
            );
        }
        let bytes = self.frame_bytes;
        ensure!(
            (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&bytes),
            "frame_bytes = {bytes}: choose {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX} (RFC 2544 counts \
             the 4 bytes of the check sequence)"
        );
        let seconds = self.seconds;
        ensure!(
            (SECONDS_MIN..=SECONDS_MAX).contains(&seconds),
            "seconds = {seconds}: choose {SECONDS_MIN} to {SECONDS_MAX}"
        );
        let flows = self.flows;
        ensure!((1..=FLOWS_MAX).contains(&flows), "flows = {flows}: choose 1 to {FLOWS_MAX}");
        if let Some(ring) = self.ring {
            ensure!(
                ring.is_power_of_two() && (64..=1 << 20).contains(&ring),
                "ring = {ring}: choose a power of two from 64 to 1048576"
            );
        }
        let wait = self.wait;
        ensure!((0.001..=60.0).contains(&wait), "wait = {wait}: choose 0.001 to 60 seconds");
        let calibration = self.calibration;
        ensure!(
            (0.0..=60.0).contains(&calibration),
            "calibration = {calibration}: choose 0 to 60 seconds"
        );
        ensure!(
            self.fault.is_none() || self.dut == DutKind::Fault,
            "fault: is what the device `fault` does, and the device is `{}`",
            self.dut
        );
        ensure!(
            self.router.is_none() || self.dut == DutKind::Nilometer,
            "router: is of the device `nilometer`, and the device is `{}`",
            self.dut
        );
        ensure!(
            self.rules.is_none() || self.dut == DutKind::Nftables,
            "rules: is of the device `nftables`, and the device is `{}`",
            self.dut
        );
        check_program(self.program.as_deref(), self.dut)?;
        let is_external = self.dut == DutKind::External;
        if self.receiver.is_some() {
            ensure!(
                is_external,
                "receiver: is behind the device `external`, and the device is `{}`: give --client-interface",
                self.dut
            );
            ensure!(
                self.stamps != StampChoice::None,
                "stamps: a receiver on another host stamps all frames; choose best, driver or socket"
            );
            ensure!(
                !self.both,
                "both: a receiver on another host does not send; run the other direction from there"
            );
            return self.external.as_ref().map_or_else(
                || ExternalSection::default().check_clients_side(),
                ExternalSection::check_clients_side,
            );
        }
        ExternalSection::check_of(self.external.as_ref(), is_external, self.dut.name())?;
        Ok(())
    }

    /// Frames that the receiver's ring is to hold, for streams of this rate.
    pub fn ring_slots(&self, pps: f64) -> usize {
        let usual = (pps / 10.0) as usize;
        let usual = usual.next_power_of_two().clamp(RING_MIN, RING_MAX);
        self.ring.map_or(usual, |ring| ring as usize)
    }

    /// The configured streams, the clients' first. Reads the capture of the pattern, if it has one.
    ///
    /// # Errors
    /// When the capture cannot be read.
    pub fn streams(&self) -> Result<Vec<StreamSettings>> {
        let spacing = self.pattern.spacing()?;
        let own = match &spacing {
            Spacing::Recorded(recording) => 1e9 / recording.mean_gap_ns(),
            _ => 10_000.0,
        };
        let stream = |stream| StreamSettings {
            spacing: spacing.clone(),
            sizes: self.pattern.sizes(self.frame_bytes),
            pps: self.pps.unwrap_or(own).min(PPS_MAX),
            length: Span::from_secs_f64(self.seconds),
            flows: self.flows,
            seed: self.seed,
            stream,
        };
        Ok((0..=u8::from(self.both)).map(stream).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused_by_key() {
        let good = StreamConfig::default();
        good.check().expect("the default");
        let fault = Some("loss=0.1".parse().expect("a fault"));
        let (receiver, dut) = (Some("192.0.2.1:4950".to_owned()), DutKind::External);
        let far = StreamConfig { receiver: receiver.clone(), dut, ..good.clone() };
        for (config, words) in [
            (StreamConfig { pps: Some(0.0), ..good.clone() }, "pps = 0"),
            (StreamConfig { pps: Some(f64::NAN), ..good.clone() }, "pps = NaN"),
            (StreamConfig { frame_bytes: 60, ..good.clone() }, "frame_bytes = 60: choose 64"),
            (StreamConfig { seconds: 0.0, ..good.clone() }, "seconds = 0"),
            (StreamConfig { flows: 0, ..good.clone() }, "flows = 0"),
            (StreamConfig { wait: 0.0, ..good.clone() }, "wait = 0: choose 0.001 to 60"),
            (StreamConfig { ring: Some(100), ..good.clone() }, "ring = 100"),
            (StreamConfig { calibration: -1.0, ..good.clone() }, "calibration = -1"),
            (StreamConfig { fault, ..good.clone() }, "the device is `linux`"),
            (StreamConfig { router: Some("a".into()), ..good.clone() }, "router"),
            (StreamConfig { receiver: receiver.clone(), ..good.clone() }, "receiver: is behind"),
            (StreamConfig { both: true, ..far.clone() }, "both: a receiver on another host"),
            (far.clone(), "--client-interface (external.client_interface) is missing"),
        ] {
            let why = config.check().expect_err(words).to_string();
            assert!(why.contains(words) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn a_stream_as_toml_is_read_again() {
        let config = StreamConfig {
            pattern: "burst:16+imix".parse().expect("a pattern"),
            pps: Some(5e4),
            both: true,
            ..StreamConfig::default()
        };
        let text = toml::to_string(&config).expect("TOML");
        assert_eq!(toml::from_str::<StreamConfig>(&text).expect("the same"), config);
        assert!(toml::from_str::<StreamConfig>("pace = 3").is_err());
        assert_eq!(config.streams().expect("two").len(), 2);
    }
}
