//! Recognition of inputs by their first bytes, and never by their names.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use super::archive::{self, Archive};
use super::capture::{Capture, HeaderError};
use super::datagrams::{self, Datagrams};
use super::pcap::{Pcap, is_pcap};
use super::pcapng::{Pcapng, is_pcapng};
use super::source::{self, Gauge, NotRead, Stream};
use super::text::{self, Layout};
use super::window::Window;
use crate::table::flows::why_no_flow_table;

/// An input, recognised.
pub enum Input {
    /// Packets.
    Capture(Capture<Stream>),
    /// Export datagrams, one after the other.
    Exports(Datagrams<Stream>),
    /// Flow records stored by a collector.
    Archive(Archive, Window<Stream>),
    /// Flow records in text.
    Text(Layout, Window<Stream>),
    /// Flow records of our own, in Parquet.
    FlowTable(PathBuf, Window<Stream>),
}

/// The recognised kinds, for the error about any other file.
const RECOGNISED: &str = "pcap, pcapng, datagrams of NetFlow v5, v7, v9, IPFIX and sFlow v5, files \
                          of nfcapd and flow-tools, Zeek's conn.log, CSV with a header and JSON \
                          lines (each also in gzip, Zstandard, bzip2 or LZ4) and Parquet flow records of nilometer";

/// Opens `path`, or standard input for `-`, and recognises its kind; computes its digest if `digests`
/// is set.
///
/// # Errors
/// When it cannot be opened, is of no known kind, or is cut or damaged within its file header.
pub fn open(path: &Path, digests: bool) -> Result<(Gauge, Input)> {
    let (gauge, mut window) = source::open(path, digests)?;
    let not_read = |why: &dyn Display| NotRead(format!("{}: {why:#}", gauge.name()));
    let refused = |error: HeaderError| match error {
        HeaderError::Read(_) => anyhow!("{}: {error}", gauge.name()),
        _ => not_read(&error).into(),
    };
    let first = window.peek(datagrams::LONGEST_BYTES).map_err(HeaderError::Read);
    let first = first.map_err(refused)?;
    let input = if is_pcap(first) {
        Input::Capture(Capture::Pcap(Pcap::new(window).map_err(refused)?))
    } else if is_pcapng(first) {
        Input::Capture(Capture::Pcapng(Box::new(Pcapng::new(window).map_err(refused)?)))
    } else if let Some(archive) = archive::recognise(first).map_err(|why| not_read(&why))? {
        Input::Archive(archive, window)
    } else if datagrams::is_datagrams(first) {
        Input::Exports(Datagrams::new(window))
    } else if let Some(layout) =
        text::recognise(first).map_err(|why| match gauge.packing_damage() {
            None => not_read(&why).into(),
            Some(damage) => {
                anyhow!("{}: {why:#}, and what it is packed in is damaged: {damage}", gauge.name())
            }
        })?
    {
        Input::Text(layout, window)
    } else if first.starts_with(b"PAR1") {
        if gauge.packing().is_some() || path == Path::new("-") {
            let why = not_read(&"Parquet is read from its end: give it as a plain file");
            return Err(why.into());
        }
        if let Some(why) = why_no_flow_table(path)? {
            return Err(NotRead(why).into());
        }
        Input::FlowTable(path.to_owned(), window)
    } else {
        return Err(unknown(&gauge, first));
    };
    Ok((gauge, input))
}

fn unknown(gauge: &Gauge, first: &[u8]) -> anyhow::Error {
    let name = gauge.name();
    let message = match gauge.packing() {
        Some(packing) if first.is_empty() => format!(
            "{name}: nothing can be unpacked from this {} file: {}",
            packing.name(),
            gauge.packing_damage().unwrap_or_else(|| "nothing is packed in it".into())
        ),
        _ => {
            let shown: Vec<String> =
                first.iter().take(8).map(|octet| format!("{octet:02x}")).collect();
            let looks = known_by_sight(first).map_or(String::new(), |kind| format!(" ({kind})"));
            format!(
                "{name}: begins with {}{looks}, which is no supported format: {RECOGNISED}",
                shown.join(" ")
            )
        }
    };
    NotRead(message).into()
}

/// Kinds of file that users often try, but that are not read here.
fn known_by_sight(first: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 7] = [
        (b"# A Nilometer lab", "a LAB.toml: `nilometer lab run --config` takes it"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz: unpack it first"),
        (b"PK\x03\x04", "zip: unpack it first"),
        (b"snoop\0\0\0", "a snoop capture: convert it with editcap"),
        (&[0x00, 0x05], "like NetFlow v5, but its first header contradicts its length"),
        (&[0x00, 0x09], "like NetFlow v9, but its first sets contradict its length"),
        (&[0x00, 0x0a], "like IPFIX, but its first message contradicts its length"),
    ];
    if first.starts_with(b"{") && first.windows(15).any(|at| at == b"nilometer-model") {
        return Some(
            "a model: `nilometer lab run --model` plays it, `nilometer model show` shows it",
        );
    }
    KINDS.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, kind)| *kind)
}
