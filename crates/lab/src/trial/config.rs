//! The configuration of a lab run: the keys of a LAB.toml, and every default.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nilometer_traffic::pool::{Pool, Prefix};
use serde::{Deserialize, Serialize};

pub use super::part::FIT_S;
use super::part::Part;
use super::round_trips::{self, PlayRoundTrips};
use crate::device::paths::Paths;
use crate::device::rules::Rules;
use crate::device::spec::FaultSpec;
use crate::wiring::ExternalSection;
use nilometer_files::document;
use nilometer_linux::scheduling::Class;

/// The shortest traffic that may be requested, seconds.
pub const DURATION_MIN_S: f64 = 0.5;

/// The slowest and the fastest that captures may be played.
pub const SPEED_MIN: f64 = 0.01;
/// Likewise.
pub const SPEED_MAX: f64 = 1_000.0;
/// The slowest and the fastest of packets that have no clock, packets a second.
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 1e9;

/// The longest traffic that may be requested, seconds: a day.
pub const DURATION_MAX_S: f64 = 86_400.0;

/// A LAB.toml.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LabConfig {
    /// Seed of everything drawn by chance.
    pub seed: u64,
    /// Captures or flow exports. The embedded sample where empty: a synthetic capture that is played as it was, or
    /// synthetic records where laws are to be played.
    pub input: Vec<PathBuf>,
    /// Seconds of traffic at the original's own speed: the length of the part that is played, [`FIT_S`] where
    /// absent. Of laws: from their beginning; where absent all of them are fitted into [`FIT_S`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Which part of the original is played; chosen by its volume where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Draw sessions from all of an original that is longer than the run, in place of one part of it.
    pub spread: bool,
    /// Play each of the original's connections once, as it was, whatever the seed.
    pub exact: bool,
    /// How many times as fast as they were connections are played: starts and gaps are divided, think times and
    /// durations are not.
    pub speed: f64,
    /// Packets a second of captures whose packets have no clock: one after the other, evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Hand data to TCP as soon as it is due, and as fast as the device lets it, not at the rate at which it was seen.
    pub unpaced: bool,
    /// Whether the original's round trips are played, as its handshakes show them, by a path on each side of the device.
    pub round_trips: PlayRoundTrips,
    /// Fit all of the original into [`FIT_S`], by its laws: gaps and intervals are divided by its duration /
    /// 60 s, connections and bytes are kept.
    pub fit: bool,
    /// What of the original is kept where no duration is given.
    #[serde(rename = "match")]
    pub keep: Keep,
    /// The device under test: `nilometer`, `linux`, `frr`, `fault` or `wire`.
    pub dut: DutKind,
    /// The specification of the device `fault`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultSpec>,
    /// The path in front of the device, whatever the device is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Paths>,
    /// The rules of the device `nftables`; in a LAB.toml, seen from its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Rules>,
    /// The ELF object of the device `xdp`; in a LAB.toml, relative to its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// The interfaces of an external device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalSection>,
    /// A ROUTER.toml for our router, with the ports `client` and `server`; in a LAB.toml, relative to its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<PathBuf>,
    /// The clock of the run: `real`, or `virtual` with simulated hosts.
    pub clock: Clock,
    /// Whose TCP the hosts have: the kernel's, or ours. Under a virtual clock they are simulated whatever this is.
    pub hosts: HostKind,
    /// Replay the inputs of simulated hosts in virtual time, and compare every frame that they sent.
    pub replay_hosts: bool,
    /// The scheduling class of timed threads: our router and the engines.
    pub scheduling: Class,
    /// The estimation.
    pub model: ModelSection,
    /// The performance.
    pub traffic: TrafficSection,
    /// The bare wire beside the device.
    pub calibration: CalibrationSection,
    /// The passive meter.
    pub meter: MeterSection,
}

/// What is preserved when a whole original is fitted into [`FIT_S`], 1/k of its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// All connections and bytes, at k times their rate: gaps and intervals are divided by k.
    Volume,
    /// Gaps and bit rate: of each interval 1/k of the time is played, with 1/k of its connections and bytes.
    Bitrate,
}

