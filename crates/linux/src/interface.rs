//! An interface that a port sits on: its name, whether it still exists, and whether it may be taken at all.
//!
//! # The rule about other people's interfaces
//!
//! A port takes an interface away from its host: frames that it receives no longer reach the
//! kernel. That is what a lab needs on links that it made, and a disaster on the link by which an
//! operator is logged in. So a port opens only in a network namespace that the program made for the
//! purpose. It refuses where the calling thread is in the namespace in which the program was
//! started (that of its first thread) or in that of process 1, unless `allow_foreign` is set. A
//! program that was itself started inside a lab's namespace has to set it, too.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, bail, ensure};

use super::memory::Packet;
use super::netlink::MacAddress;
use super::port_io::PortError;

/// An interface in the namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Interface {
    name: String,
    index: u32,
    mac: MacAddress,
    mtu_bytes: u32,
    /// Queries the interface in its namespace, from any thread.
    control: OwnedFd,
    is_gone: bool,
}

impl Interface {
    /// Finds an Ethernet interface of the calling thread's namespace, if it may be taken.
    pub(super) fn open(name: &str, allow_foreign: bool) -> Result<Interface> {
        ensure!(
            allow_foreign || !is_foreign()?,
            "{name} is an interface of the host and not of a lab's namespace: a port would take \
             its traffic away; if that is meant, allow it (--host-interfaces)"
        );
        let step = || format!("cannot read the interface {name}");
        let control = control_socket().with_context(step)?;
        let index = ask(&control, name, libc::SIOCGIFINDEX).with_context(step)?;
        let hardware = ask(&control, name, libc::SIOCGIFHWADDR).with_context(step)?;
        let mtu = ask(&control, name, libc::SIOCGIFMTU).with_context(step)?;
        // SAFETY: each request that succeeded filled the member that it is read from; all are
        // plain integers.
        let (index, hardware, mtu) = unsafe {
            (index.ifr_ifru.ifru_ifindex, hardware.ifr_ifru.ifru_hwaddr, mtu.ifr_ifru.ifru_mtu)
        };
        if hardware.sa_family != libc::ARPHRD_ETHER {
            bail!("{name} is not an Ethernet interface (its type is {})", hardware.sa_family);
        }
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(hardware.sa_data) {
            *to = from as u8;
        }
        Ok(Interface {
            name: name.to_owned(),
            index: index as u32,
            mac,
            mtu_bytes: mtu as u32,
            control,
            is_gone: false,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn mac(&self) -> MacAddress {
        self.mac
    }

    /// The greatest IP packet that it carried when it was opened, in bytes.
    pub(super) fn mtu_bytes(&self) -> u32 {
        self.mtu_bytes
    }

    /// The longest frame that can have come in: the MTU, the Ethernet header and two VLAN tags.
    pub(super) fn frame_bytes_max(&self) -> u32 {
        self.mtu_bytes + 14 + 8
    }

    /// Whether it could take such a frame at all, behind `before` bytes that the port writes.
    pub(super) fn could_send(&self, packet: &Packet, before: u16) -> bool {
        packet.offset >= before
            && packet.bytes >= 14
            && u32::from(packet.bytes) <= self.frame_bytes_max()
    }

    /// Whether a failure has shown that it no longer exists.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// An error when [`Interface::is_gone`].
    pub(super) fn check_gone(&self) -> Result<(), PortError> {
        if self.is_gone { Err(PortError::Gone { name: self.name.clone() }) } else { Ok(()) }
    }

    /// Whether it carries traffic: this end and the other are up (RFC 2863's `ifOperStatus`); an
    /// error when it no longer exists.
    pub(super) fn is_up(&self) -> Result<bool, PortError> {
        let gone = |error: io::Error| match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => PortError::Gone { name: self.name.clone() },
            _ => self.failure("read the state of", error),
        };
        let index = ask(&self.control, &self.name, libc::SIOCGIFINDEX).map_err(gone)?;
        let flags = ask(&self.control, &self.name, libc::SIOCGIFFLAGS).map_err(gone)?;
        // SAFETY: each request that succeeded filled the member that it is read from.
        let (index, flags) = unsafe { (index.ifr_ifru.ifru_ifindex, flags.ifr_ifru.ifru_flags) };
        if index as u32 != self.index {
            // Another interface has the name now.
            return Err(PortError::Gone { name: self.name.clone() });
        }
        let running = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        Ok(flags & running == running)
    }

    /// What an error of a system call means for this interface: gone, down, or something else.
    pub(super) fn failure(&self, what: &'static str, error: io::Error) -> PortError {
        let name = self.name.clone();
        match error.raw_os_error() {
            // A socket on an interface that was removed also returns ENETDOWN or ENXIO.
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EIO | libc::EBADFD) => {
                match self.exists() {
                    true => PortError::Down { name },
                    false => PortError::Gone { name },
                }
            }
            _ => PortError::System { name, what, error },
        }
    }

    /// As [`Interface::failure`]; remembers that the interface is gone.
    pub(super) fn note_failure(&mut self, what: &'static str, error: io::Error) -> PortError {
        let failure = self.failure(what, error);
        self.is_gone |= matches!(failure, PortError::Gone { .. });
        failure
    }

    /// Sets the Ethernet address and the MTU, then takes the interface up.
    pub(super) fn configure(&mut self, mac: MacAddress, mtu_bytes: u32) -> io::Result<()> {
        let mut request = named(&self.name)?;
        // SAFETY: the writes fill the member that each request reads.
        unsafe {
            request.ifr_ifru.ifru_hwaddr.sa_family = libc::ARPHRD_ETHER;
            for (to, from) in request.ifr_ifru.ifru_hwaddr.sa_data.iter_mut().zip(mac) {
                *to = from as libc::c_char;
            }
        }
        tell(&self.control, &mut request, libc::SIOCSIFHWADDR)?;
        request.ifr_ifru.ifru_mtu = mtu_bytes as libc::c_int;
        tell(&self.control, &mut request, libc::SIOCSIFMTU)?;
        let mut flags = ask(&self.control, &self.name, libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFFLAGS filled the flags.
        unsafe { flags.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
        tell(&self.control, &mut flags, libc::SIOCSIFFLAGS)?;
        (self.mac, self.mtu_bytes) = (mac, mtu_bytes);
        Ok(())
    }

    fn exists(&self) -> bool {
        let index = ask(&self.control, &self.name, libc::SIOCGIFINDEX);
        // SAFETY: SIOCGIFINDEX filled the index.
        index.is_ok_and(|answer| unsafe { answer.ifr_ifru.ifru_ifindex } as u32 == self.index)
    }
}

/// Whether the calling thread is in a namespace that the program cannot have made for a lab.
pub(super) fn is_foreign() -> Result<bool> {
    let inode = |path: &str| fs::metadata(path).map(|metadata| metadata.ino());
    let step = "cannot find out the network namespace";
    let here = inode("/proc/thread-self/ns/net").context(step)?;
    let started = inode("/proc/self/ns/net").context(step)?;
    // Process 1 belongs to another user in a user namespace; then only the start is compared.
    Ok(here == started || inode("/proc/1/ns/net").is_ok_and(|first| first == here))
}

fn control_socket() -> io::Result<OwnedFd> {
    // SAFETY: socket takes integers; a descriptor it returns is new and ours alone.
    unsafe {
        let raw = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if raw < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(raw)) }
    }
}

/// An interface request with the name filled in.
pub(super) fn named(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq of zero bytes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an interface's name has 1 to 15 bytes",
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ask(control: &OwnedFd, name: &str, what: libc::c_ulong) -> io::Result<libc::ifreq> {
    let mut request = named(name)?;
    tell(control, &mut request, what)?;
    Ok(request)
}

fn tell(control: &OwnedFd, request: &mut libc::ifreq, what: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the ifreq is live and has the size that all interface requests expect.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), what as libc::Ioctl, request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
