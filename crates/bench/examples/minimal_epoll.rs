//! The least that an epoll loop can do for a flow: the yardstick of `benches/generator.sh`.
//!
//! The client connects, sends sixteen bytes, reads to the end of file and closes; the server
//! accepts, reads, sends and closes. No source address, no congestion control, no sizes, no time
//! limits, no account of single connections. With a rate each flow starts at its time; with the rate 0
//! the next one starts as soon as fewer than OPEN are under way, and the tool is never idle. Whatever
//! a generator does beyond this costs something, and the benchmark says how much.
//!
//!     minimal_epoll server PORT BYTES
//!     minimal_epoll client PORT BYTES FLOWS FLOWS_PER_SECOND OPEN DESTINATION DESTINATIONS
//!
//! The client spreads flows over DESTINATIONS addresses from DESTINATION on, and prints how many
//! flows brought all their bytes.

use std::net::Ipv4Addr;
use std::time::Instant;
use std::{env, io, mem, ptr};

/// The result of a system call that must not fail.
fn sure(result: i32, what: &str) -> i32 {
    assert!(result >= 0, "{what}: {}", io::Error::last_os_error());
    result
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn address(ip: u32, port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: ip.to_be() },
        sin_zero: [0; 8],
    }
}

fn open() -> i32 {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    sure(unsafe { libc::socket(libc::AF_INET, kind, 0) }, "socket")
}

fn close(fd: i32) {
    // SAFETY: `fd` is a socket that this loop opened and uses no more.
    unsafe { libc::close(fd) };
}

fn watch(epoll: i32, fd: i32, events: i32) {
    let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
    // SAFETY: the kernel copies `event`.
    sure(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) }, "epoll_ctl");
}

fn wait(epoll: i32, events: &mut [libc::epoll_event], nanos: u64) -> usize {
    let (room, count) = (events.as_mut_ptr(), events.len() as i32);
    let limit = libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as i64,
        tv_nsec: (nanos % 1_000_000_000) as i64,
    };
    let (mask, verb) = (ptr::null::<libc::sigset_t>(), libc::SYS_epoll_pwait2);
    // SAFETY: `room` has space for `count` events, `limit` outlives the call, a null mask is
    // allowed.
    unsafe { libc::syscall(verb, epoll, room, count, &raw const limit, mask, 0usize) }.max(0)
        as usize
}

fn receive(fd: i32, buffer: &mut [u8]) -> isize {
    // SAFETY: the kernel writes at most the buffer's length.
    unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) }
}

fn send(fd: i32, bytes: &[u8]) -> isize {
    // SAFETY: the kernel reads at most the slice's length.
    unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) }
}

fn server(port: u16, bytes: usize) {
    let (listener, on) = (open(), 1i32);
    let here = address(0, port);
    // SAFETY: option and address are of the lengths given and are copied.
    unsafe {
        let (option, size) = ((&raw const on).cast(), mem::size_of::<i32>() as u32);
        libc::setsockopt(listener, libc::SOL_SOCKET, libc::SO_REUSEADDR, option, size);
        sure(libc::bind(listener, (&raw const here).cast(), 16), "bind");
        sure(libc::listen(listener, 4096), "listen");
    }
    // SAFETY: takes a number only.
    let epoll = sure(unsafe { libc::epoll_create1(0) }, "epoll_create1");
    watch(epoll, listener, libc::EPOLLIN);
    println!("listening");
    let file = vec![b'x'; bytes];
    let mut left = vec![0usize; 1 << 16];
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
    let mut request = [0; 64];
    loop {
        let count = wait(epoll, &mut events, 1_000_000_000);
        for event in &events[..count] {
            let fd = event.u64 as i32;
            if fd == listener {
                let flags = libc::SOCK_NONBLOCK;
                // SAFETY: null pointers ask for no address.
                let new = unsafe { libc::accept4(fd, ptr::null_mut(), ptr::null_mut(), flags) };
                if new >= 0 {
                    left[new as usize] = bytes;
                    watch(epoll, new, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET);
                }
                continue;
            }
            let asked = left[fd as usize] < bytes || receive(fd, &mut request) > 0;
            while asked && left[fd as usize] > 0 {
                match send(fd, &file[bytes - left[fd as usize]..]) {
                    sent @ 1.. => left[fd as usize] -= sent as usize,
                    _ if errno() == libc::EAGAIN => break,
                    _ => left[fd as usize] = 0,
                }
            }
            if left[fd as usize] == 0 {
                close(fd);
            }
        }
    }
}

