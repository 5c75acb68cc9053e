//! The file format of recordings: the inputs of a router's pipeline, and its responses.
//!
//! A recording begins with eight bytes, `NILREC` and the version as two digits. Everything after that is numbers
//! (LEB128: seven bits a byte, the low ones first) and strings of bytes behind their length. First
//! comes a table in TOML, the [`Beginning`]; then events, each a number for its kind, and its
//! fields in the order of their declaration here. Every [`Input`] that has a response is followed by it.

use std::io::{self, ErrorKind, Read, Write};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::config::RouterConfig;

/// What a recording begins with.
pub const MAGIC: &[u8; 8] = b"NILREC01";
/// Longest string of bytes: a description with very many filters.
const BYTES_MAX: u64 = 1 << 28;
/// Most numbers of a list.
const LIST_MAX: u64 = 1 << 24;
/// Most frames of a batch; a driver hands in 256.
const FRAMES_MAX: u64 = 4_096;
/// Longest frame, bytes.
const FRAME_MAX: u64 = 10_000;

/// The description of the recorded router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beginning {
    /// By port, the link-layer address and the greatest IP packet in bytes.
    pub ports: Vec<([u8; 6], u16)>,
    /// Its description as it was in force.
    pub config: RouterConfig,
}

/// An input of the pipeline: a call of its driver, or a change of its tables. Times are nanoseconds since it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Frames came to a port, as one batch.
    Receive {
        /// When.
        now: u64,
        /// The port.
        port: u64,
        /// The frames.
        frames: Vec<Vec<u8>>,
    },
    /// A frame was injected from beside the router.
    Inject {
        /// When.
        now: u64,
        /// The port by which it is to leave.
        port: u64,
        /// The frame.
        frame: Vec<u8>,
    },
    /// What is due is to be done.
    Advance {
        /// When.
        now: u64,
    },
    /// A port may transmit.
    Transmit {
        /// When.
        now: u64,
        /// The port.
        port: u64,
        /// Frames that its device has room for.
        room: u64,
    },
    /// The number of frames that a device has not sent yet.
    Sending {
        /// The port.
        port: u64,
        /// Frames.
        frames: u64,
    },
    /// The driver took packets for the router itself, up to a number.
    Punt {
        /// The port.
        port: u64,
        /// The most.
        most: u64,
    },
    /// The driver took the copies for a tracer.
    Copies,
    /// A route of IPv4 leads to this next hop from now on, or nowhere.
    Route4 {
        /// The prefix.
        prefix: (u32, u8),
        /// The next hop's number and one more; 0 for none.
        next: u64,
    },
    /// Likewise of IPv6.
    Route6 {
        /// The prefix.
        prefix: (u128, u8),
        /// As above.
        next: u64,
    },
    /// These next hops are in force: [`nilometer_router::Snapshot::to_words`].
    Hops {
        /// The snapshot.
        words: Vec<u64>,
    },
    /// A setting was changed: [`super::Command`] in TOML.
    Command {
        /// When.
        now: u64,
        /// The command.
        toml: Vec<u8>,
    },
    /// The recording ended properly, after this many events.
    End {
        /// Events before this one.
        events: u64,
    },
}

/// The pipeline's response to one input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Digests of the frames that it handed out, in order.
    pub left: Vec<u64>,
    /// Digests of the frames that went no further, in order: dropped, or consumed.
    pub gone: Vec<u64>,
    /// Counters that rose meanwhile, by number, and by how much.
    pub counted: Vec<(u64, u64)>,
    /// Requests for a buffer that the memory refused, counted from 0 within this call.
    pub refused: Vec<u64>,
}

/// A digest of a frame's bytes: a hash of 64 bits, which stays the same from one version to the next.
pub fn digest(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let mixed = words.fold(bytes.len() as u64, |sum, word| {
        let mixed = (sum ^ word).wrapping_mul(ODD);
        mixed ^ mixed >> 29
    });
    mixed.wrapping_mul(ODD)
}

impl Response {
    /// Empties it.
    pub fn clear(&mut self) {
        self.left.clear();
        self.gone.clear();
        self.counted.clear();
        self.refused.clear();
    }
}

impl Input {
    /// Whether a response follows it.
    pub fn has_response(&self) -> bool {
        !matches!(
            self,
            Input::Sending { .. }
                | Input::Route4 { .. }
                | Input::Route6 { .. }
                | Input::Hops { .. }
                | Input::End { .. }
        )
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Input::Receive { .. } => "receive",
            Input::Inject { .. } => "inject",
            Input::Advance { .. } => "advance",
            Input::Transmit { .. } => "transmit",
            Input::Sending { .. } => "sending",
            Input::Punt { .. } => "punt",
            Input::Copies => "copies",
            Input::Route4 { .. } | Input::Route6 { .. } => "route",
            Input::Hops { .. } => "next_hops",
            Input::Command { .. } => "command",
            Input::End { .. } => "end",
        }
    }
}

