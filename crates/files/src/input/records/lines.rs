//! Flow records in text, read line by line (`text` parses a line).

use anyhow::{Context, Result};

use super::super::capture::Ending;
use super::super::source::{Gauge, Stream};
use super::super::text::{LINE_BYTES_MAX, Layout, Line, next_line, take_line, zeek_fields};
use super::super::window::Window;
use super::Reading;

impl Reading<'_> {
    /// Reads a file of lines; returns the stream, to be read to its end.
    pub(super) fn read_text(
        &mut self,
        gauge: &Gauge,
        mut layout: Layout,
        mut window: Window<Stream>,
    ) -> Result<Window<Stream>> {
        self.formats.insert(layout.name());
        let before = self.exporters.archived;
        let mut is_header = matches!(layout, Layout::Columns { .. });
        let mut halved = 0;
        let ending = loop {
            let offset = window.offset();
            let line = next_line(&mut window);
            let line = match line.with_context(|| format!("{}: cannot be read", gauge.name()))? {
                Line::Text(line) => line,
                Line::End => break Ending::Whole,
                Line::TooLong => {
                    let what = format!("a line of more than {LINE_BYTES_MAX} bytes");
                    break Ending::Damaged { offset, what };
                }
            };
            let line = line.trim_end_matches(['\r', '\n']);
            if std::mem::take(&mut is_header) || line.trim().is_empty() {
                continue;
            }
            if let Some(rest) = line.strip_prefix('#') {
                if let (Layout::Zeek(fields), Some(names)) =
                    (&mut layout, rest.strip_prefix("fields\t"))
                {
                    let found = zeek_fields(names).with_context(|| gauge.name().to_owned())?;
                    *fields = Some(found);
                }
                continue;
            }
            let mut flows = std::mem::take(&mut self.exporters.flows);
            let counts = &mut self.exporters.archived;
            halved += u64::from(take_line(&layout, line, counts, &mut flows));
            counts.assert_balanced();
            self.take_archived(gauge, flows)?;
        };
        self.summary.note_ending(gauge, &ending);
        let skipped = self.exporters.archived.skips.records() - before.skips.records();
        let mut warn = |count: u64, what: &str| {
            if count > 0 {
                self.summary.warnings.push(format!("{}: {count} {what}", gauge.name()));
            }
        };
        warn(skipped, "lines are not flow records and were skipped");
        warn(halved, "lines give one packet count for both directions; half was assigned to each");
        self.warn_of_archive(gauge);
        Ok(window)
    }
}
