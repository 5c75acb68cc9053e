//! The kernel's routes and next-hop objects, mirrored as they change.
//!
//! The mirror subscribes first and then requests a dump, so that no change falls in between; changes
//! during the dump are passed on after it, in order. Afterwards it follows the kernel's messages, but
//! they are incomplete. The kernel silently removes routes when their link goes down or their next-hop
//! object or preferred source address is removed. It does the same with one way of several, and restores
//! it when the link comes up. It loses messages when the mirror is behind (`ENOBUFS`); and for IPv6 it
//! may report only one path of several. In each of these cases the mirror requests another dump, as a
//! replay: nothing is forgotten until the dump is complete, and a dump that the kernel marks as
//! inconsistent (`NLM_F_DUMP_INTR`) is repeated before anything is swept.
//!
//! Routes of the kernel's table `local` are reported as [`Source::Local`], those of `main` as
//! [`Source::Kernel`]. Of several IPv4 routes to one prefix with one metric, which only `ip route append`
//! makes, the last reported counts.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkFlags;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nilometer_router::rtnetlink::{self, Ignored, Message, Messages, TABLE_LOCAL};
use nilometer_router::{AnyPrefix, RouteBatch, RouteTarget, RouteUpdate, Source};
use socket2::SockRef;

use super::route_feed::{Closed, RouteFeed, STOP_POLL_INTERVAL, in_namespace};
use super::worker::Worker;
use nilometer_linux::namespace::Namespace;

/// Groups of messages: links, addresses and routes of both families, next-hop objects.
const GROUPS: [u32; 6] = [1, 5, 7, 9, 11, NEXT_HOP_GROUP];
const NEXT_HOP_GROUP: u32 = 32;
const LINK: [u16; 2] = [16, 17];
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
/// Dumps, in their order (each kind of request and its family) and the bytes of the request's body.
const DUMPS: [(u16, u8, usize); 4] = [(18, 0, 16), (106, 0, 8), (26, 2, 12), (26, 10, 12)];
const DUMP_NEXT_HOPS: u16 = 106;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP_FLAGS: u16 = 0x301;
const DUMP_INTERRUPTED: u16 = 0x10;
const APPENDED: u16 = 0x800;
/// The largest datagram that the kernel may send.
const DATAGRAM_BYTES: usize = 1 << 18;
/// The receive buffer to request; the kernel may grant less.
const QUEUE_BYTES: i32 = 32 << 20;
/// Between two dumps.
const PAUSE: Duration = Duration::from_millis(300);

/// How the mirror is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Complete dumps.
    pub dumps: u64,
    /// Dumps that were inconsistent, or failed, and had to be made again.
    pub interrupted: u64,
    /// Times that the kernel lost messages because we were behind.
    pub overruns: u64,
    /// Messages that contradicted themselves.
    pub malformed: u64,
    /// Messages without a route, and why.
    pub ignored: Ignored,
}

/// The mirror and its thread; dropped, it stops.
#[derive(Debug)]
pub struct KernelMirror {
    status: Arc<Mutex<MirrorStatus>>,
    _worker: Worker,
}

impl KernelMirror {
    /// Mirrors the tables of a namespace, or of the caller's, to `news`.
    ///
    /// # Errors
    /// When the kernel's routes cannot be subscribed to.
    pub fn start(
        namespace: Option<&Namespace>,
        news: SyncSender<RouteBatch>,
    ) -> Result<KernelMirror> {
        let (events, requests) = in_namespace(namespace, || Ok((subscribe()?, open()?)))?;
        let status = Arc::new(Mutex::new(MirrorStatus::default()));
        let feed = RouteFeed::new(news);
        let mut work = Work {
            events,
            requests,
            feed: feed.clone(),
            status: Arc::clone(&status),
            counted: MirrorStatus::default(),
            sequence: 0,
            up: BTreeSet::new(),
            of_several: BTreeSet::new(),
            is_stale: true,
            batches: Batches::default(),
        };
        let worker = Worker::start("kernel routes", feed.stop, move || work.run())?;
        Ok(KernelMirror { status, _worker: worker })
    }

