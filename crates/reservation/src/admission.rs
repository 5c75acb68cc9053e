//! Admission control: bandwidth booked at input and output ports, never beyond the reservable share of a port.
//!
//! A port has a capacity in each direction, of which a share may be reserved. A booking takes its rate at the output
//! port of its flow and at each input port by which one of its senders arrives: it is accepted as a whole or refused
//! as a whole. Rates are whole bytes a second, so that sums are exact.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nilometer_wire::Rate;
use thiserror::Error;

/// The number of a reservation, never given twice by one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub u64);

nilometer_wire::named! {
    /// A direction of a port, as seen from the router.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Side {
        /// What the port receives.
        Input = "input",
        /// What the port sends.
        Output = "output",
    }
}

/// Why a booking was refused; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AdmissionError {
    /// There is no such port.
    #[error("there is no port {0}")]
    NoSuchPort(u32),
    /// The reservable bandwidth of a port does not suffice.
    #[error("{side} of port {port}: {requested} B/s requested, {available} B/s available")]
    Bandwidth {
        /// The port.
        port: u32,
        /// Which direction.
        side: Side,
        /// The booking's rate, in bytes a second.
        requested: u64,
        /// What is left of the reservable share.
        available: u64,
    },
    /// As many bookings as there may be.
    #[error("there are at most {0} reservations")]
    TooMany(usize),
}

/// What a booking takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// The input ports, each once.
    pub inputs: Vec<u32>,
    /// The output port.
    pub output: u32,
    /// Bytes a second at each of them.
    pub rate_bytes: u64,
}

impl Booking {
    /// Each port and side that it takes.
    fn places(&self) -> impl Iterator<Item = (u32, Side)> {
        let inputs = self.inputs.iter().map(|input| (*input, Side::Input));
        inputs.chain([(self.output, Side::Output)])
    }
}

#[derive(Clone, Copy, Debug)]
struct PortBookings {
    reservable: u64,
    booked: [u64; 2],
}

/// The bookings of all ports.
#[derive(Clone, Debug)]
pub struct Admission {
    ports: Vec<PortBookings>,
    bookings: BTreeMap<ReservationId, Booking>,
    bookings_max: usize,
}

/// The reservable bytes a second of a port of this capacity.
fn reservable(capacity: Rate, percent: u8) -> u64 {
    let bytes = u128::from(capacity.bits_per_second() / 8);
    (bytes * u128::from(percent.min(100)) / 100) as u64
}

impl Admission {
    /// Ports of these capacities, each with the percentage of it that may be reserved; at most `bookings_max`
    /// bookings.
    pub fn new(ports: impl IntoIterator<Item = (Rate, u8)>, bookings_max: usize) -> Admission {
        let port = |(capacity, percent)| PortBookings {
            reservable: reservable(capacity, percent),
            booked: [0; 2],
        };
        let ports = ports.into_iter().map(port).collect();
        Admission { ports, bookings: BTreeMap::new(), bookings_max }
    }

    /// Books for `id`, replacing its earlier booking.
    ///
    /// # Errors
    /// If it is refused; the earlier booking then stays.
    pub fn book(&mut self, id: ReservationId, booking: Booking) -> Result<(), AdmissionError> {
        let before = self.release(id);
        let verdict = self.check(&booking);
        let kept = if verdict.is_ok() { Some(booking) } else { before };
        if let Some(kept) = kept {
            self.add(id, kept);
        }
        verdict
    }

    fn check(&self, booking: &Booking) -> Result<(), AdmissionError> {
        if self.bookings.len() >= self.bookings_max {
            return Err(AdmissionError::TooMany(self.bookings_max));
        }
        let requested = booking.rate_bytes;
        for (port, side) in booking.places() {
            let available = self.available(port, side).ok_or(AdmissionError::NoSuchPort(port))?;
            if requested > available {
                return Err(AdmissionError::Bandwidth { port, side, requested, available });
            }
        }
        Ok(())
    }

    fn add(&mut self, id: ReservationId, booking: Booking) {
        for (port, side) in booking.places() {
            let port = &mut self.ports[port as usize];
            port.booked[side as usize] += booking.rate_bytes;
            assert!(port.booked[side as usize] <= port.reservable, "booked beyond the share");
        }
        self.bookings.insert(id, booking);
    }

