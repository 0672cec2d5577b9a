#![no_main]
//! Our reader accepts what serde_json accepts, and what it read means the same.

use libfuzzer_sys::fuzz_target;
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

fn rewrite(data: &[u8]) -> Result<Vec<u8>, Error> {
    // No value grows to more than six times its bytes.
    let mut out = vec![0; data.len() * 6 + 16];
    let mut writer = Writer::new(&mut out);
    let mut reader = Reader::new(data)?;
    copy(&mut reader, &mut writer)?;
    reader.end()?;
    Ok(writer.finish().expect("room for every escape").to_vec())
}

fn skim(data: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(data)?;
    reader.value()?;
    reader.end()
}

fuzz_target!(|data: &[u8]| {
    let read = rewrite(data);
    assert_eq!(
        read.as_ref().map(drop),
        skim(data).as_ref().map(drop),
        "both ways of reading agree"
    );
    match &read {
        Err(error) => {
            assert!(error.at <= data.len());
            let _ = format!("{error} {}", path(data, error.at));
        }
        Ok(_) => {}
    }
    let Ok(text) = str::from_utf8(data) else {
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
            assert!(theirs.is_err(), "{error}: refused what serde_json accepts: {text:?}")
        }
    }
});
