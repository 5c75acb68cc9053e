//! The writer of captures: packets of one meter as pcapng with nanosecond stamps and directions.
//!
//! One section, one Ethernet interface, one Enhanced Packet Block a packet
//! (draft-ietf-opsawg-pcapng), little-endian as on the machine that writes.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result};

use crate::document::results::ResultFile;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
/// Options: the program that wrote it, a name, a time resolution, packet flags, the end.
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const END_OF_OPTIONS: [u8; 4] = [0; 4];

/// Writes one capture.
pub struct CaptureWriter<W: Write = BufWriter<File>> {
    /// Its name in errors.
    name: String,
    to: W,
    block: Vec<u8>,
    packets: u64,
}

impl CaptureWriter {
    /// Begins a capture of the interface called `interface`, which can be read while it is written.
    pub fn create(to: &ResultFile, interface: &str) -> Result<CaptureWriter> {
        let name = to.path().display().to_string();
        CaptureWriter::named(name, BufWriter::new(to.create()?), &[interface])
    }
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture of `interfaces`, numbered in their order.
    pub fn begin(to: W, interfaces: &[&str]) -> Result<CaptureWriter<W>> {
        CaptureWriter::named("the capture".to_owned(), to, interfaces)
    }

    fn named(name: String, to: W, interfaces: &[&str]) -> Result<CaptureWriter<W>> {
        let mut writer = CaptureWriter { name, to, block: Vec::new(), packets: 0 };
        writer.write_block(SECTION_HEADER, &section())?;
        for interface in interfaces {
            let mut description = LINKTYPE_ETHERNET.to_le_bytes().to_vec();
            description.extend(0u32.to_le_bytes());
            option(&mut description, IF_NAME, interface.as_bytes());
            option(&mut description, IF_TSRESOL, &[9]);
            description.extend(END_OF_OPTIONS);
            writer.write_block(INTERFACE_DESCRIPTION, &description)?;
        }
        Ok(writer)
    }

    /// Adds a packet: its stamp in ns since 1970, whether it was leaving, its length on the link.
    pub fn write(
        &mut self,
        stamp_ns: u64,
        outgoing: bool,
        original_bytes: u32,
        frame: &[u8],
    ) -> Result<()> {
        self.write_at(0, (stamp_ns, outgoing), original_bytes, frame)
    }

    /// As [`CaptureWriter::write`], of interface number `interface`.
    pub fn write_at(
        &mut self,
        interface: u32,
        (stamp_ns, outgoing): (u64, bool),
        original_bytes: u32,
        frame: &[u8],
    ) -> Result<()> {
        let mut body = std::mem::take(&mut self.block);
        body.clear();
        body.extend(interface.to_le_bytes());
        body.extend(((stamp_ns >> 32) as u32).to_le_bytes());
        body.extend((stamp_ns as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend(original_bytes.to_le_bytes());
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        let flags: u32 = if outgoing { 2 } else { 1 };
        option(&mut body, EPB_FLAGS, &flags.to_le_bytes());
        body.extend(END_OF_OPTIONS);
        let written = self.write_block(ENHANCED_PACKET, &body);
        self.block = body;
        self.packets += 1;
        written
    }

    fn write_block(&mut self, kind: u32, body: &[u8]) -> Result<()> {
        let length = (body.len() as u32 + 12).to_le_bytes();
        let mut put = |bytes: &[u8]| self.to.write_all(bytes);
        put(&kind.to_le_bytes())
            .and_then(|()| put(&length))
            .and_then(|()| put(body))
            .and_then(|()| put(&length))
            .with_context(|| format!("cannot write {}", self.name))
    }

    /// The underlying writer.
    pub fn writer_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// Ends the capture; returns how many packets it holds.
    pub fn finish(mut self) -> Result<u64> {
        self.to.flush().with_context(|| format!("cannot write {}", self.name))?;
        Ok(self.packets)
    }
}

/// The body of a section header.
fn section() -> Vec<u8> {
    let mut section = BYTE_ORDER_MAGIC.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend(u64::MAX.to_le_bytes());
    option(&mut section, SHB_USERAPPL, b"nilometer");
    section.extend(END_OF_OPTIONS);
    section
}

/// The first bytes of our captures, and of no others: a section header that names the program.
pub fn beginning() -> Vec<u8> {
    let mut writer =
        CaptureWriter { name: String::new(), to: Vec::new(), block: Vec::new(), packets: 0 };
    writer.write_block(SECTION_HEADER, &section()).expect("memory can be written");
    writer.to
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
