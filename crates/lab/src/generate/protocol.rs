//! The request of sixteen bytes that a client opens a connection with.
//!
//! | bytes | field   | value                                     |
//! |-------|---------|-------------------------------------------|
//! | 0–3   | magic   | `NILO`                                    |
//! | 4–5   | version | 1, big-endian                             |
//! | 6–7   | –       | zero                                      |
//! | 8–15  | size    | payload bytes wanted, big-endian          |
//!
//! The size has 64 bits (Harpoon's had 31, and ended at 2 GiB), with a ceiling of
//! [`SIZE_MAX_BYTES`] so that no stranger makes a server send for ever.

/// Length of a request, in bytes.
pub const REQUEST_BYTES: usize = 16;

/// The largest file that can be asked for: 1 TiB.
pub const SIZE_MAX_BYTES: u64 = 1 << 40;

const MAGIC: [u8; 4] = *b"NILO";
const VERSION: u16 = 1;

/// Why sixteen bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// They do not begin with the magic: another program's client, probably.
    Magic([u8; 4]),
    /// The version (or a reserved bit) is of another Nilometer than this.
    Version(u16),
    /// The size is beyond [`SIZE_MAX_BYTES`].
    Size(u64),
}

/// The request for `size_bytes`.
pub fn encode(size_bytes: u64) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(&MAGIC);
    request[4..6].copy_from_slice(&VERSION.to_be_bytes());
    request[8..].copy_from_slice(&size_bytes.to_be_bytes());
    request
}

/// The size that `request` asks for, in bytes.
///
/// # Errors
/// [`BadRequest`], naming the first field that is wrong.
pub fn decode(request: &[u8; REQUEST_BYTES]) -> Result<u64, BadRequest> {
    let magic = [request[0], request[1], request[2], request[3]];
    if magic != MAGIC {
        return Err(BadRequest::Magic(magic));
    }
    let version = u16::from_be_bytes([request[4], request[5]]);
    if version != VERSION || request[6..8] != [0, 0] {
        return Err(BadRequest::Version(version));
    }
    let mut size = [0; 8];
    size.copy_from_slice(&request[8..]);
    match u64::from_be_bytes(size) {
        size if size > SIZE_MAX_BYTES => Err(BadRequest::Size(size)),
        size => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_what_is_read() {
        for size in [0, 1, 1_460, 1 << 31, SIZE_MAX_BYTES] {
            assert_eq!(decode(&encode(size)), Ok(size));
        }
    }

    #[test]
    fn each_wrong_field_is_named() {
        assert_eq!(decode(b"GET / HTTP/1.1\r\n"), Err(BadRequest::Magic(*b"GET ")));
        let mut newer = encode(1);
        newer[5] = 2;
        assert_eq!(decode(&newer), Err(BadRequest::Version(2)));
        let mut reserved = encode(1);
        reserved[7] = 1;
        assert_eq!(decode(&reserved), Err(BadRequest::Version(1)));
        let huge = SIZE_MAX_BYTES + 1;
        assert_eq!(decode(&encode(huge)), Err(BadRequest::Size(huge)));
    }
}
