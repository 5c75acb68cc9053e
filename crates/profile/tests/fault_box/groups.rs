//! Groups of packets that nothing on the wire distinguishes.

use std::collections::HashMap;

use nilometer_profile::Fingerprint;

use crate::wire::Truth;

/// For each packet the first of its look-alikes, and by first packet their number. Look-alikes are packets of one
/// length with all lanes but one equal, each within the window of another.
pub fn groups(truth: &[Truth], window_ns: u64) -> (Vec<usize>, Vec<usize>) {
    let prints: Vec<Fingerprint> =
        truth.iter().map(|packet| Fingerprint::of(&packet.bytes)).collect();
    let mut parents: Vec<usize> = (0..truth.len()).collect();
    let mut of_length: HashMap<u32, Vec<usize>> = HashMap::new();
    for number in 0..truth.len() {
        let before = of_length.entry(prints[number].bytes).or_default();
        let window =
            before.iter().rev().copied().take_while(|&other| {
                truth[number].entered_ns - truth[other].entered_ns < window_ns
            });
        for other in window {
            if prints[number].lanes_shared(&prints[other]) >= 7 {
                let (one, two) = (first(&parents, number), first(&parents, other));
                parents[one.max(two)] = one.min(two);
            }
        }
        before.push(number);
    }
    let groups: Vec<usize> = (0..truth.len()).map(|number| first(&parents, number)).collect();
    let mut sizes = vec![0; truth.len()];
    groups.iter().for_each(|group| sizes[*group] += 1);
    (groups, sizes)
}

fn first(parents: &[usize], mut number: usize) -> usize {
    while parents[number] != number {
        number = parents[number];
    }
    number
}
