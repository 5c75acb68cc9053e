//! Flow records as text: Zeek's conn.log, CSV with a header, Argus' binetflow, and JSON line by line.
//!
//! A line is a record, and columns are recognised by their names: those of IPFIX, which Nilometer
//! itself writes, of Zeek, nfdump, Argus, FlowTest and pmacct (`fields`). A line that does not match
//! its header is counted as damaged, and the next is read. A quoted value does not continue in the
//! next line: none of these tools writes that, and one lost quotation mark would swallow the rest of
//! a file.
//!
//! Times without a zone are taken as UTC. A line of Zeek or Argus describes both directions and
//! becomes two records, as a biflow does (RFC 5103).

mod fields;
mod row;
mod values;

use anyhow::{Result, bail};
use nilometer_flow::FlowRecord;
use nilometer_flow::counts::{Counts, Skip};
use serde_json::{Map, Value};

use super::source::Stream;
use super::window::Window;
use fields::Fields;
use row::Row;

/// The longest line.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;
/// The most columns that are read.
const COLUMNS_MAX: usize = 1_024;

/// How lines are written.
#[derive(Clone, Debug)]
pub enum Layout {
    /// A header, then values between separators.
    Columns {
        /// The character between values.
        separator: u8,
        /// The columns.
        fields: Fields,
    },
    /// Zeek's: tabs, and a header of lines with `#`.
    Zeek(Option<Fields>),
    /// An object in each line.
    Objects,
}

impl Layout {
    /// Its usual name.
    pub fn name(&self) -> &'static str {
        match self {
            Layout::Columns { fields, .. } if fields.is_argus() => "Argus CSV",
            Layout::Columns { .. } => "CSV",
            Layout::Zeek(_) => "Zeek conn.log",
            Layout::Objects => "JSON lines",
        }
    }
}

/// Recognises the layout of lines by a file's first bytes; `None` if they are not flow records in
/// text.
///
/// # Errors
/// When they are a log of Zeek's, or a header, that lacks what a flow needs.
pub fn recognise(first: &[u8]) -> Result<Option<Layout>> {
    if first.starts_with(b"#separator") || first.starts_with(b"#fields\t") {
        let mut lines = first.split_inclusive(|byte| *byte == b'\n');
        let names = lines.find_map(|line| line.strip_prefix(b"#fields\t")?.strip_suffix(b"\n"));
        names.map(|names| zeek_fields(&String::from_utf8_lossy(names))).transpose()?;
        return Ok(Some(Layout::Zeek(None)));
    }
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or(first);
    let Ok(line) = std::str::from_utf8(line) else { return Ok(None) };
    let line = line.trim_start_matches('\u{feff}').trim_end();
    if line.starts_with('{') {
        let object: Option<Map<String, Value>> = serde_json::from_str(line).ok();
        let names = object.iter().flat_map(|object| object.keys().map(String::as_str));
        return Ok(Fields::of(names).is_some().then_some(Layout::Objects));
    }
    for separator in *b",;\t" {
        let names = split(line, separator);
        match Fields::of(names.iter().map(|name| name.trim())) {
            Some(fields) => {
                if let Some(missing) = fields.missing() {
                    bail!("its header has addresses, but no {missing}: it is not a table of flows");
                }
                return Ok(Some(Layout::Columns { separator, fields }));
            }
            None => continue,
        }
    }
    Ok(None)
}

/// The values of a line; `""` in a quoted one is a quotation mark (RFC 4180).
fn split(line: &str, separator: u8) -> Vec<String> {
    let mut values = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let value = values.last_mut().expect("never empty");
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                value.push('"');
            }
            '"' if quoted || value.trim().is_empty() => quoted = !quoted,
            _ if letter == char::from(separator) && !quoted => {
                if values.len() == COLUMNS_MAX {
                    break;
                }
                values.push(String::new());
            }
            _ => value.push(letter),
        }
    }
    values
}

/// The columns of Zeek's log, by its line of names.
///
/// # Errors
/// When it is a log of something else.
pub(super) fn zeek_fields(names: &str) -> Result<Fields> {
    let fields = Fields::of(names.trim_end().split('\t'));
    match fields.filter(|fields| fields.missing().is_none()) {
        Some(fields) => Ok(fields),
        None => bail!("is a log of Zeek's, but not conn.log, which has flows"),
    }
}

/// The next element of a file of lines.
pub(super) enum Line {
    Text(String),
    TooLong,
    End,
}

/// Takes the next line.
pub(super) fn next_line(window: &mut Window<Stream>) -> std::io::Result<Line> {
    let mut wanted = 4 * 1024;
    loop {
        let here = window.peek(wanted)?;
        let is_all = here.len() < wanted;
        if here.is_empty() {
            return Ok(Line::End);
        }
        if let Some(end) = here.iter().position(|byte| *byte == b'\n').map(|at| at + 1) {
            let line = String::from_utf8_lossy(&here[..end]).into_owned();
            window.take(end);
            return Ok(Line::Text(line));
        }
        if is_all {
            let line = String::from_utf8_lossy(here).into_owned();
            let bytes = here.len();
            window.take(bytes);
            return Ok(Line::Text(line));
        }
        if wanted == LINE_BYTES_MAX {
            return Ok(Line::TooLong);
        }
        wanted = (wanted * 4).min(LINE_BYTES_MAX);
    }
}

/// Takes the records of a line; returns whether its packets were stated for both directions together.
pub(super) fn take_line(
    layout: &Layout,
    line: &str,
    counts: &mut Counts,
    flows: &mut Vec<FlowRecord>,
) -> bool {
    let mut row = Row::default();
    let read = match layout {
        Layout::Columns { separator, fields } => {
            row.read(fields, split(line, *separator).iter().map(String::as_str))
        }
        Layout::Zeek(Some(fields)) => row.read(fields, line.split('\t')),
        Layout::Zeek(None) => Err(Skip::RecordDamaged),
        Layout::Objects => read_object(&mut row, line),
    };
    counts.records += 1;
    match read.and_then(|()| row.flows()) {
        Ok((forward, back)) => {
            counts.flows += 1;
            counts.times_reversed += u64::from(row.ends_before_it_begins());
            counts.reverse_flows += u64::from(back.is_some());
            flows.push(forward);
            flows.extend(back);
            row.is_halved()
        }
        Err(why) => {
            counts.skips.add(why);
            false
        }
    }
}

fn read_object(row: &mut Row, line: &str) -> Result<(), Skip> {
    let object: Map<String, Value> = serde_json::from_str(line).map_err(|_| Skip::RecordDamaged)?;
    for (name, value) in object {
        let Some(field) = fields::field_of(&name) else { continue };
        match value {
            Value::String(text) => row.set(field, &text)?,
            Value::Number(number) => row.set(field, &number.to_string())?,
            Value::Bool(is) => row.set(field, if is { "true" } else { "false" })?,
            Value::Null | Value::Array(_) | Value::Object(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
