//! The TCP sockets of both ends: opening, binding, sending and receiving.
//!
//! Congestion control is set on every socket and read back, because a machine's default (BBR on
//! many) must not influence a result silently. Source addresses come from pools of thousands, given
//! to the host by one local route. IPv4 binds to such an address at once; IPv6 requires an address
//! on an interface, so the first refusal switches `IP_FREEBIND` on for that family, and the call is
//! not made where it is not needed. `IP_BIND_ADDRESS_NO_PORT` leaves the choice of the port to
//! `connect`, which knows the whole 4-tuple and can use a port again for another pair.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};

use nilometer_linux::system_file::system_text;

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;
/// Descriptors left for everything that is not a connection.
const DESCRIPTORS_SPARE: u64 = 256;

/// The TCP option of time stamps in each segment, padded.
const TIME_STAMP_BYTES: u32 = 12;

/// What every socket of a client or server is given.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the congestion control: `cubic`, `reno`, `bbr`.
    pub congestion: String,
    /// Name of the interface that traffic must use, if any.
    pub bind_device: Option<String>,
}

impl Options {
    /// The congestion control that a socket with these options reads back.
    ///
    /// # Errors
    /// One line: the kernel lacks the congestion control, or there is no such interface.
    pub fn verify(&self) -> Result<String> {
        let probe = open(Domain::IPV4).context("cannot open a TCP socket")?;
        self.apply(&probe)?;
        congestion_of(&probe)
    }

    fn apply(&self, socket: &Socket) -> Result<()> {
        let set = socket.set_tcp_congestion(self.congestion.as_bytes());
        set.map_err(|error| self.refused(&error))?;
        if let Some(device) = &self.bind_device {
            socket
                .bind_device(Some(device.as_bytes()))
                .with_context(|| format!("cannot bind to interface `{device}`"))?;
        }
        Ok(())
    }
}

impl Options {
    /// Why the kernel does not give a socket this congestion control: it has none of that name, or
    /// keeps it for privileged users.
    fn refused(&self, error: &io::Error) -> anyhow::Error {
        let names = |which: &str| {
            let path = format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control");
            system_text(path).unwrap_or_default().trim().to_owned()
        };
        let requested = &self.congestion;
        if error.kind() == io::ErrorKind::PermissionDenied {
            let allowed = names("allowed");
            return anyhow!(
                "congestion control `{requested}` is for privileged users only; allowed here: \
                 {allowed}; name one of them, run as root, or let root add it to \
                 net.ipv4.tcp_allowed_congestion_control"
            );
        }
        let offered = names("available");
        anyhow!("congestion control `{requested}` is not available; this kernel has: {offered}")
    }
}

/// The congestion control that `socket` uses.
///
/// # Errors
/// The kernel's, in words.
pub fn congestion_of(socket: &Socket) -> Result<String> {
    let name = socket.tcp_congestion().context("cannot read a socket's congestion control")?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

fn open(domain: Domain) -> io::Result<Socket> {
    Socket::new_raw(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))
}

/// Opens client connections.
pub struct Dialer {
    options: Options,
    freebind_v4: bool,
    freebind_v6: bool,
}

impl Dialer {
    /// Connections with `options`.
    pub fn new(options: Options) -> Dialer {
        Dialer { options, freebind_v4: false, freebind_v6: false }
    }

    /// A socket bound to `source`; the port is chosen later where it is 0. The segments of its
    /// connection carry `segment_bytes` of payload both ways, with time stamps or without, or as
    /// many as the path allows where that is 0. A given port may be in use towards another
    /// destination.
    ///
    /// # Errors
    /// The kernel's; no address, no descriptor, no such interface.
    pub fn bind(
        &mut self,
        source: SocketAddr,
        segment_bytes: u16,
        has_time_stamps: bool,
    ) -> io::Result<Socket> {
        let address = SockAddr::from(source);
        let socket = open(Domain::for_address(source))?;
        socket.set_tcp_congestion(self.options.congestion.as_bytes())?;
        if let Some(device) = &self.options.bind_device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        if segment_bytes > 0 {
            // The announced size includes the options of each segment.
            let options = if has_time_stamps { TIME_STAMP_BYTES } else { 0 };
            socket.set_tcp_mss(u32::from(segment_bytes) + options)?;
        }
        match source.port() {
            0 => bind_address_without_port(&socket)?,
            _ => socket.set_reuse_address(true)?,
        }
        let freebind = if source.is_ipv4() { &mut self.freebind_v4 } else { &mut self.freebind_v6 };
        if !*freebind {
            match socket.bind(&address) {
                Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => *freebind = true,
                outcome => return outcome.map(|()| socket),
            }
        }
        match source {
            SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
            SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
        }
        socket.bind(&address)?;
        Ok(socket)
    }
}

