//! Plugins that one-packet setups and reservations by API name: bound on the way, changed, refused, and gone in the end.

mod network;

use std::net::IpAddr;

use network::*;
use nilometer_reservation::message::*;
use nilometer_reservation::process::{
    FlowFilter, HoldError, HoldRequest, PluginRefusal, Settings, SetupRequest,
};
use nilometer_reservation::{Reservation, Upcall};
use nilometer_wire::Span;

const SENDER: usize = 0;
const RECEIVER: usize = 4;
const ROUTERS: [usize; 3] = [1, 2, 3];

/// Sender, three routers in a row, receiver. The routers allow `mark` and `counter`, but those in
/// `strict` allow none.
fn row(strict: &[usize]) -> Network {
    Network::with_settings(5, &[(0, 1), (1, 2), (2, 3), (3, 4)], |node, settings| {
        if ROUTERS.contains(&node) && !strict.contains(&node) {
            settings.plugins = ["mark", "counter"].map(str::to_owned).to_vec();
        }
        settings.plugin_instances_max = 3;
    })
}

fn plugins(named: &[(&str, &str)]) -> Option<FlowPlugins> {
    let named = named.iter().map(|(class, configuration)| NamedPlugin {
        class: (*class).to_owned(),
        configuration: (*configuration).to_owned(),
    });
    let named: Vec<NamedPlugin> = named.collect();
    (!named.is_empty()).then(|| FlowPlugins::new(named).expect("they fit"))
}

/// The flow of a port is set up with these plugins, or in place of how it was.
fn set_up(network: &mut Network, port: u16, named: &[(&str, &str)]) -> (Session, Sender) {
    let session = udp_session(network.address(RECEIVER));
    let sender = Sender { source: network.address(SENDER), port };
    let plugins = plugins(named);
    let request = SetupRequest { session, sender, flowspec: load(1e6), route: None, plugins };
    network
        .with(SENDER, |process, now, query| process.set_up(now, request, &RoutesByClosure(query)))
        .expect("a way");
    network.run(SECOND);
    (session, sender)
}

/// The plugins of the first reservation at each router.
fn bound(network: &Network) -> [Option<FlowPlugins>; 3] {
    ROUTERS.map(|node| first(network, node).plugins.clone())
}

fn first(network: &Network, node: usize) -> &Reservation {
    network.planes[node].values().next().expect("a reservation")
}

/// What the receiver heard: routers that reserved, and whether all did all.
fn received_setups(network: &mut Network) -> Vec<(u32, bool)> {
    let received_setups = |upcall| match upcall {
        Upcall::FlowSetup { hops, is_broken, .. } => Some((hops, is_broken)),
        _ => None,
    };
    network.take_upcalls(RECEIVER).into_iter().filter_map(received_setups).collect()
}

#[test]
fn a_setup_takes_its_plugins_to_every_router_and_away_again() {
    let mut network = row(&[]);
    let named = [("mark@0.0.1", "dscp=10"), ("counter", "")];
    let (session, sender) = set_up(&mut network, 1, &named);
    assert_eq!(network.packets.len(), 4, "one packet by four links");
    assert_eq!(bound(&network), [(); 3].map(|()| plugins(&named)));
    assert_eq!(received_setups(&mut network), [(3, false)]);
    // An identical repetition changes nothing; other plugins, another order or configuration, or none, do.
    network.run(Span::from_secs(300));
    assert_eq!(network.installs[1..4], [1, 1, 1]);
    let others: [&[(&str, &str)]; 4] =
        [&[named[1], named[0]], &[("mark", "dscp=12")], &[("mark", "dscp=14")], &[]];
    for (number, named) in (2..).zip(others) {
        set_up(&mut network, 1, named);
        assert_eq!(bound(&network), [(); 3].map(|()| plugins(named)));
        assert_eq!(network.installs[1..4], [number; 3]);
    }
    assert!(
        received_setups(&mut network).iter().all(|received_setups| *received_setups == (3, false))
    );
    set_up(&mut network, 1, &named);
    network.with(SENDER, |process, _, _| assert!(process.take_back(session, sender)));
    network.run(SECOND);
    assert!(network.planes.iter().all(|plane| plane.is_empty()), "with its sender's word");
    set_up(&mut network, 1, &named);
    network.kill(SENDER);
    network.run(Span::from_secs(210));
    assert!(network.planes.iter().all(|plane| plane.is_empty()), "with its sender's death");
}

