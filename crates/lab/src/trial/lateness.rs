//! Why connections were started late: the cause that the machine's own sums name, and its remedy.

use nilometer_linux::scheduling::{Class, Granted, Role};

/// What a hypervisor may take away before it is the cause, percent of all processors.
const STOLEN_PERCENT: f64 = 1.0;
/// What others may use before they are the cause, likewise.
const OTHERS_PERCENT: f64 = 10.0;
/// The share of their time that threads may be beyond the limit of the real-time class before that is the cause.
const BEYOND_LIMIT: f64 = 0.05;

/// The most likely cause, in one or two sentences: what was taken away, then what was refused, then who was in
/// the way.
pub fn cause(scheduling: &[Granted], stolen_percent: f64, others_percent: f64) -> String {
    let engines: Vec<&Granted> =
        scheduling.iter().filter(|of| matches!(of.role, Role::Client | Role::Server)).collect();
    if stolen_percent > STOLEN_PERCENT {
        return format!(
            "A hypervisor took away {stolen_percent:.1} % of the processors; repeat when its host is less busy."
        );
    }
    let others =
        format!("Others (processes and the kernel) used {others_percent:.0} % of the processors");
    let waited_s: f64 = engines.iter().map(|of| of.run_queue_s).sum();
    if engines.iter().any(|of| of.class == Class::RealTime && !of.granted) {
        return format!(
            "The system refused a real-time class, and the engines waited {waited_s:.2} s for a processor. {others}. \
             Run as root outside of a user namespace, or raise the limit of real-time priorities (ulimit -r)."
        );
    }
    if engines.iter().any(|of| of.class == Class::Ordinary) {
        return format!(
            "In the ordinary scheduling class the engines waited {waited_s:.2} s for a processor. {others}. \
             Leave out --scheduling ordinary for tighter figures."
        );
    }
    if let Some(busy) = engines.iter().find(|of| of.beyond_limit > BEYOND_LIMIT) {
        return format!(
            "The engines and the device used more of the processors than real-time threads may for {:.0} % of the \
             time. Play slower (--speed 0.5), or on more processors.",
            100.0 * busy.beyond_limit
        );
    }
    if others_percent > OTHERS_PERCENT {
        return format!("{others}; repeat on a quiet machine for tighter figures.");
    }
    "Neither other processes nor a hypervisor were in the way: the engine had more to do at those moments than one \
     thread can. More threads (--threads 2) or a slower run (--speed 0.5) start them earlier."
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(class: Class, granted: bool, beyond_limit: f64) -> Vec<Granted> {
        vec![Granted { role: Role::Client, class, granted, beyond_limit, run_queue_s: 0.25 }]
    }

    #[test]
    fn the_cause_is_what_the_sums_say() {
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
            assert!(found.contains(words), "{words}: {found}");
        }
    }
}
