//! Live records: exports received on a socket, packets seen on an interface.
//!
//! Both end at a signal, after a time or after a count, and return what they have. Data that the kernel
//! holds at that moment came in time, and is taken as well; data that it dropped before, because we were
//! too slow, is counted. Packets are metered by their own stamps, so that an idle flow ends when the next
//! packet of any flow comes, or at the end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Error, Result, bail};
use nilometer_flow::template::Exporter;

use super::capture::CapturedPacket;
use super::choice::ReadAs;
use super::records::{FlowOptions, Progress, Reading, Sink};
use super::summary::{FlowSummary, LiveSummary};
use nilometer_linux::listener::Listener;
use nilometer_linux::ring::{Ring, RingConfig, StampedFrame};

/// The longest datagram.
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// The most datagrams taken after the end: more than a receive buffer holds.
const LEFT_MAX: u64 = 1 << 16;
/// Bytes of a frame that are read: link layers, tunnels, IPv6 extensions and transport.
const HEADERS_BYTES: u32 = 512;
/// How long one turn waits for frames, ms.
const WAIT_MS: u32 = 50;

/// LINKTYPE numbers of Ethernet and of packets without a link header.
const LINKTYPE_ETHERNET: u32 = 1;
const LINKTYPE_RAW: u32 = 101;

/// Where records come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveSource {
    /// Export datagrams, received at this address.
    Listen(SocketAddr),
    /// Packets of this interface, in the namespace that the thread is in.
    Interface(String),
}

/// When reading ends, if no signal comes before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Until {
    /// After this time.
    pub after: Option<Duration>,
    /// After this many datagrams or packets.
    pub count: Option<u64>,
}

/// A live reading, until something ends it.
struct Turn<'a> {
    until: Until,
    stop: &'a AtomicBool,
    begun: Instant,
    received: u64,
    bytes: u64,
}

impl Turn<'_> {
    /// What ended it, if it is over.
    fn ended(&self) -> Option<&'static str> {
        let is_over = |after: Duration| self.begun.elapsed() >= after;
        match self.until {
            Until { count: Some(count), .. } if self.received >= count => Some("count"),
            _ if self.stop.load(Ordering::Relaxed) => Some("signal"),
            Until { after: Some(after), .. } if is_over(after) => Some("seconds"),
            _ => None,
        }
    }

    /// Is there room for another datagram or packet? Counts it if there is.
    fn admits(&mut self, bytes: u64) -> bool {
        let admits = self.until.count.is_none_or(|count| self.received < count);
        if admits {
            self.received += 1;
            self.bytes += bytes;
        }
        admits
    }

    fn summary(&self, source: String, kernel_dropped: u64, by: &'static str) -> LiveSummary {
        LiveSummary {
            source,
            seconds: self.begun.elapsed().as_secs_f64(),
            received: self.received,
            received_bytes: self.bytes,
            kernel_dropped,
            stopped_by: by,
        }
    }
}

/// Makes records live and gives them to `sink`, until `stop` is set or it ends by itself; `say` gets a
/// line that names the socket or interface once that is open.
///
/// # Errors
/// When the socket or the ring cannot be opened or fails, or when `sink` fails.
pub fn read_live(
    (from, until): (&LiveSource, Until),
    options: &FlowOptions,
    stop: &AtomicBool,
    say: &mut dyn FnMut(String),
    sink: Sink<'_>,
) -> Result<FlowSummary> {
    let mut no_progress = |_: &Progress<'_>| {};
    let mut reading = Reading::new(options, &mut no_progress, sink);
    let turn = Turn { until, stop, begun: Instant::now(), received: 0, bytes: 0 };
    let live = match from {
        LiveSource::Listen(address) => reading.listen(*address, turn, say)?,
        LiveSource::Interface(name) => reading.watch(name, turn, say)?,
    };
    reading.summary.live = Some(live);
    reading.finish()
}

