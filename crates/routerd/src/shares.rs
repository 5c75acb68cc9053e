//! How a router's buffers are shared, from what a ROUTER.toml says, and whether they hold their reserves.
//!
//! Two buffers are shared: each input's, among its virtual output queues, and the packet memory, among
//! the outputs (`nilometer_router::fabric::MemoryLimits`). A queue's reserve must hold in both. So the
//! memory reserves for each output what all inputs may keep for it, `N` times the reserve of a queue;
//! receive buffers are left out of it, and so are packets that wait elsewhere in the router.

use anyhow::{Context, Result, ensure};
use nilometer_queue::{Alpha, Sharing};
use nilometer_router::fabric::MemoryLimits;
use nilometer_router::pipeline::port::PUNT_MAX;
use nilometer_router::pipeline::slow::{COPIES_MAX, NEIGHBOURLY_MAX, SLOW_MAX};

use super::config::RouterConfig;

/// Buffers that are kept for packets of the router's own.
pub const OWN_RESERVE: u32 = 64;
/// Entries of an AF_XDP port's rings, and buffers kept for reception there.
pub const RING_ENTRIES: u32 = 2_048;
/// Buffers kept for packets from the kernel's side.
pub const BESIDE_RESERVE: u32 = 64;
/// The multiple of the free memory that an output may use: eight, so that a single output gets eight
/// ninths.
const MEMORY_ALPHA_EXPONENT: i8 = 3;

/// The shares of both buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Of an input's buffer.
    pub input: Sharing,
    /// The memory's.
    pub memory: MemoryLimits,
}

/// What of the memory is not for packets in queues.
struct Kept {
    /// For what ports receive into, and for packets of the router's own.
    always: u64,
    /// For packets that wait in the slow path, if the memory is not small.
    elsewhere: u64,
}

impl Kept {
    /// Buffers that queued packets may use, out of `buffers` in all: a small memory is not kept for the
    /// slow path, which is seldom full.
    fn left_of(&self, buffers: u64) -> u64 {
        let rest = buffers - self.always;
        rest.saturating_sub(self.elsewhere).max(rest / 2)
    }

    /// The least memory that leaves `queued` buffers to queues.
    fn least_for(&self, queued: u64) -> u64 {
        self.always.saturating_add(queued).saturating_add(self.elsewhere.min(queued))
    }
}

/// What the ports and the slow path of a router keep of its memory.
fn kept(config: &RouterConfig) -> Result<Kept> {
    let received: u64 = config
        .ports
        .iter()
        .map(|port| u64::from(RING_ENTRIES + port.punt.as_ref().map_or(0, |_| BESIDE_RESERVE)))
        .sum();
    let (all, kept) = (u64::from(config.memory.buffers), u64::from(OWN_RESERVE) + received);
    let least = kept + 2 * config.fabric_ports() as u64;
    ensure!(
        all >= least,
        "memory.buffers is {all}: the ports receive into {received}, and {OWN_RESERVE} are for packets of \
         the router's own; give at least {least}"
    );
    let punting = config.ports.iter().filter(|port| port.punt.is_some()).count();
    let elsewhere = SLOW_MAX + NEIGHBOURLY_MAX + COPIES_MAX + punting * PUNT_MAX;
    Ok(Kept { always: kept, elsewhere: elsewhere as u64 })
}

