//! Exports described by templates: NetFlow version 9 (RFC 3954) and IPFIX (RFC 7011) in one engine.
//!
//! Both send templates, which say what fields records have, and then records without a word on what
//! they mean. The two differ in their headers, in how a template is written and in what the sequence
//! number counts ([`Dialect`]); what a field means is the same, because IPFIX took over version 9's
//! numbers. The parts, in the order in which a datagram meets them:
//!
//! | file | |
//! |---|---|
//! | `message` | the header, and the datagram cut into sets |
//! | `definition` | a template as it is written |
//! | `element` | what a field says of a flow, if anything |
//! | `plan` | a template compiled: where to read what, decided once and not for every record |
//! | `flow` | what was read, made a flow record, or two |
//! | `sampling` | samplers, and which one saw a record |
//! | `held` | sets that wait for their template |
//! | `reader` | sets of records, read by their template |
//! | `replacement` | which template goes when there are too many |
//! | `session` | all of them together, for every exporter and domain: the door |

mod definition;
mod domain;
mod element;
mod flow;
mod message;
mod pending_records;
mod plan;
mod reader;
mod replacement;
mod sampling;
mod template_store;

pub use message::{Dialect, Error, Header, message_bytes};
pub use template_store::{Exporter, Limits, Session};
