//! Flow records stored by collectors, streamed block by block (`archive` recognises their files).
//!
//! Records are decoded in `flow`; here they are streamed, and decompressed if needed. A file that ends early
//! yields the records before; the records of a block of nfcapd that cannot be unpacked are counted as
//! damaged, and the next block is read. In a block that is damaged, nothing can be found behind the damage:
//! the block states how many records it has, so the number of lost ones is known.

use std::io::{self, Read};

use anyhow::{Context, Error, Result};
use flate2::read::ZlibDecoder;
use nilometer_flow::FlowRecord;
use nilometer_flow::counts::{Counts, Skip};
use nilometer_flow::flow_tools;
use nilometer_flow::nfcapd::{self, BLOCK_HEADER_BYTES, BlockHeader, FileHeader};

use super::super::archive::Archive;
use super::super::capture::Ending;
use super::super::source::{Gauge, Stream};
use super::super::summary::of_all;
use super::super::unpack::Unpacker;
use super::super::window::Window;
use super::Reading;

/// Bytes of records decoded at a time.
const STEP_BYTES: usize = 256 * 1024;
/// Records of a block handed on at a time: few enough to stay in the processor's cache.
const BATCH_RECORDS: usize = 128;

impl Reading<'_> {
    /// Reads a collector's file; returns the stream, to be read to its end.
    pub(super) fn read_archive(
        &mut self,
        gauge: &Gauge,
        archive: Archive,
        mut window: Window<Stream>,
    ) -> Result<Window<Stream>> {
        let unreadable = || format!("{}: cannot be read", gauge.name());
        let before = self.exporters.archived;
        let mut damage = Damage::default();
        let ending = match archive {
            Archive::Nfcapd(file) => {
                self.formats.insert("nfcapd");
                window.take(file.header_bytes);
                let read = self.read_blocks(gauge, &file, &mut window, &mut damage);
                read.with_context(unreadable)?
            }
            Archive::FlowTools(header) => {
                self.formats.insert("flow-tools");
                window.take(header.header_bytes);
                self.read_records(gauge, &header, &mut window).with_context(unreadable)?
            }
        };
        self.summary.note_ending(gauge, &ending);
        self.warn_of_damage(gauge, &before, damage, ending == Ending::Whole);
        self.warn_of_archive(gauge);
        Ok(window)
    }

    fn read_blocks(
        &mut self,
        gauge: &Gauge,
        file: &FileHeader,
        window: &mut Window<Stream>,
        damage: &mut Damage,
    ) -> Result<Ending> {
        let (mut unpacker, mut blocks) = (Unpacker::default(), 0);
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
                let (body, why) = match body {
                    Ok(body) => (body, None),
                    Err(error) => (&[][..], Some(error)),
                };
                let mut flows = std::mem::take(&mut self.exporters.flows);
                let mut counts = self.exporters.archived;
                block.decode(file, body, &mut counts, &mut |flow| {
                    flows.push(flow);
                    if flows.len() == BATCH_RECORDS {
                        self.sum_archived(&mut flows);
                    }
                });
                counts.assert_balanced();
                damage.note(offset, &self.exporters.archived, &counts, why);
                self.exporters.archived = counts;
                self.take_archived(gauge, flows)?;
            }
        };
        damage.blocks_missing = file.blocks.saturating_sub(blocks);
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

    /// Warns how many records of this file were damaged, and where the first of them are.
    fn warn_of_damage(&mut self, gauge: &Gauge, before: &Counts, damage: Damage, is_whole: bool) {
        let name = gauge.name();
        let now = &self.exporters.archived;
        let (found, was) = (now.records - before.records, &before.skips);
        let lost = now.skips.of(Skip::RecordDamaged) - was.of(Skip::RecordDamaged);
        let behind = now.skips.of(Skip::SetDamaged) - was.of(Skip::SetDamaged);
        let missing = if is_whole { damage.blocks_missing } else { 0 };
        self.summary.damaged += u64::from(is_whole && lost + behind + u64::from(missing) > 0);
        if lost > 0 {
            let lost = of_all(lost, found, "records");
            let (blocks, first) = (damage.blocks, damage.first.unwrap_or_default());
            let place = match blocks {
                0 => String::new(),
                1 => format!(" in the block {first}"),
                _ => format!(" in {blocks} blocks, the first of them {first}"),
            };
            self.summary
                .warnings
                .push(format!("{name}: {lost} are damaged and were left out{place}"));
        }
        let unknown = now.skips.of(Skip::KindUnknown) - was.of(Skip::KindUnknown);
        if unknown > 0 {
            self.summary.warnings.push(format!(
                "{name}: {} are of kinds that are not known here and were left out; a damaged file looks so, too",
                of_all(unknown, found, "records")
            ));
        }
        if behind > 0 {
            self.summary.warnings.push(format!(
                "{name}: {behind} blocks have data after their last record, which was ignored"
            ));
        }
        if missing > 0 {
            self.summary.warnings.push(format!(
                "{name}: its header announces {missing} more blocks, with records, than the file contains"
            ));
        }
    }

    pub(super) fn take_archived(
        &mut self,
        gauge: &Gauge,
        mut flows: Vec<FlowRecord>,
    ) -> Result<()> {
        self.sum_archived(&mut flows);
        self.exporters.flows = flows;
        self.report_progress(gauge);
        self.out.check()
    }

    fn sum_archived(&mut self, flows: &mut Vec<FlowRecord>) {
        let (packets, bytes) = self.take_flows(flows);
        self.summary.count(packets, bytes);
    }

    /// Warns of what makes the records of this file suspect.
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

/// Damage in nfcapd's blocks.
#[derive(Debug, Default)]
struct Damage {
    /// Blocks that lost records, and the first of them.
    blocks: u64,
    first: Option<String>,
    /// Blocks that the file's header announces but that are missing.
    blocks_missing: u32,
}

impl Damage {
    /// Notes the damage of the block that begins at `offset`; `why` is the error of decompressing it, if
    /// there was one.
    fn note(&mut self, offset: u64, before: &Counts, now: &Counts, why: Option<Error>) {
        let is_damaged = |counts: &Counts| counts.skips.of(Skip::RecordDamaged);
        if is_damaged(now) > is_damaged(before) {
            self.blocks += 1;
            self.first.get_or_insert_with(|| match why {
                Some(why) => format!("at byte {offset}, which cannot be unpacked: {why}"),
                None => format!("at byte {offset}"),
            });
        }
    }
}

/// The rest of a window, as a stream.
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
