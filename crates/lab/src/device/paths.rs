//! The paths of a fault box: its treatment of packets by address pair.
//!
//! Each pair of networks has a path of its own, with a link, a delay and chances of its own; all other packets
//! take the default one. A packet that belongs to several takes the first. The path is looked up once for each
//! pair of addresses and cached.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nilometer_sim::fault::{Faults, Timetable};
use nilometer_traffic::pool::Prefix;
use nilometer_wire::{Port, Span};
use serde::{Deserialize, Serialize};

use super::spec::FaultSpec;

/// Paths of their own at most.
pub const PAIRS_MAX: usize = 1 << 16;
/// Pairs of addresses that are remembered; others are looked up for each packet.
const REMEMBERED_MAX: usize = 1 << 20;

/// `[path]`: the path in front of the device, on the clients' side; or behind it, where round trips are played.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Paths {
    /// The faults for packets of no pair below; none where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultSpec>,
    /// The faults for packets between certain hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pair: Vec<Pair>,
}

/// `[[path.pair]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The clients, `198.18.0.7/32`; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Prefix>,
    /// The servers, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Prefix>,
    /// The faults for packets between them.
    pub faults: FaultSpec,
}

impl From<FaultSpec> for Paths {
    fn from(faults: FaultSpec) -> Paths {
        Paths { faults: Some(faults), pair: Vec::new() }
    }
}

impl Paths {
    fn specs(&self) -> impl Iterator<Item = &FaultSpec> {
        self.faults.iter().chain(self.pair.iter().map(|pair| &pair.faults))
    }

    /// Reads the traces that it names, relative to `folder`.
    ///
    /// # Errors
    /// What is wrong with one, and where.
    pub fn load(&mut self, folder: &Path) -> Result<()> {
        if let Some(faults) = &mut self.faults {
            faults.load(folder).context("path.faults")?;
        }
        for (pair, number) in self.pair.iter_mut().zip(1..) {
            pair.faults.load(folder).with_context(|| format!("path.pair {number}"))?;
        }
        Ok(())
    }

    /// The same paths, with unique names for their traces ([`FaultSpec::with_traces_kept`]).
    pub fn with_traces_kept(&self, files: &mut Vec<(String, String)>) -> Paths {
        let keep = |faults: &FaultSpec, files: &mut Vec<_>| faults.with_traces_kept(files);
        Paths {
            faults: self.faults.as_ref().map(|faults| keep(faults, files)),
            pair: self
                .pair
                .iter()
                .map(|pair| Pair { faults: keep(&pair.faults, files), ..pair.clone() })
                .collect(),
        }
    }

    /// Checks that a box can have these paths.
    ///
    /// # Errors
    /// Where there are none, or too many.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.specs().any(|faults| !faults.to_string().trim().is_empty()),
            "[path] says nothing to do: give faults, for instance faults = \"delay=20ms\", or leave it out"
        );
        ensure!(
            self.pair.len() <= PAIRS_MAX,
            "[path] has {} pairs; the most is {PAIRS_MAX}",
            self.pair.len()
        );
        Ok(())
    }

    /// The longest that a packet may stay in the box.
    pub fn longest_stay(&self) -> Span {
        self.specs().map(FaultSpec::longest_stay).max().unwrap_or(Span::ZERO)
    }

    /// Faults and timetables of the usual path.
    pub fn usual(&self) -> [(Faults, Timetable); 2] {
        self.faults.as_ref().map(FaultSpec::both).unwrap_or_default()
    }

    /// Those of all paths, the usual one first.
    pub fn all(&self) -> Vec<[(Faults, Timetable); 2]> {
        [self.usual()].into_iter().chain(self.pair.iter().map(|pair| pair.faults.both())).collect()
    }

    /// The paths in one line: as written, and how many pairs have paths of their own.
    pub fn description(&self) -> String {
        let usual = self.faults.as_ref().map(ToString::to_string).unwrap_or_default();
        match self.pair.len() {
            0 => usual,
            pairs => {
                format!("{usual}; {pairs} pairs of their own").trim_start_matches("; ").to_owned()
            }
        }
    }
}

/// Which path a packet takes.
#[derive(Debug, Default)]
pub(crate) struct PathOf {
    /// Pairs of networks with their paths, those of two hosts aside.
    pairs: Vec<(u32, [Option<Prefix>; 2])>,
    /// Pairs of two hosts: there may be tens of thousands.
    hosts: HashMap<(IpAddr, IpAddr), u32>,
    remembered: HashMap<(IpAddr, IpAddr), u32>,
}

