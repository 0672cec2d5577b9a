//! `json`.

use triwire::json::{
    Error, Number, Raw, Reader, Seen, Text, Type, Writer, js_trim, path, utf16_len,
};

use crate::{any, bytes, done, judged, shown, text};

pub(crate) fn run() {
    let message = bytes();
    done(judged(read(message)));
    shown(path(message, any(1)));
    done(judged(walk(message)));
    if let Some(reader) = judged(Reader::from_str(text())) {
        done(judged(reader.end()));
    }
    words(Text::plain(text()));
    done((js_trim(text()), utf16_len(text())));

    let mut seen = Seen::default();
    done((seen.mark(any(1)), seen.has(any(1))));
    write(any(&mut [0; 64]));
}

/// Every question, in whatever order the message allows.
fn read(message: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(message)?;
    loop {
        done(reader.at());
        match any(0_u8) {
            0 => done(reader.begin_object()?),
            1 => reader.name()?.into_iter().for_each(words),
            2 => done(reader.begin_array()?),
            3 => done(reader.item()?),
            4 => words(reader.string()?),
            5 => number(reader.number()?),
            6 => done(reader.boolean()?),
            7 => done(reader.null()?),
            8 => raw(reader.value()?),
            9 => shown(reader.peek()?),
            _ => return reader.end(),
        }
    }
}

/// A value, by its type.
fn walk(message: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(message)?;
    match reader.peek()? {
        Type::Object => {
            reader.begin_object()?;
            while let Some(name) = reader.name()? {
                words(name);
                raw(reader.value()?);
            }
        }
        Type::Array => {
            reader.begin_array()?;
            while reader.item()? {
                raw(reader.value()?);
            }
        }
        Type::String => words(reader.string()?),
        Type::Number => number(reader.number()?),
        Type::Boolean => done(reader.boolean()?),
        Type::Null => reader.null()?,
    }
    reader.end()
}

fn raw(raw: Raw<'_>) {
    done((raw.as_str(), raw.at(), raw.kind()));
    done(raw.reader().value().is_ok());
}

fn number(number: Number<'_>) {
    done((number.raw(), number.as_u64(), number.as_i64()));
    done(judged(number.same_value(&any(number))));
    shown(number);
}

pub(crate) fn words(words: Text<'_>) {
    done((words.as_str(), words.is_well_formed(), words.is_empty()));
    done((words.utf16_len(), words.utf8_len(), words.written_len()));
    for character in words.chars() {
        done(judged(character));
    }
    done((words.trim(), words.within(any(1))));
    done(judged(words.decode(any(&mut [0; 16]))));
    done((words.index_in(any(&["a", "b"])), words == any(words), words == text()));
    shown(words);
}

fn write(out: &mut [u8]) {
    let mut writer = Writer::new(out);
    loop {
        match any(0_u8) {
            0 => writer.begin_object(),
            1 => writer.end_object(),
            2 => writer.begin_array(),
            3 => writer.end_array(),
            4 => writer.name(text()),
            5 => writer.string(text()),
            6 => writer.string(any(Text::plain(text()))),
            7 => writer.unsigned(any(1)),
            8 => writer.signed(any(1)),
            9 => writer.boolean(any(true)),
            10 => writer.null(),
            11 => writer.raw(text()),
            _ => break,
        }
    }
    done(judged(writer.finish()));
}
