//! Another implementation's tables, in a program that takes turns with ours.
//!
//! The program reads the prefixes from its standard input, as many lines as the first line says; an empty
//! line then starts a round, and the end of the input requests the rest. It answers in lines of words:
//! first how many tables there are, and the name and bytes per prefix of each; in each round of each
//! table million lookups a second of random and of drawn addresses; at the end updates a second and the
//! two checksums. Next hops, addresses, bursts and sums are those of the command (`benches/fib/peer.c`).

use std::fmt::Display;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};

use super::fib_times::EngineTimes;
use nilometer_linux::clock::median;

/// Most tables of a program.
const TABLES_MAX: usize = 64;

/// The program, and its output so far.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
    /// Name and bytes per prefix.
    tables: Vec<(String, f64)>,
    /// Of each table the rates of each round.
    rates: Vec<[Vec<f64>; 2]>,
}

impl Peer {
    /// Starts the program and waits until its tables are made.
    ///
    /// # Errors
    /// When it cannot be started, or its output is not as described.
    pub fn start(program: &Path, prefixes: impl ExactSizeIterator<Item: Display>) -> Result<Peer> {
        let mut command = Command::new(program);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            bail!("{}: no pipes to speak through", program.display());
        };
        let mut input = BufWriter::new(input);
        let sent_all = writeln!(input, "{}", prefixes.len())
            .and_then(|()| prefixes.into_iter().try_for_each(|prefix| writeln!(input, "{prefix}")))
            .and_then(|()| input.flush());
        sent_all.context("the peer does not listen")?;
        let output = BufReader::new(output);
        let mut peer =
            Peer { child, input: Some(input), output, tables: Vec::new(), rates: Vec::new() };
        let [count] = words::<1>(&peer.line()?)?;
        let count: usize = parse(&count)?;
        if count > TABLES_MAX {
            bail!("the peer says that it has {count} tables; {TABLES_MAX} at most");
        }
        for _ in 0..count {
            let [name, bytes] = words(&peer.line()?)?;
            peer.tables.push((name, parse(&bytes)?));
        }
        peer.rates = vec![Default::default(); count];
        Ok(peer)
    }

    /// Times every table of the program once.
    ///
    /// # Errors
    /// When its output is not as described.
    pub fn round(&mut self) -> Result<()> {
        let input = self.input.as_mut().context("the peer's input is already closed")?;
        writeln!(input).and_then(|()| input.flush()).context("the peer does not listen")?;
        for table in 0..self.tables.len() {
            let rates: [String; 2] = words(&self.line()?)?;
            for (all, rate) in self.rates[table].iter_mut().zip(&rates) {
                all.push(parse(rate)?);
            }
        }
        Ok(())
    }

    /// Ends the program; returns the medians of its rounds, of which there must be at least one.
    ///
    /// # Errors
    /// When its output is not as described, or it fails.
    pub fn finish(mut self) -> Result<Vec<EngineTimes>> {
        drop(self.input.take());
        let mut times = Vec::new();
        for ((engine, bytes_per_prefix), rates) in
            std::mem::take(&mut self.tables).into_iter().zip(std::mem::take(&mut self.rates))
        {
            let [updates, sum_random, sum_prefix] = words(&self.line()?)?;
            let [mlookups_random, mlookups_prefix] = rates.map(median);
            times.push(EngineTimes {
                engine,
                bytes_per_prefix,
                load_seconds: None,
                mlookups_random,
                mlookups_prefix,
                updates_per_second: parse(&updates)?,
                checksum_random: parse(&sum_random)?,
                checksum_prefix: parse(&sum_prefix)?,
                under_updates: Vec::new(),
            });
        }
        let status = self.child.wait().context("the peer does not end")?;
        if !status.success() {
            bail!("the peer ended with {status}");
        }
        Ok(times)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line).context("the peer's output is not text")? {
            0 => Err(anyhow!("the peer ended before it had said everything")),
            _ => Ok(line),
        }
    }
}

fn words<const COUNT: usize>(line: &str) -> Result<[String; COUNT]> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    words.try_into().map_err(|_| anyhow!("the peer says `{}`; {COUNT} words expected", line.trim()))
}

fn parse<T: FromStr>(word: &str) -> Result<T> {
    word.parse().map_err(|_| anyhow!("the peer printed `{word}`, which is not a valid number"))
}
