//! Files of the system, such as those of `/proc`, and reading within a limit: a device, a pipe and most of what lies
//! in `/proc` have the length 0 and no end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of a file of the system at most: a million routes of the kernel have 128 MiB.
const SYSTEM_BYTES_MAX: u64 = 512 << 20;

/// All bytes of `reader`; `None` if there are more than `bytes_max`.
///
/// # Errors
/// When it cannot be read.
pub fn within(reader: impl Read, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = reader.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((read as u64 <= bytes_max).then_some(bytes))
}

/// The text of a file that the system keeps, such as those of `/proc`.
///
/// # Errors
/// When it cannot be read, is not text, or is longer than any such file.
pub fn system_text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = within(File::open(path)?, SYSTEM_BYTES_MAX)?;
    let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_read_within_a_limit() {
        assert!(system_text("/proc/self/status").expect("some lines").contains("VmRSS:"));
        assert!(system_text("/proc/self/nothing").is_err());
        assert_eq!(within(io::repeat(1), 70_000).expect("no end"), None);
    }
}
