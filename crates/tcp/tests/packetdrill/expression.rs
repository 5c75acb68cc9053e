//! The Python that scripts write between `%{` and `}%`: assertions over `tcp_info`, and variables.
//!
//! Statements end with a line or a semicolon: `assert`, assignment (`=`, `+=`), `print`. Values are
//! whole numbers. What an assertion would print is not evaluated.

use std::collections::BTreeMap;

/// Why code did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An assertion with its values.
    False(String),
    /// A name that nothing gives a value to.
    Unknown(String),
    /// Python that is not understood.
    Syntax(String),
}

/// Where the names in an expression get their values.
pub struct Scope<'a> {
    pub variables: &'a mut BTreeMap<String, i64>,
    pub lookup: &'a dyn Fn(&str) -> Option<i64>,
}

/// Runs the statements of one piece of code.
pub fn run(code: &str, scope: &mut Scope<'_>) -> Result<(), Refusal> {
    let joined = code.replace("\\\n", " ");
    for line in joined.lines() {
        let line = line.split('#').next().unwrap_or("");
        for statement in line.split(';').map(str::trim).filter(|text| !text.is_empty()) {
            run_statement(statement, scope)?;
        }
    }
    Ok(())
}

fn run_statement(statement: &str, scope: &mut Scope<'_>) -> Result<(), Refusal> {
    if statement.starts_with("print(") {
        return Ok(());
    }
    if let Some(rest) = statement.strip_prefix("assert ") {
        let mut reader = Reader::new(rest)?;
        if reader.either(scope)? != 0 {
            return Ok(());
        }
        let condition = reader.read_so_far();
        return Err(Refusal::False(format!("{condition}{}", seen(&condition, scope))));
    }
    let syntax = || Refusal::Syntax(statement.to_string());
    let (name, expression) = statement.split_once('=').ok_or_else(syntax)?;
    let (name, adds) = match name.trim().strip_suffix('+') {
        Some(name) => (name.trim(), true),
        None => (name.trim(), false),
    };
    let mut value = Reader::new(expression)?.either(scope)?;
    if adds {
        value += scope.variables.get(name).copied().ok_or_else(syntax)?;
    }
    scope.variables.insert(name.to_string(), value);
    Ok(())
}

