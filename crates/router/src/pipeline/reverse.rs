//! Reverse path tests of sources (RFC 3704) in the pipeline.

use super::Router;
use super::decide::Turn;
use super::version::Version;
use crate::discard::Discard;
use crate::forward::urpf::{self, Mode, Reverse};

pub use super::reverse_paths::{OTHERS_MAX, ReversePaths};

impl Router {
    /// What reverse path tests know of IPv4 beside the forwarding table.
    pub fn reverse_paths4_mut(&mut self) -> &mut ReversePaths<u32> {
        &mut self.reverse_paths4
    }

    /// RFC 3704: does the reverse path to the packet's source lead by the port that it came by?
    pub(super) fn test_way_back<A: Version>(
        &mut self,
        mode: Mode,
        input: usize,
        source: A,
    ) -> Result<(), Turn> {
        let found = A::look_up(self, source);
        let ways = A::reverse_paths(self);
        let next = found.or(ways.default_route());
        let others = match next {
            Some(next) if mode == Mode::Feasible => ways.others(source, next),
            _ => &[],
        };
        let ports = next.map(|next| self.hops.ports_of(next));
        let is_default = found.is_none();
        let reverse = ports.as_ref().map(|best| Reverse { best, others, is_default });
        let passed = urpf::check(mode, input as u16, || reverse);
        passed.map_err(|_| Turn::Discard(Discard::ReversePath))
    }
}
