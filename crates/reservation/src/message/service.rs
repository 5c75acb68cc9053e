//! SENDER_TSPEC and FLOWSPEC: traffic and the service that it is to get (RFC 2210 to 2212), and how they merge.

use alloc::vec::Vec;

use crate::message::bytes::{Contents, put_object};
use crate::message::class;
use crate::message::malformed::Malformed;

/// The C-Type of integrated services in SENDER_TSPEC, FLOWSPEC and ADSPEC.
const INTSERV: u8 = 2;
const GENERAL: u8 = 1;
const GUARANTEED: u8 = 2;
const CONTROLLED_LOAD: u8 = 5;
const TOKEN_BUCKET_TSPEC: u8 = 127;
const GUARANTEED_RSPEC: u8 = 130;
const TSPEC_WORDS: u16 = 5;
const RSPEC_WORDS: u16 = 2;
/// No IP packet is smaller.
const IP_BYTES_MIN: u32 = 20;

/// TOKEN_BUCKET_TSPEC: the traffic of a flow (RFC 2215, 3.6). Rates are bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tspec {
    /// r, the token rate, in bytes a second.
    pub rate: f32,
    /// b, the bucket's depth in bytes.
    pub bucket_bytes: f32,
    /// p, the peak rate in bytes a second; infinite where it is not known.
    pub peak_rate: f32,
    /// m, the minimum policed unit in bytes.
    pub policed_bytes_min: u32,
    /// M, the maximum packet size in bytes.
    pub packet_bytes_max: u32,
}

impl Tspec {
    /// Traffic of `rate` bytes a second in bursts of `bucket_bytes`, in packets of 1,500 bytes at most.
    pub fn new(rate: f32, bucket_bytes: f32) -> Tspec {
        let peak_rate = f32::INFINITY;
        Tspec { rate, bucket_bytes, peak_rate, policed_bytes_min: 64, packet_bytes_max: 1_500 }
    }

    /// The merged Tspec (RFC 2212, "Ordering and Merging"): the largest rate, bucket and peak, the smallest policed
    /// unit, and the smallest maximum packet.
    pub fn merge(&self, other: &Tspec) -> Tspec {
        Tspec {
            rate: self.rate.max(other.rate),
            bucket_bytes: self.bucket_bytes.max(other.bucket_bytes),
            peak_rate: self.peak_rate.max(other.peak_rate),
            policed_bytes_min: self.policed_bytes_min.min(other.policed_bytes_min),
            packet_bytes_max: self.packet_bytes_max.min(other.packet_bytes_max),
        }
    }

    /// The Tspec of both flows together (RFC 2212): sums of rates, buckets and peaks.
    pub fn sum(&self, other: &Tspec) -> Tspec {
        Tspec {
            rate: self.rate + other.rate,
            bucket_bytes: self.bucket_bytes + other.bucket_bytes,
            peak_rate: self.peak_rate + other.peak_rate,
            policed_bytes_min: self.policed_bytes_min.min(other.policed_bytes_min),
            packet_bytes_max: self.packet_bytes_max.max(other.packet_bytes_max),
        }
    }

    /// The smaller of each parameter.
    fn lower(&self, other: &Tspec) -> Tspec {
        Tspec {
            rate: self.rate.min(other.rate),
            bucket_bytes: self.bucket_bytes.min(other.bucket_bytes),
            peak_rate: self.peak_rate.min(other.peak_rate),
            policed_bytes_min: self.policed_bytes_min.max(other.policed_bytes_min),
            packet_bytes_max: self.packet_bytes_max.min(other.packet_bytes_max),
        }
    }

    /// Whether it is at least `other` in rate, bucket and peak.
    fn covers(&self, other: &Tspec) -> bool {
        self.rate >= other.rate
            && self.bucket_bytes >= other.bucket_bytes
            && self.peak_rate >= other.peak_rate
    }

    fn read_parameter(contents: &mut Contents<'_>) -> Result<Tspec, Malformed> {
        header(contents, TOKEN_BUCKET_TSPEC, TSPEC_WORDS)?;
        let rate = contents.float()?;
        let bucket_bytes = contents.float()?;
        let peak_rate = contents.float()?;
        if !rate.is_finite() || !bucket_bytes.is_finite() {
            return Err(contents.value("an infinite token rate or bucket"));
        }
        let policed_bytes_min = contents.word()?;
        let packet_bytes_max = contents.word()?;
        Ok(Tspec { rate, bucket_bytes, peak_rate, policed_bytes_min, packet_bytes_max })
    }

    fn write_parameter(&self, to: &mut Vec<u8>) {
        put_header(to, TOKEN_BUCKET_TSPEC, TSPEC_WORDS);
        for number in [self.rate, self.bucket_bytes, self.peak_rate] {
            to.extend(number.to_bits().to_be_bytes());
        }
        to.extend(self.policed_bytes_min.to_be_bytes());
        to.extend(self.packet_bytes_max.to_be_bytes());
    }

