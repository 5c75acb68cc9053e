//! Offloads: switches off those that would put packets on a lab's links that no real link carries.
//!
//! A veth pretends to be a card that cuts segments and fills in checksums. With nothing behind it
//! to do so, packets of 64 KiB without checksums cross the link, and a device under test would see
//! no real packet. The kernel has a name for each such ability (`ETHTOOL_GSTRINGS`). Every one that
//! concerns segmentation, merging or checksums is switched off in one request
//! (`ETHTOOL_SFEATURES`), and what is still on is read back, because the kernel is free to refuse.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};

const GET_DRIVER: u32 = 0x03;
const GET_STRINGS: u32 = 0x1b;
const GET_SET_SIZES: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
const GET_CHANNELS: u32 = 0x3c;
/// `ETH_SS_FEATURES`: the set of strings that names the features.
const FEATURE_NAMES: u32 = 4;
/// `ETH_GSTRING_LEN`, in words.
const NAME_WORDS: usize = 8;
/// More features than any kernel has; it bounds what is allocated.
const FEATURES_MAX: usize = 1024;
/// What the names of all features that change packets have in common, one or another.
const CHANGES_PACKETS: [&str; 5] = ["segmentation", "checksum", "-gro", "-lro", "-gso-list"];

/// One ability of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offload {
    /// The kernel's name for it, such as `tx-tcp-segmentation`.
    pub name: String,
    /// Whether it is in use.
    pub on: bool,
    /// Whether the interface has it and lets it be switched.
    pub switchable: bool,
}

/// The abilities of an interface of the calling thread's namespace that change packets.
pub fn offloads(interface: &str) -> Result<Vec<Offload>> {
    let (names, features) = read(interface)?;
    let indexed = names.into_iter().enumerate();
    let found = indexed.filter(|(_, name)| CHANGES_PACKETS.iter().any(|part| name.contains(part)));
    Ok(found
        .map(|(index, name)| Offload {
            name,
            on: features.active(index),
            switchable: features.available(index),
        })
        .collect())
}

/// Switches every ability off that changes packets, on an interface of the calling thread's
/// namespace; an error names those that stay on.
pub fn switch_off(interface: &str) -> Result<()> {
    let is_unwanted = |name: &str| CHANGES_PACKETS.iter().any(|part| name.contains(part));
    switch(interface, is_unwanted, false)
        .with_context(|| format!("cannot switch the offloads of {interface} off"))?;
    let stubborn: Vec<String> = offloads(interface)?
        .into_iter()
        .filter(|offload| offload.on && offload.switchable)
        .map(|offload| offload.name)
        .collect();
    ensure!(stubborn.is_empty(), "{interface} keeps its offloads {} on", stubborn.join(", "));
    Ok(())
}

/// Switches the abilities with these names on.
pub(super) fn switch_on(interface: &str, wanted: &[String]) -> Result<()> {
    switch(interface, |name| wanted.iter().any(|it| it == name), true)
        .with_context(|| format!("cannot switch the offloads of {interface} on"))
}

/// Switches those abilities on or off whose names are chosen and that can be switched.
fn switch(interface: &str, is_chosen: impl Fn(&str) -> bool, on: bool) -> Result<()> {
    let (names, features) = read(interface)?;
    let words = names.len().div_ceil(32);
    let mut request = vec![SET_FEATURES, words as u32];
    request.resize(2 + 2 * words, 0);
    for (index, name) in names.iter().enumerate() {
        if is_chosen(name) && features.available(index) {
            let bit = 1 << (index % 32);
            request[2 + 2 * (index / 32)] |= bit;
            request[3 + 2 * (index / 32)] |= if on { bit } else { 0 };
        }
    }
    ioctl(interface, &mut request)?;
    Ok(())
}

