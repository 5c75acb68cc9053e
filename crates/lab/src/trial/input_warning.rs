//! Warnings about the original: which parts of it are played, and what cannot be known about it.

use chrono::DateTime;
use nilometer_report::format::{percent, plain};

/// Nanoseconds of a second, a minute, an hour and a day.
const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;
const HOUR_NS: u64 = 60 * MINUTE_NS;
const DAY_NS: u64 = 24 * HOUR_NS;

/// Warnings about the original before it is played.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InputWarning {
    /// Flow records beside captures.
    #[error(
        "{0} flow records were given with captures and are not played, since captures are played \
         packet by packet: give them separately, or add --fit"
    )]
    RecordsNotPlayed(u64),
    /// Connections that carry nothing.
    #[error(
        "no TCP payload passed in the part: of its {connections} connections SYNs, acknowledgements and ends are \
         played, and nothing is sent"
    )]
    NoPayload {
        /// How many connections there are.
        connections: usize,
    },
    /// Bytes that were sent and are not in the capture.
    #[error(
        "The capture lost {:.1} % of what was sent, by its sequence numbers. The lost data is played too, so \
         rates and packet counts exceed the capture's.",
        100.0 * share
    )]
    CaptureLost {
        /// Of the payload.
        share: f64,
    },
    /// Packets whose times were not observed.
    #[error(
        "The packets have no timestamps and are assumed to be evenly spaced, {rate} a second (--rate): pauses, rates and \
         durations follow from that, not from the original."
    )]
    NoClock {
        /// Packets a second.
        rate: f64,
    },
    /// Traffic other than TCP: its kinds, and their shares of the part's bytes.
    #[error("{}: only TCP is played.", shares(.0))]
    BesideTcp(Vec<(&'static str, f64)>),
    /// Records, which do not show exchanges.
    #[error(
        "The inputs are flow records: each connection is played as one exchange, over the time that it took. \
         Exchanges and pauses within it, and packet sizes, are not known and not judged."
    )]
    OneExchangeEach,
    /// Long silences that are left out.
    #[error(
        "{} of more than an hour, {:.0} h in all, cut out: times of the original exclude them",
        match count {
            1 => "a silence".to_owned(),
            more => format!("{more} silences"),
        },
        *left_out_ns as f64 / 1e9 / 3_600.0
    )]
    SilencesCut {
        /// How many.
        count: usize,
        /// How long they are together.
        left_out_ns: u64,
    },
    /// A part of a longer original.
    #[error(
        "the original lasts {whole_s:.1} s: {seconds:.1} s of it are played, from {start_s:.1} s on, the window that \
         carries the median of what windows of that length carry; --part START+LENGTH chooses another, \
         --duration its length, and --spread draws sessions from all of it"
    )]
    MedianPart {
        /// How long all of it lasts.
        whole_s: f64,
        /// How long the part is that is played.
        seconds: f64,
        /// When it begins.
        start_s: f64,
    },
    /// A flag requests more than there is.
    #[error(
        "the original lasts {whole_s:.1} s and is played to its end, though {flag} requests {until_s:.1} s: \
         nothing is repeated"
    )]
    NothingRepeated {
        /// How long all of it lasts.
        whole_s: f64,
        /// The flag.
        flag: &'static str,
        /// The end that it requests.
        until_s: f64,
    },
    /// Sessions drawn from all of the original.
    #[error(
        "the original lasts {whole_s:.1} s: {drawn} of its {sessions} sessions are drawn for a run of {run_s:.1} s and \
         a lead before it, and carry {rate:.2} times its mean bit rate.{} Each connection keeps its own time; sessions \
         that coincided in the original need not coincide here.",
        match joined {
            0 => String::new(),
            joined => format!(
                " {joined} of these follow another one of their pair within the bound now, and count as its \
                 continuation."
            ),
        }
    )]
    SessionsDrawn {
        /// How long all of it lasts.
        whole_s: f64,
        /// How many sessions are drawn.
        drawn: u64,
        /// How many there are.
        sessions: u64,
        /// How long the run lasts.
        run_s: f64,
        /// Times the mean bit rate.
        rate: f64,
        /// Drawn sessions that continue another one.
        joined: u64,
    },
    /// A part of more connections than are kept.
    #[error(
        "the part has {} connections, more than the limit: {} of its {} sessions are played, with {} connections, \
         including the largest that fit. A shorter part (--part START+LENGTH) is played completely.",
        all[0],
        played[1],
        all[1],
        played[0]
    )]
    SessionsKept {
        /// Connections and sessions of the part.
        all: [u64; 2],
        /// Those that are played.
        played: [u64; 2],
    },
    /// A model of whole connections, which cannot be written as Harpoon's files: its file.
    #[error(
        "{0}: was not made with --harpoon: its connections have a file in each direction, and drive the plan"
    )]
    NotOfHarpoon(String),
    /// Most of the time lies between the inputs.
    #[error(
        "the inputs are far apart: nothing from {} ({}) to {} ({}), {}; {} of the model's time \
         is empty; make a model of each, or give inputs that follow one another",
        moment(before.1),
        before.0,
        moment(after.1),
        after.0,
        length(after.1 - before.1),
        plain(&percent(*empty_share))
    )]
    FarApart {
        /// The input before the widest gap, and when it ends, ns since 1970.
        before: (String, u64),
        /// The one after it, and when it begins.
        after: (String, u64),
        /// How much of the whole time lies between inputs.
        empty_share: f64,
    },
}

/// The sentences of the warnings found.
pub fn texts<const N: usize>(found: [Option<InputWarning>; N]) -> impl Iterator<Item = String> {
    found.into_iter().flatten().map(|warning| warning.to_string())
}

fn shares(of: &[(&str, f64)]) -> String {
    let phrases = of
        .iter()
        .map(|(name, share)| format!("{:.1} % of the part's bytes are {name}", 100.0 * share));
    phrases.collect::<Vec<_>>().join(" and ")
}

fn moment(ns: u64) -> String {
    let date = DateTime::from_timestamp((ns / SECOND_NS) as i64, 0);
    date.map_or_else(|| format!("{ns} ns"), |date| date.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// A length of time in the largest unit that fits in it twice.
fn length(ns: u64) -> String {
    let units = [(DAY_NS, "days"), (HOUR_NS, "hours"), (MINUTE_NS, "minutes")];
    let fits = units.iter().find(|(unit, _)| ns >= 2 * unit);
    let &(unit, name) = fits.unwrap_or(&(SECOND_NS, "seconds"));
    format!("{} {name}", ns / unit)
}
