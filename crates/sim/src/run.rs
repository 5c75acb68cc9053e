//! One run of a scenario, a function of the scenario and a seed: set up, driven, read.
//!
//! The run stops at random moments to look at the bottleneck's queue: exponentially spaced ones, which
//! see what a Poisson arrival would see, so that no rhythm of the traffic can hide from them. At the
//! same moments the caller gets the run's progress, and may end it there. Stopping changes nothing: a
//! network driven in parts does what it does when driven at once.

use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

use crate::assembly::Assembly;
use crate::network::{Network, Tap};
use crate::outcome::{About, Outcome};

/// The purpose of the random stream that chooses moments.
const PURPOSE_MOMENTS: u32 = 0x534d_0001;
/// How often a run stops, about.
const MOMENTS: usize = 1_000;
/// Looks at single links that all stops of a run may cost: each stop settles every link.
const LOOKS: usize = 20_000_000;

/// Runs `assembly` to its end. `watch` is given the fraction of the run that is done, from 0 to 1;
/// when it returns false, the run ends without an outcome. The tap is returned with what it saw.
pub fn run<T: Tap>(
    assembly: Assembly,
    seed: u64,
    tap: T,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Option<(Outcome, T)> {
    let (plan, about) = About::split(assembly);
    let end = Time::ZERO + about.duration;
    let bottleneck = about.bottleneck as usize;
    let stops = (LOOKS / plan.links.len().max(1)).clamp(20, MOMENTS);
    let mean_s = about.duration.as_secs_f64() / stops as f64;
    let mut moments = Rng::new(seed, PURPOSE_MOMENTS, 0);
    let mut network = Network::new(plan, tap, true);
    let (mut looks, mut waiting) = (0u64, 0.0);
    let mut next = Time::ZERO;
    loop {
        next += Span::from_secs_f64(moments.exponential(mean_s));
        if next >= end {
            break;
        }
        network.advance(next, end);
        let backlog = network.links()[bottleneck].backlog(next);
        waiting += match backlog.packets {
            // A FIFO knows only its bytes.
            0 => backlog.bytes as f64 / 1_500.0,
            packets => packets as f64,
        };
        looks += 1;
        if !watch(next.as_secs_f64() / about.duration.as_secs_f64()) {
            return None;
        }
    }
    network.run_until(end);
    let outcome = Outcome::of(&network, &about, waiting / looks.max(1) as f64);
    Some((outcome, network.into_tap()))
}