/// The name of the driver of an interface of the calling thread's namespace (`ETHTOOL_GDRVINFO`).
pub(super) fn driver(interface: &str) -> Result<String> {
    // The command, then the driver's name of 32 bytes, then what is of no interest here.
    let mut answer = [0; 49];
    answer[0] = GET_DRIVER;
    ioctl(interface, &mut answer)
        .with_context(|| format!("cannot read the driver of {interface}"))?;
    let bytes: Vec<u8> = answer[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// How many receive queues an interface of the calling thread's namespace has (`ETHTOOL_GCHANNELS`); one
/// if its driver does not report it.
pub(super) fn receive_queues(interface: &str) -> Result<u32> {
    // The command; the most of receiving, sending, other and combined queues; and how many there are.
    let mut answer = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    match ioctl(interface, &mut answer) {
        Ok(()) => Ok(answer[5].saturating_add(answer[8]).max(1)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(error) => Err(error).with_context(|| format!("cannot count the queues of {interface}")),
    }
}

/// The answer to `ETHTOOL_GFEATURES`: for each 32 features the words available, requested,
/// active and never changed.
struct Features(Vec<u32>);

impl Features {
    fn available(&self, index: usize) -> bool {
        self.bit(index, 0)
    }

    fn active(&self, index: usize) -> bool {
        self.bit(index, 2)
    }

    fn bit(&self, index: usize, word: usize) -> bool {
        self.0.get(2 + 4 * (index / 32) + word).is_some_and(|bits| bits >> (index % 32) & 1 == 1)
    }
}

/// The names of all features, by index, and their states.
fn read(interface: &str) -> Result<(Vec<String>, Features)> {
    let step = || format!("cannot read the offloads of {interface}");
    let mut sizes = [GET_SET_SIZES, 0, 1 << FEATURE_NAMES, 0, 0];
    ioctl(interface, &mut sizes).with_context(step)?;
    let count = (sizes[4] as usize).min(FEATURES_MAX);

    let mut strings = vec![GET_STRINGS, FEATURE_NAMES, count as u32];
    strings.resize(3 + count * NAME_WORDS, 0);
    ioctl(interface, &mut strings).with_context(step)?;
    let names = strings[3..].chunks_exact(NAME_WORDS).map(|words| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    });

    let words = count.div_ceil(32);
    let mut features = vec![GET_FEATURES, words as u32];
    features.resize(2 + 4 * words, 0);
    ioctl(interface, &mut features).with_context(step)?;
    Ok((names.collect(), Features(features)))
}

/// Passes one ethtool command, whose first word is its number, to an interface.
fn ioctl(interface: &str, command: &mut [u32]) -> io::Result<()> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "the name is too long");
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an ifreq of zero bytes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(too_long());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
    // SAFETY: the ifreq is live and names a buffer that the callers sized as the command's
    // structure asks (linux/ethtool.h); each structure holds its own length, or has a fixed one.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryConfig, PacketMemory};
    use crate::namespace::Namespace;
    use crate::netlink::Netlink;
    use crate::port::PortIo;
    use crate::veth::VethEnd;
    use crate::xdp::{XdpConfig, XdpPort};

    #[test]
    fn queues_that_receive_are_counted() -> Result<()> {
        assert_eq!(receive_queues("lo")?, 1, "loopback does not say");
        assert!(receive_queues("no such one").is_err());
        let Ok([near, far]) = Namespace::new().and_then(|near| Ok([near, Namespace::new()?]))
        else {
            println!("skipped: queues of a veth: no namespaces here");
            return Ok(());
        };
        let end = |namespace, mac| VethEnd { namespace, name: "q", mac: [2, 0, 0, 0, 0, mac] };
        near.enter(|| {
            Netlink::open()?.create_veth(end(&near, 1), end(&far, 2), 1_500)?;
            let alone = receive_queues("q")?;
            // ETHTOOL_SCHANNELS: two queues that receive, one that sends.
            let set = ioctl("q", &mut [0x3d, 0, 0, 0, 0, 2, 1, 0, 0]);
            match set {
                Ok(()) => {
                    assert_eq!((alone, receive_queues("q")?), (1, 2));
                    opens_all_queues_or_none()
                }
                Err(why) => {
                    println!("skipped: two queues of a veth: {why}");
                    Ok(())
                }
            }
        })
    }

    /// Frames that the driver puts into a queue without a socket would never be seen.
    fn opens_all_queues_or_none() -> Result<()> {
        let mut memory = PacketMemory::new(MemoryConfig::default())?;
        let mut open = |queues: &[u32]| {
            let config = XdpConfig { queues: queues.to_vec(), ..XdpConfig::default() };
            XdpPort::open(&mut memory, "q", &config).map(|port| port.close(&mut memory))
        };
        for some in [[0], [1]] {
            let why = format!("{:#}", open(&some).expect_err("one of two queues is left out"));
            assert!(why.contains("receives by 2 queues"), "{why}");
        }
        open(&[0, 1]).map(drop)
    }
}