nilometer_wire::named! {
    /// The device between clients and servers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
    #[serde(rename_all = "lowercase")]
    pub enum DutKind {
        /// Our own router, in a namespace of its own.
        Nilometer = "nilometer",
        /// The Linux kernel's forwarding in a namespace of its own.
        Linux = "linux",
        /// Linux forwarding behind a packet filter with the rules in `rules`; a stateful firewall by default.
        Nftables = "nftables",
        /// The Linux kernel's bridge, which forwards by MAC address.
        Bridge = "bridge",
        /// Linux forwarding, with routes from FRR's daemons.
        Frr = "frr",
        /// Open vSwitch's datapath in user space.
        Ovs = "ovs",
        /// DPDK's testpmd on packet sockets.
        Testpmd = "testpmd",
        /// Linux forwarding with the XDP programs of `program` on its ports.
        Xdp = "xdp",
        /// A device that impairs packets as configured by `fault`.
        Fault = "fault",
        /// Any device between two interfaces of this host.
        External = "external",
        /// Nothing: the calibration cable.
        Wire = "wire",
    }
}

nilometer_wire::named! {
    /// The clock of a run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
    #[serde(rename_all = "lowercase")]
    pub enum Clock {
        /// The system clock: kernel hosts and real links.
        Real = "real",
        /// A virtual clock, with simulated hosts.
        Virtual = "virtual",
    }
}

nilometer_wire::named! {
    /// The TCP implementation of the hosts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
    #[serde(rename_all = "lowercase")]
    pub enum HostKind {
        /// The kernel's TCP.
        Kernel = "kernel",
        /// Nilometer's TCP, any number of connections behind one interface.
        Simulated = "simulated",
    }
}

/// `[model]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSection {
    /// A model to be played, in place of one that is estimated from the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// IntervalDuration of the estimation, seconds of the original; chosen where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<f64>,
    /// The longest inter-connection time, seconds of the original; 60, or 5 for the embedded records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inter_connection_bound_s: Option<f64>,
    /// The five distributions alone, as Harpoon has them, driven by active sessions.
    pub harpoon: bool,
}

/// `[traffic]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrafficSection {
    /// Client pools, from 198.18.0.0/15 and fd00::/8.
    pub clients: Vec<Prefix>,
    /// Server pools, likewise.
    pub servers: Vec<Prefix>,
    /// TCP port of the servers.
    pub port: u16,
    /// Congestion control of every socket.
    pub congestion: String,
    /// Threads of the client engine.
    pub threads: usize,
    /// Seconds that unfinished transfers may take after the traffic's end.
    pub drain_s: f64,
}

/// `[calibration]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CalibrationSection {
    /// Seconds of the plan's beginning played over the bare wire; 0 leaves it out.
    pub seconds: f64,
}

/// `[meter]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeterSection {
    /// MiB of ring memory on each side.
    pub ring_mib: u32,
    /// Keep the packets as client.pcapng and server.pcapng.
    pub pcap: bool,
}

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().expect("a built-in prefix")).collect()
}

/// The default client pools.
pub fn default_clients() -> Vec<Prefix> {
    prefixes(&["198.18.0.0/16", "fd00:18::/112"])
}

/// The default server pools.
pub fn default_servers() -> Vec<Prefix> {
    prefixes(&["198.19.0.0/17", "fd00:19::/112"])
}

impl Default for LabConfig {
    fn default() -> LabConfig {
        LabConfig {
            seed: 1,
            input: Vec::new(),
            duration_s: None,
            part: None,
            spread: false,
            exact: false,
            speed: 1.0,
            rate: None,
            unpaced: false,
            round_trips: PlayRoundTrips::Auto,
            fit: false,
            keep: Keep::Volume,
            dut: DutKind::Nilometer,
            fault: None,
            path: None,
            rules: None,
            program: None,
            external: None,
            router: None,
            clock: Clock::Real,
            hosts: HostKind::Kernel,
            replay_hosts: false,
            scheduling: Class::RealTime,
            model: ModelSection::default(),
            traffic: TrafficSection::default(),
            calibration: CalibrationSection::default(),
            meter: MeterSection::default(),
        }
    }
}

