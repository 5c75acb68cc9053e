//! Packet classification: the first of many rules that matches a header (DER, 3.3).
//!
//! A rule matches on two prefixes, two ranges of ports, a protocol and TCP flags, any of which may be
//! left open; among matching rules the one with the smallest priority number wins. A forwarding table has
//! a trie for this. With five fields no trie does: a rule open in the field that a node decides on goes
//! to all its children, and a thousand such rules go to all children of all nodes.
//!
//! **Tables.** So the rules are spread over a few hash tables, one for each *tuple* of lengths (Srinivasan,
//! Suri and Varghese 1999: tuple space search). The table of the tuple (16, 12) holds rules with 16
//! bits of source and 12 of destination or more, under exactly these bits. A header is looked up in each
//! table once. TupleMerge (Daly and others 2019) found how to have few tables: a rule need not be in the
//! table of its own lengths, any shorter tuple will do until too many rules share a bucket.
//!
//! **Blocks.** How many are too many depends on what a comparison costs. TupleMerge stops at ten. Here
//! a bucket is a chain of blocks of eight rules that lie field beside field, and AVX2 compares a header
//! with all eight in about twenty instructions (`kernel.rs`). Buckets of 32 are then cheap, and tuples so
//! short that three to five tables hold ten thousand rules. No rule is ever in two places, so that 10,000
//! of them fit a megabyte, and an update touches one chain.
//!
//! **Priority.** Tables are searched in the order of their best rules. A table or a bucket whose best
//! rule comes after the one already found is skipped, and so is the rest of a chain.
//!
//! **Plan.** The tuples follow from the rules, greedily (`plan.rs`), once after a load. Updates between
//! plans use the existing tables: a rule goes to the first that takes it and has room, a table is opened
//! when none takes it or all are crowded, and [`ClassifierTuples::is_stale`] says when a new plan may
//! pay. Nothing but the speed depends on the plan.
//!
//! **Vectors.** A thousand rules need no tables at all: for each part of a header a vector of bits says
//! which rules its value leaves standing, and the first bit of their conjunction is the answer
//! ([`ClassifierVectors`], `vectors.rs`). Vectors stand for rules that were settled after a load; those
//! that come later wait in tables.
//!
//! **Ports.** A rule may be for packets that come by certain ports; [`ByPort`] has a classifier for each
//! port that rules name. A [`FlowCache`] may stand before it, or before any one classifier.
//!
//! **Twin.** [`ClassifierLinear`] tests one rule after the other. All of these are [`Classifier`]s, and a
//! router may run with any of them.

mod block;
pub mod by_port;
pub mod cache;
pub mod classbench;
#[cfg(target_arch = "x86_64")]
mod gathered;
pub(crate) mod instructions;
mod kernel;
pub mod linear;
mod plan;
pub mod rule;
pub mod settled;
mod table;
pub mod tuples;
mod vectors;

pub use by_port::{ByPort, Inputs};
pub use cache::FlowCache;
pub use kernel::Classified;
pub use linear::ClassifierLinear;
pub use rule::{Action, Classifier, Octet, Ports, Refused, Rule, RuleId};
pub use settled::ClassifierVectors;
pub use tuples::ClassifierTuples;