fn bind_address_without_port(socket: &Socket) -> io::Result<()> {
    const IP_BIND_ADDRESS_NO_PORT: libc::c_int = 24; // linux/in.h
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for the call; `on` is an int of the length given and is
    // copied.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_IP,
            IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Begins to connect; `Ok` means under way, not established.
///
/// # Errors
/// The kernel's, when the attempt ended at once.
pub fn connect(socket: &Socket, destination: SocketAddr) -> io::Result<()> {
    match socket.connect(&SockAddr::from(destination)) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        outcome => outcome,
    }
}

/// The local port of a connected socket; zero when the kernel does not know one.
pub fn local_port(socket: &Socket) -> u16 {
    socket.local_addr().ok().and_then(|address| address.as_socket()).map_or(0, |a| a.port())
}

/// Sends what fits of `bytes`; `more`: the end of file or more bytes follow at once.
///
/// # Errors
/// The kernel's; `WouldBlock` when nothing fits.
pub fn send(socket: &Socket, bytes: &[u8], more: bool) -> io::Result<usize> {
    let more = if more { libc::MSG_MORE } else { 0 };
    socket.send_with_flags(bytes, libc::MSG_NOSIGNAL | more)
}

/// Reads up to `bytes.len()` into `bytes`; zero is the end of file.
///
/// # Errors
/// The kernel's; `WouldBlock` when nothing is there.
pub fn receive(socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
    io::Read::read(&mut &*socket, bytes)
}

/// Takes received bytes off the kernel's hands without looking at them.
pub struct Sink {
    room: Box<[MaybeUninit<u8>]>,
}

impl Sink {
    /// Takes up to `bytes` in one call. The room is reserved, never written.
    pub fn new(bytes: usize) -> Sink {
        Sink { room: Box::new_uninit_slice(bytes) }
    }

    /// The most that one call takes.
    pub fn capacity(&self) -> usize {
        self.room.len()
    }

    /// Discards what has arrived and returns how many bytes it was; zero is the end of file.
    /// `MSG_TRUNC` makes TCP count without copying (tcp(7)), which takes a sixth off the cost of a
    /// megabyte.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` when nothing is there.
    pub fn discard(&mut self, socket: &Socket) -> io::Result<usize> {
        socket.recv_with_flags(&mut self.room, libc::MSG_TRUNC)
    }
}

/// Bytes handed to a connection that the other end has not acknowledged; its end of file counts one.
///
/// # Errors
/// The kernel's.
pub fn unacknowledged(socket: &Socket) -> io::Result<u64> {
    // SIOCOUTQ is TIOCOUTQ by number.
    queued(socket, libc::TIOCOUTQ)
}

/// Bytes handed to a connection that TCP has not sent once; its end of file counts one.
///
/// # Errors
/// The kernel's.
pub fn unsent(socket: &Socket) -> io::Result<u64> {
    const SIOCOUTQNSD: libc::Ioctl = 0x894B; // linux/sockios.h
    queued(socket, SIOCOUTQNSD)
}

fn queued(socket: &Socket, which: libc::Ioctl) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for the call; both requests about a queue write one int to the live
    // one they are given.
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), which, &raw mut bytes) } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(bytes.max(0) as u64) }
}

