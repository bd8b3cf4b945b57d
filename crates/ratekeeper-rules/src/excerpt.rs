//! The line of a text that has a problem, with carets under it.

use std::cell::Cell;
use std::fmt;

use crate::tree::Span;

/// How much of a line is shown, in characters.
const WIDTH: usize = 100;
/// How much of it is shown before the problem, if the line is longer.
const BEFORE: usize = 40;

/// A text that can be queried by line.
pub(crate) struct Lines<'a> {
    text: &'a str,
    /// Where each line begins.
    starts: Vec<usize>,
    /// A place up to which the characters of its line have been counted. If places are asked for in order, as
    /// those in one very long line are, each character is counted once.
    counted: Cell<Counted>,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    line: usize,
    at: usize,
    characters: usize,
}

/// A line, its number starting at one, and the problem in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) line: usize,
    /// In characters, starting at one.
    pub(crate) column: usize,
    shown: String,
    indent: usize,
    carets: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts, counted: Cell::default() }
    }

    /// The number of the line that contains a byte, starting at one.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at.min(self.text.len()))
    }

    /// The line in which a span begins.
    pub(crate) fn excerpt(&self, span: &Span) -> Excerpt {
        let at = self.character_at(span.start);
        let line = self.line(at);
        let from = self.characters_before(at, line);
        // If the span continues in the next line, only the part in this one.
        let spanned = &self.text[at..self.character_at(span.end).max(at)];
        let carets = spanned.chars().take_while(|c| !matches!(c, '\r' | '\n')).take(WIDTH).count();
        // The beginning of a line is shown unless the problem is too far from it.
        let (shown_from, indent) = if from + carets > WIDTH {
            let back = self.text[..at].char_indices().rev().nth(BEFORE.min(from) - 1);
            (back.map_or(at, |(start, _)| start), BEFORE.min(from))
        } else {
            (self.starts[line - 1], from)
        };
        let rest = self.text[shown_from..].chars().take_while(|c| *c != '\n');
        let shown: String = rest.take(WIDTH).map(harmless_in_line).collect();
        Excerpt {
            line,
            column: from + 1,
            shown: shown.trim_end().to_owned(),
            indent,
            carets: carets.clamp(1, (WIDTH - indent.min(WIDTH)).max(1)),
        }
    }

    /// The beginning of the character that contains a byte. Places should be character boundaries already,
    /// but a wrong message is better than none.
    fn character_at(&self, byte: usize) -> usize {
        let mut at = byte.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    /// How many characters of its line precede a place.
    fn characters_before(&self, at: usize, line: usize) -> usize {
        let mut counted = self.counted.get();
        if counted.line != line || counted.at > at {
            counted = Counted { line, at: self.starts[line - 1], characters: 0 };
        }
        counted.characters += self.text[counted.at..at].chars().count();
        counted.at = at;
        self.counted.set(counted);
        counted.characters
    }
}

/// Writes the line with its number, and carets below it.
impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let Self { shown, indent, carets, .. } = self;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{}", format!("{number} | {shown}").trim_end())?;
        write!(f, "{margin} | {}{}", " ".repeat(*indent), "^".repeat(*carets))
    }
}

/// The text without characters that move the cursor or change the writing direction, cut if it is very long.
pub(crate) fn harmless_text(text: &str, max: usize) -> String {
    let mut shown: String = text.chars().take(max).map(harmless).collect();
    if shown.len() < text.len() && text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}

/// The same, but the end of a line becomes a space.
fn harmless_in_line(c: char) -> char {
    if c == '\r' { ' ' } else { harmless(c) }
}

/// A character that is safe to print. Error messages may be read on a terminal.
fn harmless(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        // These change the direction of what follows, or hide what is there.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
            '\u{fffd}'
        }
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str, span: Span) -> String {
        Lines::new(text).excerpt(&span).to_string()
    }

    #[test]
    fn carets_are_under_what_is_wrong() {
        assert_eq!(show("a = 1\nb = true\n", 10..14), "  |\n2 | b = true\n  |     ^^^^");
        assert_eq!(show("ä = \"ö\"", 5..9), "  |\n1 | ä = \"ö\"\n  |     ^^^");
        assert_eq!(show("\ta = 1\r\n", 1..2), "  |\n1 |  a = 1\n  |  ^");
    }

    #[test]
    fn an_end_has_a_caret_too() {
        assert_eq!(show("", 0..0), "  |\n1 |\n  | ^");
        assert_eq!(show("a", 1..1), "  |\n1 | a\n  |  ^");
        assert_eq!(show("a\n", 2..2), "  |\n2 |\n  | ^");
        assert_eq!(show("a", 7..9), "  |\n1 | a\n  |  ^");
    }

    #[test]
    fn what_goes_on_in_the_next_line_is_cut() {
        assert_eq!(show("a = [\n1\n]", 4..9), "  |\n1 | a = [\n  |     ^");
    }

    #[test]
    fn a_long_line_is_shown_in_part() {
        let text = format!("{}{}", "x".repeat(1_000), "y".repeat(1_000));
        let excerpt = Lines::new(&text).excerpt(&(1_000..2_000));
        assert_eq!((excerpt.line, excerpt.column), (1, 1_001));
        let expected = format!("{}{}", "x".repeat(40), "y".repeat(60));
        let carets = format!("{}{}", " ".repeat(40), "^".repeat(60));
        assert_eq!(excerpt.to_string(), format!("  |\n1 | {expected}\n  | {carets}"));
    }

    #[test]
    fn places_in_one_line_are_found_in_any_order() {
        let text = format!("äöü\n{}", "ä".repeat(500));
        let lines = Lines::new(&text);
        let place = |at: usize| {
            let excerpt = lines.excerpt(&(at..at + 2));
            (excerpt.line, excerpt.column)
        };
        assert_eq!(place(7), (2, 1));
        assert_eq!(place(7 + 400), (2, 201));
        assert_eq!(place(7 + 800), (2, 401));
        assert_eq!(place(7 + 20), (2, 11));
        assert_eq!(place(2), (1, 2));
        assert_eq!(place(7 + 21), (2, 11), "within a character");
    }

    #[test]
    fn a_terminal_is_not_told_anything() {
        assert_eq!(show("\u{1b}[2J\u{202e}", 0..1), "  |\n1 | \u{fffd}[2J\u{fffd}\n  | ^");
        assert_eq!(harmless_text("a\u{7}b", 9), "a\u{fffd}b");
        assert_eq!(harmless_text("abcd", 3), "abc…");
        assert_eq!(harmless_text("abc", 3), "abc");
    }
}
