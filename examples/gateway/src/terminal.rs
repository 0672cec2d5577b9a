//! What only a terminal gets: colours and progress; and what it never gets: control characters of
//! others.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write as _};

/// A colour or weight of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

/// Paints text, or leaves it plain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Paints when `stream` is a terminal that shows colours and `NO_COLOR` does not forbid it.
    pub(crate) fn for_stream(stream: &impl IsTerminal) -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { on: stream.is_terminal() && !forbidden && !dumb }
    }

    pub(crate) const fn is_on(self) -> bool {
        self.on
    }

    pub(crate) fn text(self, style: Style, text: impl fmt::Display) -> String {
        if !self.on {
            return text.to_string();
        }
        let code = match style {
            Style::Bold => 1,
            Style::Dim => 2,
            Style::Red => 31,
            Style::Green => 32,
            Style::Yellow => 33,
            Style::Cyan => 36,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// One line on standard error that says what is going on; nothing unless it is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    on: bool,
}

impl Progress {
    pub(crate) fn start() -> Self {
        Self { on: Paint::for_stream(&std::io::stderr()).is_on() }
    }

    pub(crate) fn say(&self, what: impl fmt::Display) {
        if self.on {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K{what}").and_then(|()| stderr.flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.say("");
    }
}

/// Shows text that others wrote: characters that would steer a terminal become escapes; line ends
/// and quotes stay.
pub(crate) struct Printable<'t>(pub(crate) &'t str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\n' | '"' | '\'' | '\\' => f.write_char(c)?,
                _ => write!(f, "{}", c.escape_debug())?,
            }
        }
        Ok(())
    }
}

/// Shows text on one line: as [`Printable`], with line ends and backslashes as escapes too.
pub(crate) struct OneLine<'t>(pub(crate) &'t str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' | '\'' => f.write_char(c)?,
                _ => write!(f, "{}", c.escape_debug())?,
            }
        }
        Ok(())
    }
}

/// Prints rows in columns as wide as their widest cell; the last column is not padded.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_passes() {
        let hostile = "a\x1b[2J\r\u{9b}\u{202e}b\n\"é\"";
        let shown = Printable(hostile).to_string();
        assert_eq!(shown, "a\\u{1b}[2J\\r\\u{9b}\\u{202e}b\n\"é\"");
        let one = OneLine(hostile).to_string();
        assert_eq!(one, "a\\u{1b}[2J\\r\\u{9b}\\u{202e}b\\n\"é\"");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".into(), "b".into()], ["long".into(), String::new()]];
        assert_eq!(columns(&rows), "a     b\nlong\n");
    }
}
