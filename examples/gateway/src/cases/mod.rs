//! Cases: what to ask a testee, and how its answer is judged.
//!
//! They come from `fixtures/` (a copy is built in), or from files and folders of the same forms: a
//! `manifest.json` beside its recorded streams, and JSON Lines.

mod manifest;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// One question to a testee, and what its answer must hold.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name, unique among the cases of a run.
    pub id: String,
    /// The operation.
    pub op: String,
    /// The rule that the case pins, as `fixtures/rules.toml` has it; empty for none.
    pub rule: String,
    /// What the case shows, often empty.
    pub note: String,
    input: String,
    expected: Expected,
}

#[derive(Clone, Debug)]
enum Expected {
    /// These members; others may stand beside them.
    Members(Map<String, Value>),
    /// Any code in `error`: the case's author had no word of ours for it.
    AnyError,
}

/// How a testee did.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// As expected.
    Passed,
    /// The testee does not have the operation.
    Unsupported,
    /// Not as expected; at least one difference.
    Failed(Vec<Difference>),
}

/// A member that is not as expected.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The member of `out`, or what else is wrong.
    pub member: String,
    /// What should stand there, as JSON.
    pub expected: String,
    /// What the testee answered, as JSON.
    pub got: String,
}

impl Difference {
    fn new(member: &str, expected: impl ToString, got: impl ToString) -> Self {
        Self { member: member.into(), expected: expected.to_string(), got: got.to_string() }
    }
}

impl Case {
    fn new(id: String, op: &str, input: &Value, out: Map<String, Value>) -> Self {
        Self {
            id,
            op: op.into(),
            rule: String::new(),
            note: String::new(),
            input: input.to_string(),
            expected: Expected::Members(out),
        }
    }

