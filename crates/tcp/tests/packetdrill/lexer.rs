//! A cursor over the text of a packetdrill script: numbers, names, times and comments.

use std::fmt;

/// What is wrong with a script, and on which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Counted from one.
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// A place in a script.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0, line: 1 }
    }

    /// The line of the next letter, from one.
    pub fn line(&self) -> usize {
        self.line
    }

    pub fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { line: self.line, what: what.into() }
    }

    /// What is left.
    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let taken = &self.text[self.at..self.at + bytes];
        self.line += taken.matches('\n').count();
        self.at += bytes;
        taken
    }

    /// Skips white space and comments (`//` to the end of the line, `/* */`).
    pub fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            let comment = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |at| at + 2)
            } else {
                0
            };
            if blank + comment == 0 {
                return;
            }
            self.advance(if blank > 0 { blank } else { comment });
        }
    }

    /// Whether nothing but space and comments is left.
    pub fn is_done(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    /// The next letter after space and comments.
    pub fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.rest().chars().next()
    }

    /// Takes `expected` if it comes next.
    pub fn eat(&mut self, expected: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(expected);
        if found {
            self.advance(expected.len());
        }
        found
    }

    /// Takes `expected` or says that it is missing.
    pub fn expect(&mut self, expected: &str) -> Result<(), Fault> {
        if self.eat(expected) {
            return Ok(());
        }
        let near: String = self.rest().chars().take(24).collect();
        Err(self.fault(format!("expected '{expected}' before '{}'", near.escape_default())))
    }

    /// Takes letters as long as `belongs`; the first must belong.
    pub fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> Option<&'a str> {
        self.skip_space();
        let rest = self.rest();
        let length = rest.find(|letter| !belongs(letter)).unwrap_or(rest.len());
        (length > 0).then(|| self.advance(length))
    }

    /// A name: letters, digits and underscores, not beginning with a digit.
    pub fn name(&mut self) -> Option<&'a str> {
        let first = self.peek()?;
        if !(first.is_ascii_alphabetic() || first == '_') {
            return None;
        }
        self.take_while(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    }

    /// Takes `word` if it comes next as a whole name.
    pub fn eat_name(&mut self, word: &str) -> bool {
        let mut ahead = self.clone();
        let found = ahead.name() == Some(word);
        if found {
            *self = ahead;
        }
        found
    }

    /// A whole number, decimal or `0x`, perhaps negative.
    pub fn number(&mut self) -> Option<i64> {
        let mut ahead = self.clone();
        let negative = ahead.eat("-");
        let (digits, radix) = if ahead.eat("0x") {
            (ahead.take_while(|letter| letter.is_ascii_hexdigit())?, 16)
        } else {
            ahead.peek()?.is_ascii_digit().then_some(())?;
            (ahead.take_while(|letter| letter.is_ascii_digit())?, 10)
        };
        let value = i64::from_str_radix(digits, radix).ok()?;
        *self = ahead;
        Some(if negative { -value } else { value })
    }

    /// A number that must fit `T`.
    pub fn count<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, Fault> {
        let fault = self.fault(format!("expected {what}"));
        let value = self.number().ok_or_else(|| fault.clone())?;
        T::try_from(value).map_err(|_| fault)
    }

    /// Seconds with a decimal point, as nanoseconds; `...` after the digits is left alone.
    pub fn seconds(&mut self) -> Option<i64> {
        self.skip_space();
        let rest = self.rest();
        let whole = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let after = &rest[whole..];
        let fraction = match after.strip_prefix('.') {
            Some(digits) => {
                digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len())
            }
            None => 0,
        };
        if whole + fraction == 0 {
            return None;
        }
        let mut nanos: i64 = rest[..whole].parse().unwrap_or(0) * 1_000_000_000;
        let mut unit = 100_000_000;
        for digit in after.bytes().skip(1).take(fraction) {
            nanos += i64::from(digit - b'0') * unit;
            unit /= 10;
        }
        self.advance(whole + if fraction > 0 { 1 + fraction } else { 0 });
        Some(nanos)
    }

    /// Everything before `end`, which is taken too.
    pub fn until(&mut self, end: &str) -> Result<&'a str, Fault> {
        let Some(length) = self.rest().find(end) else {
            return Err(self.fault(format!("no '{end}' after this")));
        };
        let taken = self.advance(length);
        self.advance(end.len());
        Ok(taken)
    }

    /// The rest of the line, without its comment.
    pub fn rest_of_line(&mut self) -> &'a str {
        let rest = self.rest();
        let length = rest.find('\n').unwrap_or(rest.len());
        let line = self.advance(length);
        line.split("//").next().unwrap_or(line).trim()
    }
}
