//! `triwire conform`: the conformance suite against a testee, which is a process.

mod ask;
mod report;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Write as _};

use triwire_gateway::cases::{self, Case, Verdict};

use crate::cli::ConformArgs;
use crate::failure::{Failure, Outcome};
use crate::terminal::Progress;
use ask::Testee;
use report::{Counts, Report};

/// The exit code when a case failed, or none passed.
const STATUS_FAILED: u8 = 1;

pub(crate) fn run(args: &ConformArgs) -> Outcome {
    let cases = cases_of(args).map_err(Failure::new)?;
    let mut testee = Testee::start(args.testee.as_deref(), &cases)
        .map_err(|error| Failure::new(format!("the testee cannot be started: {error}")))?;
    let stdout = io::stdout();
    let mut report = Report::new(&stdout, args.json);
    let mut out = BufWriter::new(stdout.lock());
    let mut counts = Counts::default();
    let progress = Progress::start();
    for (index, case) in cases.iter().enumerate() {
        progress.say(format_args!("{} of {}: {}", index + 1, cases.len(), case.id));
        let verdict = testee.answer(case);
        if let Some(how) = testee.never_answered() {
            return Err(Failure::new(format!(
                "{how} before its first answer; check the command of --testee"
            )));
        }
        match &verdict {
            Verdict::Passed => counts.passed += 1,
            Verdict::Failed(_) => {
                counts.failed += 1;
                progress.say("");
            }
            Verdict::Unsupported => counts.unsupported += 1,
        }
        let written = report.case(&mut out, case, &verdict);
        // What failed is worth seeing at once.
        if let Err(error) = written.and_then(|()| out.flush()) {
            return Failure::output(&error);
        }
    }
    drop(progress);
    if let Err(error) = report.totals(&mut out, counts).and_then(|()| out.flush()) {
        return Failure::output(&error);
    }
    Ok(if counts.failed == 0 && counts.passed > 0 { 0 } else { STATUS_FAILED })
}

/// The cases of all paths, or our own.
fn cases_of(args: &ConformArgs) -> Result<Vec<Case>, String> {
    if args.paths.is_empty() {
        return cases::built_in();
    }
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    for path in &args.paths {
        // A path that was given twice is run once.
        if seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())) {
            all.extend(cases::load(path)?);
        }
    }
    Ok(all)
}
