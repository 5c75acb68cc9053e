//! TCP's time stamps, for each connection as its original had them.
//!
//! Linux has no socket option for them: whether a SYN offers time stamps is a setting of the network
//! namespace (`net.ipv4.tcp_timestamps`). In the lab's own namespace it is switched just before a connection
//! that needs another value than the one before. A server answers as the SYN offers. A connection whose SYN
//! is under way while the setting is switched off sends none either, though its server does: its headers are
//! longer in one direction than in the original.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use anyhow::{Context, Result};

use nilometer_linux::namespace;

const SETTING: &str = "net/ipv4/tcp_timestamps";

/// The setting of a namespace, and its current value.
#[derive(Debug)]
pub(super) struct Stamping(Mutex<(File, bool)>);

impl Stamping {
    /// The setting of this thread's network namespace, turned on.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn open() -> Result<Stamping> {
        let file = namespace::open_sysctl(SETTING)?;
        file.write_all_at(b"1", 0).with_context(|| format!("cannot write {SETTING}"))?;
        Ok(Stamping(Mutex::new((file, true))))
    }

    /// Does what sends a SYN, with or without time stamps.
    pub fn with<T>(&self, wants: bool, connect: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut setting = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if setting.1 != wants {
            setting.0.write_all_at(if wants { b"1" } else { b"0" }, 0)?;
            setting.1 = wants;
        }
        connect()
    }
}
