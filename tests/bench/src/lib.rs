//! Turns criterion's estimates into one table of medians and ratios.

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

/// Renders the table, from the estimates of the run just made.
///
/// # Errors
/// A benchmark of a line has not run; its name is the error.
pub fn table(lines: &[Line]) -> Result<String, String> {
    let mut table = String::from(
        "| what | ours, median | peer, median | ratio | goal | |\n| --- | --- | --- | --- | --- | --- |\n",
    );
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
        let _ = writeln!(
            table,
            "| {} | {} | {} | {ratio} | {goal} | {} |",
            line.what,
            time(ours),
            time(peer),
            if held { "held" } else { "missed" },
        );
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
