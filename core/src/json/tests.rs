#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::std_instead_of_core,
    clippy::alloc_instead_of_core
)]

extern crate std;

use std::format;
use std::string::{String, ToString};
use std::vec;

use super::*;

mod random;

fn check(message: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(message)?;
    reader.value()?;
    reader.end()
}

/// Reads every value by its own verb; the same judgement as [`check`].
fn pull(message: &[u8]) -> Result<(), Error> {
    fn one(reader: &mut Reader<'_>) -> Result<(), Error> {
        match reader.peek()? {
            Type::Object => {
                reader.begin_object()?;
                while reader.name()?.is_some() {
                    one(reader)?;
                }
            }
            Type::Array => {
                reader.begin_array()?;
                while reader.item()? {
                    one(reader)?;
                }
            }
            Type::String => drop(reader.string()?),
            Type::Number => drop(reader.number()?),
            Type::Boolean => drop(reader.boolean()?),
            Type::Null => reader.null()?,
        }
        Ok(())
    }
    let mut reader = Reader::new(message)?;
    one(&mut reader)?;
    reader.end()
}

fn number(text: &str) -> Number<'_> {
    Reader::from_str(text).unwrap().number().unwrap()
}

fn string(text: &str) -> Text<'_> {
    Reader::from_str(text).unwrap().string().unwrap()
}

