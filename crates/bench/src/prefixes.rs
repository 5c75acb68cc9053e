//! Files of prefixes: one a line, plain or gzip.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use flate2::bufread::MultiGzDecoder;
use nilometer_router::prefix::Malformed;
use nilometer_router::{Address, Prefix};

use nilometer_files::document::bounded::text_of;

/// Most prefixes of a file.
const PREFIXES_MAX: usize = 1 << 23;
/// Most bytes of a file, unpacked.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// IPv4.
    #[value(name = "4")]
    V4,
    /// IPv6.
    #[value(name = "6")]
    V6,
}

/// The prefixes of a file, in its order, duplicates included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes<A> {
    /// Those of the requested family.
    pub prefixes: Vec<Prefix<A>>,
    /// How many there were of the other.
    pub skipped: usize,
}

/// Reads the prefixes of the family `A` from a file, plain or gzip.
///
/// # Errors
/// When the file cannot be read, a line is not a prefix, or there is none of the family.
pub fn read_prefixes<A>(path: &Path) -> Result<Prefixes<A>>
where
    A: Address,
    Prefix<A>: std::str::FromStr<Err = Malformed>,
{
    let shown = path.display();
    let unread = || format!("cannot read {shown}");
    let mut reader = BufReader::new(File::open(path).with_context(unread)?);
    let is_packed = reader.fill_buf().with_context(unread)?.starts_with(&[0x1f, 0x8b]);
    let text = match is_packed {
        true => text_of(MultiGzDecoder::new(reader), &shown.to_string(), TEXT_BYTES_MAX)?,
        false => text_of(reader, &shown.to_string(), TEXT_BYTES_MAX)?,
    };
    let mut found = Prefixes { prefixes: Vec::new(), skipped: 0 };
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        let word = line.split_whitespace().next().unwrap_or_default();
        match read_word::<A>(word) {
            Ok(Some(prefix)) => found.prefixes.push(prefix),
            Ok(None) => found.skipped += 1,
            Err(Malformed) => bail!("{shown}: line {}: `{word}`: {Malformed}", number + 1),
        }
        if found.prefixes.len() > PREFIXES_MAX {
            bail!("{shown}: line {}: more than {PREFIXES_MAX} prefixes", number + 1);
        }
    }
    if found.prefixes.is_empty() {
        let family = if A::BITS == 32 { 4 } else { 6 };
        bail!("{shown}: no prefix of IPv{family} in it; see --family");
    }
    Ok(found)
}

/// A prefix of the family, or `None` if it is of the other.
fn read_word<A>(word: &str) -> Result<Option<Prefix<A>>, Malformed>
where
    A: Address,
    Prefix<A>: std::str::FromStr<Err = Malformed>,
{
    match (word.contains(':'), A::BITS == 128) {
        (true, true) | (false, false) => word.parse().map(Some),
        (true, false) => word.parse::<Prefix<u128>>().map(|_| None),
        (false, true) => word.parse::<Prefix<u32>>().map(|_| None),
    }
}
