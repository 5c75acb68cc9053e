//! Why an estimate fails.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use nilometer_stat::inversion::InversionError;

use crate::coverage::Coverage;
use crate::model::INTERVALS_MAX;
use crate::model_error::ModelError;

/// Why there is no model.
#[derive(Clone, Debug, PartialEq)]
pub enum EstimateError {
    /// No TCP flow at all in this many flows.
    NoTcp(u64),
    /// There are TCP flows, but none enters the model.
    NoneEnters(Box<Coverage>),
    /// A number among the options is invalid.
    Option(ModelError),
    /// Sampled records from which the number of flows cannot be estimated.
    Sampled(InversionError),
    /// There are more clients or servers than this limit.
    TooManyAddresses(usize),
    /// There are more records of one pair of sockets than this limit.
    TooManyOfSockets(usize),
    /// There are more starts and answers of one address pair than this limit.
    TooManyOfPair(usize),
    /// In records without flags, hosts came and went more often than this limit.
    TooManyTimes(usize),
    /// There are more records without flags with impossible stamps than this limit.
    TooManyDoubtful(usize),
    /// Spilled records cannot be read back.
    Spill(String),
    /// The interval is so short that there would be more than [`INTERVALS_MAX`].
    TooManyIntervals(f64),
}

impl fmt::Display for EstimateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EstimateError::NoTcp(flows) => write!(
                f,
                "no TCP among {flows} flows: a model needs TCP connections with their start and end"
            ),
            EstimateError::NoneEnters(coverage) => {
                let out = &coverage.left_out;
                write!(
                    f,
                    "none of {} flows enters the model: {} not TCP, {} without SYN, {} without FIN \
                     or RST, {} only acknowledge, {} under 100 bytes",
                    coverage.flows,
                    out.not_tcp.flows,
                    out.no_start_marker.flows,
                    out.no_end_marker.flows,
                    out.ack_flow.flows,
                    out.under_100_bytes.flows
                )
            }
            EstimateError::Option(error) => error.fmt(f),
            EstimateError::Sampled(error) => error.fmt(f),
            EstimateError::TooManyAddresses(most) => {
                write!(f, "more than {most} clients or servers; give a part of the input")
            }
            EstimateError::TooManyOfSockets(most) => write!(
                f,
                "more than {most} flow records of one pair of sockets; give a part of the input"
            ),
            EstimateError::TooManyOfPair(most) => write!(
                f,
                "more than {most} starts and answers of connections of one address pair; give a part \
                 of the input, or hold more flow records"
            ),
            EstimateError::TooManyTimes(most) => write!(
                f,
                "hosts of records without TCP flags came and went more than {most} times; give a \
                 part of the input"
            ),
            EstimateError::TooManyDoubtful(most) => write!(
                f,
                "more than {most} records without TCP flags have impossible timestamps; give a \
                 part of the input"
            ),
            EstimateError::Spill(why) => write!(f, "records that were set aside are lost: {why}"),
            EstimateError::TooManyIntervals(interval_s) => write!(
                f,
                "an interval of {interval_s} s gives more than {INTERVALS_MAX} intervals; choose a \
                 longer one"
            ),
        }
    }
}

impl core::error::Error for EstimateError {}