fn write(needs: impl Fn(&mut Writer<'_>)) -> String {
    let mut measure = Writer::new(&mut []);
    needs(&mut measure);
    let needed = measure.finish().map_or_else(|error| error.needed, <[u8]>::len);
    let mut out = vec![0; needed];
    let mut writer = Writer::new(&mut out);
    needs(&mut writer);
    let written = writer.finish().unwrap();
    assert_eq!(written.len(), needed);
    String::from_utf8(written.to_vec()).unwrap()
}

#[test]
fn grammar_faults_have_their_offset() {
    // rule: JSON-1, JSON-7
    use Fault::*;
    let unexpected = |expected, found| Unexpected { expected, found };
    let cases: &[(&[u8], usize, Fault)] = &[
        (b"", 0, UnexpectedEnd),
        (b"  ", 2, UnexpectedEnd),
        (b"\xef\xbb\xbf{}", 0, ByteOrderMark),
        (b"{\"a\":\"\xff\"}", 6, NotUtf8),
        (b"[1] \xc3", 4, NotUtf8),
        (b"\"\xed\xa0\x80\"", 1, NotUtf8),
        (b"{} {}", 3, TrailingBytes),
        (b"1 2", 2, TrailingBytes),
        (b"{}\0", 2, TrailingBytes),
        (b"\"a\tb\"", 2, ControlCharacter { found: 9 }),
        (b"\"0123456789\x1f\"", 11, ControlCharacter { found: 0x1f }),
        (b"\"\\x41\"", 1, BadEscape),
        (b"\"\\u12g4\"", 1, BadEscape),
        (b"\"\\u12\"", 1, BadEscape),
        (b"\"\\u+123\"", 1, BadEscape),
        ("\"\\u12é4\"".as_bytes(), 1, BadEscape),
        (b"\"\\u12", 5, UnexpectedEnd),
        (b"\"\\", 2, UnexpectedEnd),
        (b"\"abc", 4, UnexpectedEnd),
        (b"01", 1, BadNumber),
        (b"-", 1, UnexpectedEnd),
        (b"-a", 1, BadNumber),
        (b"1.", 2, UnexpectedEnd),
        (b"[1.]", 3, BadNumber),
        (b"[1e+]", 4, BadNumber),
        (b"1.2.3", 3, BadNumber),
        (b"0x1", 1, BadNumber),
        (b"+1", 0, unexpected(Expected::Value, '+')),
        (b".5", 0, unexpected(Expected::Value, '.')),
        (b"NaN", 0, unexpected(Expected::Value, 'N')),
        (b"nul", 3, UnexpectedEnd),
        (b"nulL", 0, unexpected(Expected::Value, 'n')),
        (b"[1,]", 3, unexpected(Expected::Value, ']')),
        (b"[,1]", 1, unexpected(Expected::Value, ',')),
        (b"[1 2]", 3, unexpected(Expected::CommaOrArrayEnd, '2')),
        (b"[1", 2, UnexpectedEnd),
        (b"[1}", 2, unexpected(Expected::CommaOrArrayEnd, '}')),
        (b"{\"a\":1,}", 7, unexpected(Expected::Name, '}')),
        (b"{,}", 1, unexpected(Expected::NameOrEnd, ',')),
        (b"{a:1}", 1, unexpected(Expected::NameOrEnd, 'a')),
        (b"{\"a\" 1}", 5, unexpected(Expected::Colon, '1')),
        (b"{\"a\":1 \"b\":2}", 7, unexpected(Expected::CommaOrObjectEnd, '"')),
        (b"{\"a\":1]", 6, unexpected(Expected::CommaOrObjectEnd, ']')),
        ("[\u{a0}1]".as_bytes(), 1, unexpected(Expected::Value, '\u{a0}')),
        (b"[1]\x0c", 3, TrailingBytes),
        (b"// no\n1", 0, unexpected(Expected::Value, '/')),
    ];
    for &(message, at, fault) in cases {
        let shown = String::from_utf8_lossy(message);
        assert_eq!(check(message), Err(Error { at, fault }), "{shown}");
        assert_eq!(pull(message), Err(Error { at, fault }), "{shown}");
        let _ = path(message, at).to_string();
    }
}

#[test]
fn messages_that_are_json() {
    // rule: JSON-1
    for message in [
        "0",
        "-0",
        "-0.0e-0",
        "1e400",
        "1E+0000000000000000001",
        " \t\r\n{ \"a\" : [ ] , \"a\" : { } }\n",
        r#""\ud800 \u0000\/\b""#,
        "\"\u{7f}\u{2028}\u{feff}\"",
        "[[],[{}],true,false,null]",
    ] {
        assert_eq!(check(message.as_bytes()), Ok(()), "{message}");
        assert_eq!(pull(message.as_bytes()), Ok(()), "{message}");
    }
}

#[test]
fn depth_is_bounded() {
    // rule: JSON-2
    let nested = |depth| {
        let open: String =
            (0..depth).map(|level| if level % 2 == 0 { "{\"a\":" } else { "[" }).collect();
        let close: String =
            (0..depth).rev().map(|level| if level % 2 == 0 { "}" } else { "]" }).collect();
        format!("{open}1{close}")
    };
    assert_eq!(check(nested(MAX_JSON_DEPTH).as_bytes()), Ok(()));
    assert_eq!(pull(nested(MAX_JSON_DEPTH).as_bytes()), Ok(()));
    // Six bytes for each pair of levels.
    let too_deep = Error { at: 6 * 32, fault: Fault::TooDeep };
    assert_eq!(check(nested(MAX_JSON_DEPTH + 1).as_bytes()), Err(too_deep));
    assert_eq!(pull(nested(MAX_JSON_DEPTH + 1).as_bytes()), Err(too_deep));
    // What is open around a value counts.
    let inner = nested(MAX_JSON_DEPTH);
    let message = format!("[{inner}]");
    let mut reader = Reader::from_str(&message).unwrap();
    reader.begin_array().unwrap();
    reader.item().unwrap();
    assert_eq!(reader.value(), Err(Error { at: 6 * 32, fault: Fault::TooDeep }));

    let brackets = vec![b'['; 100_000];
    assert_eq!(check(&brackets), Err(Error { at: 64, fault: Fault::TooDeep }));
    assert_eq!(path(&brackets, 64).to_string(), "[0]".repeat(64));
}

#[test]
fn a_failed_call_changes_nothing() {
    let mut reader = Reader::new(br#"{"a": [1, "x", -]}"#).unwrap();
    let wrong = Fault::WrongType { expected: Type::Array, found: Type::Object };
    assert_eq!(reader.begin_array(), Err(Error { at: 0, fault: wrong }));
    reader.begin_object().unwrap();
    assert_eq!(reader.value(), Err(Error { at: 1, fault: Fault::OutOfStep }));
    assert_eq!(reader.item(), Err(Error { at: 1, fault: Fault::OutOfStep }));
    assert_eq!(reader.name().unwrap().unwrap(), "a");
    assert_eq!(reader.name(), Err(Error { at: 5, fault: Fault::OutOfStep }));
    let broken = Err(Error { at: 16, fault: Fault::BadNumber });
    assert_eq!(reader.value(), broken);
    assert_eq!(reader.value(), broken);
    assert_eq!(reader.at(), 6);
    reader.begin_array().unwrap();
    assert!(reader.item().unwrap());
    let wrong = Fault::WrongType { expected: Type::String, found: Type::Number };
    assert_eq!(reader.string().map(drop), Err(Error { at: 7, fault: wrong }));
    assert_eq!(reader.number().unwrap().as_u64(), Some(1));
    assert_eq!(reader.clone().end(), Err(Error { at: 8, fault: Fault::OutOfStep }));
    assert!(reader.item().unwrap());
    assert_eq!(reader.string().unwrap(), "x");
    assert!(reader.item().unwrap());
    let broken = Err(Error { at: 16, fault: Fault::BadNumber });
    assert_eq!(reader.number().map(drop), broken);
    assert_eq!(reader.number().map(drop), broken);
}

#[test]
fn raw_keeps_the_offsets_of_its_message() {
    let mut reader = Reader::new(br#"{"a": {"b": [1, "c"]} }"#).unwrap();
    reader.begin_object().unwrap();
    reader.name().unwrap();
    let raw = reader.value().unwrap();
    assert_eq!((raw.as_str(), raw.at(), raw.kind()), (r#"{"b": [1, "c"]}"#, 6, Type::Object));
    let mut inner = raw.reader();
    inner.begin_object().unwrap();
    inner.name().unwrap();
    let found = Fault::WrongType { expected: Type::Null, found: Type::Array };
    assert_eq!(inner.null(), Err(Error { at: 12, fault: found }));
    assert_eq!(inner.value().unwrap().at(), 12);
    assert_eq!(reader.name(), Ok(None));
    assert_eq!(reader.end(), Ok(()));
}

#[test]
fn seen_marks_once() {
    // rule: JSON-3
    let mut seen = Seen::default();
    assert!(seen.mark(0) && seen.mark(63));
    assert!(!seen.mark(0) && !seen.mark(63) && !seen.mark(64) && !seen.mark(usize::MAX));
    assert!(seen.has(63) && !seen.has(1) && !seen.has(64));
}

#[test]
fn numbers_equal_by_exact_value() {
    // rule: JSON-5
    let same = |one, two| number(one).same_value(&number(two));
    for (one, two) in [
        ("1", "1.0"),
        ("1", "1e0"),
        ("1", "0.1e1"),
        ("1", "100e-2"),
        ("0", "-0"),
        ("0", "-0.00e5"),
        ("1e400", "10e399"),
        ("0.001", "1E-3"),
        ("-120", "-1.2e+02"),
        ("1e0000000000000000005", "100000"),
        ("0e5", "0.0"),
    ] {
        assert_eq!(same(one, two), Ok(true), "{one} {two}");
    }
    for (one, two) in [
        ("9007199254740993", "9007199254740992"),
        ("1e400", "1e401"),
        ("1", "-1"),
        ("1", "1.00000000000000000000000001"),
        ("12", "21"),
        ("1", "10"),
        ("0.01", "0.1"),
        ("0", "1e-999999999"),
        ("1e999999999", "1e999999998"),
    ] {
        assert_eq!(same(one, two), Ok(false), "{one} {two}");
        assert_eq!(same(two, one), Ok(false), "{two} {one}");
    }
    assert_eq!(same("1e1000000000", "1"), Err(ExponentTooLong));
    assert_eq!(same("1", "0e-1000000000"), Err(ExponentTooLong));
    assert_eq!(same("1e000999999999", "10e999999998"), Ok(true));
}

#[test]
fn whole_numbers_by_exact_value() {
    // rule: JSON-5
    for (text, unsigned, signed) in [
        ("0", Some(0), Some(0)),
        ("-0", Some(0), Some(0)),
        ("-0.0e99", Some(0), Some(0)),
        ("1.299e3", Some(1299), Some(1299)),
        ("1299.0", Some(1299), Some(1299)),
        ("129900e-2", Some(1299), Some(1299)),
        ("1299.00000000000000001", None, None),
        ("0.5", None, None),
        ("1e-1", None, None),
        ("-1", None, Some(-1)),
        ("-1e2", None, Some(-100)),
        ("18446744073709551615", Some(u64::MAX), None),
        ("18446744073709551616", None, None),
        ("1.8446744073709551615e19", Some(u64::MAX), None),
        ("9999999999999999999", Some(9_999_999_999_999_999_999), None),
        ("9223372036854775807", Some(i64::MAX as u64), Some(i64::MAX)),
        ("9223372036854775808", Some(1 << 63), None),
        ("-9223372036854775808", None, Some(i64::MIN)),
        ("-9223372036854775809", None, None),
        ("1e19", Some(10_000_000_000_000_000_000), None),
        ("1e20", None, None),
        ("1e400", None, None),
        ("1e99999999999", None, None),
    ] {
        assert_eq!(number(text).as_u64(), unsigned, "{text}");
        assert_eq!(number(text).as_i64(), signed, "{text}");
    }
}

#[test]
fn white_space_is_javascripts() {
    // rule: JSON-9
    for c in '\0'..=char::MAX {
        let is_space = (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}';
        let mut bytes = [0; 4];
        let text: &str = c.encode_utf8(&mut bytes);
        assert_eq!(js_trim(text).is_empty(), is_space, "{c:?}");
        let mut units = [0; 2];
        let units = c.encode_utf16(&mut units);
        let escaped: String = units.iter().map(|unit| format!("\\u{unit:04X}")).collect();
        let escaped = format!("\"{escaped}\"");
        assert_eq!(string(&escaped).trim().is_empty(), is_space, "{c:?}");
    }
    assert_eq!(string(r#"" \n\ufeffa\t b\u0020\r ""#).trim(), "a\t b");
    assert_eq!(string(r#""\n a \ud800 ""#).trim().utf16_len(), 3);
    // No escape is left: as good as plain.
    assert_eq!(string(r#""\t plain \n""#).trim().as_str(), Some("plain"));
    assert_eq!(string(r#""\t \n""#).trim().as_str(), Some(""));
}

#[test]
fn lone_halves_are_told() {
    // rule: JSON-4
    for (text, is_lone) in [
        (r#""\ud83d\ude00""#, false),
        (r#""\uD83D\uDE00""#, false),
        (r#""\ud83d""#, true),
        (r#""\ude00""#, true),
        (r#""\ude00\ud83d""#, true),
        (r#""\ud83dx\ude00""#, true),
        (r#""\ud83d\n""#, true),
        (r#""\ud83d\ud83d\ude00""#, true),
    ] {
        let text = string(text);
        assert_eq!(text.is_well_formed(), !is_lone, "{text:?}");
        let decoded = text.decode(&mut [0; 16]).map(str::len);
        assert_eq!(matches!(decoded, Err(DecodeError::LoneSurrogate(_))), is_lone, "{text:?}");
    }
    let lone = string(r#""a\ud83d\n\"""#);
    assert_eq!(lone.to_string(), "a\u{fffd}\n\"");
    assert_eq!(format!("{lone:?}"), r#""a\u{d83d}\n\"""#);
    assert_eq!(lone, string(r#""\u0061\uD83D\u000a\u0022""#));
    assert_ne!(lone, "a\u{fffd}\n\"");
    assert_eq!(write(|writer| writer.string(lone)), "\"a\u{fffd}\\n\\\"\"");
    assert_eq!(serde_json::to_string(&lone).unwrap(), "\"a\u{fffd}\\n\\\"\"");
    assert_eq!(lone.utf8_len(), 6);
    assert_eq!(lone.decode(&mut []), Err(DecodeError::LoneSurrogate(LoneSurrogate(0xd83d))));
}

#[test]
fn text_equals_by_its_characters() {
    let name = string(r#""\u0063m\u0064""#);
    assert_eq!(name, "cmd");
    assert_eq!(name, Text::plain("cmd"));
    assert_ne!(name, "cm");
    assert_ne!(name, Text::plain(r"\u0063m\u0064"));
    assert_ne!(string(r#""\\n""#), string(r#""\n""#));
    assert_eq!(name.index_in(&["cwd", "cmd"]), Some(1));
    assert_eq!(name.index_in(&["cwd"]), None);
    assert_eq!(Text::from("cmd").index_in(&["cwd", "cmd"]), Some(1));
    assert_eq!(Text::default(), "");
    let text = string(r#""gr\u00fcn""#);
    assert_eq!(text.decode(&mut [0; 4]), Err(DecodeError::OutTooSmall { needed: 5 }));
    assert_eq!(text.decode(&mut [0; 5]), Ok("grün"));
    assert_eq!(Text::plain("ab").decode(&mut [0]), Err(DecodeError::OutTooSmall { needed: 2 }));
}

#[test]
fn paths_of_places() {
    // rule: JSON-7
    let message = br#"{"v": 1,"products":[{},{"price":{"amount":12, "a.b":"x"}} ,[] ],"":0}"#;
    let at = |needle: &str| {
        message.windows(needle.len()).position(|window| window == needle.as_bytes()).unwrap()
    };
    for (at, expected) in [
        (0, ""),
        (at("\"v\""), "v"),
        (at("1,"), "v"),
        (at(",\"products"), ""),
        (at("\"products"), "products"),
        (at("oducts"), "products"),
        (at("[{}"), "products"),
        (at("{},"), "products[0]"),
        (at("},{"), "products[0]"),
        (at(",{"), "products"),
        (at("{\"price"), "products[1]"),
        (at("\"price"), "products[1].price"),
        (at("12,"), "products[1].price.amount"),
        (at("2,"), "products[1].price.amount"),
        (at(", \"a.b"), "products[1].price"),
        (at("\"x\""), r#"products[1].price["a.b"]"#),
        (at("}} ,"), "products[1].price"),
        (at("} ,"), "products[1]"),
        (at("[] "), "products[2]"),
        (at("] ]"), "products[2]"),
        (at("],"), "products"),
        (at("0}"), r#"[""]"#),
        (at("0}") + 1, ""),
        (message.len(), ""),
        (usize::MAX, ""),
    ] {
        assert_eq!(path(message, at).to_string(), expected, "byte {at}");
    }
}

#[test]
fn paths_in_broken_messages() {
    for (message, expected) in [
        (&br#"{"a":[1,{"b":"x\q"}]}"#[..], "a[1].b"),
        (br#"{"a":{"b" 1}}"#, "a.b"),
        (br#"{"a":[1,2"#, "a"),
        (br#"{"a":[1,"#, "a[1]"),
        (br#"{"a":{"b":"#, "a.b"),
        (b"{\"a\":[\"\xff\"]}", "a[0]"),
        (b"{\"a\":1} 2", ""),
        (b"{\"a\tb\":1}", ""),
        (b"\xef\xbb\xbf{\"a\":1}", ""),
        (b"", ""),
    ] {
        let error = check(message).unwrap_err();
        assert_eq!(path(message, error.at).to_string(), expected, "{error}");
    }
    let long = format!(r#"{{"{}":x}}"#, "é".repeat(65));
    let shown = path(long.as_bytes(), check(long.as_bytes()).unwrap_err().at).to_string();
    assert_eq!(shown, format!("{}…", "é".repeat(64)));
    let message = br#"{"a\n\"\u202e\ud800":x}"#;
    let shown = path(message, check(message).unwrap_err().at).to_string();
    assert_eq!(shown, "[\"a\\n\\\"\\u{202e}\u{fffd}\"]");
}

#[test]
fn writer_writes_compact() {
    // rule: JSON-6
    let written = write(|writer| {
        writer.begin_object();
        writer.name("a\"");
        writer.begin_array();
        writer.begin_object();
        writer.end_object();
        writer.begin_array();
        writer.end_array();
        writer.null();
        writer.raw("1e0");
        writer.end_array();
        writer.name("b");
        writer.unsigned(u64::MAX);
        writer.name("c");
        writer.signed(i64::MIN);
        writer.name("d");
        writer.boolean(false);
        writer.end_object();
    });
    let expected =
        r#"{"a\"":[{},[],null,1e0],"b":18446744073709551615,"c":-9223372036854775808,"d":false}"#;
    assert_eq!(written, expected);
    for value in [0, 9, 10, u64::MAX] {
        assert_eq!(write(|writer| writer.unsigned(value)), value.to_string());
    }
    for value in [0, -1, i64::MAX] {
        assert_eq!(write(|writer| writer.signed(value)), value.to_string());
    }
}

#[test]
fn writer_tells_the_exact_size() {
    let put = |writer: &mut Writer<'_>| {
        writer.begin_array();
        writer.string("a\u{1}\u{1f600}");
        writer.unsigned(1234);
        writer.end_array();
    };
    let whole = write(put);
    for room in 0..whole.len() {
        let mut out = vec![0; room];
        let mut writer = Writer::new(&mut out);
        put(&mut writer);
        assert_eq!(writer.finish(), Err(crate::OutTooSmall { needed: whole.len() }));
    }
}

#[test]
fn every_character_is_escaped_as_others_do() {
    // rule: JSON-6
    let all: String = ('\0'..='\u{ff}').chain(['\u{2028}', '\u{fffd}', '\u{1f600}']).collect();
    let written = write(|writer| writer.string(&*all));
    assert_eq!(written, serde_json::to_string(&all).unwrap());

    // The same text, from a peer who escapes more than needed.
    let escaped = |text: &str| {
        let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        format!("\"{units}\"")
    };
    assert_eq!(write(|writer| writer.string(string(&escaped(&all)))), written);
    assert_eq!(serde_json::to_string(&string(&escaped(&all))).unwrap(), written);

    // It writes hexadecimal letters large, where JavaScript and serde_json write them small.
    let same =
        |c: &char| !matches!(c, '\0'..=' ') || u32::from(*c) % 16 < 10 || "\x0c\r".contains(*c);
    let most: String = all.chars().filter(same).collect();
    let written = write(|writer| writer.string(&*most));
    let mut out = [0; 1024];
    let len = serde_json_core::to_slice(&most, &mut out).unwrap();
    assert_eq!(written.as_bytes(), &out[..len]);
    let len = serde_json_core::to_slice(&string(&escaped(&most)), &mut out).unwrap();
    assert_eq!(written.as_bytes(), &out[..len]);
}
