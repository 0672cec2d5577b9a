//! The triwire appliance and command-line tool.
//!
//! `triwire serve` runs commands for others, `triwire exec` runs one over the wire, `triwire demo`
//! shows both at once, `triwire inspect` reads a recorded stream. The protocol itself is in the
//! crate `triwire`, its sockets and processes in `triwire-std`; here are flags, files and words.

mod channel;
mod cli;
mod config;
mod conform;
mod cp;
mod demo;
mod exec;
mod failure;
mod inspect;
mod keys;
mod manual;
mod metrics;
mod serve;
mod signing;
mod terminal;

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};
use triwire_gateway::testee;

use cli::{Cli, Command, ConfigCommand};
use failure::{Failure, Outcome};

fn main() -> ExitCode {
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return usage(&error),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let json = cli.command.is_json();
    match run(cli.command, &matches) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.report(json),
    }
}

fn run(command: Command, matches: &clap::ArgMatches) -> Outcome {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Exec(args) => exec::run(&args),
        Command::Cp(args) => cp::run(&args),
        Command::Ask(args) => channel::ask(&args),
        Command::Pair(args) => channel::pair(&args),
        Command::Executor(args) => channel::executor(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Sign(args) => signing::sign(&args),
        Command::Verify(args) => signing::verify(&args),
        Command::Testee => match testee::serve(io::stdin().lock(), io::stdout().lock()) {
            Ok(()) => Ok(0),
            Err(error) => Failure::output(&error),
        },
        Command::Config(args) => match args.command {
            ConfigCommand::Show(args) => config::show::run(&args, matches),
        },
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { command } => manual::man(command.as_deref()),
    }
}

/// Prints what clap has to say; wrong usage is a failure of ours, help is none.
fn usage(error: &clap::Error) -> ExitCode {
    // Help into a closed pipe is no failure.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(Failure::STATUS),
    }
}
