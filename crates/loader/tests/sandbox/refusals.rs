//! Modules that are no plugin classes, each refused with one reason.

use nilometer_loader::{Limits, LoadError, WasmClass};
use nilometer_router::plugin::{Class, Fault, Refusal};

use super::Module;

fn error(module: &[u8]) -> LoadError {
    WasmClass::load(module, &Limits::default()).err().expect("refused")
}

fn refused(module: &Module) -> LoadError {
    error(&module.binary())
}

#[test]
fn another_version_of_the_interface_is_refused() {
    let found = refused(&Module { version: 2, ..Module::default() });
    assert_eq!(found, LoadError::Version { found: 2, known: 1 });
    let message = "the module is of version 2 of the interface, and this router supports 1";
    assert_eq!(found.to_string(), message);
}

#[test]
fn invalid_modules_are_refused() {
    let whole = Module::default().binary();
    assert!(matches!(error(b""), LoadError::Module(_)));
    assert!(matches!(error(b"#!/bin/sh\n"), LoadError::Module(_)));
    for end in [8, whole.len() / 2, whole.len() - 1] {
        let found = error(&whole[..end]);
        assert!(matches!(found, LoadError::Module(_) | LoadError::Export(_)), "{end}: {found}");
    }
    let limits = Limits { module_bytes: 99, ..Limits::default() };
    let found = WasmClass::load(&whole, &limits).err();
    assert_eq!(found, Some(LoadError::TooLong { bytes: whole.len(), limit: 99 }));
}

#[test]
fn other_imports_are_refused() {
    let import = |text: &'static str| refused(&Module { imports: text, ..Module::default() });
    let found = import("(import \"wasi_snapshot_preview1\" \"fd_write\" (func))");
    let message = "the module imports `wasi_snapshot_preview1.fd_write`, which version 1 of the interface does not have";
    assert_eq!(found.to_string(), message);
    let found = import("(import \"nilometer\" \"open\" (func))");
    assert!(matches!(found, LoadError::Import { .. }), "{found}");
    let found = import("(import \"nilometer\" \"log\" (func (param i64)))");
    assert_eq!(found, LoadError::ImportType("log".into()));
}

#[test]
fn exports_must_be_there_and_of_their_type() {
    let text = Module::default().text();
    let without = |name: &str, other: &str| {
        let changed = text.replacen(&format!("(export \"{name}\")"), other, 1);
        error(&wat::parse_str(changed).expect("a module"))
    };
    for name in
        ["interface", "describe", "area", "new", "process", "message", "timeout", "counters"]
    {
        let name = format!("nilometer_{name}");
        assert_eq!(without(&name, "").to_string(), missing(&name));
    }
    assert_eq!(without("memory", "").to_string(), missing("memory"));
    let twice = "(func (export \"nilometer_timeout\")) (func (export \"other\") (param $now i64)";
    let changed = text.replacen("(func (export \"nilometer_timeout\") (param $now i64)", twice, 1);
    let found = error(&wat::parse_str(changed).expect("a module"));
    assert_eq!(found, LoadError::ExportType("nilometer_timeout"));
}

fn missing(name: &str) -> String {
    format!("the module does not export `{name}`, which a plugin must")
}

#[test]
fn too_much_memory_from_the_beginning_is_refused() {
    let found = refused(&Module { memory: "257", ..Module::default() });
    assert_eq!(found, LoadError::Fault(Fault::Memory(16 << 20)));
    let table = Module { globals: "(table 1000000000 funcref)", ..Module::default() };
    assert!(matches!(refused(&table), LoadError::Fault(_)));
}

#[test]
fn a_start_function_has_a_budget() {
    let module = Module { globals: "(func $s (loop $a br $a)) (start $s)", ..Module::default() };
    let budget = Limits::default().start_instructions;
    assert_eq!(refused(&module), LoadError::Fault(Fault::Budget(budget)));
}

#[test]
fn a_wrong_description_is_refused() {
    let module = Module { description: "name a b\\0a", ..Module::default() };
    assert_eq!(refused(&module), LoadError::Description("the name \"a b\"".into()));
    let text = Module::default().text();
    let at = text.find("i64.const").expect("there");
    let end = at + text[at..].find(')').expect("there");
    for place in ["i64.const -1", "i64.const 0x0000ffffffffffff", "i64.const 0x0000000800020000"] {
        let changed = format!("{}{place}{}", &text[..at], &text[end..]);
        let found = error(&wat::parse_str(changed).expect("a module"));
        assert!(matches!(found, LoadError::Description(_)), "{found}");
    }
}

#[test]
fn a_configuration_may_be_refused_with_a_reason() {
    let module = Module {
        imports: "(import \"nilometer\" \"reply\" (func $reply (param i32 i32)))",
        new: "(call $reply (local.get $at) (local.get $bytes)) i32.const 1",
        ..Module::default()
    };
    let refused = module.class().instantiate("colour=red", 1).err();
    assert_eq!(refused, Some(Refusal::Configuration("colour=red".into())));
    let long = "x".repeat(65_537);
    let refused = module.class().instantiate(&long, 1).err();
    assert_eq!(refused, Some(Refusal::Configuration("it has more than 65536 bytes".into())));
}
