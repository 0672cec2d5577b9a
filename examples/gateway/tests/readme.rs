//! The reference in README.md, held against what the tool itself says that there is.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use support::{Gateway, OURS, stderr, stdout, triwire};

const README: &str = include_str!("../README.md");
const UNIT: &str = include_str!("../triwire.service");
const KEY: &str = "0123456789abcdef";

/// The text under a heading, up to the next one.
fn section(heading: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("\n{heading}\n")).expect(heading);
    rest.split("\n#").next().unwrap_or(rest)
}

/// What the rows of a section's tables name first.
fn rows(section: &str) -> BTreeSet<&str> {
    section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

/// What stands between backticks in the tool's complaint about a config, behind "expected".
fn expected_by_the_tool(folder: &Path, config: &str) -> BTreeSet<String> {
    let path = folder.join("triwire.toml");
    fs::write(&path, config).unwrap();
    let output = triwire().args(["config", "show", "--config"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), OURS, "{config:?}");
    let said = stderr(&output);
    let (_, expected) = said.split_once("expected").expect(&said);
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_member_of_the_config_has_its_row_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("no_such = 1\n", "### Top level"),
        ("[tls]\nno_such = 1\n", "### `tls`"),
        ("[channel]\nno_such = 1\n", "### `channel`"),
        ("[sandboxes.a]\nno_such = 1\n", "### `sandboxes.NAME`"),
    ];
    for (config, heading) in cases {
        let members = expected_by_the_tool(folder.path(), config);
        assert!(members.len() > 1, "{members:?}");
        let rows = rows(section(heading));
        assert_eq!(rows, members.iter().map(String::as_str).collect(), "{heading}");
    }
    let words = [
        ("metrics = \"no_such\"\n", "### Top level", "metrics"),
        ("[sandboxes.a]\nkind = \"no_such\"\n", "### `sandboxes.NAME`", "kind"),
    ];
    for (config, heading, member) in words {
        let start = format!("| `{member}`");
        let row = section(heading).lines().find(|line| line.starts_with(&start)).unwrap();
        for word in expected_by_the_tool(folder.path(), config) {
            assert!(row.contains(&format!("`\"{word}\"`")), "{word} in {row}");
        }
    }
}

#[test]
fn the_example_is_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let (_, rest) = README.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    assert!(example.contains("\"/srv/build\""));
    let root = folder.path().to_str().unwrap();
    let path = folder.path().join("triwire.toml");
    fs::write(&path, example.replace("/srv/build", root)).unwrap();
    let output = triwire().args(["config", "show", "--config"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn every_flag_and_variable_is_told() {
    let help = triwire().args(["serve", "--help"]).output().unwrap();
    let help = stdout(&help);
    let options = help.split_once("Options:").unwrap().1.split_once("Examples:").unwrap().0;
    let words = || options.split(|c: char| c.is_whitespace() || "[]=:,".contains(c));
    let told = section("## Flags and variables");
    let flags: BTreeSet<_> =
        words().filter(|word| word.starts_with("--") && *word != "--help").collect();
    let variables: BTreeSet<_> = words().filter(|word| word.starts_with("TRIWIRE_")).collect();
    assert!(flags.len() > 1 && variables.len() > 1, "{options}");
    let rows = rows(told);
    let told_flags: BTreeSet<_> =
        rows.iter().map(|row| row.split(' ').next().unwrap_or(row)).collect();
    assert_eq!(told_flags, flags);
    for variable in variables {
        assert!(told.contains(&format!("| `{variable}` |")), "{variable}");
    }
    // What the unit starts is what there is.
    let start = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let of_unit: Vec<_> = start.split(' ').filter(|word| word.starts_with("--")).collect();
    assert!(of_unit.iter().all(|flag| flags.contains(flag)), "{start}");
}

#[test]
fn every_metric_and_end_is_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("keys"), KEY).unwrap();
    let path = folder.path().join("triwire.toml");
    let config = "listen = \"127.0.0.1:0\"\nkey_file = \"keys\"\n\
                  [channel]\nextensions_dir = \".\"\n[sandboxes.local]\nroot = \".\"\n";
    fs::write(&path, config).unwrap();
    let gateway = Gateway::of(triwire().args(["serve", "--config"]).arg(&path));
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {KEY}\r\n\
         Connection: close\r\n\r\n",
        gateway.address
    )
    .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let mut named = BTreeSet::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            named.insert(name);
            let row = format!("| `{name}` | {kind}");
            assert!(README.contains(&row), "{row}");
        }
        if let Some((_, rest)) = line.split_once("end=\"") {
            named.insert(rest.split('"').next().unwrap());
        }
    }
    assert!(named.len() > 10, "{page}");
    let mut rows = rows(section("## Metrics"));
    // The heading of the table of a session's ends.
    assert!(rows.remove("end"));
    assert_eq!(rows, named);
}
