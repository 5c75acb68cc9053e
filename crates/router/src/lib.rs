//! The router we built: tables, filters, neighbours, fabric, and a pipeline through all of them.
//!
//! It has no port, clock or thread. A driver passes it the time and the packets, in batches
//! ([`pipeline::Router`]).
#![no_std]

extern crate alloc;

pub mod classifier;
pub mod direct;
pub mod discard;
pub mod engine;
pub mod fabric;
pub mod fib;
pub mod forward;
pub mod fpm;
pub mod header;
pub mod ipv6_fib;
pub mod linear;
pub mod memory;
pub mod multicast;
pub mod neighbour;
pub mod next_hop;
pub mod node;
pub mod pipeline;
pub mod plugin;
pub mod prefix;
mod quiescence;
pub mod rib;
pub mod route_table;
pub mod route_update;
pub mod rtnetlink;
pub mod slots;
pub mod tree_bitmap;

pub use classifier::{
    Action, ByPort, Classified, Classifier, ClassifierLinear, ClassifierTuples, ClassifierVectors,
    Inputs, Octet, Ports, Refused, Rule, RuleId,
};
pub use direct::Direct;
pub use engine::{Engine, EngineFault, Routed};
pub use fabric::{Fabric, FabricPlan};
pub use fib::{Fib, Full, Lookups, NextHop, ServingFib};
pub use header::{AnyKey, Fault, Header, Key, Unusable};
pub use ipv6_fib::Ipv6Fib;
pub use linear::FibLinear;
pub use next_hop::{Hop, Member, NextHops, Point, Rejection, Snapshot};
pub use prefix::{Address, Prefix};
pub use rib::{FibSink, Rib, RibFault, Route, Source};
pub use route_table::{Prepared, RouteLimits, RouteTable, RouteTableCounters};
pub use route_update::{AnyPrefix, Path, RouteBatch, RouteTarget, RouteUpdate};
pub use slots::{Lines, Poptrie, Ranges, SlotFib};
pub use tree_bitmap::{Reader, TreeBitmap};
