//! A UDP socket for exporters, with the number of datagrams that the kernel dropped before they were read.
//!
//! Exporters send in bursts and retransmit nothing, so the socket requests a large receive buffer:
//! beyond `net.core.rmem_max` where the process may (`SO_RCVBUFFORCE`), up to it otherwise. The kernel
//! counts datagrams that found the buffer full; the count is read on demand (`SO_MEMINFO`), so that
//! losses after the last datagram that was read are known as well.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// The receive buffer that is requested, bytes: a second of 25,000 datagrams.
const BUFFER_BYTES: usize = 32 << 20;
/// How long one call waits for a datagram.
const WAIT: Duration = Duration::from_millis(50);
/// The index of the drops among the words of `SO_MEMINFO` (`SK_MEMINFO_DROPS`), and the number of words.
const DROPS: usize = 8;
const MEMORY_WORDS: usize = 9;

/// The socket, and how many of its losses were reported already.
#[derive(Debug)]
pub struct Listener {
    socket: UdpSocket,
    /// The kernel's counter as it was read last; it has 32 bits and wraps.
    counted: u32,
    dropped: u64,
}

impl Listener {
    /// Opens a socket at `address`; port 0 takes any that is free.
    ///
    /// # Errors
    /// When the address is not local, is in use, or may not be used.
    pub fn open(address: SocketAddr) -> Result<Listener> {
        let step = || format!("cannot listen on {address}");
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).with_context(step)?;
        force_buffer(&socket, BUFFER_BYTES).with_context(step)?;
        socket.bind(&SockAddr::from(address)).with_context(step)?;
        socket.set_read_timeout(Some(WAIT)).with_context(step)?;
        Ok(Listener { socket: socket.into(), counted: 0, dropped: 0 })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The next datagram and its sender; `None` if none arrived within a short wait, or at once if
    /// `waits` is false.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn receive(&self, into: &mut [u8], waits: bool) -> io::Result<Option<(usize, SocketAddr)>> {
        self.socket.set_nonblocking(!waits)?;
        loop {
            return match self.socket.recv_from(into) {
                Ok(received) => Ok(Some(received)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(None),
                    // A signal: a caller that waits for one checks its flag.
                    ErrorKind::Interrupted if waits => Ok(None),
                    ErrorKind::Interrupted => continue,
                    _ => Err(error),
                },
            };
        }
    }

    /// Datagrams that the kernel dropped so far.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn dropped(&mut self) -> io::Result<u64> {
        let mut words = [0u32; MEMORY_WORDS];
        let mut length = size_of_val(&words) as libc::socklen_t;
        // SAFETY: the pointer and the length are those of a live array of the words that are filled.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                words.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        self.dropped += u64::from(words[DROPS].wrapping_sub(self.counted));
        self.counted = words[DROPS];
        Ok(self.dropped)
    }
}

/// As large a receive buffer as there may be.
fn force_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    let size = bytes as libc::c_int;
    // SAFETY: the pointer and the length are those of a live integer, which this option reads.
    let forced = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    // Without the privilege the kernel grants what its limit allows.
    if forced == 0 { Ok(()) } else { socket.set_recv_buffer_size(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_dropped_at_a_full_buffer_are_counted_and_the_rest_received() {
        let mut listener =
            Listener::open("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let socket = socket2::SockRef::from(&listener.socket);
        socket.set_recv_buffer_size(1).expect("the least");
        let to = listener.address().expect("an address");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a sender");
        for _ in 0..500 {
            sender.send_to(&[7; 1_000], to).expect("loopback");
        }
        let (mut taken, mut buffer) = (0, [0; 2_000]);
        while let Some((length, from)) = listener.receive(&mut buffer, false).expect("a socket") {
            assert_eq!((length, from), (1_000, sender.local_addr().expect("an address")));
            taken += 1;
        }
        let dropped = listener.dropped().expect("a count");
        assert!(taken > 0 && dropped > 0 && taken + dropped == 500, "{taken} and {dropped}");
        assert_eq!(listener.dropped().expect("a count"), dropped, "each once");
        assert!(listener.receive(&mut buffer, true).expect("a socket").is_none());
    }

    #[test]
    fn an_address_that_is_not_here_is_refused() {
        let elsewhere = "192.0.2.1:2055".parse().expect("an address");
        let refused = Listener::open(elsewhere).expect_err("not an address of this machine");
        assert!(refused.to_string().contains("192.0.2.1:2055"), "{refused}");
    }
}
