//! The plugins that every router has: those of `nilometer-plugins`, as native classes.

use nilometer_plugins::{
    Counter, Delay, Firewall, Loss, Mpls, Nat, Policer, Remarker, Sampler, Scrubber, WaveVideo,
};
use nilometer_router::plugin::Class;

use crate::Native;

/// All of them, in the order of their names.
pub fn builtin() -> Vec<Box<dyn Class>> {
    vec![
        Box::new(Native::<Counter>::new()),
        Box::new(Native::<Delay>::new()),
        Box::new(Native::<Firewall>::new()),
        Box::new(Native::<Loss>::new()),
        Box::new(Native::<Mpls>::new()),
        Box::new(Native::<Nat>::new()),
        Box::new(Native::<Policer>::new()),
        Box::new(Native::<Remarker>::new()),
        Box::new(Native::<Sampler>::new()),
        Box::new(Native::<Scrubber>::new()),
        Box::new(Native::<WaveVideo>::new()),
    ]
}

/// The one of a name.
pub fn builtin_of(name: &str) -> Option<Box<dyn Class>> {
    builtin().into_iter().find(|class| class.facts().name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_each_is_found() {
        let names: Vec<String> = builtin().iter().map(|class| class.facts().name.clone()).collect();
        assert!(names.is_sorted());
        assert!(names.iter().all(|name| builtin_of(name).is_some()));
        assert!(builtin_of("teleporter").is_none());
    }
}
