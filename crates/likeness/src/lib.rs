//! Comparison of a traffic copy with its original: two sets of packets, measured by the same code and compared
//! with each other. This crate does not and cannot know what made the copy.
#![no_std]

extern crate alloc;

mod blocks;
mod evidence;
pub mod judge;
mod kernel;
pub mod laws;
pub mod observed;
mod ranks;
mod resample;
mod series;
pub mod source;

pub use judge::{Judgement, Likeness, Settings, Verdict, judge};
pub use laws::{LAWS, Law, Unit};
pub use observed::{Observed, Observer};
pub use source::Source;