#[test]
fn a_class_not_allowed_is_refused_at_its_node_and_the_setup_is_marked_broken() {
    let mut network = row(&[2]);
    let named = [("counter", ""), ("mark@0.0.1", "")];
    set_up(&mut network, 1, &named);
    assert_eq!(received_setups(&mut network), [(3, true)], "bandwidth is there all the way");
    let here = plugins(&named);
    assert_eq!(bound(&network), [here.clone(), None, here]);
    let refused = |network: &mut Network, node: usize| {
        let why = |upcall| match upcall {
            Upcall::PluginsRefused { why, .. } => Some(why),
            _ => None,
        };
        network.take_upcalls(node).into_iter().filter_map(why).collect::<Vec<_>>()
    };
    let not_allowed = |class: &str| PluginRefusal::NotAllowed(class.to_owned());
    assert_eq!(refused(&mut network, 2), [not_allowed("counter")]);
    // A chain is bound whole or not at all, and names are compared whole.
    set_up(&mut network, 1, &[("counter", ""), ("marker", "")]);
    assert_eq!(bound(&network), [None, None, None]);
    assert_eq!(refused(&mut network, 1), [not_allowed("marker")]);
    assert_eq!(received_setups(&mut network), [(3, true)]);
    set_up(&mut network, 1, &[]);
    assert_eq!(
        received_setups(&mut network),
        [(3, false)],
        "nothing is refused of a setup without plugins"
    );
}

#[test]
fn plugins_refused_by_the_host_are_reported_downstream_and_retried() {
    let mut network = row(&[]);
    let named = [("mark", "")];
    set_up(&mut network, 1, &named);
    assert_eq!(received_setups(&mut network), [(3, false)]);
    let id = first(&network, 2).id;
    network.with(2, |process, now, _| assert!(process.refuse_plugins(now, id)));
    network.with(2, |process, now, _| assert!(!process.refuse_plugins(now, id), "once"));
    network.run(SECOND);
    let here = plugins(&named);
    assert_eq!(bound(&network), [here.clone(), None, here.clone()]);
    assert_eq!(received_setups(&mut network), [(3, true)], "with a message of its own");
    set_up(&mut network, 1, &named);
    assert_eq!(received_setups(&mut network), [(3, true)], "not before a refresh period");
    assert_eq!(network.installs[2], 2);
    network.run(Span::from_secs(100));
    assert_eq!(bound(&network), [here.clone(), here.clone(), here]);
    assert_eq!(received_setups(&mut network).last(), Some(&(3, false)));
    // Other plugins are tried at once.
    network.with(2, |process, now, _| assert!(process.refuse_plugins(now, id)));
    set_up(&mut network, 1, &[("counter", "")]);
    assert_eq!(bound(&network)[1], plugins(&[("counter", "")]));
    assert_eq!(network.nodes[2].counts().plugins_refused, 2);
}

fn hold_request(named: &[(&str, &str)]) -> HoldRequest {
    let destination = IpAddr::from([10, 0, 3, 2]);
    let (source, source_port, destination_port) = (None, None, Some(5_004));
    HoldRequest {
        holder: "test".to_owned(),
        flow: FlowFilter { source, destination, protocol: 17, source_port, destination_port },
        input: None,
        via: None,
        rate_bytes: 1_000,
        bucket_bytes: 3_000,
        lifetime: Span::from_secs(60),
        plugins: plugins(named),
    }
}

#[test]
fn instances_of_all_reservations_have_a_limit() {
    let mut network = row(&[]);
    let two = [("mark", ""), ("counter", "")];
    let (session, sender) = set_up(&mut network, 1, &two);
    set_up(&mut network, 2, &two);
    assert_eq!(received_setups(&mut network), [(3, false), (3, true)], "three are the most");
    assert_eq!(network.nodes[1].counts().plugins_refused, 1);
    let hold = |network: &mut Network, named: &[(&str, &str)]| {
        let request = hold_request(named);
        network.with(1, |process, now, query| process.hold(now, request, &RoutesByClosure(query)))
    };
    // (A reservation by API may name any class.)
    assert_eq!(hold(&mut network, &two), Err(HoldError::Plugins(PluginRefusal::Instances(3))));
    let id = hold(&mut network, &[("nat", "")]).expect("room for one");
    assert_eq!(network.planes[1][&id].plugins, plugins(&[("nat", "")]));
    network.with(1, |process, now, _| assert!(process.refuse_plugins(now, id)));
    assert_eq!(network.planes[1][&id].plugins, None);
    // Where the first has ended there is room for the second.
    network.with(SENDER, |process, _, _| assert!(process.take_back(session, sender)));
    network.run(Span::from_secs(100));
    assert_eq!(bound(&network)[1], plugins(&two));
    assert_eq!(received_setups(&mut network).last(), Some(&(3, false)));
}

#[test]
fn a_process_allows_no_plugin_by_default() {
    let settings = Settings::new(Vec::new(), 1);
    assert!(settings.plugins.is_empty());
}