/// The shares of a router, spare ports included.
///
/// # Errors
/// When a number is out of its range, or a buffer does not hold the reserves.
pub fn shares(config: &RouterConfig) -> Result<Shared> {
    let fabric = &config.fabric;
    let alpha = Alpha::new(fabric.alpha).with_context(|| {
        format!("fabric.alpha is {}; give a power of two from 0.0078125 to 128", fabric.alpha)
    })?;
    ensure!(
        fabric.input_packets <= u64::from(u32::MAX),
        "fabric.input_packets is {}; give at most {}",
        fabric.input_packets,
        u32::MAX
    );
    let kept = kept(config)?;
    let packets = kept.left_of(u64::from(config.memory.buffers));
    let ports = config.fabric_ports() as u64;
    let usual = (fabric.input_packets / 2 / ports).min(packets / 2 / ports / ports);
    let reserve = fabric.reserve_packets.unwrap_or(usual);
    let of_input = reserve.saturating_mul(ports);
    ensure!(
        of_input <= fabric.input_packets,
        "fabric.reserve_packets is {reserve}: the {ports} queues of an input need {of_input}, and \
         fabric.input_packets is {}; give reserve_packets at most {}, or input_packets at least {of_input}",
        fabric.input_packets,
        fabric.input_packets / ports
    );
    let of_all = of_input.saturating_mul(ports);
    ensure!(
        of_all <= packets,
        "fabric.reserve_packets is {reserve}: {ports} inputs of {ports} queues need {of_all} buffers, and \
         memory.buffers = {} leaves {packets} beside what ports receive into; give reserve_packets at \
         most {}, or memory.buffers at least {}",
        config.memory.buffers,
        packets / ports / ports,
        kept.least_for(of_all)
    );
    let memory_alpha = Alpha::of_exponent(MEMORY_ALPHA_EXPONENT).context("an exponent")?;
    Ok(Shared {
        input: Sharing { reserve_packets: Some(reserve), alpha },
        memory: MemoryLimits {
            packets,
            sharing: Sharing { reserve_packets: Some(of_input), alpha: memory_alpha },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortSection;

    fn config(ports: usize) -> RouterConfig {
        let ports = (0..ports).map(|number| PortSection::new(&format!("p{number}"))).collect();
        RouterConfig { ports, ..RouterConfig::default() }
    }

    fn refused(config: &RouterConfig) -> String {
        let why = config.check().expect_err("it cannot be").to_string();
        assert!(!why.contains('\n'), "{why}");
        why
    }

    #[test]
    fn the_defaults_fit_any_number_of_ports() {
        let shared = shares(&config(3)).expect("it fits");
        assert_eq!(shared.input, Sharing { reserve_packets: Some(682), alpha: Alpha::TWO });
        // 32,768 less 64, three times 2,048, and 1,536 elsewhere.
        assert_eq!(shared.memory.packets, 25_024);
        assert_eq!(shared.memory.sharing.reserve_packets, Some(3 * 682));
        for ports in 1..=15 {
            shares(&config(ports)).expect("it fits");
        }
        let why = refused(&config(16));
        assert_eq!(
            why,
            "memory.buffers is 32768: the ports receive into 32768, and 64 are for packets of the \
             router's own; give at least 32864"
        );
        let mut enough = config(16);
        enough.memory.buffers = 32_864;
        enough.check().expect("as it was told");
    }

    #[test]
    fn reserves_that_do_not_fit_are_refused_with_the_maximum() {
        let mut config_with = config(3);
        config_with.fabric.reserve_packets = Some(2_000);
        assert_eq!(
            refused(&config_with),
            "fabric.reserve_packets is 2000: the 3 queues of an input need 6000, and \
             fabric.input_packets is 4096; give reserve_packets at most 1365, or input_packets at least \
             6000"
        );
        config_with.fabric.reserve_packets = Some(1_365);
        config_with.check().expect("as it was told");
        config_with.fabric.input_packets = 10_000;
        config_with.fabric.reserve_packets = Some(3_000);
        assert_eq!(
            refused(&config_with),
            "fabric.reserve_packets is 3000: 3 inputs of 3 queues need 27000 buffers, and memory.buffers \
             = 32768 leaves 25024 beside what ports receive into; give reserve_packets at most 2780, or \
             memory.buffers at least 34744"
        );
        config_with.memory.buffers = 34_744;
        config_with.check().expect("as it was told");
        config_with.memory.buffers = 34_743;
        assert!(refused(&config_with).contains("at least 34744"));
        (config_with.memory.buffers, config_with.fabric.reserve_packets) = (32_768, Some(2_780));
        config_with.check().expect("as it was told");
        config_with.fabric.input_packets = 1 << 32;
        assert!(
            refused(&config_with).contains("input_packets is 4294967296; give at most 4294967295")
        );
        config_with.fabric.input_packets = 10_000;
        config_with.fabric.alpha = 3.0;
        let why = refused(&config_with);
        assert_eq!(why, "fabric.alpha is 3; give a power of two from 0.0078125 to 128");
        config_with.fabric.reserve_packets = Some(u64::MAX);
        config_with.fabric.alpha = 2.0;
        assert!(refused(&config_with).contains("at most 3333"));
    }
}