/// The values of the names in a condition, for a message.
fn seen(condition: &str, scope: &Scope<'_>) -> String {
    let mut parts = Vec::new();
    for name in condition.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')) {
        let is_name = name.starts_with(|letter: char| letter.is_ascii_lowercase());
        let value = scope.variables.get(name).copied().or_else(|| (scope.lookup)(name));
        if let (true, Some(value)) = (is_name, value) {
            let part = format!("{name} is {value}");
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// A list of tokens and a place in it.
struct Reader {
    tokens: Vec<String>,
    at: usize,
}

const OPERATORS: [&str; 17] =
    ["==", "!=", "<=", ">=", "<<", ">>", "<", ">", "+", "-", "*", "/", "%", "&", "(", ")", ","];

impl Reader {
    /// Splits a condition; what follows the first comma outside of brackets is left out.
    fn new(text: &str) -> Result<Reader, Refusal> {
        let mut tokens = Vec::new();
        let mut rest = text.trim();
        let mut depth = 0;
        while let Some(first) = rest.chars().next() {
            let length = match OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
                Some(operator) => operator.len(),
                None => {
                    let belongs = |letter: char| letter.is_alphanumeric() || letter == '_';
                    rest.find(|letter| !belongs(letter)).unwrap_or(rest.len())
                }
            };
            if length == 0 {
                return Err(Refusal::Syntax(text.to_string()));
            }
            depth += i32::from(first == '(') - i32::from(first == ')');
            if first == ',' && depth == 0 {
                break;
            }
            tokens.push(rest[..length].to_string());
            rest = rest[length..].trim_start();
        }
        Ok(Reader { tokens, at: 0 })
    }

    fn read_so_far(&self) -> String {
        self.tokens[..self.at].join(" ")
    }

    fn eat(&mut self, words: &[&str]) -> Option<String> {
        let token = self.tokens.get(self.at)?;
        let found = words.contains(&token.as_str()).then(|| token.clone());
        self.at += usize::from(found.is_some());
        found
    }

    /// `a or b`.
    fn either(&mut self, scope: &Scope<'_>) -> Result<i64, Refusal> {
        let mut value = self.both(scope)?;
        while self.eat(&["or"]).is_some() {
            let right = self.both(scope)?;
            value = i64::from(value != 0 || right != 0);
        }
        Ok(value)
    }

    /// `a and b`.
    fn both(&mut self, scope: &Scope<'_>) -> Result<i64, Refusal> {
        let mut value = self.comparison(scope)?;
        while self.eat(&["and"]).is_some() {
            let right = self.comparison(scope)?;
            value = i64::from(value != 0 && right != 0);
        }
        Ok(value)
    }

    /// `a < b <= c`: a chain holds if every link holds.
    fn comparison(&mut self, scope: &Scope<'_>) -> Result<i64, Refusal> {
        let mut left = self.sum(scope)?;
        let mut holds = None;
        while let Some(operator) = self.eat(&["==", "!=", "<=", ">=", "<", ">"]) {
            let right = self.sum(scope)?;
            let link = match operator.as_str() {
                "==" => left == right,
                "!=" => left != right,
                "<=" => left <= right,
                ">=" => left >= right,
                "<" => left < right,
                _ => left > right,
            };
            holds = Some(holds.unwrap_or(true) && link);
            left = right;
        }
        Ok(holds.map_or(left, i64::from))
    }

    fn sum(&mut self, scope: &Scope<'_>) -> Result<i64, Refusal> {
        let mut value = self.product(scope)?;
        while let Some(operator) = self.eat(&["+", "-", "&", "<<", ">>"]) {
            let right = self.product(scope)?;
            value = match operator.as_str() {
                "+" => value.wrapping_add(right),
                "-" => value.wrapping_sub(right),
                "&" => value & right,
                "<<" => value.wrapping_shl(right as u32),
                _ => value.wrapping_shr(right as u32),
            };
        }
        Ok(value)
    }

    fn product(&mut self, scope: &Scope<'_>) -> Result<i64, Refusal> {
        let mut value = self.atom(scope)?;
        while let Some(operator) = self.eat(&["*", "/", "%"]) {
            let right = self.atom(scope)?;
            let divided = match operator.as_str() {
                "*" => Some(value.wrapping_mul(right)),
                "/" => value.checked_div_euclid(right),
                _ => value.checked_rem_euclid(right),
            };
            value = divided.ok_or_else(|| Refusal::Syntax("division by zero".to_string()))?;
        }
        Ok(value)
    }

    fn atom(&mut self, scope: &Scope<'_>) -> Result<i64, Refusal> {
        if self.eat(&["("]).is_some() {
            let value = self.either(scope)?;
            self.eat(&[")"]).ok_or_else(|| Refusal::Syntax(self.tokens.join(" ")))?;
            return Ok(value);
        }
        if self.eat(&["-"]).is_some() {
            return Ok(-self.atom(scope)?);
        }
        if self.eat(&["not"]).is_some() {
            return Ok(i64::from(self.atom(scope)? == 0));
        }
        let Some(token) = self.tokens.get(self.at).cloned() else {
            return Err(Refusal::Syntax(self.tokens.join(" ")));
        };
        self.at += 1;
        if token.starts_with(|letter: char| letter.is_ascii_digit()) {
            let number = match token.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(digits, 16),
                None => token.parse(),
            };
            return number.map_err(|_| Refusal::Syntax(token));
        }
        let value = scope.variables.get(&token).copied().or_else(|| (scope.lookup)(&token));
        value.ok_or(Refusal::Unknown(token))
    }
}
