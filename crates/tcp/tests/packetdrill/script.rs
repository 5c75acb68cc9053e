//! A script: its options and its events, each with a line and a time.

use super::call::{self, Call};
use super::lexer::{Cursor, Fault};
use super::packet::{self, Frame};

/// A whole script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// `--name=value` lines; the value of a bare `--name` is empty.
    pub options: Vec<(String, String)>,
    pub events: Vec<Event>,
    /// Whether a comment says that packetdrill itself must fail.
    pub expects_failure: bool,
}

/// Something that happens, or must be seen to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Counted from one.
    pub line: usize,
    pub when: When,
    pub action: Action,
}

/// When, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Since the script began.
    Absolute(i64, i64),
    /// Since the event before.
    Relative(i64, i64),
    /// `*`: at any time.
    Any,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A packet that the peer sends, or that must be seen to leave.
    Frame(bool, Frame),
    Call(Call),
    /// In backquotes: for a shell.
    Command(String),
    /// In `%{ }%`: Python over `tcp_info`.
    Code(String),
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// What could not be read, and on which line.
    pub fn parse(text: &str) -> Result<Script, Fault> {
        let mut cursor = Cursor::new(text);
        let mut options = Vec::new();
        let mut events = Vec::new();
        while !cursor.is_done() {
            if events.is_empty() && cursor.eat("--") {
                let line = cursor.rest_of_line();
                let (name, value) = line.split_once('=').unwrap_or((line, ""));
                options.push((name.trim().to_string(), value.trim().to_string()));
            } else {
                events.push(parse_event(&mut cursor)?);
            }
        }
        Ok(Script { options, events, expects_failure: text.contains("// Failure:") })
    }

    /// The value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All calls.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.events.iter().filter_map(|event| match &event.action {
            Action::Call(call) => Some(call),
            _ => None,
        })
    }

    /// All packets, and whether they go out.
    pub fn frames(&self) -> impl Iterator<Item = (bool, &Frame)> {
        self.events.iter().filter_map(|event| match &event.action {
            Action::Frame(outbound, frame) => Some((*outbound, frame)),
            _ => None,
        })
    }

    /// All shell commands, one line each, without comments and continuations joined.
    pub fn commands(&self) -> Vec<String> {
        let texts = self.events.iter().filter_map(|event| match &event.action {
            Action::Command(text) => Some(text),
            _ => None,
        });
        texts.flat_map(|text| command_lines(text)).collect()
    }
}

/// The lines of what stands in backquotes.
pub fn command_lines(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().flat_map(|line| line.split(';'));
    let lines = lines.map(|line| line.split('#').next().unwrap_or("").trim().to_string());
    lines.filter(|line| !line.is_empty()).collect()
}

fn parse_event(cursor: &mut Cursor<'_>) -> Result<Event, Fault> {
    cursor.skip_space();
    let line = cursor.line();
    let (when, ends) = parse_when(cursor)?;
    let action = match cursor.peek() {
        Some('`') => {
            cursor.expect("`")?;
            Action::Command(cursor.until("`")?.to_string())
        }
        Some('%') => {
            cursor.expect("%{")?;
            Action::Code(cursor.until("}%")?.to_string())
        }
        Some('<') => {
            cursor.expect("<")?;
            Action::Frame(false, packet::parse(cursor, false)?)
        }
        Some('>') => {
            cursor.expect(">")?;
            Action::Frame(true, packet::parse(cursor, true)?)
        }
        _ => Action::Call(call::parse(cursor, ends)?),
    };
    Ok(Event { line, when, action })
}

/// The time before an event, and where a blocking call ends; a command may stand without one.
fn parse_when(cursor: &mut Cursor<'_>) -> Result<(When, Option<i64>), Fault> {
    if cursor.peek() == Some('`') {
        return Ok((When::Relative(0, 0), None));
    }
    if cursor.eat("*") {
        return Ok((When::Any, None));
    }
    let relative = cursor.eat("+");
    let missing = cursor.fault("expected a time");
    let from = cursor.seconds().ok_or_else(|| missing.clone())?;
    let mut to = from;
    if cursor.eat("~") {
        cursor.eat("+");
        to = cursor.seconds().ok_or_else(|| missing.clone())?;
    }
    let ends = if cursor.eat("...") { Some(cursor.seconds().ok_or(missing)?) } else { None };
    let when = if relative { When::Relative(from, to) } else { When::Absolute(from, to) };
    Ok((when, ends))
}
