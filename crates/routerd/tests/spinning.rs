//! How long a router polls for the next frame before it sleeps: allowed values, and the default.

use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::testbed::{RouterFile, testbed_router};

const PORTS: &str = "[[port]]\ninterface = \"client\"\n[[port]]\ninterface = \"server\"\n";

#[test]
fn a_router_spins_as_configured_and_at_most_ten_milliseconds() {
    let spins = |text: &str| {
        let config: RouterConfig = toml::from_str(&format!("{text}{PORTS}")).expect("a router");
        config.check().map(|()| config.spin_us).map_err(|why| why.to_string())
    };
    assert_eq!(spins(""), Ok(0));
    assert_eq!(spins("spin_us = 10000\n"), Ok(10_000));
    let refusal = spins("spin_us = 10001\n").expect_err("too long");
    assert!(refusal.contains("spin_us is 10001, and 10000 are the most"), "{refusal}");
}

#[test]
fn the_router_of_a_lab_spins_unless_its_file_overrides_it() {
    assert_eq!(testbed_router(&[], 1, None).spin_us, 50);
    let path = std::env::temp_dir().join(format!("nilometer-spin-{}.toml", std::process::id()));
    for (text, spin_us) in [("", 50), ("spin_us = 0\n", 0), ("spin_us = 7\n", 7)] {
        std::fs::write(&path, format!("{text}{PORTS}")).expect("a scratch file");
        let file = RouterFile::read(&path).expect("a file for a lab");
        assert_eq!(testbed_router(&[], 1, Some(&file)).spin_us, spin_us, "{text:?}");
    }
    std::fs::remove_file(path).expect("clean");
}
