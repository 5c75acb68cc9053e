//! `nilometer doctor`: what this machine can do, and what to do where it cannot.

use std::fmt::Write;

use anyhow::Result;

use super::Exit;
use nilometer_lab::doctor::{Examination, State, examine};

/// Arguments of `nilometer doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 when `lab run` can run here, 1 when it cannot.")]
pub struct DoctorArgs {
    /// Print one JSON object on stdout.
    #[arg(long)]
    json: bool,
}

/// Looks at the machine and tells what it found; negative when `lab run` cannot run.
pub fn run(args: DoctorArgs) -> Result<Exit> {
    let examination = examine();
    if args.json {
        println!("{}", serde_json::to_string(&examination)?);
    } else {
        print!("{}", report_text(&examination));
    }
    Ok(if examination.ready { Exit::Done } else { Exit::Negative })
}

/// The examination as a person reads it: the verdict first, then a line for each finding, with
/// what follows and what helps beneath those that are not well.
fn report_text(examination: &Examination) -> String {
    let mut text = match examination.ready {
        true => "This machine can run the lab.\n".to_owned(),
        false => "This machine cannot run the lab yet.\n".to_owned(),
    };
    let width = examination.findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
    let mut purpose = None;
    for finding in &examination.findings {
        if purpose.replace(finding.purpose) != Some(finding.purpose) {
            let _ = writeln!(text, "\n{}", finding.purpose.name());
        }
        let state = match finding.state {
            State::Ok => "ok",
            State::Doubtful => "doubtful",
            State::Missing => "missing",
        };
        let _ = writeln!(text, "  {state:8}  {:width$}  {}", finding.name, finding.found);
        for (lead, advice) in [("so", &finding.consequence), ("do", &finding.remedy)] {
            if let Some(advice) = advice {
                let _ = writeln!(text, "  {:8}  {:width$}  {lead}: {advice}", "", "");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_lab::doctor::{Finding, Purpose};

    #[test]
    fn the_table_reads_from_verdict_to_remedy() {
        let findings = vec![
            Finding::ok("AF_XDP", Purpose::Later, "sockets can be opened"),
            Finding::ok("kernel", Purpose::Run, "Linux 4.19")
                .missing("waits are coarse", "boot another"),
        ];
        let expected = "\
This machine cannot run the lab yet.

to run at all
  missing   kernel  Linux 4.19
                    so: waits are coarse
                    do: boot another

not used yet
  ok        AF_XDP  sockets can be opened
";
        assert_eq!(report_text(&Examination::of(findings)), expected);
    }
}
