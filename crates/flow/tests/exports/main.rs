//! Decoders of exports: the documents' own examples, real exporters against the counts of other
//! programs, damage.

mod capture;
mod collector;
mod flow_tools;
mod hostile;
mod netflow7;
mod nfcapd;
mod odd;
mod others;
mod real;
mod recorded;
#[path = "../../../wire/tests/recording/mod.rs"]
mod recording;
mod sflow;
mod strangers;
mod template;
mod twin;
