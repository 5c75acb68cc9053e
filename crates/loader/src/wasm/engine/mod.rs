//! What runs modules: an interpreter (wasmi), or with the feature `fast-plugins` a compiler (wasmtime).
//!
//! Both offer the same few things under the same names, so that everything else about modules, and the tests that hold
//! it, is one text. What differs is here: how an engine is set up, how it says why it stopped, and what memory that
//! grows costs.

#[cfg(feature = "fast-plugins")]
mod compiler;
#[cfg(not(feature = "fast-plugins"))]
mod interpreter;

#[cfg(feature = "fast-plugins")]
pub(super) use compiler::*;
#[cfg(not(feature = "fast-plugins"))]
pub(super) use interpreter::*;

/// Bytes of a module's stack.
const STACK_BYTES_MAX: usize = 256 << 10;
/// Elements that the tables of an instance may have: addresses of functions.
const TABLE_ELEMENTS_MAX: usize = 10_000;

/// A type of value that the interface has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    I32,
    I64,
}

/// Why an engine stopped a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It used up its budget.
    Budget,
    /// It wanted more memory than it may have.
    Memory,
    /// Something else, in plain words.
    Other(&'static str),
}

const UNREACHABLE: Stop = Stop::Other("it reached an instruction that it never should");
const OUTSIDE: Stop = Stop::Other("an access outside of its memory");
const NO_FUNCTION: Stop = Stop::Other("a call of no function");
const DIVISION: Stop = Stop::Other("a division by zero");
const OVERFLOW: Stop = Stop::Other("an integer overflow");
const NO_INTEGER: Stop = Stop::Other("a number that is not an integer");
const OTHER_TYPE: Stop = Stop::Other("a call of a function of another type");
const NESTED: Stop = Stop::Other("calls nested too deeply");
const STOPPED: Stop = Stop::Other("the engine stopped it");