fn put(out: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|&number| put(out, number.into()));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u128);
    out.extend(bytes);
}

fn put_list(out: &mut Vec<u8>, numbers: &[u64]) {
    put(out, numbers.len() as u128);
    put_all(out, numbers);
}

/// Appends the beginning of a recording.
///
/// # Errors
/// When the description cannot be written, which a checked one can.
pub fn begin(out: &mut Vec<u8>, beginning: &Beginning) -> Result<()> {
    out.extend(MAGIC);
    put_bytes(out, toml::to_string(beginning).context("the router's description")?.as_bytes());
    Ok(())
}

/// Appends an input.
pub fn put_input(out: &mut Vec<u8>, input: &Input) {
    match input {
        Input::Receive { now, port, frames } => {
            put_all(out, &[1, *now, *port, frames.len() as u64]);
            frames.iter().for_each(|frame| put_bytes(out, frame));
        }
        Input::Inject { now, port, frame } => {
            put_all(out, &[2, *now, *port]);
            put_bytes(out, frame);
        }
        Input::Advance { now } => put_all(out, &[3, *now]),
        Input::Transmit { now, port, room } => put_all(out, &[4, *now, *port, *room]),
        Input::Sending { port, frames } => put_all(out, &[5, *port, *frames]),
        Input::Punt { port, most } => put_all(out, &[6, *port, *most]),
        Input::Copies => put_all(out, &[7]),
        Input::Route4 { prefix: (address, length), next } => {
            put_all(out, &[8, u64::from(*address), u64::from(*length), *next]);
        }
        Input::Route6 { prefix: (address, length), next } => {
            put(out, 9);
            put(out, *address);
            put_all(out, &[u64::from(*length), *next]);
        }
        Input::Hops { words } => {
            put(out, 10);
            put_list(out, words);
        }
        Input::Command { now, toml } => {
            put_all(out, &[11, *now]);
            put_bytes(out, toml);
        }
        Input::End { events } => put_all(out, &[12, *events]),
    }
}

/// Appends a response.
pub fn put_response(out: &mut Vec<u8>, response: &Response) {
    put_list(out, &response.left);
    put_list(out, &response.gone);
    put(out, response.counted.len() as u128);
    response.counted.iter().for_each(|&(counter, by)| put_all(out, &[counter, by]));
    put_list(out, &response.refused);
}

