//! Random documents, whole and broken, against serde_json; random values against the standard
//! library.

use proptest::collection::vec as vec_of;
use proptest::prelude::*;
use serde::de::IgnoredAny;
use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::*;

/// Documents of every kind, white space and needless escapes in them.
fn document() -> impl Strategy<Value = String> {
    let space = prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\n\t\r ")];
    let leaf = prop_oneof![
        Just("null".to_string()),
        any::<bool>().prop_map(|value| value.to_string()),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?",
        json_string(),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            (vec_of(inner.clone(), 0..6), space.clone()).prop_map(|(items, space)| format!(
                "[{space}{}]",
                items.join(&format!(",{space}"))
            )),
            (vec_of((json_string(), inner), 0..6), space.clone()).prop_map(|(members, space)| {
                let members: Vec<_> = members
                    .iter()
                    .map(|(name, value)| format!("{name}{space}:{value}{space}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

fn json_string() -> impl Strategy<Value = String> {
    vec_of(
        prop_oneof![
            6 => "[ -~&&[^\"\\\\]]{1,9}",
            1 => "\\\\[\"\\\\/bfnrt]",
            1 => any::<u16>().prop_map(|unit| format!("\\u{unit:04x}")),
            1 => (0xd7f0_u16..0xe010).prop_map(|unit| format!("\\u{unit:04X}")),
            1 => any::<char>().prop_filter("a control", |c| !matches!(c, ..' ' | '"' | '\\')).prop_map(String::from),
        ],
        0..5,
    )
    .prop_map(|parts| format!("\"{}\"", parts.concat()))
}

/// A document with some characters replaced, put in or taken out.
fn mutated() -> impl Strategy<Value = String> {
    let change =
        (any::<prop::sample::Index>(), 0..3, "[\\[\\]{}:,\"\\\\eE.+0-9tfn\t \u{0}\u{a0}-]");
    (document(), vec_of(change, 1..4)).prop_map(|(text, changes)| {
        let mut chars: Vec<char> = text.chars().collect();
        for (index, kind, c) in changes {
            let at = index.index(chars.len() + 1);
            let c = c.chars().next().unwrap();
            match kind {
                0 => chars.insert(at, c),
                1 if at < chars.len() => chars[at] = c,
                _ if at < chars.len() => drop(chars.remove(at)),
                _ => {}
            }
        }
        chars.into_iter().collect()
    })
}

/// What serde_json makes of a value, by our reader.
fn to_value(reader: &mut Reader<'_>) -> Result<serde_json::Value, Error> {
    use serde_json::Value;
    Ok(match reader.peek()? {
        Type::Object => {
            let mut object = serde_json::Map::new();
            reader.begin_object()?;
            while let Some(name) = reader.name()? {
                object.insert(name.to_string(), to_value(reader)?);
            }
            Value::Object(object)
        }
        Type::Array => {
            let mut array = Vec::new();
            reader.begin_array()?;
            while reader.item()? {
                array.push(to_value(reader)?);
            }
            Value::Array(array)
        }
        Type::String => Value::String(reader.string()?.to_string()),
        Type::Number => serde_json::from_str(reader.number()?.raw()).unwrap(),
        Type::Boolean => Value::Bool(reader.boolean()?),
        Type::Null => {
            reader.null()?;
            Value::Null
        }
    })
}

/// Judges as serde_json does. Known differences, none of which the documents here have: it takes
/// any depth while it skips, and leaves bytes that are not UTF-8 unseen.
fn agrees(text: &str) -> Result<(), TestCaseError> {
    let ours = check(text.as_bytes());
    let theirs = serde_json::from_str::<IgnoredAny>(text);
    prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
    prop_assert_eq!(pull(text.as_bytes()), ours);
    // It refuses lone surrogates and large exponents once it converts; we leave that to the user.
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
        prop_assert_eq!(to_value(&mut Reader::from_str(text).unwrap()), Ok(value));
    }
    Ok(())
}

proptest! {
    #[test]
    fn documents_are_read(text in document()) {
        prop_assert_eq!(check(text.as_bytes()), Ok(()));
        agrees(&text)?;
    }

    #[test]
    fn mutated_documents_are_judged_alike(text in mutated()) {
        agrees(&text)?;
    }

    #[test]
    fn any_text_is_judged_alike(text in "[\\[\\]{}:,\"\\\\eE.+0-9tfn \t/u-]{0,12}") {
        agrees(&text)?;
    }

    #[test]
    fn any_bytes_are_judged(bytes in vec_of(any::<u8>(), 0..64), at in 0..70_usize) {
        let _ = check(&bytes);
        let _ = path(&bytes, at).to_string();
    }

    #[test]
    fn any_place_has_a_path(text in mutated(), at in any::<prop::sample::Index>()) {
        let _ = path(text.as_bytes(), at.index(text.len() + 2)).to_string();
    }

    #[test]
    fn calls_in_any_order(text in mutated(), calls in vec_of(0..9, 0..40)) {
        let Ok(mut reader) = Reader::from_str(&text) else { return Ok(()) };
        for call in calls {
            reader.at();
            let before = format!("{reader:?}");
            let result = match call {
                0 => reader.begin_object(),
                1 => reader.name().map(drop),
                2 => reader.begin_array(),
                3 => reader.item().map(drop),
                4 => reader.string().map(drop),
                5 => reader.number().map(drop),
                6 => reader.boolean().map(drop),
                7 => reader.null(),
                _ => reader.value().map(drop),
            };
            if result.is_err() {
                prop_assert_eq!(format!("{reader:?}"), before);
            }
        }
    }

    #[test]
    fn strings_round_trip(text in any::<String>(), room in 0..64_usize) {
        let written = write(|writer| writer.string(&*text));
        prop_assert_eq!(&written, &serde_json::to_string(&text).unwrap());
        let read = string(&written);
        prop_assert_eq!(read, &*text);
        prop_assert_eq!(read.to_string(), &*text);
        prop_assert_eq!(read.utf16_len(), text.encode_utf16().count());
        prop_assert_eq!(utf16_len(&text), text.encode_utf16().count());
        prop_assert_eq!(read.utf8_len(), text.len());
        prop_assert_eq!(read.trim(), js_trim(&text));
        let mut out = vec![0; room];
        let expected = if text.len() <= room {
            Ok(&*text)
        } else {
            Err(DecodeError::OutTooSmall { needed: text.len() })
        };
        prop_assert_eq!(read.decode(&mut out), expected);
    }

    #[test]
    fn code_units_round_trip(
        units in vec_of(prop_oneof![Just(32), Just(0xfeff), 0xd7fe_u16..0xe002, any::<u16>()], 0..12),
        escapes in any::<u16>(),
    ) {
        // Escapes what is a half, and some of the rest.
        let mut written = String::from("\"");
        for (index, unit) in units.iter().enumerate() {
            match char::from_u32(u32::from(*unit)) {
                Some(c) if escapes >> index & 1 == 0 && !matches!(c, ..' ' | '"' | '\\') => written.push(c),
                _ => written += &format!("\\u{unit:04x}"),
            }
        }
        written.push('"');
        let text = string(&written);
        prop_assert_eq!(text.utf16_len(), units.len());
        let expected: Vec<_> = char::decode_utf16(units.iter().copied())
            .map(|c| c.map_err(|error| LoneSurrogate(error.unpaired_surrogate())))
            .collect();
        prop_assert_eq!(text.chars().collect::<Vec<_>>(), expected);
        let lossy = String::from_utf16_lossy(&units);
        prop_assert_eq!(text.to_string(), &*lossy);
        prop_assert_eq!(text.utf8_len(), lossy.len());
        prop_assert_eq!(text.trim().to_string(), js_trim(&lossy));
        prop_assert_eq!(text.is_well_formed(), String::from_utf16(&units).is_ok());
    }

    #[test]
    fn documents_round_trip(text in document()) {
        let raw = Reader::from_str(&text).unwrap().value().unwrap();
        prop_assert_eq!(write(|writer| writer.raw(raw.as_str())), raw.as_str());
        if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
            let compact = value.to_string();
            prop_assert_eq!(write(|writer| put(writer, &value)), compact);
        }
    }

    #[test]
    fn number_values_are_exact(
        (one, two) in (decimal(), decimal()),
    ) {
        let (first, second) = (number(&one.0), number(&two.0));
        prop_assert_eq!(first.same_value(&second), Ok(one.1 == two.1));
        prop_assert_eq!(first.same_value(&first), Ok(true));
        let whole = (one.1 % SCALE == 0).then_some(one.1 / SCALE);
        prop_assert_eq!(first.as_u64(), whole.and_then(|value| u64::try_from(value).ok()));
        prop_assert_eq!(first.as_i64(), whole.and_then(|value| i64::try_from(value).ok()));
    }

    #[test]
    fn whole_numbers_round_trip(value in any::<u64>(), signed in any::<i64>()) {
        prop_assert_eq!(number(&write(|writer| writer.unsigned(value))).as_u64(), Some(value));
        prop_assert_eq!(number(&write(|writer| writer.signed(signed))).as_i64(), Some(signed));
    }
}

fn put(writer: &mut Writer<'_>, value: &serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::Null => writer.null(),
        Value::Bool(value) => writer.boolean(*value),
        Value::Number(value) => writer.raw(&value.to_string()),
        Value::String(value) => writer.string(&**value),
        Value::Array(items) => {
            writer.begin_array();
            items.iter().for_each(|item| put(writer, item));
            writer.end_array();
        }
        Value::Object(members) => {
            writer.begin_object();
            for (name, value) in members {
                writer.name(name);
                put(writer, value);
            }
            writer.end_object();
        }
    }
}

const SCALE: i128 = 1_000_000_000_000;

/// A number's text, and its value times [`SCALE`].
fn decimal() -> impl Strategy<Value = (String, i128)> {
    let digits = prop_oneof![0..100_u32, Just(0), Just(1000), any::<u32>()];
    (any::<bool>(), digits, 0..8_u32, -4..12_i32, any::<bool>()).prop_map(
        |(is_negative, digits, places, exponent, has_exponent)| {
            let sign = if is_negative { "-" } else { "" };
            let exponent = if has_exponent { exponent } else { 0 };
            let (whole, fraction) = (digits / 10_u32.pow(places), digits % 10_u32.pow(places));
            let fraction = match places {
                0 => String::new(),
                _ => format!(".{fraction:0width$}", width = places as usize),
            };
            let power = match has_exponent {
                true => format!("e{exponent}"),
                false => String::new(),
            };
            // At least 10^-11, which the scale makes whole.
            let shift = 12 - places.cast_signed() + exponent;
            let value = i128::from(digits) * 10_i128.pow(shift.cast_unsigned());
            (format!("{sign}{whole}{fraction}{power}"), if is_negative { -value } else { value })
        },
    )
}
