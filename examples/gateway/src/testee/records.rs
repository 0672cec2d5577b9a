//! `exec.request` and `exec.result`: the two JSON records.

use serde_json::{Value, json};
use triwire::exec::request::{ExecRequest, MAX_REQUEST_BODY, Member, RequestError, RequestFault};
use triwire::exec::result::ExecResult;
use triwire_std::record;

use super::input::{Bad, Input};

pub(super) fn request(input: Input<'_>) -> Result<Value, Bad> {
    let text = input.text("text")?;
    if text.len() > MAX_REQUEST_BODY {
        let why = format!("the request has more than {MAX_REQUEST_BODY} bytes");
        return Ok(json!({ "ok": false, "error": "too_large", "why": why }));
    }
    Ok(match ExecRequest::parse(text.as_bytes()) {
        Ok(request) => {
            json!({ "ok": true, "request": written(&record::ExecRequest::from(&request).to_json()) })
        }
        Err(error) => json!({
            "ok": false,
            "error": "bad_request",
            "why": error.to_string(),
            "member": member(&error).map(Member::as_str),
        }),
    })
}

/// The member that is at fault; none when the document is.
fn member(error: &RequestError) -> Option<Member> {
    match error.fault {
        RequestFault::Repeated(member)
        | RequestFault::WrongType { member, .. }
        | RequestFault::Nul(member)
        | RequestFault::LoneSurrogate(member) => Some(member),
        RequestFault::NoCmd | RequestFault::EmptyCmd | RequestFault::EmptyProgram => {
            Some(Member::Cmd)
        }
        RequestFault::VariableName
        | RequestFault::RepeatedVariable
        | RequestFault::TooManyVariables => Some(Member::Env),
        RequestFault::Timeout => Some(Member::TimeoutS),
        RequestFault::Json(_) => None,
    }
}

pub(super) fn result(input: Input<'_>) -> Result<Value, Bad> {
    let text = input.text("text")?;
    Ok(match ExecResult::parse(text.as_bytes()) {
        Ok(result) => {
            json!({ "ok": true, "result": written(&record::ExecResult::from(&result).to_json()) })
        }
        Err(error) => {
            json!({ "ok": false, "error": "exit_unreadable", "why": error.to_string() })
        }
    })
}

/// A record as the library writes it.
fn written(record: &[u8]) -> Value {
    serde_json::from_slice(record).unwrap_or_default()
}
