//! One input as a stream of bytes: opened, decompressed if needed, counted and digested.
//!
//! The digest is of the bytes as they lie in the file, so that `sha256sum` prints the same, and it
//! covers the whole file even where a damaged capture is only read in part.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::packing::{self, Packing};
use super::window::Window;

/// A stream of bytes, unpacked.
pub type Stream = Box<dyn Read>;

/// How much of a compressed file is read at once.
const PACKED_STEP_BYTES: usize = 64 * 1024;

/// The name of the embedded sample, wherever an input is named.
pub const EMBEDDED: &str = "embedded:sample.pcap.gz";
/// A minute of an imagined network, played by Linux hosts and captured; `examples/README.md` describes how.
static SAMPLE: &[u8] = include_bytes!("../../../../examples/sample.pcap.gz");

/// The identity of an input, recorded with everything that is made from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputDigest {
    /// The path as it was given, or `-` for standard input.
    pub name: String,
    /// SHA-256 of the file as stored, in hexadecimal; `None` if it was not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What is known about an input while it is read.
#[derive(Clone)]
pub struct Gauge {
    name: String,
    total_bytes: Option<u64>,
    packing: Option<Packing>,
    tally: Rc<Tally>,
}

#[derive(Default)]
struct Tally {
    /// `None` if it was not requested.
    digest: RefCell<Option<Digest>>,
    bytes: Cell<u64>,
    damage: RefCell<Option<String>>,
    /// The errno of a failed read, which the decompressor may mistake for damage.
    failed: Cell<Option<i32>>,
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

    /// How it is compressed, if it is.
    pub fn packing(&self) -> Option<Packing> {
        self.packing
    }

    /// The error of the compressed stream, if it was damaged or cut.
    pub fn packing_damage(&self) -> Option<String> {
        self.tally.damage.borrow().clone()
    }

    /// The identity of the part read so far, with its digest if that was requested; of the whole file once
    /// the stream has ended.
    pub fn identity(&self) -> InputDigest {
        let sha256 = self.tally.digest.borrow().as_ref().map(Digest::so_far);
        InputDigest { name: self.name.clone(), sha256, bytes: self.read_bytes() }
    }
}

/// Opens `path`, standard input for `-`, or the sample for [`EMBEDDED`]; computes its digest if `digests`
/// is set.
///
/// # Errors
/// When it cannot be opened or read, is a directory, or is empty.
pub fn open(path: &Path, digests: bool) -> Result<(Gauge, Window<Stream>)> {
    let name = path.display().to_string();
    let (raw, total_bytes) = if path == Path::new("-") {
        (Box::new(io::stdin()) as Stream, None)
    } else if path == Path::new(EMBEDDED) {
        (Box::new(SAMPLE) as Stream, Some(SAMPLE.len() as u64))
    } else {
        let file = File::open(path).with_context(|| format!("{name}: cannot be opened"))?;
        let about = file.metadata().with_context(|| format!("{name}: cannot be looked at"))?;
        if about.is_dir() {
            bail!("{name}: is a directory; name the captures in it");
        }
        (Box::new(file) as Stream, about.is_file().then_some(about.len()))
    };
    let tally = Tally { digest: RefCell::new(digests.then(Digest::default)), ..Tally::default() };
    let mut gauge = Gauge { name, total_bytes, packing: None, tally: Rc::new(tally) };
    let mut counted = Counted { raw, tally: gauge.tally.clone() };
    let mut first = Vec::new();
    (&mut counted)
        .take(Packing::MAGIC_BYTES as u64)
        .read_to_end(&mut first)
        .with_context(|| format!("{}: cannot be read", gauge.name))?;
    if first.is_empty() {
        return Err(NotRead(format!("{}: is empty", gauge.name)).into());
    }
    gauge.packing = Packing::of(&first);
    let whole = io::Cursor::new(first).chain(counted);
    let stream: Stream = match gauge.packing {
        Some(packing) => Box::new(Unpacked::new(packing, whole, gauge.tally.clone())),
        None => Box::new(whole),
    };
    Ok((gauge, Window::new(stream)))
}

/// A file of a kind that is not read here. It is an error if the file was named; in a directory it is
/// skipped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotRead(pub String);

/// Counts and digests the bytes that are read.
struct Counted {
    raw: Stream,
    tally: Rc<Tally>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.raw.read(into).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.tally.failed.set(error.raw_os_error());
            }
        })?;
        if let Some(digest) = self.tally.digest.borrow_mut().as_mut() {
            digest.update(&into[..count]);
        }
        self.tally.bytes.set(self.tally.bytes.get() + count as u64);
        Ok(count)
    }
}

/// A reader with two owners.
struct Shared<R>(Rc<RefCell<R>>);

impl<R: Read> Read for Shared<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(into)
    }
}

/// Decompresses a stream; damage ends the stream there and is remembered, since the data before it is
/// valid.
struct Unpacked<R> {
    unpacked: Stream,
    packed: Rc<RefCell<R>>,
    tally: Rc<Tally>,
}

impl<R: Read + 'static> Unpacked<R> {
    fn new(packing: Packing, raw: R, tally: Rc<Tally>) -> Unpacked<R> {
        let packed = Rc::new(RefCell::new(raw));
        let shared = BufReader::with_capacity(PACKED_STEP_BYTES, Shared(packed.clone()));
        Unpacked { unpacked: packing.unpack(shared), packed, tally }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.tally.damage.borrow().is_some() {
            return Ok(0);
        }
        let error = match self.unpacked.read(into) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => error,
            read => return read,
        };
        if let Some(number) = self.tally.failed.take() {
            return Err(io::Error::from_raw_os_error(number));
        }
        *self.tally.damage.borrow_mut() = Some(packing::damage(&error));
        // Compressed bytes behind the damage still belong to the digest.
        io::copy(&mut *self.packed.borrow_mut(), &mut io::sink())?;
        Ok(0)
    }
}