    /// Cancels the booking of `id`.
    pub fn release(&mut self, id: ReservationId) -> Option<Booking> {
        let booking = self.bookings.remove(&id)?;
        for (port, side) in booking.places() {
            self.ports[port as usize].booked[side as usize] -= booking.rate_bytes;
        }
        Some(booking)
    }

    /// Bytes a second that may be reserved in each direction of a port.
    pub fn reservable(&self, port: u32) -> Option<u64> {
        self.ports.get(port as usize).map(|port| port.reservable)
    }

    /// Bytes a second that are booked.
    pub fn booked(&self, port: u32, side: Side) -> Option<u64> {
        self.ports.get(port as usize).map(|port| port.booked[side as usize])
    }

    /// Bytes a second that are left.
    pub fn available(&self, port: u32, side: Side) -> Option<u64> {
        let port = self.ports.get(port as usize)?;
        Some(port.reservable - port.booked[side as usize])
    }

    /// All bookings.
    pub fn bookings(&self) -> impl Iterator<Item = (ReservationId, &Booking)> {
        self.bookings.iter().map(|(id, booking)| (*id, booking))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    const PORTS: u32 = 3;

    fn admission() -> Admission {
        let capacity = Rate::new(8_000).expect("a rate");
        Admission::new((0..PORTS).map(|_| (capacity, 80)), 50)
    }

    fn booking(input: u32, output: u32, rate_bytes: u64) -> Booking {
        Booking { inputs: Vec::from([input]), output, rate_bytes }
    }

    #[test]
    fn a_port_is_booked_up_to_its_share_and_no_further() {
        let mut admission = admission();
        let id = ReservationId;
        assert_eq!(admission.reservable(0), Some(800));
        assert_eq!(admission.book(id(1), booking(0, 1, 500)), Ok(()));
        let refused =
            |side, port| AdmissionError::Bandwidth { port, side, requested: 400, available: 300 };
        assert_eq!(admission.book(id(2), booking(2, 1, 400)), Err(refused(Side::Output, 1)));
        assert_eq!(admission.book(id(2), booking(0, 2, 400)), Err(refused(Side::Input, 0)));
        assert_eq!(admission.book(id(2), booking(1, 0, 400)), Ok(()), "the other direction");
        // A change counts against what others have, and a refused one leaves the old in place.
        assert_eq!(admission.book(id(1), booking(0, 1, 800)), Ok(()));
        let beyond = admission.book(id(1), booking(0, 1, 801));
        assert!(matches!(beyond, Err(AdmissionError::Bandwidth { available: 800, .. })));
        assert_eq!(admission.booked(1, Side::Output), Some(800));
        assert_eq!(admission.book(id(3), booking(9, 1, 1)), Err(AdmissionError::NoSuchPort(9)));
        assert_eq!(admission.release(id(1)), Some(booking(0, 1, 800)));
        assert_eq!(admission.release(id(1)), None);
        assert_eq!(admission.booked(1, Side::Output), Some(0));
    }

    /// The twin: sums over all bookings.
    #[test]
    fn sums_are_those_of_all_bookings() {
        let mut admission = admission();
        let mut refused = 0;
        for step in 0..5_000 {
            let mut rng = Rng::new(1, u32::from_be_bytes(*b"admi"), step);
            let id = ReservationId(rng.below(60));
            if rng.below(3) == 0 {
                admission.release(id);
            } else {
                let [input, output] = [(); 2].map(|()| rng.below(u64::from(PORTS)) as u32);
                let booking = booking(input, output, rng.below(200));
                refused += u32::from(admission.book(id, booking).is_err());
            }
            for port in 0..PORTS {
                for side in Side::ALL {
                    let takes = |booking: &Booking| booking.places().any(|p| p == (port, side));
                    let taking = admission.bookings().filter(|(_, booking)| takes(booking));
                    let sum = taking.map(|(_, booking)| booking.rate_bytes).sum();
                    assert_eq!(admission.booked(port, side), Some(sum));
                    assert!(sum <= 800);
                }
            }
        }
        assert!(refused > 100, "{refused}");
    }
}
