//! Virtual time: nodes, links and scenarios driven by an event calendar.
#![no_std]

extern crate alloc;
