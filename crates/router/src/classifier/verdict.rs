//! What the two searches for a packet come to together (DER, 3.3 and 4.1).
//!
//! A packet is looked up among the general filters and among the flow filters, in this order, and what
//! results is "a set of associated actions and resource allocations" (3.3): the two add up, neither
//! hides the other. Priority decides among general filters and length among flow filters, never
//! across. Where both say something of one thing:
//!
//! * a denial stands, whichever says it: a reservation is no way round a firewall;
//! * of two reservations, or of two bindings, the flow filter's counts: signalling put it there for
//!   this flow (3.5), while a general filter speaks of many;
//! * either may ask for a copy to management.

use super::rule::{Action, Rule};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// It is dropped, whatever else stands here.
    pub is_denied: bool,
    /// The reservation it is forwarded on.
    pub reservation: Option<u32>,
    /// The plugins it goes through, by the number of their binding.
    pub binding: Option<u32>,
    /// A copy of it goes to management.
    pub is_copied: bool,
}

impl Verdict {
    /// The verdict of the rules that matched, if any did; without one the packet is permitted.
    pub fn of<A>(general: Option<&Rule<A>>, flow: Option<&Rule<A>>) -> Verdict {
        let mut verdict = Verdict::default();
        for rule in [general, flow].into_iter().flatten() {
            match rule.action {
                Action::Deny => verdict.is_denied = true,
                Action::Permit => {}
                Action::Reserved(reservation) => verdict.reservation = Some(reservation),
                Action::Active(binding) => verdict.binding = Some(binding),
            }
            verdict.is_copied |= rule.is_copied;
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_add_up() {
        let rule = |action| Rule::<u32>::any(0, action);
        let of =
            |general: Action, flow: Action| Verdict::of(Some(&rule(general)), Some(&rule(flow)));
        assert_eq!(Verdict::of::<u32>(None, None), Verdict::default());
        assert!(of(Action::Deny, Action::Reserved(1)).is_denied);
        assert!(of(Action::Permit, Action::Deny).is_denied);
        let both = of(Action::Active(7), Action::Reserved(3));
        assert_eq!((both.binding, both.reservation, both.is_denied), (Some(7), Some(3), false));
        assert_eq!(of(Action::Reserved(1), Action::Reserved(2)).reservation, Some(2));
        assert_eq!(of(Action::Reserved(1), Action::Permit).reservation, Some(1));
        let copied = Rule { is_copied: true, ..rule(Action::Permit) };
        assert!(Verdict::of(Some(&copied), Some(&rule(Action::Permit))).is_copied);
    }
}
