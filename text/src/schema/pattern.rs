//! Translates the patterns of JSON schemas, from the syntax of ECMA-262 to that of Rust's regex, which llguidance reads.
//! A construct that has the same spelling but another meaning in Rust's syntax is written out. The file also has patterns
//! for the formats that llguidance's own patterns match wrongly.

use crate::base::error::{invalid, Result};
use std::iter::Peekable;
use std::str::Chars;

/// WhiteSpace and LineTerminator of ECMA-262, for use inside a class. Rust's \s has U+0085 and lacks U+FEFF.
const SPACE: &str =
    r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";
/// Dot of ECMA-262 without its flag s.
const DOT: &str = r"[^\n\r\u{2028}\u{2029}]";

/// Undoes the translation of dots and white space, to show a pattern to a client.
pub fn with_dots(pattern: &str) -> String {
    pattern.replace(DOT, ".").replace(&format!("[{SPACE}]"), r"\s")
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
}

/// Translates a pattern. llguidance reports constructs that neither syntax allows.
pub fn of_ecma(pattern: &str) -> Result<String> {
    let mut r = Reader { rest: pattern.chars().peekable(), out: String::with_capacity(pattern.len() + 16) };
    while let Some(c) = r.rest.next() {
        match c {
            '\\' => r.escape(false),
            '.' => r.out.push_str(DOT),
            '[' => r.class().ok_or_else(|| {
                let short: String = pattern.chars().take(80).collect();
                invalid(format!("the pattern {short} has a character class that is empty or has no end"))
            })?,
            '{' if !r.is_count() => r.out.push_str(r"\{"),
            c => r.out.push(c),
        }
    }
    Ok(r.out)
}

impl Reader<'_> {
    /// Returns true when the brace that was just read begins a repetition count: digits, optionally a comma and digits,
    /// then a brace.
    fn is_count(&self) -> bool {
        let inner: String = self.rest.clone().take_while(|c| *c != '}').take(24).collect();
        let (least, most) = inner.split_once(',').unwrap_or((&inner, ""));
        let are_digits = |s: &str| s.chars().all(|c| c.is_ascii_digit());
        !least.is_empty() && are_digits(least) && are_digits(most)
    }

    fn escape(&mut self, in_class: bool) {
        let Some(c) = self.rest.next() else {
            self.out.push('\\');
            return;
        };
        match c {
            's' if in_class => self.out.push_str(SPACE),
            's' => self.out.push_str(&format!("[{SPACE}]")),
            'S' => self.out.push_str(&format!("[^{SPACE}]")),
            'b' if in_class => self.out.push_str(r"\x08"),
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => self.out.push_str(r"\x00"),
            'c' if self.rest.peek().is_some_and(char::is_ascii_alphabetic) => {
                let letter = self.rest.next().unwrap_or('@') as u32;
                self.out.push_str(&format!(r"\x{:02X}", letter % 32));
            }
            'u' if self.rest.peek() != Some(&'{') => self.unicode(),
            c => {
                self.out.extend(['\\', c]);
                if "pPuUx".contains(c) && self.rest.peek() == Some(&'{') {
                    self.braces();
                }
            }
        }
    }

    /// Copies the braces of an escape such as \p{Letter}.
    fn braces(&mut self) {
        for c in self.rest.by_ref() {
            self.out.push(c);
            if c == '}' {
                break;
            }
        }
    }

    /// Joins the two \u escapes of a UTF-16 surrogate pair. Any other \u stays unchanged.
    fn unicode(&mut self) {
        let ahead: Vec<char> = self.rest.clone().take(10).collect();
        let half = |from: usize| -> Option<u32> {
            u32::from_str_radix(&ahead.get(from..from + 4)?.iter().collect::<String>(), 16).ok()
        };
        let is_pair = ahead.get(4..6) == Some(&['\\', 'u']);
        match (half(0), if is_pair { half(6) } else { None }) {
            (Some(high @ 0xD800..=0xDBFF), Some(low @ 0xDC00..=0xDFFF)) => {
                let c = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                self.out.push_str(&format!(r"\u{{{c:X}}}"));
                self.rest.by_ref().take(10).for_each(drop);
            }
            _ => self.out.push_str(r"\u"),
        }
    }

    /// Escapes brackets, ampersands and tildes in a class, where they are plain characters in ECMA-262. Returns None when
    /// the class is empty or has no end.
    fn class(&mut self) -> Option<()> {
        let is_not = self.rest.next_if_eq(&'^').is_some();
        if self.rest.next_if_eq(&']').is_some() {
            self.out.push_str(r"(?s:.)");
            return is_not.then_some(());
        }
        self.out.push_str(if is_not { "[^" } else { "[" });
        let (mut is_first, mut is_range) = (true, false);
        loop {
            let c = self.rest.next()?;
            let was_range = std::mem::take(&mut is_range);
            match c {
                ']' => break,
                '\\' => self.escape(true),
                '-' if is_first || was_range || self.rest.peek() == Some(&']') => self.out.push_str(r"\-"),
                '-' => {
                    self.out.push('-');
                    is_range = true;
                }
                '[' | '&' | '~' => self.out.extend(['\\', c]),
                c => self.out.push(c),
            }
            is_first = false;
        }
        self.out.push(']');
        Some(())
    }
}

/// Returns the pattern of a whole text in this format. Returns None when llguidance's own pattern is right, or when
/// llguidance does not have the format.
pub fn of_format(name: &str) -> Option<String> {
    let leap = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
    let date = format!(
        "(?:[0-9]{{4}}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|\
         02-(?:0[1-9]|1[0-9]|2[0-8]))|{leap}-02-29)"
    );
    // a leap second is the last second of a day in UTC, so only that time is accepted
    let hour = "(?:[01][0-9]|2[0-3]):[0-5][0-9]";
    let time = format!(
        "(?:{hour}:[0-5][0-9](?:\\.[0-9]+)?(?:[zZ]|[+-]{hour})|23:59:60(?:\\.[0-9]+)?(?:[zZ]|[+-]00:00))"
    );
    let pattern = match name {
        "date" => date,
        "time" => time,
        "date-time" => format!("{date}[tT]{time}"),
        "ipv6" => ipv6(),
        _ => return None,
    };
    Some(format!("^(?:{pattern})$"))
}

/// Returns the pattern of RFC 3986's IPv6address.
fn ipv6() -> String {
    let h = "[0-9a-fA-F]{1,4}";
    let octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    let last = format!("(?:{h}:{h}|{octet}(?:\\.{octet}){{3}})");
    let mut forms = vec![format!("(?:{h}:){{6}}{last}"), format!("::(?:{h}:){{5}}{last}")];
    for n in 0..5 {
        forms.push(format!("(?:(?:{h}:){{0,{n}}}{h})?::(?:{h}:){{{}}}{last}", 4 - n));
    }
    forms.push(format!("(?:(?:{h}:){{0,5}}{h})?::{h}"));
    forms.push(format!("(?:(?:{h}:){{0,6}}{h})?::"));
    forms.join("|")
}