    /// How it is.
    pub fn status(&self) -> MirrorStatus {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open() -> Result<Socket> {
    let open = || {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        SockRef::from(&socket).set_read_timeout(Some(STOP_POLL_INTERVAL))?;
        Ok::<_, io::Error>(socket)
    };
    open().context("cannot open a routing netlink socket")
}

fn subscribe() -> Result<Socket> {
    let socket = open()?;
    // The kernel grants what it may; too small a buffer shows as overruns.
    let _ = socket.set_rx_buf_sz(QUEUE_BYTES);
    for group in GROUPS {
        // Kernels before 5.3 have no next-hop objects, hence no group of theirs.
        if let Err(error) = socket.add_membership(group)
            && group != NEXT_HOP_GROUP
        {
            return Err(error).context("cannot subscribe to the kernel's routes");
        }
    }
    Ok(socket)
}

/// News that wait for the end of their datagram.
#[derive(Default)]
struct Batches {
    main: Vec<RouteUpdate>,
    local: Vec<RouteUpdate>,
}

impl Batches {
    fn tell(&mut self, feed: &RouteFeed) -> Result<(), Closed> {
        feed.send_routes(Source::Local, std::mem::take(&mut self.local))?;
        feed.send_routes(Source::Kernel, std::mem::take(&mut self.main))
    }
}

/// What a dump came to.
enum Dumped {
    Complete,
    Interrupted,
}

/// What the thread has.
struct Work {
    events: Socket,
    requests: Socket,
    feed: RouteFeed,
    status: Arc<Mutex<MirrorStatus>>,
    counted: MirrorStatus,
    sequence: u32,
    /// Links that carry traffic.
    up: BTreeSet<u32>,
    /// IPv6 routes with several paths of their own.
    of_several: BTreeSet<(AnyPrefix, u32)>,
    /// Something has changed that the kernel did not report.
    is_stale: bool,
    batches: Batches,
}

impl Work {
    fn run(&mut self) -> Result<(), Closed> {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let mut last_dump: Option<Instant> = None;
        while !self.feed.should_stop() {
            if self.is_stale && last_dump.is_none_or(|last| last.elapsed() >= PAUSE) {
                self.is_stale = false;
                self.dump(&mut buffer)?;
                last_dump = Some(Instant::now());
            }
            match receive(&self.events, &mut buffer) {
                Ok(count) => {
                    self.read(&buffer[..count], false);
                    self.batches.tell(&self.feed)?;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.counted.overruns += 1;
                    self.is_stale = true;
                }
                // Nothing came.
                Err(_) => {}
            }
            *self.status.lock().unwrap_or_else(PoisonError::into_inner) = self.counted;
        }
        Err(Closed)
    }

    /// Requests all objects and routes, and passes them on as a replay.
    fn dump(&mut self, buffer: &mut [u8]) -> Result<(), Closed> {
        self.of_several.clear();
        for source in [Source::Local, Source::Kernel] {
            self.feed.send_routes(source, vec![RouteUpdate::ReplayBegins])?;
        }
        let mut is_complete = true;
        for (kind, family, body) in DUMPS {
            let done = self.dump_one(buffer, kind, (family, body));
            self.batches.tell(&self.feed)?;
            is_complete &= match done {
                Ok(Dumped::Complete) => true,
                Ok(Dumped::Interrupted) => false,
                // A kernel without next-hop objects reports `EOPNOTSUPP`.
                Err(error) => {
                    kind == DUMP_NEXT_HOPS && error.raw_os_error() == Some(libc::EOPNOTSUPP)
                }
            };
        }
        if !is_complete {
            self.counted.interrupted += 1;
            self.is_stale = true;
            return Ok(());
        }
        for source in [Source::Local, Source::Kernel] {
            self.feed.send_routes(source, vec![RouteUpdate::ReplayEnds])?;
        }
        self.counted.dumps += 1;
        Ok(())
    }

    fn dump_one(
        &mut self,
        buffer: &mut [u8],
        kind: u16,
        (family, body): (u8, usize),
    ) -> io::Result<Dumped> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = vec![0; 16 + body];
        let length = request.len() as u32;
        request[..4].copy_from_slice(&length.to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&DUMP_FLAGS.to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        request[16] = family;
        self.requests.send(&request, 0)?;
        let (mut is_sound, mut is_done) = (true, false);
        while !self.feed.should_stop() {
            let count = match receive(&self.requests, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                other => other?,
            };
            for message in Messages::new(&buffer[..count]).filter_map(|message| message.ok()) {
                if message.sequence != self.sequence {
                    continue;
                }
                is_sound &= message.flags & DUMP_INTERRUPTED == 0;
                let code = message.body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                match message.kind {
                    // A short dump has its contents and its end in one datagram.
                    rtnetlink::DONE if code >= 0 => is_done = true,
                    rtnetlink::DONE | rtnetlink::ERROR => {
                        return Err(io::Error::from_raw_os_error(-code));
                    }
                    _ => {}
                }
            }
            self.read(&buffer[..count], true);
            if self.batches.tell(&self.feed).is_err() {
                break;
            }
            if is_done {
                return Ok(if is_sound { Dumped::Complete } else { Dumped::Interrupted });
            }
        }
        Ok(Dumped::Interrupted)
    }

    /// Reads a datagram of a dump, or of messages of what has changed.
    fn read(&mut self, bytes: &[u8], is_dump: bool) {
        let mut rest = bytes;
        for message in Messages::new(bytes) {
            let Ok(message) = message else {
                self.counted.malformed += 1;
                return;
            };
            let whole = 16 + message.body.len();
            let alone = &rest[..whole];
            rest = rest.get(whole.next_multiple_of(4)..).unwrap_or_default();
            match message.kind {
                rtnetlink::DONE | rtnetlink::ERROR => {}
                DELETE_ADDRESS => self.is_stale = true,
                kind if LINK.contains(&kind) => self.read_link(alone, is_dump),
                NEW_ADDRESS => {}
                _ => self.read_route(&message, is_dump),
            }
        }
    }

    fn read_route(&mut self, message: &Message<'_>, is_dump: bool) {
        let (table, update) = match rtnetlink::read(message, &mut self.counted.ignored) {
            Ok(Some(updates)) => updates,
            Ok(None) => return,
            Err(_) => {
                self.counted.malformed += 1;
                return;
            }
        };
        match &update {
            RouteUpdate::Announce { prefix: prefix @ AnyPrefix::V6(_), metric, way, .. } => {
                if !is_dump && message.flags & APPENDED != 0 {
                    self.is_stale = true;
                    return;
                }
                if matches!(way, RouteTarget::Paths(_)) {
                    self.of_several.insert((*prefix, *metric));
                } else {
                    self.of_several.remove(&(*prefix, *metric));
                }
            }
            // One path may be gone or all of them.
            RouteUpdate::Withdraw { prefix, metric }
                if self.of_several.contains(&(*prefix, *metric)) =>
            {
                self.is_stale = true;
                return;
            }
            // The kernel has silently removed the routes that led there.
            RouteUpdate::Forget { .. } => self.is_stale = true,
            _ => {}
        }
        let is_local = table == TABLE_LOCAL;
        let batch = if is_local { &mut self.batches.local } else { &mut self.batches.main };
        batch.push(update);
    }

    fn read_link(&mut self, bytes: &[u8], is_dump: bool) {
        let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) else {
            self.counted.malformed += 1;
            return;
        };
        use RouteNetlinkMessage::{DelLink, NewLink};
        let (link, is_there) = match message.payload {
            NetlinkPayload::InnerMessage(NewLink(link)) => (link, true),
            NetlinkPayload::InnerMessage(DelLink(link)) => (link, false),
            _ => return,
        };
        let index = link.header.index;
        let is_up = link.header.flags.contains(LinkFlags::Up | LinkFlags::Running);
        if is_there && is_up {
            self.is_stale |= self.up.insert(index) && !is_dump;
        } else if self.up.remove(&index) {
            self.is_stale = true;
        }
    }
}

/// One datagram; an error if it had no room.
fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
    let room = buffer.len();
    let count = socket.recv(&mut &mut buffer[..], libc::MSG_TRUNC)?;
    if count > room {
        // As good as lost.
        return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
    }
    Ok(count)
}
