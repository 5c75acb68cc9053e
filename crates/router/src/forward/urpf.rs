//! Reverse path: would an answer to this packet leave by the port it came from?
//!
//! Ingress filtering with the routing table itself (RFC 2827, RFC 3704; RFC 1812, 5.3.8, calls it
//! source address validation). The source is looked up as if it were a destination. Strict demands
//! that the best route leaves by the port of arrival, feasible that some route does, loose that there
//! is a route at all. A default route proves nothing, so the loose test has a setting whether it
//! counts (RFC 3704, 2.4 and 2.5); a route that discards never counts, so loose mode can be used to
//! drop by source (RFC 5635).

/// Which test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// None: RFC 1812, 5.3.8, wants the test off by default.
    #[default]
    Off,
    /// RFC 3704, 2.2: a best route leaves by the port of arrival.
    Strict,
    /// RFC 3704, 2.3: any known route does, the best or not.
    Feasible,
    /// RFC 3704, 2.4: there is a route.
    Loose,
    /// RFC 3704, 2.5: there is a route other than the default.
    LooseWithoutDefault,
}

/// The route to a source, as far as the test needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverse<'a> {
    /// Ports of the best route, several where it has several next hops; none where it discards.
    pub best: &'a [u16],
    /// Ports of other than the best routes to the same prefix (RFC 8704 adds more).
    pub others: &'a [u16],
    /// The prefix has no bits.
    pub is_default: bool,
}

/// Why a packet fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No route leads back to the source.
    NoRoute,
    /// The way back is to discard.
    Discarded,
    /// The way back leaves elsewhere.
    WrongPort,
    /// Only the default route leads back.
    OnlyDefault,
}

/// Tests a packet that came in by `port`; `lookup` finds the route to its source, and is not called
/// when the test is off.
///
/// # Errors
/// [`Failure`]: the packet is discarded silently and counted (RFC 1812, 5.3.8).
#[inline]
pub fn check<'a>(
    mode: Mode,
    port: u16,
    lookup: impl FnOnce() -> Option<Reverse<'a>>,
) -> Result<(), Failure> {
    if mode == Mode::Off {
        return Ok(());
    }
    let reverse = lookup().ok_or(Failure::NoRoute)?;
    if reverse.best.is_empty() {
        return Err(Failure::Discarded);
    }
    let is_best = || reverse.best.contains(&port);
    match mode {
        Mode::Strict if !is_best() => Err(Failure::WrongPort),
        Mode::Feasible if !is_best() && !reverse.others.contains(&port) => Err(Failure::WrongPort),
        Mode::LooseWithoutDefault if reverse.is_default => Err(Failure::OnlyDefault),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_urpf_mode_checks_as_its_rfc_defines() {
        use Mode::{Feasible, Loose, LooseWithoutDefault, Off, Strict};
        let reverse = Reverse { best: &[1, 2], others: &[3], is_default: false };
        let default = Reverse { is_default: true, ..reverse };
        let discard = Reverse { best: &[], ..reverse };
        let rows = [
            (Strict, 2, Some(reverse), Ok(())),
            (Strict, 3, Some(reverse), Err(Failure::WrongPort)),
            (Strict, 1, Some(default), Ok(())),
            (Strict, 1, None, Err(Failure::NoRoute)),
            (Feasible, 3, Some(reverse), Ok(())),
            (Feasible, 4, Some(reverse), Err(Failure::WrongPort)),
            (Loose, 9, Some(reverse), Ok(())),
            (Loose, 9, Some(default), Ok(())),
            (Loose, 9, Some(discard), Err(Failure::Discarded)),
            (Loose, 9, None, Err(Failure::NoRoute)),
            (LooseWithoutDefault, 9, Some(reverse), Ok(())),
            (LooseWithoutDefault, 1, Some(default), Err(Failure::OnlyDefault)),
            (Off, 9, None, Ok(())),
        ];
        for (mode, port, route, verdict) in rows {
            assert_eq!(check(mode, port, || route), verdict, "{mode:?} {port} {route:?}");
        }
    }

    #[test]
    fn nothing_is_looked_up_by_default() {
        assert_eq!(Mode::default(), Mode::Off);
        assert_eq!(check(Mode::Off, 0, || panic!("looked up")), Ok(()));
    }
}