    /// Reads a SENDER_TSPEC (RFC 2210, 3.1).
    pub(crate) fn read(mut contents: Contents<'_>) -> Result<Tspec, Malformed> {
        let service = read_service(&mut contents)?;
        if service != GENERAL {
            return Err(contents.value("a SENDER_TSPEC of another service than 1"));
        }
        let tspec = Tspec::read_parameter(&mut contents)?;
        contents.end()?;
        Ok(tspec)
    }

    /// Writes a SENDER_TSPEC.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        put_object(to, class::SENDER_TSPEC, INTSERV, |to| {
            put_service(to, GENERAL, TSPEC_WORDS + 1);
            self.write_parameter(to);
        });
    }
}

/// What a router shall do for a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// The service of an unloaded network (RFC 2211).
    ControlledLoad,
    /// A bandwidth, hence a bound on queueing delay (RFC 2212).
    Guaranteed {
        /// R, in bytes a second, at least the token rate.
        rate: f32,
        /// S, the slack in µs.
        slack_us: u32,
    },
}

/// FLOWSPEC: the traffic and the service that a receiver reserves for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowSpec {
    /// The service.
    pub service: Service,
    /// The traffic that gets it.
    pub tspec: Tspec,
}

impl FlowSpec {
    /// Controlled load for this traffic.
    pub fn controlled_load(tspec: Tspec) -> FlowSpec {
        FlowSpec { service: Service::ControlledLoad, tspec }
    }

    /// The bandwidth to reserve, in whole bytes a second, rounded up: R of the guaranteed service, the token rate of
    /// controlled load.
    pub fn rate_bytes(&self) -> u64 {
        let rate = match self.service {
            Service::ControlledLoad => self.tspec.rate,
            Service::Guaranteed { rate, .. } => rate.max(self.tspec.rate),
        };
        let whole = rate as u64;
        if (whole as f32) < rate { whole + 1 } else { whole }
    }

    /// The rate and the bucket as counted on a link that adds `overhead_bytes` to each IP packet: the rate of a
    /// stream of the flow's smallest packets (RFC 2210, 3.1: m is there for this).
    pub fn on_link(&self, overhead_bytes: u32) -> (u64, u32) {
        let smallest = u64::from(self.tspec.policed_bytes_min.max(IP_BYTES_MIN));
        let whole = smallest + u64::from(overhead_bytes);
        let scaled = |bytes: u64| (u128::from(bytes) * u128::from(whole)).div_ceil(smallest.into());
        let rate = u64::try_from(scaled(self.rate_bytes())).unwrap_or(u64::MAX);
        let bucket = u32::try_from(scaled(self.tspec.bucket_bytes as u64)).unwrap_or(u32::MAX);
        (rate, bucket)
    }

    /// The least flowspec that is at least both: with the guaranteed service where one has it, the larger R and the
    /// smaller slack (RFC 2210, 3.3; RFC 2212, "Ordering and Merging").
    pub fn merge(&self, other: &FlowSpec) -> FlowSpec {
        let service = match (self.service, other.service) {
            (Service::ControlledLoad, service) | (service, Service::ControlledLoad) => service,
            (
                Service::Guaranteed { rate, slack_us },
                Service::Guaranteed { rate: other, slack_us: slack },
            ) => Service::Guaranteed { rate: rate.max(other), slack_us: slack_us.min(slack) },
        };
        FlowSpec { service, tspec: self.tspec.merge(&other.tspec) }
    }

    /// The greatest flowspec that is at most both.
    pub fn lower(&self, other: &FlowSpec) -> FlowSpec {
        let service = match (self.service, other.service) {
            (
                Service::Guaranteed { rate, slack_us },
                Service::Guaranteed { rate: other, slack_us: slack },
            ) => Service::Guaranteed { rate: rate.min(other), slack_us: slack_us.max(slack) },
            _ => Service::ControlledLoad,
        };
        FlowSpec { service, tspec: self.tspec.lower(&other.tspec) }
    }

    /// Whether it reserves at least what `other` does.
    pub fn covers(&self, other: &FlowSpec) -> bool {
        let service = match (self.service, other.service) {
            (_, Service::ControlledLoad) => true,
            (Service::ControlledLoad, Service::Guaranteed { .. }) => false,
            (Service::Guaranteed { rate, .. }, Service::Guaranteed { rate: other, .. }) => {
                rate >= other
            }
        };
        service && self.tspec.covers(&other.tspec)
    }

