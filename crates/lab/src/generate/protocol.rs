//! The request that a client opens a connection with: sixteen bytes, and payload as the plan has it.
//!
//! | bytes | field   | value                                                        |
//! |-------|---------|--------------------------------------------------------------|
//! | 0–2   | magic   | `NIL`                                                        |
//! | 3     | version | 2                                                            |
//! | 4–9   | request | bytes of the whole request, these sixteen among them, big-endian |
//! | 10–15 | size    | payload bytes wanted, big-endian                             |
//!
//! Both sizes have 48 bits (Harpoon's had 31, and ended at 2 GiB), with a ceiling of
//! [`SIZE_MAX_BYTES`] so that no stranger makes a server send, or listen, for ever.

/// Length of a request's header, in bytes; no request is shorter.
pub const REQUEST_BYTES: usize = 16;

/// The largest file that can be requested, and the longest request: 1 TiB.
pub const SIZE_MAX_BYTES: u64 = 1 << 40;

const MAGIC: [u8; 3] = *b"NIL";
const VERSION: u8 = 2;

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes of the whole request, at least [`REQUEST_BYTES`].
    pub bytes: u64,
    /// Payload bytes wanted.
    pub size_bytes: u64,
}

/// Why sixteen bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// They do not begin with the magic: another program's client, probably.
    Magic([u8; 3]),
    /// The version is of another Nilometer than this.
    Version(u8),
    /// The size is beyond [`SIZE_MAX_BYTES`].
    Size(u64),
    /// The request claims to be shorter than its own header, or longer than [`SIZE_MAX_BYTES`].
    Length(u64),
}

impl Request {
    /// A request of `request_bytes`, or of the fewest that there can be, for `size_bytes`.
    pub fn new(request_bytes: u64, size_bytes: u64) -> Request {
        Request { bytes: request_bytes.max(REQUEST_BYTES as u64), size_bytes }
    }

    /// Its header. Both sizes are at most [`SIZE_MAX_BYTES`].
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = VERSION;
        bytes[4..10].copy_from_slice(&self.bytes.to_be_bytes()[2..]);
        bytes[10..].copy_from_slice(&self.size_bytes.to_be_bytes()[2..]);
        bytes
    }

    /// The request that begins with these bytes.
    ///
    /// # Errors
    /// [`BadRequest`], naming the first field that is wrong.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Request, BadRequest> {
        let magic = [bytes[0], bytes[1], bytes[2]];
        if magic != MAGIC {
            return Err(BadRequest::Magic(magic));
        }
        if bytes[3] != VERSION {
            return Err(BadRequest::Version(bytes[3]));
        }
        let number = |field: &[u8]| field.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let request = Request { bytes: number(&bytes[4..10]), size_bytes: number(&bytes[10..]) };
        match request {
            Request { bytes, .. } if !(REQUEST_BYTES as u64..=SIZE_MAX_BYTES).contains(&bytes) => {
                Err(BadRequest::Length(bytes))
            }
            Request { size_bytes, .. } if size_bytes > SIZE_MAX_BYTES => {
                Err(BadRequest::Size(size_bytes))
            }
            request => Ok(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_encoding_and_decoding() {
        for size in [0, 1, 1_460, 1 << 31, SIZE_MAX_BYTES] {
            for length in [16, 17, 40_000, SIZE_MAX_BYTES] {
                let request = Request { bytes: length, size_bytes: size };
                assert_eq!(Request::decode(&request.encode()), Ok(request));
            }
        }
        assert_eq!(Request::new(3, 1).bytes, 16);
    }

    #[test]
    fn each_wrong_field_is_named() {
        assert_eq!(Request::decode(b"GET / HTTP/1.1\r\n"), Err(BadRequest::Magic(*b"GET")));
        let mut older = Request::new(0, 1).encode();
        older[3] = 1;
        assert_eq!(Request::decode(&older), Err(BadRequest::Version(1)));
        let huge = SIZE_MAX_BYTES + 1;
        assert_eq!(Request::decode(&Request::new(0, huge).encode()), Err(BadRequest::Size(huge)));
        for length in [15, huge] {
            let request = Request { bytes: length, size_bytes: 1 };
            assert_eq!(Request::decode(&request.encode()), Err(BadRequest::Length(length)));
        }
    }
}
