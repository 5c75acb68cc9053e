//! Every byte arrives once, whatever the network does and however losses are repaired.

use crate::pipe::{Chance, Faults, MS, Pipe};
use nilometer_tcp::{Algorithm, Config, Connection, Recovery, State};
use nilometer_wire::{Span, Time};

const SEEDS: u64 = 300;
const RECOVERIES: [Recovery; 5] =
    [Recovery::Tahoe, Recovery::Reno, Recovery::NewReno, Recovery::Sack, Recovery::Rack];

fn shape(seed: u64, recovery: Recovery) -> Config {
    let mut chance = Chance::new(seed ^ 0xabcd);
    let base =
        [Config::ns2_reno(), Config::rfc(), Config::fulltcp(), Config::ns3(), Config::linux()];
    let mut config = base[chance.below(5) as usize];
    config.recovery = recovery;
    config.algorithm =
        [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr][chance.below(3) as usize];
    // Longer than any back-off, so that neither end is gone before the other has finished.
    config.time_wait = Span::from_secs(600);
    config.undo = chance.one_in(2);
    config.ecn = chance.one_in(2);
    config.limited_transmit = chance.one_in(2);
    config.nagle = chance.one_in(2);
    config.prr = chance.one_in(2);
    config.timestamps = chance.one_in(2);
    config.receive_buffer = [8_000, 65_000, 1 << 20][chance.below(3) as usize];
    config
}

/// Both ends send, close when they have written everything, and reach CLOSED.
fn transfer(seed: u64, recovery: Recovery) {
    let mut chance = Chance::new(seed);
    let bytes = [chance.below(400_000), if chance.one_in(3) { chance.below(50_000) } else { 0 }];
    let initial = [chance.next() as u32, chance.next() as u32];
    let mut left = Connection::connect(shape(seed, recovery), initial[0]);
    let mut right = Connection::listen(shape(seed + 7_000, recovery), initial[1]);
    left.write(bytes[0]);
    right.write(bytes[1]);
    let mut pipe = Pipe::new(left, right, seed);
    let spacing = Span(chance.below(MS.0));
    let none = Faults::default();
    pipe.faults = [
        Faults { loss: 15, duplication: 30, reordering: 10, marking: 50, spacing, ..none },
        Faults { loss: 100, spacing, ..Faults::default() },
        Faults { loss: 4, reordering: 4, duplication: 4, spacing, marking: 3, ..none },
        Faults { reordering: 3, spacing, ..Faults::default() },
        Faults { loss: 300, ..Faults::default() },
    ][chance.below(5) as usize];
    let end = Time::ZERO + Span::from_secs(100_000);
    let mut steps = 0;
    while pipe.step(end) {
        steps += 1;
        assert!(steps < 1_000_000, "seed {seed}, {recovery:?}: no end, {:#?}", pipe.ends);
        let [left, right] = &mut pipe.ends;
        if left.state() == State::Established {
            left.close();
        }
        if right.state() == State::CloseWait {
            right.close();
        }
    }
    let [left, right] = &pipe.ends;
    let about = format!("seed {seed}, {recovery:?}, {} of {bytes:?}", right.delivered());
    assert_eq!(left.state(), State::Closed, "{about}");
    assert_eq!(right.state(), State::Closed, "{about}");
    assert_eq!(right.delivered(), bytes[0], "{about}");
    assert_eq!(left.delivered(), bytes[1], "{about}");
    assert_eq!(left.acknowledged(), bytes[0], "{about}");
    assert_eq!(right.acknowledged(), bytes[1], "{about}");
}

#[test]
fn every_byte_arrives_once_and_both_ends_close() {
    for recovery in RECOVERIES {
        for seed in 0..SEEDS {
            transfer(seed, recovery);
        }
    }
}