/// Reads a recording.
pub struct Reader<R> {
    from: R,
    /// Bytes read so far.
    at: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning.
    ///
    /// # Errors
    /// When it is no recording, or of another version.
    pub fn open(from: R) -> Result<(Reader<R>, Beginning)> {
        let mut reader = Reader { from, at: 0 };
        let mut magic = [0; 8];
        reader.fill(&mut magic).context("no recording: it is too short")?;
        ensure!(&magic == MAGIC, "no recording of this version: route run --record writes one");
        let text = reader.bytes(BYTES_MAX)?;
        let text = String::from_utf8(text).context("the router's description")?;
        let beginning = toml::from_str(&text).context("the router's description")?;
        Ok((reader, beginning))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.from.read_exact(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// A number; none at the end of the file, where one is allowed.
    fn number_or_end(&mut self) -> Result<Option<u128>> {
        let (mut number, mut shift, at) = (0u128, 0, self.at);
        loop {
            let mut byte = [0];
            match self.fill(&mut byte) {
                Ok(()) => {}
                Err(why) if why.kind() == ErrorKind::UnexpectedEof && shift == 0 => {
                    return Ok(None);
                }
                Err(why) => return Err(why).context(format!("the recording is cut at byte {at}")),
            }
            ensure!(shift < 128, "byte {at} of the recording: a number is too long");
            number |= u128::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(Some(number));
            }
            shift += 7;
        }
    }

    fn wide(&mut self) -> Result<u128> {
        let at = self.at;
        self.number_or_end()?.with_context(|| format!("the recording is cut at byte {at}"))
    }

    fn number(&mut self) -> Result<u64> {
        let at = self.at;
        u64::try_from(self.wide()?)
            .with_context(|| format!("byte {at} of the recording: a number is too large"))
    }

    fn count(&mut self, most: u64) -> Result<usize> {
        let (at, count) = (self.at, self.number()?);
        ensure!(count <= most, "byte {at} of the recording: {count} is too many");
        Ok(count as usize)
    }

    fn bytes(&mut self, most: u64) -> Result<Vec<u8>> {
        let count = self.count(most)?;
        let mut bytes = Vec::new();
        let at = self.at;
        (&mut self.from).take(count as u64).read_to_end(&mut bytes)?;
        self.at += bytes.len() as u64;
        ensure!(bytes.len() == count, "the recording is cut after byte {at}");
        Ok(bytes)
    }

    fn list(&mut self) -> Result<Vec<u64>> {
        let count = self.count(LIST_MAX)?;
        (0..count).map(|_| self.number()).collect()
    }

    /// A length of a prefix.
    fn length(&mut self) -> Result<u8> {
        Ok(self.count(128)? as u8)
    }

    /// The next input; none at the end of the file.
    ///
    /// # Errors
    /// When the file is cut or damaged: at which byte.
    pub fn input(&mut self) -> Result<Option<Input>> {
        let at = self.at;
        let Some(kind) = self.number_or_end()? else { return Ok(None) };
        Ok(Some(match kind {
            1 => {
                let (now, port) = (self.number()?, self.number()?);
                let count = self.count(FRAMES_MAX)?;
                let frames = (0..count).map(|_| self.bytes(FRAME_MAX)).collect::<Result<_>>()?;
                Input::Receive { now, port, frames }
            }
            2 => Input::Inject {
                now: self.number()?,
                port: self.number()?,
                frame: self.bytes(FRAME_MAX)?,
            },
            3 => Input::Advance { now: self.number()? },
            4 => {
                Input::Transmit { now: self.number()?, port: self.number()?, room: self.number()? }
            }
            5 => Input::Sending { port: self.number()?, frames: self.number()? },
            6 => Input::Punt { port: self.number()?, most: self.number()? },
            7 => Input::Copies,
            8 => {
                let address = self.count(u64::from(u32::MAX))? as u32;
                Input::Route4 { prefix: (address, self.length()?), next: self.number()? }
            }
            9 => Input::Route6 { prefix: (self.wide()?, self.length()?), next: self.number()? },
            10 => Input::Hops { words: self.list()? },
            11 => Input::Command { now: self.number()?, toml: self.bytes(BYTES_MAX)? },
            12 => Input::End { events: self.number()? },
            other => bail!("byte {at} of the recording: there is no event {other}"),
        }))
    }

    /// The response that follows an input.
    ///
    /// # Errors
    /// As [`Reader::input`].
    pub fn response(&mut self) -> Result<Response> {
        let (left, gone) = (self.list()?, self.list()?);
        let count = self.count(LIST_MAX)?;
        let pair = |_| Ok((self.number()?, self.number()?));
        let counted = (0..count).map(pair).collect::<Result<_>>()?;
        Ok(Response { left, gone, counted, refused: self.list()? })
    }
}

/// Writes the bytes and clears the buffer.
pub(super) fn write_all(to: &mut impl Write, out: &mut Vec<u8>) -> io::Result<()> {
    to.write_all(out)?;
    out.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written_and_a_cut_is_found() {
        let input = [
            Input::Receive { now: 1 << 40, port: 3, frames: vec![vec![1, 2, 3], Vec::new()] },
            Input::Inject { now: 5, port: 0, frame: vec![9; 200] },
            Input::Advance { now: 127 },
            Input::Transmit { now: 128, port: 1, room: 256 },
            Input::Sending { port: 1, frames: 0 },
            Input::Punt { port: 7, most: 64 },
            Input::Copies,
            Input::Route4 { prefix: (0xc612_0000, 15), next: 8 },
            Input::Route6 { prefix: (0xfd00 << 112, 8), next: 0 },
            Input::Hops { words: vec![u64::MAX, 0, 1] },
            Input::Command { now: 6, toml: b"{}".to_vec() },
            Input::End { events: 11 },
        ];
        let response = Response {
            left: vec![u64::MAX, 1],
            gone: vec![2],
            counted: vec![(300, 2)],
            refused: vec![0],
        };
        let beginning = Beginning { config: RouterConfig::default(), ports: vec![([2; 6], 1_500)] };
        let mut bytes = Vec::new();
        begin(&mut bytes, &beginning).expect("a description");
        for input in &input {
            put_input(&mut bytes, input);
            if input.has_response() {
                put_response(&mut bytes, &response);
            }
        }
        let (mut reader, read) = Reader::open(&bytes[..]).expect("a recording");
        assert_eq!(read, beginning);
        for input in &input {
            assert_eq!(reader.input().expect("an event").as_ref(), Some(input));
            if input.has_response() {
                assert_eq!(reader.response().expect("an response"), response);
            }
        }
        assert_eq!(reader.input().expect("the end"), None);
        let cut = &bytes[..bytes.len() - 1];
        let (mut reader, _) = Reader::open(cut).expect("a recording");
        let mut error = None;
        while error.is_none() {
            match reader.input() {
                Ok(Some(input)) if input.has_response() => error = reader.response().err(),
                Ok(Some(_)) => {}
                Ok(None) => panic!("the cut is not found"),
                Err(why) => error = Some(why),
            }
        }
        assert!(error.is_some_and(|why| why.to_string().contains("cut at byte")));
        assert!(Reader::open(&b"no recording at all"[..]).is_err());
    }

    #[test]
    fn different_frames_have_different_digests() {
        let frame: Vec<u8> = (0..100).collect();
        let mut other = frame.clone();
        other[99] ^= 1;
        let all = [digest(&frame), digest(&other), digest(&frame[..99]), digest(&[]), digest(&[0])];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one));
        }
    }
}
