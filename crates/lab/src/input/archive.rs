//! Files in which collectors keep flow records: nfcapd's and those of flow-tools.
//!
//! Their records are decoded in `flow`; here they are streamed, block by block, and unpacked where they
//! were compressed. A file that ends early gives what came before; the records of a block of nfcapd that
//! cannot be unpacked are counted as damaged, and the next block is read.

use std::io::{self, Read};

use anyhow::{Context, Result};
use flate2::read::ZlibDecoder;
use nilometer_flow::FlowRecord;
use nilometer_flow::flow_tools;
use nilometer_flow::nfcapd::{self, BLOCK_HEADER_BYTES, BlockHeader, FileHeader};

use super::capture::Ending;
use super::records::Reading;
use super::source::{Gauge, Stream};
use super::unpack::Unpacker;
use super::window::Window;

/// Bytes of records decoded at a time.
const STEP_BYTES: usize = 256 * 1024;
/// Records of a block handed on at a time: few enough to stay in the processor's cache.
const BATCH_RECORDS: usize = 128;

/// Such a file, its header read.
#[derive(Clone, Copy, Debug)]
pub enum Archive {
    /// nfdump's collector wrote it.
    Nfcapd(FileHeader),
    /// flow-tools wrote it.
    FlowTools(flow_tools::Header),
}

/// Reads the header of such a file from its first bytes; `None` where they begin otherwise.
///
/// # Errors
/// When it is one, and cut or damaged within its header.
pub fn recognise(first: &[u8]) -> Result<Option<Archive>> {
    if first.starts_with(&nfcapd::MAGIC_BYTES) {
        Ok(Some(Archive::Nfcapd(FileHeader::read(first).context("nfcapd")?)))
    } else if first.starts_with(&flow_tools::MAGIC_BYTES) {
        Ok(Some(Archive::FlowTools(flow_tools::Header::read(first).context("flow-tools")?)))
    } else {
        Ok(None)
    }
}

impl Reading<'_> {
    /// Reads such a file; gives back the stream, to be read to its end.
    pub(super) fn read_archive(
        &mut self,
        gauge: &Gauge,
        archive: Archive,
        mut window: Window<Stream>,
    ) -> Result<Window<Stream>> {
        let unreadable = || format!("{}: cannot be read", gauge.name());
        let ending = match archive {
            Archive::Nfcapd(file) => {
                self.formats.insert("nfcapd");
                window.take(file.header_bytes);
                self.read_blocks(gauge, &file, &mut window).with_context(unreadable)?
            }
            Archive::FlowTools(header) => {
                self.formats.insert("flow-tools");
                window.take(header.header_bytes);
                self.read_records(gauge, &header, &mut window).with_context(unreadable)?
            }
        };
        self.summary.note_ending(gauge, &ending);
        self.warn_of_archive(gauge);
        Ok(window)
    }

    fn read_blocks(
        &mut self,
        gauge: &Gauge,
        file: &FileHeader,
        window: &mut Window<Stream>,
    ) -> Result<Ending> {
        let (mut unpacker, mut blocks, mut torn) = (Unpacker::default(), 0, None);
        let ending = loop {
            let offset = window.offset();
            let head = window.peek(BLOCK_HEADER_BYTES)?;
            let block = match BlockHeader::read(head) {
                _ if head.is_empty() => break Ending::Whole,
                Ok(block) => block,
                Err(nfcapd::Error::Cut { .. }) => break Ending::Cut { offset },
                Err(error) => break Ending::Damaged { offset, what: error.to_string() },
            };
            window.take(BLOCK_HEADER_BYTES);
            let Some(body) = window.next(block.body_bytes)? else { break Ending::Cut { offset } };
            let is_appendix = file.is_appendix(blocks);
            blocks += 1;
            if !is_appendix {
                let body = unpacker.unpack(block.compression(file, is_appendix), body);
                let body = body.unwrap_or_else(|error| {
                    let (count, _) = torn.get_or_insert((0, format!("at byte {offset}: {error}")));
                    *count += 1;
                    &[]
                });
                let mut flows = std::mem::take(&mut self.exporters.flows);
                let mut counts = self.exporters.archived;
                block.decode(file, body, &mut counts, &mut |flow| {
                    flows.push(flow);
                    if flows.len() == BATCH_RECORDS {
                        self.sum_archived(&mut flows);
                    }
                });
                counts.assert_balanced();
                self.exporters.archived = counts;
                self.take_archived(gauge, flows)?;
            }
        };
        if let Some((count, first)) = torn {
            self.summary.warnings.push(format!(
                "{}: {count} of its blocks cannot be unpacked, the first of them {first}",
                gauge.name()
            ));
        }
        Ok(ending)
    }

    fn read_records(
        &mut self,
        gauge: &Gauge,
        header: &flow_tools::Header,
        window: &mut Window<Stream>,
    ) -> Result<Ending> {
        let offset = window.offset();
        let rest = Rest(window);
        let mut records: Box<dyn Read> =
            if header.is_compressed { Box::new(ZlibDecoder::new(rest)) } else { Box::new(rest) };
        let mut buffer = Vec::new();
        let ending = loop {
            let read = (&mut records).take(STEP_BYTES as u64).read_to_end(&mut buffer);
            let mut flows = std::mem::take(&mut self.exporters.flows);
            let counts = &mut self.exporters.archived;
            let taken = header.decode(&buffer, counts, &mut |flow| flows.push(flow));
            buffer.drain(..taken);
            self.take_archived(gauge, flows)?;
            match read {
                Ok(0) => break Ending::Whole,
                Ok(_) => {}
                Err(error) if header.is_compressed && error.raw_os_error().is_none() => {
                    let what = format!("its zlib stream: {error}");
                    break Ending::Damaged { offset, what };
                }
                Err(error) => return Err(error.into()),
            }
        };
        header.finish(&buffer, &mut self.exporters.archived);
        self.exporters.archived.assert_balanced();
        Ok(ending)
    }

    pub(super) fn take_archived(
        &mut self,
        gauge: &Gauge,
        mut flows: Vec<FlowRecord>,
    ) -> Result<()> {
        self.sum_archived(&mut flows);
        self.exporters.flows = flows;
        self.tell_progress(gauge);
        self.out.check()
    }

    fn sum_archived(&mut self, flows: &mut Vec<FlowRecord>) {
        let (packets, bytes) = self.take_flows(flows);
        self.summary.count(packets, bytes);
    }

    /// Says what makes the records of this file suspect.
    pub(super) fn warn_of_archive(&mut self, gauge: &Gauge) {
        let name = gauge.name();
        let before = std::mem::replace(&mut self.exporters.warned, self.exporters.archived);
        let now = &self.exporters.archived;
        let reversed = now.times_reversed - before.times_reversed;
        if reversed > 0 {
            self.summary.warnings.push(format!(
                "{name}: {reversed} flows end before they begin; they were taken as instants"
            ));
        }
        let second = now.second_counts - before.second_counts;
        if second > 0 {
            self.summary.warnings.push(format!(
                "{name}: {second} flows count a second direction as well, and do not say that it is the \
                 way back (biflowDirection); it was left out"
            ));
        }
        let scaled = now.scaled - before.scaled;
        if scaled > 0 {
            self.summary.warnings.push(format!(
                "{name}: the collector has scaled {scaled} records up by their sampling interval"
            ));
        }
    }
}

/// What is left of a window, as a stream.
struct Rest<'a>(&'a mut Window<Stream>);

impl Read for Rest<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let here = self.0.peek(into.len())?;
        let count = here.len();
        into[..count].copy_from_slice(here);
        self.0.take(count);
        Ok(count)
    }
}
