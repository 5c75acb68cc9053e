//! Why a document is not a traffic model.

use alloc::string::String;
use core::fmt;

use crate::pool::PoolError;

/// The format this crate writes and reads.
pub const FORMAT: &str = "nilometer-model/1";

/// Why a document is not a model.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelError {
    /// Another format, or another version of it.
    Format(String),
    /// A number that must be positive (and finite) is not.
    NotPositive(&'static str, f64),
    /// A number that must be finite and not negative is not.
    Negative(&'static str, f64),
    /// A share beyond 0 to 1.
    NotAShare(&'static str, f64),
    /// A list that must not be empty is empty.
    Empty(&'static str),
    /// A list beyond its limit.
    TooMany(&'static str, usize),
    /// A number beyond its limit.
    TooLarge(&'static str, u64),
    /// Numbers whose sum is beyond its limit.
    SumTooLarge(&'static str, u64),
    /// A number below its limit.
    TooSmall(&'static str, f64),
    /// Rank counts must be positive and never rise.
    RanksRise(&'static str, usize),
    /// Intervals must follow one another.
    IntervalOrder(usize),
    /// Sessions drive plans of files alone.
    SessionsDrive,
    /// The pools are invalid.
    Pool(PoolError),
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::Format(found) => {
                write!(f, "format is '{found}', this tool reads '{FORMAT}'")
            }
            ModelError::NotPositive(what, value) => {
                write!(f, "{what} is {value}, but must be a positive finite number")
            }
            ModelError::Negative(what, value) => {
                write!(f, "{what} is {value}, but must be a finite number from 0 on")
            }
            ModelError::NotAShare(what, value) => {
                write!(f, "{what} is {value}, but must be from 0 to 1")
            }
            ModelError::Empty(what) => write!(f, "{what} is empty"),
            ModelError::TooMany(what, limit) => write!(f, "{what} has more than {limit} entries"),
            ModelError::TooLarge(what, limit) => write!(f, "{what} is more than {limit}"),
            ModelError::SumTooLarge(what, limit) => {
                write!(f, "the sum of {what} is more than {limit}")
            }
            ModelError::TooSmall(what, limit) => write!(f, "{what} is less than {limit}"),
            ModelError::RanksRise(what, at) => {
                write!(f, "{what}.counts[{at}] is zero or above its predecessor; sort them falling")
            }
            ModelError::IntervalOrder(at) => {
                write!(f, "intervals[{at}] does not begin where its predecessor ends")
            }
            ModelError::SessionsDrive => f.write_str(
                "generation.driver is sessions, which is of files alone: leave connection_law and vectors out"
            ),
            ModelError::Pool(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ModelError {}

impl From<PoolError> for ModelError {
    fn from(error: PoolError) -> ModelError {
        ModelError::Pool(error)
    }
}

/// Refuses a number that is not positive and finite.
pub(crate) fn positive(what: &'static str, value: f64) -> Result<(), ModelError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(ModelError::NotPositive(what, value))
    }
}
