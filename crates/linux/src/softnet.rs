//! What the kernel's receiving soft interrupts dropped or broke off, by its own sums (`/proc/net/softnet_stat`).

use anyhow::{Context, Result};

use crate::system_file::system_text;

/// Sums over all processors of the machine, since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Frames that a processor's backlog had no room for.
    pub dropped: u64,
    /// How often a soft interrupt had more to do than it may in one go (`time_squeeze`).
    pub squeezed: u64,
}

impl Softnet {
    /// Now.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn now() -> Result<Softnet> {
        let path = "/proc/net/softnet_stat";
        let text = system_text(path).with_context(|| format!("cannot read {path}"))?;
        parsed(&text).with_context(|| format!("{path} is not as it should be"))
    }

    /// The increase since `before`; the kernel's sums have 32 bits for each processor.
    pub fn since(&self, before: &Softnet) -> Softnet {
        Softnet {
            dropped: self.dropped.saturating_sub(before.dropped),
            squeezed: self.squeezed.saturating_sub(before.squeezed),
        }
    }
}

/// One line a processor: hexadecimal columns, of which the second counts drops and the third squeezes.
fn parsed(text: &str) -> Option<Softnet> {
    let mut all = Softnet::default();
    for line in text.lines() {
        let mut columns = line.split_whitespace().skip(1);
        let mut count = || u64::from_str_radix(columns.next()?, 16).ok();
        all.dropped += count()?;
        all.squeezed += count()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_summed() {
        let text = "0000078b 00000002 0000000a 0 0\n000008b2 00000001 00000001 0 0\n";
        let now = Softnet { dropped: 3, squeezed: 11 };
        assert_eq!(parsed(text), Some(now));
        assert_eq!(parsed("0000078b zz 1\n"), None);
        let before = Softnet { dropped: 1, squeezed: 20 };
        assert_eq!(now.since(&before), Softnet { dropped: 2, squeezed: 0 });
        Softnet::now().expect("Linux has softnet_stat");
    }
}
