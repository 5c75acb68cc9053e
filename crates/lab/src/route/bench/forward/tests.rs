//! The arithmetic of prices, pace and loads, on figures made up.

use super::*;

fn sampled(sent: u64, delivered: u64, cpu: f64) -> Sample {
    let run = Run { sent, delivered, seconds: 0.5, ..Run::default() };
    Sample { run, cpu, machine: cpu }
}

#[test]
fn the_price_is_what_the_bare_link_does_not_cost() {
    // 1,000 frames in half a second cost 0.2 s of a second bare, and 0.6 s through a device.
    let own = [sampled(1_000, 900, 0.6), sampled(1_000, 900, 0.6)];
    let bare = [sampled(1_000, 1_000, 0.2), sampled(2_000, 2_000, 0.4)];
    let point = point(&own, &bare);
    assert_eq!((point.offered_pps, point.forwarded_pps), (2_000.0, 1_800.0));
    let price = point.packets_per_cpu_second.expect("it costs something");
    assert!((price - 1_800.0 / 0.4).abs() < 1e-6, "{price}");
    assert!((point.generator_cpu_seconds - 0.2).abs() < 1e-9);
    assert!(point.is_paced);
}

#[test]
fn a_price_that_is_lost_in_the_noise_is_none() {
    let cheaper = point(&[sampled(1_000, 1_000, 0.1)], &[sampled(1_000, 1_000, 0.2)]);
    assert_eq!(cheaper.packets_per_cpu_second, None);
    // One round of four says that a frame costs nothing: the others are believed, and no range is told.
    let own = [0.4, 0.1, 0.4, 0.6].map(|cpu| sampled(1_000, 1_000, cpu));
    let told = point(&own, &[sampled(1_000, 1_000, 0.2); 4]);
    assert!((told.packets_per_cpu_second.expect("known") - 10_000.0).abs() < 1e-6, "{told:?}");
    assert_eq!(told.packets_per_cpu_second_range, None);
    let half = point(&own[..2], &[sampled(1_000, 1_000, 0.2); 2]);
    assert_eq!(half.packets_per_cpu_second, None);
}

#[test]
fn a_generator_that_was_held_up_says_so() {
    let held = Run { sent: 90, missed: 10, ..Run::default() };
    let kept = Run { sent: 99, missed: 1, ..Run::default() };
    assert!(!held.is_paced() && kept.is_paced());
    let mut sample = sampled(90, 90, 0.5);
    sample.run = Run { seconds: 0.5, delivered: 90, ..held };
    let point = point(&[sample], &[sampled(90, 90, 0.2)]);
    assert!(!point.is_paced);
    assert_eq!(doubts(&[point]).len(), 1);
}

#[test]
fn a_tester_that_lost_frames_itself_says_so() {
    let deaf = |unheard| {
        let mut sample = sampled(1_000, 1_000 - unheard, 0.5);
        sample.run.unheard = unheard;
        point(&[sampled(1_000, 1_000, 0.5), sample], &[sampled(1_000, 1_000, 0.2); 2])
    };
    assert_eq!(doubts(&[deaf(1)]), Vec::<String>::new());
    let said = doubts(&[deaf(0), deaf(30)]);
    assert!(said.len() == 1 && said[0].contains("1 of 2") && said[0].contains("3.0 %"), "{said:?}");
}

#[test]
fn the_first_length_is_offered_at_every_rate_and_the_others_at_two() {
    let options = Options {
        duts: Dut::ALL.to_vec(),
        variants: Variant::ALL.to_vec(),
        frame_bytes: vec![64, 512],
        rates: vec![1.0, 2.0, 3.0],
        seconds: 0.1,
        rounds: 1,
        seed: 1,
        out: None,
    };
    assert_eq!(loads(&options), [(64, 0), (64, 1), (64, 2), (512, 0), (512, 2)]);
    let ours = |variant| Some((Dut::Nilometer, variant));
    assert!(is_wanted(&options, ours(Variant::NoDq), (64, 1)));
    assert!(!is_wanted(&options, ours(Variant::NoDq), (512, 0)));
    assert!(is_wanted(&options, ours(Variant::Complete), (512, 0)));
    assert!(is_wanted(&options, None, (512, 2)));
}
