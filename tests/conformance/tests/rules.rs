//! Every rule of `fixtures/rules.toml` is cited by a test or a case, and every citation has its
//! rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    id: String,
    text: String,
    source: String,
    reason: Option<String>,
}

/// What looks like a rule id and is none.
const STANDARDS: [&str; 4] = ["ISO", "RFC", "SHA", "UTF"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rules() -> Vec<Rule> {
    let text = fs::read_to_string(root().join("fixtures/rules.toml")).unwrap();
    toml::from_str::<Rules>(&text).unwrap().rule
}

/// The ids on a line: capital letters, a hyphen, digits.
fn ids(line: &str) -> Vec<&str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
    line.split(word)
        .filter(|id| {
            id.split_once('-').is_some_and(|(family, number)| {
                family.len() >= 3
                    && family.bytes().all(|byte| byte.is_ascii_uppercase())
                    && !number.is_empty()
                    && number.bytes().all(|byte| byte.is_ascii_digit())
                    && !STANDARDS.contains(&family)
            })
        })
        .collect()
}

fn says_rule(line: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "rule")
}

/// Every citation in `text`, and whether it is one of a test or a case.
fn citations<'t>(path: &str, text: &'t str) -> Vec<(usize, &'t str, bool)> {
    // In a module of the library only what stands behind its tests' attribute is a test.
    let of_tests = !path.ends_with(".rs")
        || path.contains("/tests/")
        || path.starts_with("tests/")
        || path.ends_with("/tests.rs");
    let mut in_tests = of_tests;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        in_tests |= line.trim() == "#[cfg(test)]";
        if says_rule(line) {
            found.extend(ids(line).into_iter().map(|id| (index + 1, id, in_tests)));
        }
    }
    found
}

/// The project's files, by their paths beneath its root.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, found);
            }
        } else if [".rs", ".jsonl", ".sh"].iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

#[test]
fn every_rule_is_cited_and_every_citation_exists() {
    let known: BTreeSet<String> = rules().into_iter().map(|rule| rule.id).collect();
    let mut cited: BTreeMap<String, usize> = BTreeMap::new();
    let mut unknown = Vec::new();
    let mut paths = Vec::new();
    files(&root(), &mut paths);
    assert!(paths.len() > 20, "the project's files were not found");
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        for (line, id, by_test) in citations(&name, &text) {
            if !known.contains(id) {
                unknown.push(format!("{name}:{line} cites {id}, which rules.toml does not have"));
            } else if by_test {
                *cited.entry(id.to_owned()).or_default() += 1;
            }
        }
    }
    let uncited = known.iter().filter(|id| !cited.contains_key(*id));
    let uncited = uncited.map(|id| format!("{id} is cited by no test and no case"));
    let wrong: Vec<String> = unknown.into_iter().chain(uncited).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_rule_says_where_it_comes_from() {
    let mut seen = BTreeSet::new();
    for rule in rules() {
        assert_eq!(ids(&rule.id), [&rule.id], "no id: {}", rule.id);
        assert!(seen.insert(rule.id.clone()), "{} stands twice", rule.id);
        assert!(rule.text.ends_with('.'), "{} is no sentence", rule.id);
        match (rule.source.as_str(), &rule.reason) {
            ("contract", None) => {}
            ("our choice", Some(reason)) if reason.ends_with('.') => {}
            _ => panic!("{}: source is \"contract\", or \"our choice\" with a reason", rule.id),
        }
    }
}

#[test]
fn citations_are_found() {
    // Ids that only this test sees.
    let with_ids = |text: &str| text.replace('@', "ABC-");
    let text = with_ids("fn a() {} // rule: @1\n#[cfg(test)]\n// rule: @2, @3\n// @4\n");
    let of_module: Vec<_> = citations("core/src/a.rs", &text);
    let [one, two, three] = ["@1", "@2", "@3"].map(with_ids);
    assert_eq!(of_module, [(1, &*one, false), (3, &*two, true), (3, &*three, true)]);
    assert_eq!(citations("tests/a/tests/b.rs", &text).iter().filter(|found| found.2).count(), 3);
    let case = with_ids(r#"{"id":"a","rule":"@12","note":"UTF-8, SHA-256"}"#);
    assert_eq!(citations("fixtures/cases/a.jsonl", &case), [(1, &*with_ids("@12"), true)]);
}
