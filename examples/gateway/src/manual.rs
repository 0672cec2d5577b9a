//! Completions and manual pages, made from the command line's own definition.

use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::{Failure, Outcome};

pub(crate) fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "triwire", &mut script);
    print(&script)
}

/// Prints the page of the whole tool, or of one command.
pub(crate) fn man(name: Option<&str>) -> Outcome {
    let mut command = Cli::command();
    command.build();
    let command = match name {
        None => command,
        Some(name) => {
            // Built above, so its title is triwire-NAME.
            command.find_subcommand(name).cloned().ok_or_else(|| {
                Failure::new(format!("there is no command {name:?}; see triwire --help"))
            })?
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|error| Failure::new(format!("the manual page could not be made: {error}")))?;
    print(&page)
}

fn print(text: &[u8]) -> Outcome {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) => Failure::output(&error),
        Ok(()) => Ok(0),
    }
}
