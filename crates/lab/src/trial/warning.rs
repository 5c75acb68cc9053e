//! Warnings: what makes a figure suspect and what to do, each a value and its sentence.

use nilometer_report::format::{percent, plain, si, time_ns};

use super::lateness::Cause;

/// What makes a figure of a run suspect.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    /// A link of the router's carries less than the plan sends over it.
    #[error(
        "The plan has {} of payload to {hosts} from {start_s:.0} s on, and port {port} of {file} carries {}. \
         Queues will be full and connections late; raise the rate, or play fewer (--match bitrate, a \
         longer original) unless that is intended.",
        plain(&si(*planned_bps, "bit/s")),
        plain(&si(*rate_bps, "bit/s"))
    )]
    PlanBeyondLink {
        /// The planned rate of the busiest interval, bits of payload a second.
        planned_bps: f64,
        /// The receiving hosts.
        hosts: &'static str,
        /// When that interval begins.
        start_s: f64,
        /// The router's port.
        port: &'static str,
        /// The router's file.
        file: String,
        /// The port's rate.
        rate_bps: f64,
    },
    /// An interface of the host is not as it was.
    #[error("An interface that was borrowed for the device could not be restored completely: {0}.")]
    NotRestored(String),
    /// The device did wrong.
    #[error("During the trial {0}.")]
    Device(nilometer_profile::device_faults::DeviceFault),
    /// Not all of the plan was played.
    #[error(
        "The run was interrupted. All results cover the traffic up to then; planned volumes are those of \
         the whole run."
    )]
    Interrupted,
    /// The clock of the stamps was set.
    #[error(
        "The wall clock was set by {:+.3} s during the run. Packets are stamped by it: losses, delays and \
         seconds around that moment are meaningless. Repeat without setting the clock.",
        *step_ns as f64 / 1e9
    )]
    ClockSet {
        /// By how much.
        step_ns: i64,
    },
    /// Packets were lost with nothing in between.
    #[error(
        "The bare wire lost {0} packets, without a device. This machine causes such losses, and they \
         may be among those attributed to the device; repeat on a quieter one."
    )]
    WireLost(u64),
    /// The meter lost packets during the calibration.
    #[error(
        "The meter lost {0} packets over the bare wire. Its delays are compared with those of the \
         device; repeat with a larger --ring-mib."
    )]
    WireMeterLost(u64),
    /// The median delay over the wire is longer than through the device.
    #[error(
        "The bare wire was slower than the device: the median delay was {} over it, and {} through the device. \
         The machine was busier while it calibrated, so that nothing can be said of what the device adds; \
         repeat on a quieter machine, or calibrate longer (--calibration).",
        plain(&time_ns(*wire_ns as f64)),
        plain(&time_ns(*device_ns as f64))
    )]
    WireSlower {
        /// The median over the wire.
        wire_ns: u64,
        /// The median through the device.
        device_ns: u64,
    },
    /// The meter lost packets.
    #[error(
        "The meter lost {0} packets. They are not counted, and a packet lost on one side only \
         looks lost in the device; repeat with a larger --ring-mib or on a quieter machine."
    )]
    MeterLost(u64),
    /// A host's interface had no room.
    #[error(
        "The {host}'s interface had no room for {frames} frames, and dropped them before the meter \
         saw them. They look lost in the device; repeat on a quieter machine."
    )]
    HostDropped {
        /// The host.
        host: String,
        /// How many it dropped.
        frames: u64,
    },
    /// The kernel's counters differ from the meter's.
    #[error(
        "The {host}'s interface and the meter disagree. The kernel counted {} frames sent and {} \
         received, the meter {} and {}.",
        kernel[0],
        kernel[1],
        metered[0],
        metered[1]
    )]
    MeterDisagrees {
        /// The host.
        host: String,
        /// Frames sent and received, by the kernel.
        kernel: [u64; 2],
        /// Frames sent and received, by the meter.
        metered: [u64; 2],
    },
    /// Fates were decided before their time.
    #[error(
        "{0} packets were judged early because too many were in flight. Losses and delays are \
         suspect."
    )]
    DecidedEarly(u64),
    /// The meter's cache was full.
    #[error(
        "{0} flows left the meter's cache early because it was full. Their sizes are incomplete."
    )]
    FlowsEvicted(u64),
    /// A fault box had no room for packets.
    #[error(
        "{unheard} packets never entered the {name}, and {unsent} were not transmitted by it: its buffers or rings \
         were full. These losses are its own; play slower, or with less delay."
    )]
    BoxFull {
        /// `fault box` or `path`.
        name: &'static str,
        /// Packets that never reached it.
        unheard: u64,
        /// Packets that no port took.
        unsent: u64,
    },
    /// A fault box's log has not all of its packets.
    #[error(
        "{file} contains only the first packets; {beyond} later ones are counted but not listed."
    )]
    BoxLogFull {
        /// Its log.
        file: &'static str,
        /// Packets that are not in it.
        beyond: u64,
    },
    /// Packets were under way in a fault box at the end.
    #[error("{inside} packets were still in the {name} at the end.")]
    BoxNotEmpty {
        /// `fault box` or `path`.
        name: &'static str,
        /// How many.
        inside: u64,
    },
    /// Simulated hosts were late.
    #[error(
        "{late} of {events} events of the simulated hosts were handled more than {:.0} ms after they were due; 1 in 1000 \
         was {:.1} ms late or more. Their packets left that much later; play fewer connections, or on more processors.",
        *bound_ns as f64 / 1e6,
        *p99_9_ns as f64 / 1e6
    )]
    HostsLate {
        /// How many.
        late: u64,
        /// Of how many.
        events: u64,
        /// Later than this.
        bound_ns: u64,
        /// The 99.9th percentile of lateness.
        p99_9_ns: u64,
    },
    /// A simulated host had no room for frames.
    #[error(
        "{unheard} frames were dropped on arrival at a simulated host, and {unsent} that it sent were not transmitted. \
         Their losses are not the device's; play fewer connections, or on more processors."
    )]
    HostsFull {
        /// Frames that found no room.
        unheard: u64,
        /// Frames that no port or memory took.
        unsent: u64,
    },
    /// The repetition of simulated hosts did something else.
    #[error(
        "With the same inputs in virtual time, the simulated hosts made {differences} different decisions: {first}."
    )]
    ReplayDiffers {
        /// How many.
        differences: u64,
        /// The first.
        first: String,
    },
    /// A port could not be opened as configured.
    #[error("The router's port {0}.")]
    RouterFallback(String),
    /// The router has a warning of its own.
    #[error("Router warning: {0}.")]
    RouterWarns(String),
    /// The router's counters do not explain the losses.
    #[error(
        "Of what was lost ({way}) the router's counters have {} packets {} than the meter. Such \
         packets were lost between the meter and the router, or not seen by the meter; repeat on a \
         quieter machine.",
        rest.unsigned_abs(),
        if *rest > 0 { "fewer" } else { "more" }
    )]
    LossesUnexplained {
        /// The direction.
        way: &'static str,
        /// Lost packets without a reason; below zero where there are more reasons than losses.
        rest: i64,
    },
    /// The scheduling class was refused.
    #[error(
        "The system refused a real-time class to the router and the engines. Other threads delayed them; \
         `nilometer doctor` says what would help."
    )]
    RealTimeRefused,
    /// Connections failed.
    #[error(
        "{failed} of {connections} connections failed. execution.ndjson lists how each one ended."
    )]
    ConnectionsFailed {
        /// How many.
        failed: u64,
        /// Of how many.
        connections: u64,
    },
    /// Connections were under way when the run ended.
    #[error(
        "{unfinished} of {connections} connections were cut off at the end, {drain_s} s after the last one was to \
         start. The device did not carry them in that time; raise traffic.drain_s, or play fewer."
    )]
    ConnectionsCutOff {
        /// How many.
        unfinished: u64,
        /// Of how many.
        connections: u64,
        /// How long the run waited for them.
        drain_s: f64,
    },
    /// Not every connection carried its planned bytes.
    #[error(
        "File sizes are not byte-exact. Some connections carried different byte counts than \
         planned; execution.ndjson lists them."
    )]
    SizesInexact,
    /// Connections were started late.
    #[error(
        "The generator started 1 connection in 100 more than {:.1} ms late. {cause}",
        *p99_ns as f64 / 1e6
    )]
    StartedLate {
        /// The 99th percentile of lateness.
        p99_ns: u64,
        /// The likely cause.
        cause: Cause,
    },
    /// Sessions had to share pairs of addresses.
    #[error(
        "{collisions} of {sessions} sessions share their address pair with another active session. The model has \
         fewer pairs than sessions, or the pools are too small."
    )]
    PairsShared {
        /// Sessions that share theirs.
        collisions: u64,
        /// All sessions.
        sessions: u64,
    },
    /// Gaps are shorter than starts are late.
    #[error(
        "{:.0} % of the gaps between connections are shorter than the generator is late. {}elow {:.0} µs the \
         inter-connection times are the generator's own, not the model's.",
        share * 100.0,
        match time_divisor {
            k if *k > 1.5 => format!("Time runs {k:.0} times as fast as in the original; b"),
            _ => "B".to_owned(),
        },
        late_s * 1e6
    )]
    GapsTooShort {
        /// The share of such gaps.
        share: f64,
        /// Times the original's speed.
        time_divisor: f64,
        /// The median lateness.
        late_s: f64,
    },
    /// Nothing was to start in an interval.
    #[error(
        "The interval from {start_s:.0} s was planned empty. It contains {flows} connections of \
         sessions that were still waiting when it began."
    )]
    IntervalNotEmpty {
        /// When it begins.
        start_s: f64,
        /// What started in it.
        flows: u64,
    },
    /// An interval has other volumes than planned.
    #[error(
        "The interval from {start_s:.0} s misses its volume: {bytes_off:+.1} % of its bytes, {flows_off:+.1} % \
         of its connections."
    )]
    IntervalMissed {
        /// When it begins.
        start_s: f64,
        /// By how much of its bytes, percent.
        bytes_off: f64,
        /// By how much of its connections, percent.
        flows_off: f64,
    },
    /// The original's clock is doubted.
    #[error(
        "The original spans {:.0} days by its clock. Captures joined from several days look like \
         this; fitted into a minute its connections come in bursts. Give one of the captures, \
         or --duration to play its beginning at its own speed.",
        original_s / 86_400.0
    )]
    SpansDays {
        /// How long it lasts by its clock.
        original_s: f64,
    },
    /// Much of the input is not played.
    #[error(
        "The plan performs {} of the input's bytes. The rest is not TCP, or its start or \
         end was not captured; it is not generated.",
        plain(&percent(*share))
    )]
    CoverageLow {
        /// The share that is.
        share: f64,
    },
    /// The model has more addresses than the pool.
    #[error(
        "The pool holds {kept} of the model's {known} {side}. The rarest are left out; give a larger prefix."
    )]
    PoolSmall {
        /// Whose addresses.
        side: &'static str,
        /// The model's.
        known: usize,
        /// The pool's.
        kept: usize,
    },
    /// Too few sessions to show popularity.
    #[error(
        "Only {sessions:.0} sessions drew from {addresses:.0} addresses. Who talks to whom is \
         sampled coarsely, though as the model says; shorter intervals (--interval) draw more \
         pairs."
    )]
    FewSessions {
        /// How many drew.
        sessions: f64,
        /// From how many.
        addresses: f64,
    },
}
