//! One input as a stream of bytes: opened, unpacked where it is gzip, counted and digested.
//!
//! The digest is of the bytes as they lie in the file, so that `sha256sum` prints the same, and it
//! covers the whole file even where a damaged capture is only read in part.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::window::Window;

/// A stream of bytes, unpacked.
pub type Stream = Box<dyn Read>;

/// The magic of gzip (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What identifies an input: recorded with everything that is made from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputDigest {
    /// The path as it was given, or `-` for standard input.
    pub name: String,
    /// SHA-256 of the file as it lies there, in hexadecimal.
    pub sha256: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What is known of an input while it is read.
#[derive(Clone)]
pub struct Gauge {
    name: String,
    total_bytes: Option<u64>,
    packed: bool,
    tally: Rc<Tally>,
}

#[derive(Default)]
struct Tally {
    /// None where nobody asked for it.
    digest: RefCell<Option<Sha256>>,
    bytes: Cell<u64>,
    gzip_damage: RefCell<Option<String>>,
}

impl Gauge {
    /// The path as it was given, or `-`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the file read so far, before unpacking.
    pub fn read_bytes(&self) -> u64 {
        self.tally.bytes.get()
    }

    /// Length of the file, where it has one.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// Is it gzip?
    pub fn packed(&self) -> bool {
        self.packed
    }

    /// What was wrong with the gzip stream, if it was damaged or cut.
    pub fn gzip_damage(&self) -> Option<String> {
        self.tally.gzip_damage.borrow().clone()
    }

    /// The digest of what has been read, if it was asked for; that of the whole file once the stream has
    /// ended.
    pub fn digest(&self) -> Option<InputDigest> {
        let octets = self.tally.digest.borrow().clone()?.finalize();
        let sha256 = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        Some(InputDigest { name: self.name.clone(), sha256, bytes: self.read_bytes() })
    }
}

/// Opens `path`, or standard input for `-`; digests it where `digests`.
///
/// # Errors
/// When it cannot be opened or read, is a directory, or is empty.
pub fn open(path: &Path, digests: bool) -> Result<(Gauge, Window<Stream>)> {
    let name = path.display().to_string();
    let (raw, total_bytes) = if path == Path::new("-") {
        (Box::new(io::stdin()) as Stream, None)
    } else {
        let file = File::open(path).with_context(|| format!("{name}: cannot be opened"))?;
        let about = file.metadata().with_context(|| format!("{name}: cannot be looked at"))?;
        if about.is_dir() {
            bail!("{name}: is a directory; name the captures in it");
        }
        (Box::new(file) as Stream, about.is_file().then_some(about.len()))
    };
    let tally = Tally { digest: RefCell::new(digests.then(Sha256::new)), ..Tally::default() };
    let mut gauge = Gauge { name, total_bytes, packed: false, tally: Rc::new(tally) };
    let mut counted = Counted { raw, tally: gauge.tally.clone() };
    let mut first = Vec::new();
    (&mut counted)
        .take(GZIP.len() as u64)
        .read_to_end(&mut first)
        .with_context(|| format!("{}: cannot be read", gauge.name))?;
    if first.is_empty() {
        bail!("{}: is empty", gauge.name);
    }
    gauge.packed = first == GZIP;
    let whole = io::Cursor::new(first).chain(counted);
    let stream: Stream = if gauge.packed {
        Box::new(Gunzip { unpacked: MultiGzDecoder::new(whole), tally: gauge.tally.clone() })
    } else {
        Box::new(whole)
    };
    Ok((gauge, Window::new(stream)))
}

/// Counts and digests what passes.
struct Counted {
    raw: Stream,
    tally: Rc<Tally>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.raw.read(into)?;
        if let Some(digest) = self.tally.digest.borrow_mut().as_mut() {
            digest.update(&into[..count]);
        }
        self.tally.bytes.set(self.tally.bytes.get() + count as u64);
        Ok(count)
    }
}

/// Unpacks gzip; damage ends the stream where it lies and is remembered, for what came before it is
/// still good.
struct Gunzip<R> {
    unpacked: MultiGzDecoder<R>,
    tally: Rc<Tally>,
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.tally.gzip_damage.borrow().is_some() {
            return Ok(0);
        }
        match self.unpacked.read(into) {
            Err(error) if error.raw_os_error().is_none() => {
                let what = match error.kind() {
                    io::ErrorKind::Interrupted => return Err(error),
                    io::ErrorKind::UnexpectedEof => "it ends early".to_owned(),
                    _ => error.to_string(),
                };
                *self.tally.gzip_damage.borrow_mut() = Some(what);
                // What is packed behind the damage still belongs to the digest.
                io::copy(self.unpacked.get_mut(), &mut io::sink())?;
                Ok(0)
            }
            read => read,
        }
    }
}
