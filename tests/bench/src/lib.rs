//! One table of medians and ratios, for all benchmarks.

use std::fmt::Write as _;
use std::path::PathBuf;

/// One line of the table: what is compared with what, and what the ratio must reach.
#[derive(Debug)]
pub struct Line {
    /// What is measured, for people.
    pub what: &'static str,
    /// The benchmark of ours, `group/name`.
    pub ours: &'static str,
    /// The benchmark of the peer, `group/name`.
    pub peer: &'static str,
    /// What the ratio must reach.
    pub goal: Goal,
}

/// What a ratio must reach.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At most this many times the peer's time.
    AtMost(f64),
    /// At least this many times faster than the peer.
    Faster(f64),
}

/// The first lines of the table.
pub const HEADINGS: &str = "| what | ours, median | peer, median | ratio | goal | |\n\
    | --- | --- | --- | --- | --- | --- |";

/// Renders a line of the table; `held` is none where there is no goal.
#[must_use]
pub fn row(
    what: &str,
    ours: &str,
    peer: &str,
    ratio: &str,
    goal: &str,
    held: Option<bool>,
) -> String {
    let verdict = match held {
        Some(true) => "held",
        Some(false) => "missed",
        None => "",
    };
    format!("| {what} | {ours} | {peer} | {ratio} | {goal} | {verdict} |")
}

/// Renders the table from criterion's estimates, those of the run just made.
///
/// # Errors
/// A benchmark of a line has not run; its name is the error.
pub fn table(lines: &[Line]) -> Result<String, String> {
    let mut table = format!("{HEADINGS}\n");
    for line in lines {
        let (ours, peer) = (median(line.ours)?, median(line.peer)?);
        let (ratio, goal, held) = match line.goal {
            Goal::AtMost(most) => {
                let ratio = ours / peer;
                (format!("{ratio:.2} x the time"), format!("at most {most} x"), ratio <= most)
            }
            Goal::Faster(least) => {
                let ratio = peer / ours;
                (format!("{ratio:.1} x faster"), format!("{least} x"), ratio >= least)
            }
        };
        let row = row(line.what, &time(ours), &time(peer), &ratio, &goal, Some(held));
        let _ = writeln!(table, "{row}");
    }
    Ok(table)
}

/// The median in ns, as criterion keeps it.
fn median(name: &str) -> Result<f64, String> {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    let file = folder.join("criterion").join(name).join("new/estimates.json");
    std::fs::read(file)
        .ok()
        .and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok())
        .and_then(|estimates| estimates["median"]["point_estimate"].as_f64())
        .ok_or_else(|| format!("{name} has not run"))
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}
