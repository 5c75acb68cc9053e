//! Sends test frames by one interface: one by one, or many in a call when many are due.
//!
//! All of them pass the interface's tc egress hook, where frames are stamped ([`super::Departures`]). One frame is
//! sent by a packet socket; more than one by `sendmmsg`, or, from [`BATCH_FROM`] frames on and if the kernel permits
//! it, by a BPF program that passes all of them to the driver before the receiver is polled (`crate::xdp::batch`).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};

use crate::interface::Interface;
use crate::ring::set_option;
use crate::xdp::BatchSender;

/// The most frames in a call.
pub const BATCH_MAX: usize = 64;
/// From this many frames on they are sent by a program. That takes half as long per frame, but the first of a batch
/// waits for the last: a sender that is only slightly behind catches up one by one.
pub const BATCH_FROM: usize = 32;

/// What a socket may hold that has not left, bytes.
const SEND_BUFFER_BYTES: i32 = 4 << 20;

/// A sender on one interface; used on a thread of the interface's namespace.
pub struct Sender {
    socket: OwnedFd,
    address: libc::sockaddr_ll,
    batches: Option<BatchSender>,
    refused: u64,
}

impl Sender {
    /// On an interface of the calling thread's namespace.
    ///
    /// # Errors
    /// When there is no such interface, or packet sockets are not allowed.
    pub fn open(interface: &str) -> Result<Sender> {
        let step = || format!("cannot send by {interface}");
        let index = Interface::open(interface, true).with_context(step)?.index();
        // Protocol 0: nothing is received.
        // SAFETY: socket takes integers; a descriptor it returns is new and ours alone.
        let socket = unsafe {
            let raw = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if raw < 0 {
                return Err(io::Error::last_os_error()).with_context(step);
            }
            OwnedFd::from_raw_fd(raw)
        };
        set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER_BYTES)
            .with_context(step)?;
        // SAFETY: integers and an array, for which zero is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index as i32;
        address.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        // (A kernel that runs no such program sends by the socket alone.)
        Ok(Sender { socket, address, batches: BatchSender::new(index).ok(), refused: 0 })
    }

    /// Sends frames that lie one behind the other and end at `ends`, [`BATCH_MAX`] at the most; returns how many
    /// the kernel took, zero if it has no room at the moment.
    ///
    /// # Errors
    /// When the interface is down or gone.
    pub fn send(&mut self, frames: &[u8], ends: &[usize]) -> io::Result<usize> {
        if ends.len() >= BATCH_FROM
            && let Some(batches) = &mut self.batches
            && batches.is_at_home()
        {
            let mut start = 0;
            for &end in ends {
                batches.push(&frames[start..end], None);
                start = end;
            }
            let sent = batches.send().map_err(|not| not.error)?;
            self.refused += u64::from(sent.refused);
            return Ok(ends.len());
        }
        let sent =
            if let [end] = *ends { self.one(&frames[..end]) } else { self.many(frames, ends) };
        match sent {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(0),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                // The interface had no room: the frame had passed the hook, and is lost behind it.
                self.refused += 1;
                Ok(1)
            }
            sent => sent,
        }
    }

    fn one(&self, frame: &[u8]) -> io::Result<usize> {
        // SAFETY: frame and address are live, with their lengths, and are only read.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
                (&raw const self.address).cast(),
                size_of_val(&self.address) as libc::socklen_t,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(1) }
    }

    fn many(&mut self, frames: &[u8], ends: &[usize]) -> io::Result<usize> {
        // SAFETY: pointers and integers, for which zero is a valid value.
        let (mut places, mut messages) = unsafe {
            (zeroed::<[libc::iovec; BATCH_MAX]>(), zeroed::<[libc::mmsghdr; BATCH_MAX]>())
        };
        let (count, mut start) = (ends.len().min(BATCH_MAX), 0);
        for (number, &end) in ends.iter().take(count).enumerate() {
            let frame = &frames[start..end];
            start = end;
            places[number] =
                libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            let header = &mut messages[number].msg_hdr;
            header.msg_name = (&raw mut self.address).cast();
            header.msg_namelen = size_of_val(&self.address) as libc::socklen_t;
            header.msg_iov = &mut places[number];
            header.msg_iovlen = 1;
        }
        // SAFETY: `count` messages are live, and so are the address and the places that they name, which are
        // only read.
        let sent = unsafe {
            let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT as _);
            libc::sendmmsg(socket, messages.as_mut_ptr(), count as _, flags)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// Frames that the interface refused after they had been stamped: it had no room for them.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
