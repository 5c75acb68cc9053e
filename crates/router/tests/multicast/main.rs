//! Group membership of a port: what hosts say, what the router asks, and who gets what from that.

mod frames;
mod hostile;
mod messages;
mod querier;
mod twin;