    /// Returns the request's line, without its end.
    #[must_use]
    pub fn request(&self) -> String {
        let Self { id, op, input, .. } = self;
        format!(r#"{{"id":{},"op":{},"in":{input}}}"#, json_text(id), json_text(op))
    }

    /// Returns the request's `in`.
    ///
    /// # Errors
    /// It holds what serde_json has no value for, such as half of a surrogate pair.
    pub fn input(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_str(&self.input)
    }

    /// Judges the line that a testee answered with.
    #[must_use]
    pub fn judge(&self, answer: &str) -> Verdict {
        let wrong = |what: &str, got: &dyn ToString| {
            Verdict::Failed(vec![Difference::new(what, self.expected_json(), got.to_string())])
        };
        let answer: Value = match serde_json::from_str(answer) {
            Ok(answer) => answer,
            Err(error) => return wrong(&format!("answer ({error})"), &answer),
        };
        if answer.get("id").and_then(Value::as_str) != Some(&self.id) {
            let got = answer.get("id").unwrap_or(&Value::Null);
            return Verdict::Failed(vec![Difference::new("id", json_text(&self.id), got)]);
        }
        if answer.get("unsupported") == Some(&Value::Bool(true)) {
            return Verdict::Unsupported;
        }
        let Some(out) = answer.get("out") else { return wrong("out", &answer) };
        let differences = match &self.expected {
            Expected::AnyError => match out.get("error") {
                None | Some(Value::Null) => vec![Difference::new("error", "any error", "null")],
                Some(_) => Vec::new(),
            },
            Expected::Members(members) => members
                .iter()
                .filter(|(name, value)| !same(out.get(name.as_str()), value))
                .map(|(name, value)| {
                    let got = out.get(name).map_or("nothing".into(), Value::to_string);
                    Difference::new(name, value, got)
                })
                .collect(),
        };
        if differences.is_empty() { Verdict::Passed } else { Verdict::Failed(differences) }
    }

    /// Returns what is expected, as JSON.
    #[must_use]
    pub fn expected_json(&self) -> String {
        match &self.expected {
            Expected::Members(members) => Value::from(members.clone()).to_string(),
            Expected::AnyError => r#"{"error":"any"}"#.into(),
        }
    }
}

/// Compares by value: an absent member is null.
fn same(got: Option<&Value>, expected: &Value) -> bool {
    got.unwrap_or(&Value::Null) == expected
}

fn json_text(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns the suite's own cases.
///
/// # Errors
/// A file of the suite is malformed, which its tests rule out.
pub fn built_in() -> Result<Vec<Case>, String> {
    let files = triwire_fixtures::FILES;
    let read = |path: &str| match files.iter().find(|(name, _)| *name == path) {
        Some((_, bytes)) => Ok(bytes.to_vec()),
        None => Err("there is no such file".into()),
    };
    gather(files.iter().map(|(path, _)| (*path).to_owned()).collect(), &read)
}

/// Reads the cases of a file, or of a folder and the folders in it.
///
/// # Errors
/// The path cannot be read, a file is malformed, or there is no case at all: one sentence that
/// names the file.
pub fn load(path: &Path) -> Result<Vec<Case>, String> {
    let mut files = Vec::new();
    walk(path, &mut files)?;
    let read = |path: &str| fs::read(path).map_err(|error| error.to_string());
    let cases = gather(files, &read)?;
    if cases.is_empty() {
        return Err(format!("{}: neither manifest.json nor *.jsonl with a case", path.display()));
    }
    Ok(cases)
}

fn walk(path: &Path, files: &mut Vec<String>) -> Result<(), String> {
    let fail = |error| format!("{}: {error}", path.display());
    if !fs::metadata(path).map_err(fail)?.is_dir() {
        match path.to_str() {
            Some(path) => files.push(path.into()),
            None => return Err(format!("{}: the name is not UTF-8", path.display())),
        }
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?.path();
        if entry.is_dir() || is_cases(&entry.to_string_lossy()) {
            entries.push(entry);
        }
    }
    entries.sort();
    entries.iter().try_for_each(|entry| walk(entry, files))
}

fn is_cases(path: &str) -> bool {
    path.ends_with(".jsonl") || is_manifest(path)
}

fn is_manifest(path: &str) -> bool {
    path.rsplit('/').next() == Some("manifest.json")
}

type Read<'r> = &'r dyn Fn(&str) -> Result<Vec<u8>, String>;

fn gather(paths: Vec<String>, read: Read<'_>) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    // What other files a folder holds belongs to its manifest; a file that was named is a case's.
    let lone = paths.len() == 1;
    for path in paths {
        if !is_cases(&path) && !lone {
            continue;
        }
        let bytes = read(&path).map_err(|error| format!("{path}: {error}"))?;
        let found = if is_manifest(&path) {
            manifest::cases(&path, &bytes, read).map_err(|error| format!("{path}: {error}"))?
        } else {
            lines(&path, &bytes)?
        };
        for case in found {
            if let Some(before) = seen.insert(case.id.clone(), path.clone()) {
                return Err(format!("{path}: the id {:?} stands in {before} too", case.id));
            }
            cases.push(case);
        }
    }
    Ok(cases)
}

/// One case of a JSON Lines file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    op: String,
    #[serde(rename = "in")]
    input: Box<RawValue>,
    out: Map<String, Value>,
    #[serde(default)]
    rule: String,
    #[serde(default)]
    note: String,
}

fn lines(path: &str, bytes: &[u8]) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let line: Line = serde_json::from_slice(line)
            .map_err(|error| format!("{path}, line {}: {error}", index + 1))?;
        if line.out.is_empty() {
            return Err(format!(
                "{path}, line {}: out is empty, nothing would be compared",
                index + 1
            ));
        }
        cases.push(Case {
            id: line.id,
            op: line.op,
            rule: line.rule,
            note: line.note,
            input: line.input.get().to_owned(),
            expected: Expected::Members(line.out),
        });
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(out: &str) -> Case {
        let line = format!(r#"{{"id":"a","op":"money","in":{{}},"out":{out}}}"#);
        lines("test", line.as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn an_answer_is_judged_member_by_member() {
        let case = case(r#"{"ok":true,"list":[1,2],"none":null}"#);
        for right in [
            r#"{"id":"a","out":{"ok":true,"list":[1,2],"none":null}}"#,
            r#"{"id":"a","out":{"more":1,"list":[1,2],"ok":true}}"#,
        ] {
            assert_eq!(case.judge(right), Verdict::Passed);
        }
        assert_eq!(case.judge(r#"{"id":"a","unsupported":true}"#), Verdict::Unsupported);
        for wrong in [
            "",
            "[]",
            r#"{"id":"b","out":{"ok":true,"list":[1,2],"none":null}}"#,
            r#"{"id":"a","error":"what?"}"#,
            r#"{"id":"a","out":{"ok":true,"list":[2,1],"none":null}}"#,
            r#"{"id":"a","out":{"ok":true,"list":[1,2],"none":0}}"#,
            r#"{"id":"a","out":{"list":[1,2]}}"#,
        ] {
            assert!(matches!(case.judge(wrong), Verdict::Failed(_)), "{wrong}");
        }
    }

    #[test]
    fn any_error_is_an_error_and_a_clean_end_none() {
        let case = Case { expected: Expected::AnyError, ..case(r#"{"ok":true}"#) };
        assert_eq!(case.judge(r#"{"id":"a","out":{"error":"eof"}}"#), Verdict::Passed);
        for clean in [r#"{"id":"a","out":{"error":null}}"#, r#"{"id":"a","out":{}}"#] {
            assert!(matches!(case.judge(clean), Verdict::Failed(_)), "{clean}");
        }
    }
}