impl Reading<'_> {
    fn listen(
        &mut self,
        address: SocketAddr,
        mut turn: Turn<'_>,
        say: &mut dyn FnMut(String),
    ) -> Result<LiveSummary> {
        let mut listener = Listener::open(address)?;
        let source = format!("udp {}", listener.address().context("a socket without address")?);
        let failed = || format!("{source}: cannot be read");
        say(format!("listening on {source}"));
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let by = loop {
            if let Some(by) = turn.ended() {
                break by;
            }
            if let Some((length, from)) =
                listener.receive(&mut buffer, true).with_context(failed)?
            {
                self.hear(&mut turn, from, &buffer[..length])?;
            }
        };
        for _ in 0..LEFT_MAX {
            let left = listener.receive(&mut buffer, false).with_context(failed)?;
            let Some((length, from)) = left.filter(|_| by != "count") else { break };
            self.hear(&mut turn, from, &buffer[..length])?;
        }
        let dropped = listener.dropped().with_context(failed)?;
        self.note_exports(&source);
        if dropped > 0 {
            self.summary.warnings.push(format!(
                "{source}: the kernel dropped {dropped} datagrams, for its buffer was full; raise \
                 net.core.rmem_max or export less at once"
            ));
        }
        Ok(turn.summary(source, dropped, by))
    }

    fn hear(&mut self, turn: &mut Turn<'_>, from: SocketAddr, datagram: &[u8]) -> Result<()> {
        if turn.admits(datagram.len() as u64) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let exporter = Exporter { address: from.ip().to_canonical(), port: from.port() };
            self.take_received(exporter, now.as_nanos() as u64, datagram);
        }
        self.out.check()
    }

    fn watch(
        &mut self,
        name: &str,
        mut turn: Turn<'_>,
        say: &mut dyn FnMut(String),
    ) -> Result<LiveSummary> {
        let read_as = self.read_as.unwrap_or(ReadAs::Packets);
        let snap_bytes = (read_as == ReadAs::Packets).then_some(HEADERS_BYTES);
        let config = RingConfig { snap_bytes, ..RingConfig::default() };
        let mut ring = Ring::open(name, config).with_context(|| {
            format!("cannot watch {name}: it takes CAP_NET_RAW (root), and nothing is changed")
        })?;
        let link = Link::of(name, ring.hardware_type()?)?;
        let source = format!("interface {name}");
        say(format!("watching {source}"));
        let before = self.summary.before();
        let by = loop {
            if let Some(by) = turn.ended() {
                break by;
            }
            if ring.poll(WAIT_MS)? {
                self.look(&mut ring, &mut turn, link, read_as)?;
            }
        };
        // The kernel hands over a block that is not full by then.
        if ring.poll(2 * config.retire_ms)? {
            self.look(&mut ring, &mut turn, link, read_as)?;
        }
        let dropped = ring.statistics()?.dropped;
        match read_as {
            ReadAs::Packets => {
                self.formats.insert("live packets");
                let links = std::mem::take(&mut self.other_links);
                self.summary.note_packets(&source, &before, &links);
            }
            ReadAs::Exports => self.note_exports(&source),
        }
        if dropped > 0 {
            self.summary.warnings.push(format!(
                "{source}: the kernel dropped {dropped} frames, for they were not metered as fast as \
                 they came"
            ));
        }
        Ok(turn.summary(source, dropped, by))
    }

    /// Takes the frames that have arrived.
    fn look(
        &mut self,
        ring: &mut Ring,
        turn: &mut Turn<'_>,
        link: Link,
        read_as: ReadAs,
    ) -> Result<()> {
        let mut failed: Option<Error> = None;
        ring.drain(|seen| {
            if failed.is_none() && link.counts(&seen) && turn.admits(seen.original_bytes.into()) {
                let packet = CapturedPacket {
                    stamp_ns: Some(seen.stamp_ns),
                    link_type: link.link_type,
                    original_bytes: seen.original_bytes,
                    frame: seen.frame,
                };
                failed = self.take(read_as, &packet).err();
            }
        });
        failed.map_or(Ok(()), Err)?;
        // More may not come for a long time.
        self.meter_waiting();
        self.out.check()
    }
}

/// The link type of an interface's frames, and which of them count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    link_type: u32,
    /// On the loopback interface every frame leaves and comes in again.
    is_loopback: bool,
}

impl Link {
    fn of(name: &str, hardware: u16) -> Result<Link> {
        let is_loopback = hardware == libc::ARPHRD_LOOPBACK;
        let link_type = match hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => LINKTYPE_ETHERNET,
            libc::ARPHRD_NONE => LINKTYPE_RAW,
            other => bail!(
                "{name} is an interface of type {other}; Ethernet, loopback and TUN are metered"
            ),
        };
        Ok(Link { link_type, is_loopback })
    }

    fn counts(self, seen: &StampedFrame<'_>) -> bool {
        !(self.is_loopback && seen.outgoing)
    }
}
