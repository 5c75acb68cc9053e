//! What crosses a link: time, link layers, headers and checksums, read from slices and never copied.
#![no_std]

extern crate alloc;

pub mod time;

pub use time::{Span, Time};
