//! Exports described by templates: NetFlow version 9 (RFC 3954) and IPFIX (RFC 7011) in one engine.
//!
//! Both send templates, which describe the fields of records, and then records without any
//! description. The two differ in their headers, in how a template is written and in what the
//! sequence number counts ([`Dialect`]); the meaning of a field is the same, because IPFIX adopted
//! version 9's numbers. The parts, in the order in which a datagram passes them:
//!
//! | file | |
//! |---|---|
//! | `message` | the header, and the datagram cut into sets |
//! | `domain` | the key of a domain |
//! | `definition` | a template as it is encoded |
//! | `element` | the meaning of a field for a flow, if any |
//! | `plan` | a compiled template: which bytes fill which slot, decided once for all records |
//! | `flow` | from the values of a record to one flow record, or two |
//! | `sampling` | samplers, and the interval of each record |
//! | `pending_records` | sets that wait for their template |
//! | `reader` | sets of records, read by their template |
//! | `replacement` | which template is evicted when there are too many |
//! | `template_store` | all of them together, for every exporter and domain: the entry point |

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