    /// Controlled load takes no more than its senders together send (RFC 2210, 3.2).
    pub fn limited_to(&self, senders: &Tspec) -> FlowSpec {
        match self.service {
            Service::Guaranteed { .. } => *self,
            Service::ControlledLoad => {
                let rate = self.tspec.rate.min(senders.rate);
                FlowSpec { tspec: Tspec { rate, ..self.tspec }, ..*self }
            }
        }
    }

    pub(crate) fn read(mut contents: Contents<'_>) -> Result<FlowSpec, Malformed> {
        let service = read_service(&mut contents)?;
        let tspec = Tspec::read_parameter(&mut contents)?;
        let service = match service {
            CONTROLLED_LOAD => Service::ControlledLoad,
            GUARANTEED => {
                header(&mut contents, GUARANTEED_RSPEC, RSPEC_WORDS)?;
                let rate = contents.float()?;
                if !rate.is_finite() {
                    return Err(contents.value("an infinite bandwidth"));
                }
                Service::Guaranteed { rate, slack_us: contents.word()? }
            }
            _ => return Err(contents.value("a service that is neither 2 nor 5")),
        };
        contents.end()?;
        Ok(FlowSpec { service, tspec })
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        put_object(to, class::FLOWSPEC, INTSERV, |to| match self.service {
            Service::ControlledLoad => {
                put_service(to, CONTROLLED_LOAD, TSPEC_WORDS + 1);
                self.tspec.write_parameter(to);
            }
            Service::Guaranteed { rate, slack_us } => {
                put_service(to, GUARANTEED, TSPEC_WORDS + RSPEC_WORDS + 2);
                self.tspec.write_parameter(to);
                put_header(to, GUARANTEED_RSPEC, RSPEC_WORDS);
                to.extend(rate.to_bits().to_be_bytes());
                to.extend(slack_us.to_be_bytes());
            }
        });
    }
}

/// ADSPEC: the routers' advertisement of a path (RFC 2210, 3.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdSpec {
    /// Global break bit: some node of the path does not reserve, or refused to.
    pub is_broken: bool,
    /// Nodes that reserve.
    pub hops: u32,
    /// The smallest bandwidth of the path, in bytes a second.
    pub bandwidth: f32,
    /// The smallest latency of the path in µs; [`AdSpec::LATENCY_UNKNOWN`] if some node does not know its own.
    pub latency_us: u32,
    /// The smallest MTU of the path.
    pub mtu_bytes: u32,
}

impl AdSpec {
    /// The latency of a path where some node does not know its own (RFC 2215, 3.4).
    pub const LATENCY_UNKNOWN: u32 = u32::MAX;
    const HOPS: u8 = 4;
    const BANDWIDTH: u8 = 6;
    const LATENCY: u8 = 8;
    const MTU: u8 = 10;
    const BREAK: u8 = 0x80;
    const GENERAL_WORDS: u16 = 8;

    /// Of a path without a node yet.
    pub const NEW: AdSpec = AdSpec {
        is_broken: false,
        hops: 0,
        bandwidth: f32::INFINITY,
        latency_us: AdSpec::LATENCY_UNKNOWN,
        mtu_bytes: 65_535,
    };

    /// The path with one node more that reserves.
    pub fn through(&self, bandwidth: f32, mtu_bytes: u32) -> AdSpec {
        AdSpec {
            hops: self.hops.saturating_add(1),
            bandwidth: self.bandwidth.min(bandwidth),
            mtu_bytes: self.mtu_bytes.min(mtu_bytes),
            ..*self
        }
    }

    pub(crate) fn read(mut contents: Contents<'_>) -> Result<AdSpec, Malformed> {
        read_length(&mut contents)?;
        let mut path = AdSpec::NEW;
        while !contents.is_empty() {
            let [service, flags] = contents.take()?;
            let words = contents.half()?;
            path.is_broken |= flags & AdSpec::BREAK != 0;
            let mut fragment = contents.split(usize::from(words) * 4)?;
            // The per-service terms of delay (RFC 2212) add nothing to what is decided here.
            while service == GENERAL && !fragment.is_empty() {
                let [parameter, _flags] = fragment.take()?;
                let words = fragment.half()?;
                let mut value = fragment.split(usize::from(words) * 4)?;
                match parameter {
                    AdSpec::HOPS => path.hops = value.word()?,
                    AdSpec::BANDWIDTH => path.bandwidth = value.float()?,
                    AdSpec::LATENCY => path.latency_us = value.word()?,
                    AdSpec::MTU => path.mtu_bytes = value.word()?,
                    _ => continue,
                }
                value.end()?;
            }
        }
        Ok(path)
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        put_object(to, class::ADSPEC, INTSERV, |to| {
            to.extend([0, 0]);
            to.extend((AdSpec::GENERAL_WORDS + 2).to_be_bytes());
            to.extend([GENERAL, if self.is_broken { AdSpec::BREAK } else { 0 }]);
            to.extend(AdSpec::GENERAL_WORDS.to_be_bytes());
            let parameters = [
                (AdSpec::HOPS, self.hops),
                (AdSpec::BANDWIDTH, self.bandwidth.to_bits()),
                (AdSpec::LATENCY, self.latency_us),
                (AdSpec::MTU, self.mtu_bytes),
            ];
            for (parameter, value) in parameters {
                put_header(to, parameter, 1);
                to.extend(value.to_be_bytes());
            }
            // Controlled load is offered, and has no parameters of its own.
            to.extend([CONTROLLED_LOAD, 0, 0, 0]);
        });
    }
}

