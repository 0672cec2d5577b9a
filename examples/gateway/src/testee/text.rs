//! `text.trim` and `text.length`: texts as JavaScript sees them, read from the escapes of the
//! request itself.

use serde_json::{Value, json};
use triwire::json::{Error, Reader, Text};

use super::input::{Bad, Input};

pub(super) fn trim(input: Input<'_>) -> Result<Value, Bad> {
    Ok(json!({ "text": text(&input)?.trim().to_string() }))
}

pub(super) fn length(input: Input<'_>) -> Result<Value, Bad> {
    Ok(json!({ "length": text(&input)?.utf16_len() }))
}

fn text<'r>(input: &Input<'r>) -> Result<Text<'r>, Bad> {
    let read = || -> Result<Option<Text<'r>>, Error> {
        let mut found = None;
        let mut reader = Reader::from_str(input.raw())?;
        reader.begin_object()?;
        while let Some(name) = reader.name()? {
            if name == "text" {
                found = Some(reader.string()?);
            } else {
                reader.value()?;
            }
        }
        reader.end()?;
        Ok(found)
    };
    read()
        .map_err(|error| Bad::new(format_args!("in: {error}")))?
        .ok_or_else(|| Bad::new("in.text is missing"))
}
