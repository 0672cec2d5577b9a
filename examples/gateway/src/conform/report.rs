//! What a run looks like: mismatches side by side for people, one object a case for machines.

use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};
use triwire_gateway::cases::{Case, Difference, Verdict};

use crate::terminal::{OneLine, Paint, Style};

/// Characters of a value that are shown.
const SHOWN: usize = 56;
/// Characters that are shown before the first difference of long values.
const BEFORE: usize = 12;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) unsupported: u64,
}

pub(super) struct Report {
    paint: Paint,
    json: bool,
}

impl Report {
    pub(super) fn new(stream: &impl IsTerminal, json: bool) -> Self {
        Self { paint: Paint::for_stream(stream), json }
    }

    pub(super) fn case(
        &mut self,
        out: &mut impl Write,
        case: &Case,
        verdict: &Verdict,
    ) -> io::Result<()> {
        if self.json {
            return writeln!(out, "{}", machine(case, verdict));
        }
        let Verdict::Failed(differences) = verdict else { return Ok(()) };
        let failed = self.paint.text(Style::Red, "FAILED");
        write!(out, "{failed} {}", OneLine(&case.id))?;
        if !case.rule.is_empty() {
            write!(out, " (rule {})", OneLine(&case.rule))?;
        }
        writeln!(out)?;
        if !case.note.is_empty() {
            writeln!(out, "  {}", OneLine(&case.note))?;
        }
        let member = differences.iter().map(|found| found.member.chars().count()).max();
        let width = member.unwrap_or(0);
        let title = |text| self.paint.text(Style::Dim, text);
        let header = format!("  {:width$}  {:SHOWN$}  {}", "", "expected", "got");
        writeln!(out, "{}", title(header.as_str()))?;
        for Difference { member, expected, got } in differences {
            let (expected, got) = excerpts(expected, got);
            writeln!(out, "  {:width$}  {expected:SHOWN$}  {got}", OneLine(member).to_string())?;
        }
        Ok(())
    }

    pub(super) fn totals(&self, out: &mut impl Write, counts: Counts) -> io::Result<()> {
        let Counts { passed, failed, unsupported } = counts;
        if self.json {
            let totals = json!({ "passed": passed, "failed": failed, "unsupported": unsupported });
            return writeln!(out, "{totals}");
        }
        writeln!(out, "{passed} passed, {failed} failed, {unsupported} unsupported")
    }
}

fn machine(case: &Case, verdict: &Verdict) -> Value {
    let (outcome, differences) = match verdict {
        Verdict::Passed => ("passed", &[][..]),
        Verdict::Unsupported => ("unsupported", &[][..]),
        Verdict::Failed(differences) => ("failed", &differences[..]),
    };
    let differences: Vec<Value> = differences
        .iter()
        .map(|Difference { member, expected, got }| {
            json!({ "member": member, "expected": expected, "got": got })
        })
        .collect();
    json!({
        "id": case.id,
        "op": case.op,
        "rule": case.rule,
        "outcome": outcome,
        "differences": differences,
    })
}

/// Cuts two values to where they differ.
fn excerpts(expected: &str, got: &str) -> (String, String) {
    let shared = expected.chars().zip(got.chars()).take_while(|(a, b)| a == b).count();
    let fits = |text: &str| text.chars().count() <= SHOWN;
    let skip = if fits(expected) && fits(got) { 0 } else { shared.saturating_sub(BEFORE) };
    (excerpt(expected, skip), excerpt(got, skip))
}

fn excerpt(text: &str, skip: usize) -> String {
    let mut shown = String::new();
    if skip > 0 {
        shown.push('…');
    }
    let rest: String = text.chars().skip(skip).collect();
    for c in OneLine(&rest).to_string().chars() {
        if shown.chars().count() + 1 == SHOWN {
            shown.push('…');
            break;
        }
        shown.push(c);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_to_where_they_differ() {
        let zeros = "0".repeat(200);
        let (a, b) = excerpts(&format!("{zeros}a{zeros}"), &format!("{zeros}b"));
        assert_eq!(b, "…000000000000b");
        assert!(a.starts_with("…000000000000a0") && a.ends_with('…'));
        assert_eq!(a.chars().count(), SHOWN);
        assert_eq!(excerpts("1", "2"), ("1".into(), "2".into()));
    }
}