/// The version and overall length that every object of integrated services begins with.
fn read_length(contents: &mut Contents<'_>) -> Result<(), Malformed> {
    if contents.c_type != INTSERV {
        return Err(contents.unknown_c_type());
    }
    let [version, _] = contents.take()?;
    let words = contents.half()?;
    if version >> 4 != 0 {
        return Err(contents.value("another version of integrated services than 0"));
    }
    *contents = exactly(contents, usize::from(words))?;
    Ok(())
}

/// The service number behind version and length, with the length of its data.
fn read_service(contents: &mut Contents<'_>) -> Result<u8, Malformed> {
    read_length(contents)?;
    let [service, _] = contents.take()?;
    let words = contents.half()?;
    *contents = exactly(contents, usize::from(words))?;
    Ok(service)
}

/// The contents, which must be as many words.
fn exactly<'a>(contents: &mut Contents<'a>, words: usize) -> Result<Contents<'a>, Malformed> {
    let taken = contents.split(words * 4)?;
    contents.end()?;
    Ok(taken)
}

/// A parameter's header, which must be this one.
fn header(contents: &mut Contents<'_>, parameter: u8, words: u16) -> Result<(), Malformed> {
    let [found, _flags] = contents.take()?;
    if found != parameter || contents.half()? != words {
        return Err(contents.value("another parameter than its service has here"));
    }
    Ok(())
}

fn put_header(to: &mut Vec<u8>, parameter: u8, words: u16) {
    to.extend([parameter, 0]);
    to.extend(words.to_be_bytes());
}

fn put_service(to: &mut Vec<u8>, service: u8, words: u16) {
    to.extend([0, 0]);
    to.extend((words + 1).to_be_bytes());
    to.extend([service, 0]);
    to.extend(words.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_gives_the_least_flowspec_that_covers_both() {
        let small = FlowSpec::controlled_load(Tspec::new(1_000.0, 3_000.0));
        let wide = FlowSpec::controlled_load(Tspec::new(500.0, 9_000.0));
        let merged = small.merge(&wide);
        assert!(merged.covers(&small) && merged.covers(&wide));
        assert!(!small.covers(&wide) && !wide.covers(&small));
        assert_eq!((merged.tspec.rate, merged.tspec.bucket_bytes), (1_000.0, 9_000.0));
        let lower = small.lower(&wide);
        assert!(small.covers(&lower) && wide.covers(&lower));
        let guaranteed = Service::Guaranteed { rate: 2_000.5, slack_us: 7 };
        let guaranteed = FlowSpec { service: guaranteed, ..small };
        assert!(guaranteed.covers(&small) && !small.covers(&guaranteed));
        assert_eq!(guaranteed.merge(&wide).service, guaranteed.service);
        assert_eq!(guaranteed.rate_bytes(), 2_001, "rounded up");
    }

    #[test]
    fn a_link_carries_its_own_headers_beside_the_smallest_packets() {
        let tspec = Tspec { policed_bytes_min: 100, ..Tspec::new(1_000.0, 3_000.0) };
        let flowspec = FlowSpec::controlled_load(tspec);
        assert_eq!(flowspec.on_link(0), (1_000, 3_000));
        assert_eq!(flowspec.on_link(38), (1_380, 4_140));
        let tspec = Tspec { policed_bytes_min: 0, ..tspec };
        assert_eq!(FlowSpec::controlled_load(tspec).on_link(20), (2_000, 6_000));
    }

    #[test]
    fn controlled_load_is_limited_by_its_senders() {
        let senders = Tspec::new(100.0, 1.0).sum(&Tspec::new(50.0, 1.0));
        let flowspec = FlowSpec::controlled_load(Tspec::new(1_000.0, 3_000.0));
        assert_eq!(flowspec.limited_to(&senders).rate_bytes(), 150);
        let service = Service::Guaranteed { rate: 1_000.0, slack_us: 0 };
        assert_eq!(FlowSpec { service, ..flowspec }.limited_to(&senders).rate_bytes(), 1_000);
    }
}
