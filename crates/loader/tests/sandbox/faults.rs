//! Modules that loop, trap, hoard or point elsewhere while they run.

use std::time::{Duration, Instant};

use nilometer_loader::{Limits, WasmClass};
use nilometer_router::plugin::{Class, Effects, Fault, Refusal};
use nilometer_wire::Time;

use super::{Module, Packets, fault};

const FOREVER: &str = "(loop $again br $again) i32.const 0";
/// Changes the first packet and flags it as changed: what must not be seen if the call then fails.
const CHANGES_FIRST: &str = "(i32.store8 (i32.load (local.get $area)) (i32.const 255)) \
    (i32.store8 offset=13 (local.get $area) (i32.const 1)) \
    (i32.store8 offset=12 (local.get $area) (i32.const 1))";

fn process(body: &str) -> Fault {
    let body = format!("{CHANGES_FIRST} {body}");
    fault(&Module { process: body.leak(), ..Module::default() })
}

#[test]
fn an_infinite_loop_uses_up_its_budget_and_soon() {
    let begun = Instant::now();
    let budget = Limits::default().budget(3);
    assert_eq!(process(FOREVER), Fault::Budget(budget));
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[test]
fn the_budget_grows_with_the_packets() {
    // The same work, of some 800,000 instructions: too much for one packet, and not for 32.
    let module = Module {
        globals: "(global $left (mut i32) (i32.const 0))",
        process: "(global.set $left (i32.const 110000))
             (loop $again
               (global.set $left (i32.sub (global.get $left) (i32.const 1)))
               (br_if $again (global.get $left)))
             i32.const 0",
        ..Module::default()
    };
    let one = Packets::of(&[40]).process(&mut *module.instance()).0;
    assert_eq!(one, Err(Fault::Budget(Limits::default().budget(1))));
    let many = Packets::of(&[40; 32]).process(&mut *module.instance()).0;
    assert_eq!(many, Ok(()));
}

#[test]
fn an_access_outside_of_the_memory_is_a_trap() {
    let line = Fault::Trap("an access outside of its memory".into());
    assert_eq!(process("(i32.store (i32.const -1) (i32.const 0)) i32.const 0"), line);
    assert_eq!(process("(drop (i32.load (i32.const 131072))) i32.const 0"), line);
}

#[test]
fn other_traps_have_reasons() {
    let traps = [
        ("unreachable", "it reached an instruction that it never should"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "a division by zero"),
    ];
    for (body, line) in traps {
        assert_eq!(process(body), Fault::Trap(line.into()));
    }
    let nested = Module {
        globals: "(func $again (result i32) call $again)",
        process: "call $again",
        ..Module::default()
    };
    assert_eq!(fault(&nested), Fault::Trap("calls nested too deeply".into()));
}

#[test]
fn the_trap_reason_of_a_module_is_kept() {
    let module = Module {
        imports: "(import \"nilometer\" \"fault\" (func $fault (param i32 i32)))",
        globals: "(data (i32.const 512) \"the table is torn\")",
        process: "(call $fault (i32.const 512) (i32.const 17)) unreachable",
        ..Module::default()
    };
    assert_eq!(fault(&module), Fault::Trap("the table is torn".into()));
}

#[test]
fn memory_is_not_hoarded() {
    let limits = Limits::default();
    let at_once = "(drop (memory.grow (i32.const 60000))) i32.const 0";
    assert_eq!(process(at_once), Fault::Memory(limits.memory_bytes));
    let page_by_page = "(loop $again (br_if $again (i32.ne (i32.const -1) \
        (memory.grow (i32.const 1))))) i32.const 0";
    assert_eq!(process(page_by_page), Fault::Memory(limits.memory_bytes));
}

#[test]
fn memory_is_granted_up_to_the_limit() {
    let module =
        Module { process: "(drop (memory.grow (i32.const 254))) i32.const 0", ..Module::default() };
    let mut instance = module.instance();
    assert_eq!(Packets::of(&[20]).process(&mut *instance).0, Ok(()));
    assert_eq!(instance.memory_bytes(), 16 << 20);
    // Growth costs instructions too: the memory is to be filled with zeros.
    let limits = Limits { call_instructions: 100_000, ..Limits::default() };
    let class = WasmClass::load(&module.binary(), &limits).expect("a class");
    let mut instance = class.instantiate("", 1).expect("an instance");
    let outcome = Packets::of(&[20]).process(&mut *instance).0;
    assert_eq!(outcome, Err(Fault::Budget(limits.budget(1))));
}

#[test]
fn wrong_decisions_and_flags_are_a_breach() {
    let writes = |offset: u32, value: u32| {
        process(&format!(
            "(i32.store8 offset={} (local.get $area) (i32.const {value})) i32.const 0",
            16 + offset
        ))
    };
    let line = |text: &str| Fault::Interface(text.to_owned());
    assert_eq!(writes(12, 2), line("packet 1 has the decision 2 and the flags 0"));
    assert_eq!(writes(13, 2), line("packet 1 has the decision 0 and the flags 2"));
    assert_eq!(process("i32.const 9"), line("`nilometer_process` returned 9"));
}

#[test]
fn addresses_outside_of_the_memory_are_a_breach() {
    let imports = [
        ("emit", "(param i32 i32) (result i32)", "drop"),
        ("log", "(param i32 i32)", ""),
        ("reply", "(param i32 i32)", ""),
        ("fault", "(param i32 i32)", ""),
    ];
    for (name, kind, after) in imports {
        for (address, bytes) in [(131_070, 4), (4_294_967_295u32, 4_294_967_295u32)] {
            let module = Module {
                imports: format!("(import \"nilometer\" \"{name}\" (func $f {kind}))").leak(),
                process: format!(
                    "(call $f (i32.const {address}) (i32.const {bytes})) {after} i32.const 0"
                )
                .leak(),
                ..Module::default()
            };
            let line =
                format!("`{name}` was given {bytes} bytes at {address}, outside of its memory");
            assert_eq!(fault(&module), Fault::Interface(line));
        }
    }
}

#[test]
fn two_replies_are_a_breach() {
    let module = Module {
        imports: "(import \"nilometer\" \"reply\" (func $reply (param i32 i32)))",
        process: "(call $reply (i32.const 0) (i32.const 1)) (call $reply (i32.const 0) (i32.const 1)) \
            i32.const 0",
        ..Module::default()
    };
    assert_eq!(fault(&module), Fault::Interface("it called `reply` twice".into()));
}

#[test]
fn rooms_that_there_are_not_are_a_breach() {
    // The first room is at its place, a larger one is not.
    let area = |at: i32| Module {
        area: format!(
            "(if (result i32) (i32.gt_u (local.get 0) (i32.const 4096)) \
             (then (i32.const {at})) (else (i32.const 4096)))"
        )
        .leak(),
        ..Module::default()
    };
    for (at, line) in [(131_064, "at 131064"), (4_100, "at 4100"), (-8, "at 4294967288")] {
        let mut instance = area(at).instance();
        let (outcome, _) = Packets::of(&[64; 64]).process(&mut *instance);
        let Err(Fault::Interface(text)) = outcome else { panic!("{outcome:?}") };
        assert!(text.contains(line), "{text}");
    }
    let (outcome, _) = Packets::of(&[64; 64]).process(&mut *area(0).instance());
    assert_eq!(outcome, Err(Fault::Memory(16 << 20)));
}

#[test]
fn messages_and_timers_have_a_budget_too() {
    let module = Module { message: FOREVER, timeout: FOREVER, ..Module::default() };
    let mut effects = Effects::default();
    let mut instance = module.instance();
    let limits = Limits::default();
    let answer = instance.handle_message(Time::ZERO, "how much?", &mut effects);
    assert_eq!(answer, Err(Fault::Budget(limits.text_budget())));
    let timed = module.instance().handle_timeout(Time::ZERO, &mut effects);
    assert_eq!(timed, Err(Fault::Budget(limits.budget(0))));
}

#[test]
fn a_loop_before_the_first_packet_ends_as_well() {
    let module = Module { new: FOREVER, ..Module::default() };
    let refused = module.class().instantiate("", 1).err();
    let budget = Limits::default().start_instructions;
    assert_eq!(refused, Some(Refusal::Fault(Fault::Budget(budget))));
}

#[test]
fn counters_outside_of_the_memory_are_a_breach() {
    let module = Module { counters: "i32.const 131068", ..Module::default() };
    let Some(Refusal::Fault(Fault::Interface(line))) = module.class().instantiate("", 1).err()
    else {
        panic!("refused");
    };
    assert_eq!(line, "its counters, at 131068, lie outside of its memory");
}