impl PathOf {
    pub fn new(paths: &Paths) -> PathOf {
        let mut path_of = PathOf::default();
        for (path, pair) in (1..).zip(&paths.pair) {
            match [pair.client, pair.server].map(|network| network.and_then(|one| one.only_host()))
            {
                [Some(client), Some(server)] => {
                    path_of.hosts.entry((client, server)).or_insert(path);
                }
                _ => path_of.pairs.push((path, [pair.client, pair.server])),
            }
        }
        path_of
    }

    /// The path of a frame of IP that came by a port, the clients' being the first.
    pub fn of(&mut self, port: Port, frame: &[u8]) -> u32 {
        if self.pairs.is_empty() && self.hosts.is_empty() {
            return 0;
        }
        let Some((source, destination)) = addresses(frame) else { return 0 };
        let pair = if port.0 & 1 == 0 { (source, destination) } else { (destination, source) };
        if let Some(&path) = self.remembered.get(&pair) {
            return path;
        }
        let path = self.look_up(pair);
        if self.remembered.len() < REMEMBERED_MAX {
            self.remembered.insert(pair, path);
        }
        path
    }

    fn look_up(&self, (client, server): (IpAddr, IpAddr)) -> u32 {
        let has = |network: &Option<Prefix>, address| {
            network.is_none_or(|network| network.contains(address))
        };
        let is_of =
            |[clients, servers]: &[Option<Prefix>; 2]| has(clients, client) && has(servers, server);
        let network = self.pairs.iter().find(|(_, networks)| is_of(networks));
        let hosts = self.hosts.get(&(client, server)).copied();
        network.map(|&(path, _)| path).into_iter().chain(hosts).min().unwrap_or(0)
    }
}

/// Source and destination of a frame of Ethernet and IP.
fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let four = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(frame.get(at..at + 4)?).ok()?));
    let six = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(frame.get(at..at + 16)?).ok()?));
    match frame.get(12..14)? {
        [0x08, 0x00] => Some((four(26)?, four(30)?)),
        [0x86, 0xdd] => Some((six(22)?, six(38)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_wire::build;

    #[test]
    fn the_first_pair_that_fits_is_taken_in_both_directions() {
        let paths: Paths = toml::from_str(
            "faults = 'delay=1ms'\n\
             [[pair]]\nclient = '198.18.0.7/32'\nserver = '198.19.0.0/24'\nfaults = 'delay=20ms'\n\
             [[pair]]\nclient = '198.18.0.0/24'\nfaults = 'delay=30ms'\n\
             [[pair]]\nserver = 'fd00:19::5/128'\nfaults = 'delay=40ms'\n",
        )
        .expect("paths");
        paths.check().expect("sound");
        assert_eq!(paths.longest_stay(), Span::from_nanos(41_000_000));
        assert_eq!(
            (paths.all().len(), paths.description().as_str()),
            (4, "delay=1ms; 3 pairs of their own")
        );
        let mut path_of = PathOf::new(&paths);
        let cases = [
            (["198.18.0.7:1", "198.19.0.3:2"], 1),
            (["198.18.0.7:1", "198.19.1.3:2"], 2),
            (["198.18.0.8:1", "198.19.0.3:2"], 2),
            (["198.18.1.7:1", "198.19.0.3:2"], 0),
            (["[fd00:18::9]:1", "[fd00:19::5]:2"], 3),
            (["[fd00:18::9]:1", "[fd00:19::6]:2"], 0),
        ];
        // (Twice: once looked up, once remembered.)
        for (ends, path) in cases.iter().chain(&cases) {
            let [client, server] = ends.map(|end| end.parse().expect("an address"));
            let forth = build::ethernet(&build::udp(client, server, b"x"));
            let back = build::ethernet(&build::udp(server, client, b"x"));
            assert_eq!(path_of.of(Port(0), &forth), *path, "{ends:?}");
            assert_eq!(path_of.of(Port(1), &back), *path, "{ends:?}");
        }
        assert_eq!(path_of.of(Port(0), &[0; 10]), 0);
    }

    #[test]
    fn a_path_that_does_nothing_is_refused() {
        let why = Paths::default().check().expect_err("nothing").to_string();
        assert!(why.contains("says nothing to do"), "{why}");
    }
}
