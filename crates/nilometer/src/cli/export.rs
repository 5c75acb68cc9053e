//! `nilometer model export`: a model for Harpoon, or as tables for everybody else.

use nilometer_files::say;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{ArgGroup, Args};

use super::Exit;
use nilometer_files::document::model::read_model;
use nilometer_files::document::{self, together};
use nilometer_files::harpoon;
use nilometer_files::table::model::{self, Form};
use nilometer_files::terminal::shown;

/// Export a model: Harpoon's XML, or tables in CSV or Parquet.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("form").required(true).args(["harpoon", "csv", "parquet"])))]
pub struct ExportArgs {
    /// The model.
    file: PathBuf,
    /// Write Harpoon's XML: PREFIX_tcpclient.xml and PREFIX_tcpserver.xml.
    #[arg(long, value_name = "PREFIX")]
    harpoon: Option<PathBuf>,
    /// Write CSV files into a directory: distributions, intervals, ranks, coverage, scales.
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Write the same tables in Parquet.
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    /// Replace files of an earlier export, or a directory with unchanged files of one.
    #[arg(long)]
    force: bool,
}

/// Runs `nilometer model export`.
pub(super) fn run(args: &ExportArgs) -> Result<Exit> {
    if let Some(prefix) = &args.harpoon {
        return to_harpoon(&args.file, prefix, args.force);
    }
    let read = read_model(&args.file)?;
    for (to, form) in [(&args.csv, Form::Csv), (&args.parquet, Form::Parquet)] {
        let Some(to) = to else { continue };
        for name in model::write(&read, to, form, args.force)? {
            println!("{}", shown(&to.join(name)));
        }
    }
    Ok(Exit::Done)
}

fn to_harpoon(file: &Path, prefix: &Path, force: bool) -> Result<Exit> {
    let exported = harpoon::export(&read_model(file)?)?;
    let named = |end: &str| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let texts =
        [(named("_tcpclient.xml"), &exported.client), (named("_tcpserver.xml"), &exported.server)];
    let mut outputs = Vec::new();
    for (path, text) in &texts {
        let input = [file.to_owned()];
        outputs.push((document::guard_output(path, &input, force, b"<harpoon_plugins>")?, text));
    }
    together::write(prefix.parent().unwrap_or(Path::new("")), &outputs)?;
    for (path, _) in &texts {
        println!("{}", shown(path));
    }
    for warning in &exported.warnings {
        say!("warning: {warning}");
    }
    println!("intervals of {} s: harpoon -w {0}", exported.interval_s);
    Ok(Exit::Done)
}
