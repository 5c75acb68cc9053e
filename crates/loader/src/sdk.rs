//! A new plugin: a crate that builds without a network, with the sources of `nilometer-plugin` in it.

/// The sources, by their path in the crate.
const SOURCES: [(&str, &str); 17] = [
    ("src/checksum.rs", include_str!("../../plugin/src/checksum.rs")),
    ("src/context.rs", include_str!("../../plugin/src/context.rs")),
    ("src/guest/allocator.rs", include_str!("../../plugin/src/guest/allocator.rs")),
    ("src/guest/mod.rs", include_str!("../../plugin/src/guest/mod.rs")),
    ("src/headers.rs", include_str!("../../plugin/src/headers.rs")),
    ("src/interface.rs", include_str!("../../plugin/src/interface.rs")),
    ("src/labels.rs", include_str!("../../plugin/src/labels.rs")),
    ("src/lib.rs", include_str!("../../plugin/src/lib.rs")),
    ("src/macros.rs", include_str!("../../plugin/src/macros.rs")),
    ("src/packet.rs", include_str!("../../plugin/src/packet.rs")),
    ("src/prefix.rs", include_str!("../../plugin/src/prefix.rs")),
    ("src/rewrite.rs", include_str!("../../plugin/src/rewrite.rs")),
    ("src/running.rs", include_str!("../../plugin/src/running.rs")),
    ("src/settings.rs", include_str!("../../plugin/src/settings.rs")),
    ("LICENSE-APACHE", include_str!("../../../LICENSE-APACHE")),
    ("LICENSE-MIT", include_str!("../../../LICENSE-MIT")),
    ("Cargo.toml", SDK_MANIFEST),
];

const SDK_MANIFEST: &str = "\
[package]
name = \"nilometer-plugin\"
version = \"0.1.0\"
edition = \"2024\"
license = \"MIT OR Apache-2.0\"
publish = false
";

const MANIFEST: &str = "\
[package]
name = \"NAME\"
version = \"0.1.0\"
edition = \"2024\"
publish = false

[lib]
crate-type = [\"cdylib\", \"rlib\"]

[dependencies]
nilometer-plugin = { path = \"nilometer-plugin\" }

[profile.release]
panic = \"abort\"
lto = true
codegen-units = 1
strip = true

[workspace]
";

const SOURCE: &str = include_str!("sdk/template.rs");

/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 40;

/// Whether a text can be the name of a plugin and of a crate: lower-case letters, digits and hyphens, a letter first.
///
/// # Errors
/// When it cannot.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.as_bytes()[0].is_ascii_lowercase()
        && !name.ends_with('-')
        && !["nilometer-plugin", "core", "alloc", "std", "test"].contains(&name);
    match is_name {
        true => Ok(()),
        false => Err(format!(
            "`{name}` is not a name of a plugin: lower-case letters, digits and hyphens, at most {NAME_BYTES_MAX}"
        )),
    }
}

/// The files of a new plugin: their paths and what is in them.
///
/// # Errors
/// When the name cannot be one.
pub fn files(name: &str) -> Result<Vec<(String, String)>, String> {
    check_name(name)?;
    let mut files = vec![
        ("Cargo.toml".to_owned(), MANIFEST.replace("NAME", name)),
        (".gitignore".to_owned(), "/target\n/*.wasm\n/*.nmp\n".to_owned()),
        ("src/lib.rs".to_owned(), SOURCE.replace("template-name", name)),
    ];
    for (path, text) in SOURCES {
        files.push((format!("nilometer-plugin/{path}"), text.to_owned()));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_source_of_the_crate_is_here() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin/src");
        let mut folders = vec![root.clone()];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let below = path.strip_prefix(&root).expect("below").display().to_string();
                    found.push(format!("src/{below}"));
                }
            }
        }
        found.sort();
        let listed: Vec<&str> =
            SOURCES.iter().map(|(path, _)| *path).filter(|path| path.starts_with("src/")).collect();
        assert_eq!(found, listed);
    }

    #[test]
    fn names_are_those_of_crates() {
        assert!(check_name("drop-every-third").is_ok());
        for name in ["", "Drop", "a_b", "-a", "a-", "../a", "1a", "nilometer-plugin"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
