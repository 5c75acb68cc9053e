//! The built-in scenarios: the files of `examples/`, found by their bare names.

/// A scenario that needs no file.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// What is typed.
    pub name: &'static str,
    /// The TOML text, comments included.
    pub text: &'static str,
}

/// One entry for a file of `examples/`.
macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(Shipped {
            name: $name,
            text: include_str!(concat!("../../../../examples/", $name, ".toml")),
        }),+]
    };
}

/// All of them, in the order in which they are listed.
pub const SHIPPED: &[Shipped] = shipped![
    "qsdrr",
    "qsdrr-mixed-rtt",
    "qsdrr-hops",
    "qsdrr-shared-queues",
    "distributed-queueing",
    "parking-lot",
    "rrul",
    "rfc7928-mild",
    "rfc7928-medium",
    "rfc7928-heavy",
    "rfc7928-rtt-fairness",
    "md1",
];

/// The one of this name.
pub fn find(name: &str) -> Option<Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name).copied()
}