/// What the client is to play.
struct Load {
    port: u16,
    bytes: u64,
    flows: u64,
    rate: u64,
    open: u64,
}

impl Load {
    /// Flows that should have been started by now.
    fn due(&self, elapsed_ns: u64, ended: u64) -> u64 {
        let due = match self.rate {
            0 => ended + self.open,
            rate => elapsed_ns * rate / 1_000_000_000 + 1,
        };
        due.min(self.flows)
    }

    /// Nanoseconds from now until the next start is due.
    fn patience(&self, elapsed_ns: u64, started: u64) -> u64 {
        if self.rate == 0 || started == self.flows {
            return 1_000_000;
        }
        (started * 1_000_000_000 / self.rate).saturating_sub(elapsed_ns)
    }
}

fn client(load: &Load, to: u32, destinations: u64) {
    let &Load { port, bytes, flows, .. } = load;
    // SAFETY: takes a number only.
    let epoll = sure(unsafe { libc::epoll_create1(0) }, "epoll_create1");
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
    let mut buffer = vec![0; 1 << 16];
    let mut asked = vec![false; 1 << 16];
    let mut received = vec![0u64; 1 << 16];
    let (mut started, mut ended, mut whole) = (0, 0, 0);
    let origin = Instant::now();
    // SAFETY: takes numbers only; timers are to fire on time.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000, 0, 0, 0) };
    while ended < flows {
        let due = load.due(origin.elapsed().as_nanos() as u64, ended);
        while started < due {
            let there = address(to + (started % destinations) as u32, port);
            let fd = open();
            // SAFETY: the address is of the length given and is copied.
            let begun = unsafe { libc::connect(fd, (&raw const there).cast(), 16) };
            assert!(begun == 0 || errno() == libc::EINPROGRESS, "{}", io::Error::last_os_error());
            (asked[fd as usize], received[fd as usize]) = (false, 0);
            watch(epoll, fd, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET);
            started += 1;
        }
        let patience = load.patience(origin.elapsed().as_nanos() as u64, started);
        let count = wait(epoll, &mut events, patience);
        for event in &events[..count] {
            let fd = event.u64 as i32;
            if !asked[fd as usize] {
                asked[fd as usize] = send(fd, &[b'r'; 16]) == 16;
                continue;
            }
            loop {
                match receive(fd, &mut buffer) {
                    count @ 1.. => received[fd as usize] += count as u64,
                    -1 if errno() == libc::EAGAIN => break,
                    _ => {
                        whole += u64::from(received[fd as usize] == bytes);
                        close(fd);
                        ended += 1;
                        break;
                    }
                }
            }
        }
    }
    println!("{whole}");
}

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let number = |index: usize| words[index].parse::<u64>().expect("a number");
    let limit = libc::rlimit { rlim_cur: 65_000, rlim_max: 65_000 };
    // SAFETY: `limit` is a valid rlimit that the kernel reads.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    match words.first().map(String::as_str) {
        Some("server") if words.len() == 3 => server(number(1) as u16, number(2) as usize),
        Some("client") if words.len() == 8 => {
            let to = words[6].parse::<Ipv4Addr>().expect("an IPv4 address");
            let load = Load {
                port: number(1) as u16,
                bytes: number(2),
                flows: number(3),
                rate: number(4),
                open: number(5),
            };
            client(&load, to.into(), number(7));
        }
        _ => {
            panic!("server PORT BYTES | client PORT BYTES FLOWS RATE OPEN DESTINATION DESTINATIONS")
        }
    }
}
