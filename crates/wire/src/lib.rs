//! What crosses a link: time, link layers, headers and checksums, read from slices and never copied.
//!
//! [`packet::parse`] is the door: a captured frame goes in, and what a meter needs of it comes out,
//! after one pass over its headers. Everything else here serves it (`view` to `tunnel`), checks what
//! it read (`checksum`) or makes frames for it to read (`build`).
#![no_std]

extern crate alloc;

pub mod build;
pub mod checksum;
mod ether;
mod extension;
mod ip;
pub mod link;
mod mpls;
pub mod packet;
mod ppp;
pub mod time;
mod transport;
mod tunnel;
mod view;

pub use time::{Span, Time};
