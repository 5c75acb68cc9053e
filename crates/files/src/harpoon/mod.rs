//! Harpoon's own configurations: read as models, and models written as them.
//!
//! A configuration is XML: `<harpoon_plugins>` holds `<plugin>`s, each a client or a server of some kind
//! of traffic, with lists of numbers and pools of addresses. A model is the TCP client and the TCP
//! server together: waits between connections, active sessions and both address pools from the one,
//! sizes of files from the other, in one file or in two. All other content is counted.
//!
//! | in the configuration | in the model |
//! |---|---|
//! | `interconnection_times` | the inter-connection time |
//! | `file_sizes` | the file size |
//! | `active_sessions`, at most `maxthreads` | sessions of each interval |
//! | `address_pool`: how often each address is in it | popularity by rank; addresses are not kept |
//!
//! The length of an interval is not part of it, but an option of Harpoon's command line (`-w`, 60 s).

mod read;
mod write;

pub use read::{Configuration, read};
pub use write::{Exported, export};

/// Does a file with this beginning hold XML?
pub fn is_xml(beginning: &[u8]) -> bool {
    let text = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(beginning);
    text.iter().find(|octet| !octet.is_ascii_whitespace()) == Some(&b'<')
}
