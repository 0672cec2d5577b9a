//! The JSON reader and writer, with serde_json as the second opinion.

use serde::de::IgnoredAny;
use triwire::json::{Error, Fault, Reader, Type, Writer, path};

fn copy(reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> Result<(), Error> {
    match reader.peek()? {
        Type::Object => {
            reader.begin_object()?;
            writer.begin_object();
            while let Some(name) = reader.name()? {
                let mut room = vec![0; name.utf8_len()];
                match name.decode(&mut room) {
                    Ok(name) => writer.name(name),
                    Err(_) => writer.name(&name.to_string()),
                }
                copy(reader, writer)?;
            }
            writer.end_object();
        }
        Type::Array => {
            reader.begin_array()?;
            writer.begin_array();
            while reader.item()? {
                copy(reader, writer)?;
            }
            writer.end_array();
        }
        Type::String => {
            let text = reader.string()?;
            let shown = text.to_string();
            assert_eq!(text.utf8_len(), shown.len());
            assert_eq!(text.utf16_len(), shown.encode_utf16().count());
            assert_eq!(text.is_well_formed(), text.chars().all(|char| char.is_ok()));
            writer.string(text);
        }
        Type::Number => writer.raw(reader.number()?.raw()),
        Type::Boolean => writer.boolean(reader.boolean()?),
        Type::Null => {
            reader.null()?;
            writer.null();
        }
    }
    Ok(())
}

/// Copies a message, token by token.
fn rewrite(message: &[u8]) -> Result<Vec<u8>, Error> {
    // No value grows to more than six times its bytes.
    let mut out = vec![0; message.len() * 6 + 16];
    let mut writer = Writer::new(&mut out);
    let mut reader = Reader::new(message)?;
    copy(&mut reader, &mut writer)?;
    reader.end()?;
    Ok(writer.finish().expect("room for every escape").to_vec())
}

fn skim(message: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(message)?;
    reader.value()?;
    reader.end()
}

/// Asserts that our reader accepts what serde_json accepts, up to our depth, and that a copy of
/// it means the same.
pub fn check(message: &[u8]) {
    let read = rewrite(message);
    assert_eq!(read.as_ref().map(drop), skim(message).as_ref().map(drop), "two ways of reading");
    if let Err(error) = &read {
        assert!(error.at <= message.len());
        let _ = format!("{error} {}", path(message, error.at));
    }
    let Ok(text) = std::str::from_utf8(message) else {
        assert!(matches!(read, Err(Error { fault: Fault::NotUtf8, .. })));
        return;
    };
    let theirs = serde_json::from_str::<IgnoredAny>(text);
    match read {
        Ok(written) => {
            assert!(theirs.is_ok(), "accepted what serde_json refuses: {text:?}");
            // It refuses halves of surrogate pairs and numbers past a float's range.
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
                let again: serde_json::Value = serde_json::from_slice(&written).expect("ours");
                assert_eq!(again, value);
            }
            assert_eq!(rewrite(&written), Ok(written));
        }
        Err(Error { fault: Fault::TooDeep, .. }) => {}
        Err(error) => {
            assert!(theirs.is_err(), "{error}: refused what serde_json accepts: {text:?}");
        }
    }
}