impl Default for TrafficSection {
    fn default() -> TrafficSection {
        TrafficSection {
            clients: default_clients(),
            servers: default_servers(),
            port: 8_808,
            congestion: "cubic".to_owned(),
            threads: 1,
            drain_s: 15.0,
        }
    }
}

impl Default for CalibrationSection {
    fn default() -> CalibrationSection {
        CalibrationSection { seconds: 10.0 }
    }
}

impl Default for MeterSection {
    fn default() -> MeterSection {
        MeterSection { ring_mib: 64, pcap: false }
    }
}

/// Checks that the device `xdp` has its program, and no other has one.
///
/// # Errors
/// One line says what to do.
pub fn check_program(program: Option<&Path>, dut: DutKind) -> Result<()> {
    match (program, dut) {
        (None, DutKind::Xdp) => {
            bail!("the device xdp is a program: give --dut xdp:FILE.o, or program in the file")
        }
        (Some(path), dut) if dut != DutKind::Xdp => bail!(
            "{} (program) is of the device xdp, and dut is {}: leave one of them out",
            path.display(),
            dut.name()
        ),
        _ => Ok(()),
    }
}

impl LabConfig {
    /// Reads a LAB.toml; paths in it, relative to its own folder, become relative to ours.
    ///
    /// # Errors
    /// The error in it, and its line.
    pub fn read(path: &Path) -> Result<LabConfig> {
        let mut config: LabConfig = document::read_toml(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        config.router = config.router.map(|router| folder.join(router));
        config.program = config.program.map(|program| folder.join(program));
        let at = || path.display().to_string();
        if let Some(faults) = &mut config.fault {
            faults.load(folder).context("fault").with_context(at)?;
        }
        if let Some(rules) = &mut config.rules {
            rules.load(folder).context("rules").with_context(at)?;
        }
        if let Some(paths) = &mut config.path {
            paths.load(folder).with_context(at)?;
        }
        Ok(config)
    }

    /// Checks that the numbers are in range.
    ///
    /// # Errors
    /// The first field out of range, by its name.
    pub fn check(&self) -> Result<()> {
        let within = |what: &str, value: f64, low: f64, high: f64| {
            if value.is_finite() && (low..=high).contains(&value) {
                Ok(())
            } else {
                bail!("{what} is {value}, but must be from {low} to {high}")
            }
        };
        if let Some(seconds) = self.duration_s {
            within("duration_s", seconds, DURATION_MIN_S, DURATION_MAX_S)?;
        }
        within("speed", self.speed, SPEED_MIN, SPEED_MAX)?;
        if let Some(rate) = self.rate {
            within("rate", rate, RATE_MIN, RATE_MAX)?;
            if !self.plays_vectors() {
                bail!(
                    "rate (--rate) is of captures whose packets are played as they were; leave it out"
                );
            }
        }
        within("calibration.seconds", self.calibration.seconds, 0.0, 3_600.0)?;
        within("traffic.drain_s", self.traffic.drain_s, 0.0, 3_600.0)?;
        within("traffic.threads", self.traffic.threads as f64, 1.0, 256.0)?;
        within("meter.ring_mib", f64::from(self.meter.ring_mib), 1.0, 4_096.0)?;
        let is_for_estimates = !self.input.is_empty()
            || self.model.interval_s.is_some()
            || self.model.inter_connection_bound_s.is_some();
        if let (Some(path), true) = (&self.router, self.dut != DutKind::Nilometer) {
            bail!(
                "{} (--router, router) says what the device nilometer is to be, and dut is {}: leave one of \
                 them out",
                path.display(),
                self.dut.name()
            );
        }
        match (&self.fault, self.dut) {
            (None, DutKind::Fault) => bail!(
                "the device fault needs to know what to do: give --fault (fault), for instance rate=50Mbit,delay=20ms"
            ),
            (Some(_), dut) if dut != DutKind::Fault => bail!(
                "--fault (fault) says what the device fault is to do, and the device is {}: give --dut fault \
                 (dut = \"fault\"), or leave fault out",
                dut.name()
            ),
            _ => {}
        }
        self.path.as_ref().map_or(Ok(()), Paths::check)?;
        if self.round_trips == PlayRoundTrips::Always {
            round_trips::check(self.path.is_some(), self.dut == DutKind::External)?;
        }
        if let (Some(rules), true) = (&self.rules, self.dut != DutKind::Nftables) {
            bail!(
                "{} (--rules, rules) has the rules of the device nftables, and dut is {}: leave one of them out",
                rules.path().display(),
                self.dut.name()
            );
        }
        check_program(self.program.as_deref(), self.dut)?;
        let is_external = self.dut == DutKind::External;
        ExternalSection::check_of(self.external.as_ref(), is_external, self.dut.name())?;
        if let Some(part) = self.part {
            within("part.start_s", part.start_s, 0.0, 1e9)?;
            within("part.seconds", part.seconds, DURATION_MIN_S, DURATION_MAX_S)?;
        }
        if self.fit
            && (self.part.is_some() || self.spread || self.exact || self.duration_s.is_some())
        {
            bail!(
                "--fit plays all of the original in a minute: leave --part, --spread, --exact and --duration out"
            );
        }
        if self.spread && self.part.is_some() {
            bail!(
                "--spread draws from all of the original, and --part names one of its parts: leave one of them out"
            );
        }
        if self.model.file.is_some() && is_for_estimates {
            bail!(
                "a model that is given (--model, model.file) is played as it is: give no input, interval or bound"
            );
        }
        if let Some(seconds) = self.model.interval_s {
            within("model.interval_s", seconds, 1e-3, 1e9)?;
        }
        if let Some(seconds) = self.model.inter_connection_bound_s {
            within("model.inter_connection_bound_s", seconds, 1e-6, 1e9)?;
        }
        if self.traffic.port == 0 {
            bail!("traffic.port is 0, but the servers need a fixed port from 1 to 65535");
        }
        for (side, pool) in [("clients", &self.traffic.clients), ("servers", &self.traffic.servers)]
        {
            Pool::new(pool).map_err(|error| anyhow::anyhow!("traffic.{side}: {error}"))?;
            if pool.is_empty() {
                bail!("traffic.{side} is empty; give at least one prefix");
            }
        }
        Ok(())
    }

    /// Are the hosts simulated?
    pub fn simulates_hosts(&self) -> bool {
        self.hosts == HostKind::Simulated || self.clock == Clock::Virtual
    }

    /// Whether a run of this configuration plays the original's round trips if its original shows any.
    pub fn may_play_round_trips(&self) -> bool {
        let has_sides = self.path.is_none() && self.dut != DutKind::External;
        self.round_trips != PlayRoundTrips::Never && has_sides && self.plays_connections()
    }

    /// Whether connections are played as they were, if there are any, and not laws.
    fn plays_connections(&self) -> bool {
        !self.model.harpoon && self.model.interval_s.is_none() && !self.fit
    }

    /// Are the connections of captures, or of the embedded one, to be played as vectors, at their own speed?
    pub fn plays_vectors(&self) -> bool {
        self.model.file.is_none() && self.plays_connections()
    }

    /// A LAB.toml with every default, commented.
    pub fn template() -> String {
        TEMPLATE.to_owned()
    }
}

const TEMPLATE: &str = include_str!("../../../../examples/lab.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_contains_the_defaults() {
        let parsed: LabConfig = toml::from_str(TEMPLATE).expect("the template parses");
        assert_eq!(parsed, LabConfig::default());
        parsed.check().expect("the defaults are sound");
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        for (text, words) in [
            ("duration_s = -1.0", "duration_s is -1"),
            ("[traffic]\nport = 0", "traffic.port"),
            ("dut = \"external\"", "give --client-interface and --server-interface"),
            ("[external]\nclient_interface = \"a\"", "give --dut external"),
            ("dut = \"linux\"\nrouter = \"r.toml\"", "r.toml (--router, router)"),
            ("input = [\"a.pcap\"]\n[model]\nfile = \"b.json\"", "give no input"),
            ("[traffic]\nclients = [\"198.18.0.0/31\"]", "too small"),
            ("[traffic]\nservers = []", "traffic.servers is empty"),
        ] {
            let config: LabConfig = toml::from_str(text).expect(text);
            let error = config.check().expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
