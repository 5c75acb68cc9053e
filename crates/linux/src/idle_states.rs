//! Keeps idle processors awake while something is timed.
//!
//! A processor that has nothing to do halts, and one that halted takes its time to wake: some microseconds where it
//! is real, tens where a hypervisor has to schedule it again. A packet that arrives at a halted processor waits for
//! that long, and so does a pause that ends. The kernel lets a process bound that (`/dev/cpu_dma_latency`, Power
//! Management Quality of Service): as long as the file is open with a limit of 0 µs, idle processors poll. They use
//! power, and on a shared machine possibly another user's; so this is for the seconds of a run, and not for a
//! router that serves for months.
//!
//! Only root of the machine may open the file, and not every kernel has it; a run without it is late by the cost of
//! halting, and reports that.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use crate::scheduling::Class;

const FILE: &str = "/dev/cpu_dma_latency";

/// Idle processors poll until it is dropped, if they may.
#[derive(Debug)]
pub enum AwakeProcessors {
    /// They do. (The kernel lets the limit go when the file is closed, however the process ends.)
    Held(File),
    /// They halt as on any day.
    NotHeld(Option<io::Error>),
}

impl AwakeProcessors {
    /// From now on, if timed threads have a real-time class.
    pub fn for_class(class: Class) -> AwakeProcessors {
        match class {
            Class::Ordinary => AwakeProcessors::NotHeld(None),
            Class::RealTime => match hold() {
                Ok(file) => AwakeProcessors::Held(file),
                Err(why) => AwakeProcessors::NotHeld(Some(why)),
            },
        }
    }
}

fn hold() -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open(FILE)?;
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}

impl fmt::Display for AwakeProcessors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AwakeProcessors::Held(_) => out.write_str("kept awake"),
            AwakeProcessors::NotHeld(None) => out.write_str("halted"),
            AwakeProcessors::NotHeld(Some(why)) => write!(out, "halted ({FILE}: {why})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_kept_awake_for_timed_threads_alone() {
        assert_eq!(AwakeProcessors::for_class(Class::Ordinary).to_string(), "halted");
        let text = AwakeProcessors::for_class(Class::RealTime).to_string();
        assert!(
            text == "kept awake" || text.starts_with("halted (/dev/cpu_dma_latency: "),
            "{text}"
        );
    }
}