/// Limits TCP to `bytes_per_second` from now on; without a number it sends as fast as it can.
///
/// # Errors
/// The kernel's.
pub fn pace(socket: &Socket, bytes_per_second: Option<u64>) -> io::Result<()> {
    let rate = bytes_per_second.unwrap_or(u64::MAX);
    // SAFETY: the descriptor is open for the call; `rate` is an integer of the length given and is copied.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a listening socket drop every packet, so that no SYN is answered.
///
/// # Errors
/// The kernel's.
pub fn drop_all_packets(listener: &Socket) -> io::Result<()> {
    // A filter of one instruction: keep nothing of any packet.
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    listener.attach_filter(&[SockFilter::new(code, 0, 0, 0)])
}

/// Makes a connected socket ignore resets, or stop ignoring them.
///
/// # Errors
/// The kernel's.
pub fn overhear_resets(socket: &Socket, overhears: bool) -> io::Result<()> {
    const FLAGS_AT: u32 = 13; // RFC 9293, section 3.1
    const RST: u32 = 4;
    if !overhears {
        return socket.detach_filter();
    }
    let code = |code: u32| code as u16;
    let keep = |bytes: u32| SockFilter::new(code(libc::BPF_RET | libc::BPF_K), 0, 0, bytes);
    socket.attach_filter(&[
        SockFilter::new(code(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS), 0, 0, FLAGS_AT),
        SockFilter::new(code(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K), 0, 1, RST),
        keep(0),
        keep(u32::MAX),
    ])
}

/// A listening socket at `address`, which may be one that a route makes local. With `aborts`, accepted
/// sockets are reset when they are closed with bytes under way.
///
/// # Errors
/// One line: the port is taken, the address is not this host's, the options do not take effect.
pub fn listen(address: SocketAddr, options: &Options, aborts: bool) -> Result<Socket> {
    let socket = open(Domain::for_address(address)).context("cannot open a TCP socket")?;
    if address.is_ipv6() {
        socket.set_only_v6(true).context("cannot keep an IPv6 socket to IPv6")?;
    }
    socket.set_reuse_address(true).context("cannot set SO_REUSEADDR")?;
    if aborts {
        socket.set_linger(Some(Duration::ZERO)).context("cannot set SO_LINGER")?;
    }
    options.apply(&socket)?;
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true),
        SocketAddr::V6(_) => socket.set_freebind_v6(true),
    }
    .context("cannot set IP_FREEBIND")?;
    let begun = socket.bind(&SockAddr::from(address)).and_then(|()| socket.listen(BACKLOG));
    match begun {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            bail!("port {} at {} is in use; stop what listens there", address.port(), address.ip())
        }
        outcome => outcome.with_context(|| format!("cannot listen at {address}"))?,
    }
    Ok(socket)
}

/// A connection that waits at `listener`, and its peer; none when none waits.
///
/// # Errors
/// The kernel's, other than that a connection went away while it waited.
pub fn accept(listener: &Socket) -> io::Result<Option<(Socket, SocketAddr)>> {
    loop {
        match listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            Ok((socket, caller)) => {
                let caller = caller.as_socket().ok_or(io::ErrorKind::Unsupported)?;
                return Ok(Some((socket, caller)));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                _ => return Err(error),
            },
        }
    }
}

/// Files that a process with `connections` connections may have open.
pub const fn open_files(connections: usize) -> u64 {
    connections as u64 + DESCRIPTORS_SPARE
}

/// Connections for which [`allow_connections`] can make room without any privilege.
pub fn connections_allowed() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that the kernel fills.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    if read == 0 { limit.rlim_max.saturating_sub(DESCRIPTORS_SPARE) as usize } else { 0 }
}

/// Raises this process's limit of open files so that `connections` fit.
///
/// # Errors
/// One line, when the hard limit is lower and may not be raised.
pub fn allow_connections(connections: usize) -> Result<()> {
    let wanted = open_files(connections);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that the kernel fills.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    ensure!(read == 0, "cannot read the limit of open files: {}", io::Error::last_os_error());
    if limit.rlim_cur >= wanted {
        return Ok(());
    }
    let hard = limit.rlim_max;
    limit = libc::rlimit { rlim_cur: wanted, rlim_max: hard.max(wanted) };
    // SAFETY: `limit` is a valid rlimit that the kernel reads.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    ensure!(
        set == 0,
        "{connections} open connections need {wanted} open files, the limit is {hard}; raise it \
         (ulimit -Hn {wanted}) or allow fewer connections"
    );
    Ok(())
}
