//! What the ports of a switch announce to each other: their backlogs, once every update period.
//!
//! Distributed queueing (DER paper, section 3.6) has no scheduler. At every update period each port
//! broadcasts how much waits at its output and in each of its virtual output queues; every port
//! collects the broadcasts of all and computes its own sending rates from them. The [`Board`] is
//! what one port has collected. It keeps the sum of each column, that is, all that waits anywhere
//! at the inputs for an output, up to date as announcements come in, so that a row of rates costs
//! as many steps as there are ports and not their square.

use alloc::vec;
use alloc::vec::Vec;

use crate::sharing::ReserveError;

/// The most ports a switch may have: a board of that size holds 8 MiB.
pub const PORTS_MAX: usize = 1024;

/// Why a description of a switch, or an announcement, is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DqError {
    /// The number of ports is zero or above [`PORTS_MAX`].
    #[error("a switch has 1 to {PORTS_MAX} ports, not {0}")]
    Ports(usize),
    /// The speed-up is below one, above [`PORTS_MAX`], or not a number.
    #[error("the speed-up is 1 to {PORTS_MAX}, not {0}")]
    Speedup(f64),
    /// The update period is zero or longer than a second.
    #[error("the update period is above zero and at most a second")]
    Period,
    /// Not a port of this switch.
    #[error("the switch has no port {0}")]
    NoSuchPort(usize),
    /// The announcement has another number of virtual output queues than the switch has ports.
    #[error("an announcement with {0} virtual output queues")]
    Length(usize),
    /// The reserved minimum share is negative, above one, or not a number.
    #[error("the minimum share is 0 to 1, not {0}")]
    MinimumShare(f64),
    /// The minimum backlog is zero, so that nothing is reserved, or above 1 GiB.
    #[error("the minimum backlog is 1 byte to 1 GiB, not {0} bytes")]
    MinimumBacklog(u64),
    /// Urgency is deferred by no period at all, or by more than a million.
    #[error("urgency is deferred by 1 to 1000000 periods, not {0}")]
    Deferral(u32),
    /// A broadcast takes longer than an update period.
    #[error("a broadcast takes at most an update period")]
    Delay,
    /// A buffer does not hold the reserves of its queues.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
}

/// What one port broadcasts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Bytes that wait at its output: `B_j`.
    pub output_backlog_bytes: u64,
    /// Bytes that wait at its input for each output: `B_i,1` to `B_i,N`.
    pub input_backlog_bytes: Vec<u64>,
}

/// The last announcement of every port, and the sums that the rates need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    ports: usize,
    output_bytes: Vec<u64>,
    input_bytes: Vec<u64>,
    column_bytes: Vec<u128>,
}

impl Board {
    /// A board of `ports` ports (1 to [`PORTS_MAX`]), on which nothing waits anywhere.
    pub fn new(ports: usize) -> Result<Board, DqError> {
        if ports == 0 || ports > PORTS_MAX {
            return Err(DqError::Ports(ports));
        }
        Ok(Board {
            ports,
            output_bytes: vec![0; ports],
            input_bytes: vec![0; ports * ports],
            column_bytes: vec![0; ports],
        })
    }

    /// How many ports it has room for.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// Notes what `port` announced, in place of what it announced before.
    pub fn hear(&mut self, port: usize, announcement: &Announcement) -> Result<(), DqError> {
        if port >= self.ports {
            return Err(DqError::NoSuchPort(port));
        }
        if announcement.input_backlog_bytes.len() != self.ports {
            return Err(DqError::Length(announcement.input_backlog_bytes.len()));
        }
        self.output_bytes[port] = announcement.output_backlog_bytes;
        let row = &mut self.input_bytes[port * self.ports..][..self.ports];
        for (j, (old, new)) in row.iter_mut().zip(&announcement.input_backlog_bytes).enumerate() {
            self.column_bytes[j] = self.column_bytes[j] - u128::from(*old) + u128::from(*new);
            *old = *new;
        }
        Ok(())
    }

    /// `B_j`: bytes that wait at output `output`.
    ///
    /// Like the next two, panics where there is no such port, as a slice does.
    pub fn output_bytes(&self, output: usize) -> u64 {
        self.output_bytes[output]
    }

    /// `B_i,1` to `B_i,N`: bytes that wait at input `input` for each output.
    pub fn row(&self, input: usize) -> &[u64] {
        &self.input_bytes[input * self.ports..][..self.ports]
    }

    /// The sum of `B_h,j` over all inputs `h`: bytes that wait at any input for `output`.
    pub fn column_bytes(&self, output: usize) -> u128 {
        self.column_bytes[output]
    }
}
