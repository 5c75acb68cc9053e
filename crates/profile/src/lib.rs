//! Black-box trials of a device under test, and what may be concluded from them.
#![no_std]

extern crate alloc;
