//! Why connections were started late: the cause that the machine's own counters point to, and its
//! remedy.

use nilometer_linux::scheduling::{Class, Granted, Role};

/// The time a hypervisor may steal before it counts as the cause, percent of all processors.
const STOLEN_PERCENT: f64 = 1.0;
/// The time other processes may use before they count as the cause, percent of all processors.
const OTHERS_PERCENT: f64 = 10.0;
/// The share of their time that threads may be beyond the limit of the real-time class before that is the cause.
const BEYOND_LIMIT: f64 = 0.05;

/// Why connections were started late, and what helps.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Cause {
    /// A hypervisor took away this much of the processors.
    #[error(
        "A hypervisor took away {percent:.1} % of the processors; repeat when its host is less busy."
    )]
    Stolen {
        /// Of all processors.
        percent: f64,
    },
    /// The real-time class was refused, and other processes interfered.
    #[error(
        "The system refused a real-time class, and the engines waited {waited_s:.2} s for a processor. {others}. \
         Run as root outside of a user namespace, or raise the limit of real-time priorities (ulimit -r)."
    )]
    Refused {
        /// How long the engines waited for a processor.
        waited_s: f64,
        /// What others used.
        others: Others,
    },
    /// The threads ran in the ordinary class, as configured, and other threads delayed them.
    #[error(
        "In the ordinary scheduling class the engines waited {waited_s:.2} s for a processor. {others}. \
         Leave out --scheduling ordinary for tighter figures."
    )]
    Ordinary {
        /// How long the engines waited for a processor.
        waited_s: f64,
        /// What others used.
        others: Others,
    },
    /// The limit of the real-time class was reached.
    #[error(
        "The engines and the device used more of the processors than real-time threads may for {:.0} % of the \
         time. Play slower (--speed 0.5), or on more processors.",
        100.0 * share
    )]
    BeyondLimit {
        /// Of the time.
        share: f64,
    },
    /// Other processes interfered, whatever the class.
    #[error("{0}; repeat on a quiet machine for tighter figures.")]
    Busy(Others),
    /// The engine itself.
    #[error(
        "Neither other processes nor a hypervisor were in the way: the engine had more to do at those moments than one \
         thread can. More threads (--threads 2) or a slower run (--speed 0.5) start them earlier."
    )]
    Engine,
}

/// What others used, percent of all processors.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("Others (processes and the kernel) used {0:.0} % of the processors")]
pub struct Others(pub f64);

/// The most likely cause: first stolen time, then a refused class, then interfering processes.
pub fn cause(scheduling: &[Granted], stolen_percent: f64, others_percent: f64) -> Cause {
    let engines: Vec<&Granted> =
        scheduling.iter().filter(|of| matches!(of.role, Role::Client | Role::Server)).collect();
    let others = Others(others_percent);
    let waited_s: f64 = engines.iter().map(|of| of.run_queue_s).sum();
    let is_refused = engines.iter().any(|of| of.class == Class::RealTime && !of.granted);
    let is_ordinary = engines.iter().any(|of| of.class == Class::Ordinary);
    let busy = engines.iter().find(|of| of.beyond_limit > BEYOND_LIMIT);
    match busy {
        _ if stolen_percent > STOLEN_PERCENT => Cause::Stolen { percent: stolen_percent },
        _ if is_refused => Cause::Refused { waited_s, others },
        _ if is_ordinary => Cause::Ordinary { waited_s, others },
        Some(busy) => Cause::BeyondLimit { share: busy.beyond_limit },
        None if others_percent > OTHERS_PERCENT => Cause::Busy(others),
        None => Cause::Engine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(class: Class, granted: bool, beyond_limit: f64) -> Vec<Granted> {
        vec![Granted { role: Role::Client, class, granted, beyond_limit, run_queue_s: 0.25 }]
    }

    #[test]
    fn the_cause_of_lateness_is_read_from_the_sums() {
        let real_time = || client(Class::RealTime, true, 0.0);
        for (found, words) in [
            (cause(&real_time(), 3.0, 50.0), "A hypervisor took away 3.0 %"),
            (cause(&client(Class::RealTime, false, 0.0), 0.0, 20.0), "refused a real-time class"),
            (
                cause(&client(Class::Ordinary, true, 0.0), 0.0, 20.0),
                "waited 0.25 s for a processor",
            ),
            (cause(&client(Class::RealTime, true, 0.4), 0.0, 50.0), "for 40 % of the time"),
            (cause(&real_time(), 0.5, 30.0), "Others (processes and the kernel) used 30 %"),
            (cause(&real_time(), 0.5, 2.0), "Neither other processes nor a hypervisor"),
        ] {
            assert!(found.to_string().contains(words), "{words}: {found}");
        }
    }
}
