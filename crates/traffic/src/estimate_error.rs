//! Why an estimate makes no model of its input.

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
    /// TCP flows, but none that enters.
    NoneEnters(Box<Coverage>),
    /// A number among the options is not usable.
    Option(ModelError),
    /// Sampled records that do not tell how many flows there were.
    Sampled(InversionError),
    /// More clients or servers than these are not counted.
    TooManyAddresses(usize),
    /// More records of one pair of sockets than these are not looked at together.
    TooManyOfSockets(usize),
    /// More starts and answers of one address pair than these are not known.
    TooManyOfPair(usize),
    /// Hosts came and went more often than this, where records have no flags.
    TooManyTimes(usize),
    /// More records without flags whose stamps cannot be than these are not known.
    TooManyDoubtful(usize),
    /// Records that were set aside cannot be had back.
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
                "more than {most} records without TCP flags have stamps that cannot be; give a \
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
