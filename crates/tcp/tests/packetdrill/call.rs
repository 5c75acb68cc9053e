//! System calls of a script: name, arguments as written, what they return and when they end.

use super::lexer::{Cursor, Fault};

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `...`: the runner's own choice.
    Any,
    Number(i64),
    /// A name, or several joined by `|`.
    Names(Vec<String>),
    Text(String),
    /// `[...]`.
    List(Vec<Value>),
    /// `{name=value, ...}`; where a member has no name it is empty.
    Record(Vec<(String, Value)>),
}

impl Value {
    /// The number that stands here, alone or alone in brackets.
    pub fn number(&self) -> Option<i64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::List(values) if values.len() == 1 => values[0].number(),
            _ => None,
        }
    }

    /// Whether `name` is among the names, here or inside.
    pub fn mentions(&self, name: &str) -> bool {
        match self {
            Value::Names(names) => names.iter().any(|other| other == name),
            Value::List(values) => values.iter().any(|value| value.mentions(name)),
            Value::Record(members) => {
                members.iter().any(|(key, value)| key == name || value.mentions(name))
            }
            Value::Any | Value::Number(_) | Value::Text(_) => false,
        }
    }
}

/// A system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    pub arguments: Vec<Value>,
    /// What it must return, if the script says so.
    pub returns: Option<i64>,
    /// The error that it must end with.
    pub error: Option<String>,
    /// For a call that blocks: when it ends, in nanoseconds on the script's own scale.
    pub ends: Option<i64>,
}

impl Call {
    /// Whether any argument mentions `name`.
    pub fn mentions(&self, name: &str) -> bool {
        self.arguments.iter().any(|argument| argument.mentions(name))
    }

    /// Argument `index` as a number.
    pub fn number(&self, index: usize) -> Option<i64> {
        self.arguments.get(index)?.number()
    }

    /// The bytes of the buffers of `sendmsg` or `recvmsg`: the numbers of `{..., bytes}` pairs.
    pub fn vector_bytes(&self) -> i64 {
        let Some(Value::Record(members)) = self.arguments.get(1) else { return 0 };
        let vectors = members.iter().find(|(key, _)| key == "msg_iov").map(|(_, value)| value);
        let Some(Value::List(vectors)) = vectors else { return 0 };
        let bytes = |vector: &Value| match vector {
            Value::Record(parts) => parts.get(1).and_then(|(_, value)| value.number()).unwrap_or(0),
            _ => 0,
        };
        vectors.iter().map(bytes).sum()
    }
}

/// Reads a call; the cursor is at its name.
pub fn parse(cursor: &mut Cursor<'_>, ends: Option<i64>) -> Result<Call, Fault> {
    let name = cursor.name().ok_or_else(|| cursor.fault("expected a system call"))?.to_string();
    cursor.expect("(")?;
    let mut arguments = Vec::new();
    while !cursor.eat(")") {
        arguments.push(parse_value(cursor)?);
        cursor.eat(",");
    }
    cursor.expect("=")?;
    let returns = if cursor.eat("...") { None } else { Some(cursor.count("what it returns")?) };
    let at = cursor.line();
    let mut ahead = cursor.clone();
    let error = ahead.name().filter(|word| word.starts_with('E')).map(str::to_string);
    let error = error.filter(|_| ahead.line() == at);
    if error.is_some() {
        *cursor = ahead;
    }
    let mut ahead = cursor.clone();
    if ahead.eat("(") && ahead.line() == at {
        ahead.until(")")?;
        *cursor = ahead;
    }
    Ok(Call { name, arguments, returns, error, ends })
}

fn parse_value(cursor: &mut Cursor<'_>) -> Result<Value, Fault> {
    if cursor.eat("...") {
        return Ok(Value::Any);
    }
    if cursor.eat("\"") {
        return Ok(Value::Text(cursor.until("\"")?.to_string()));
    }
    if cursor.eat("[") {
        let mut values = Vec::new();
        while !cursor.eat("]") {
            values.push(parse_value(cursor)?);
            cursor.eat(",");
        }
        return Ok(Value::List(values));
    }
    if cursor.eat("{") {
        return parse_record(cursor);
    }
    if let Some(number) = cursor.number() {
        return Ok(Value::Number(number));
    }
    let mut names = Vec::new();
    loop {
        let Some(name) = cursor.name() else {
            return Err(cursor.fault("an argument that cannot be read"));
        };
        names.push(name.to_string());
        // A macro's arguments, as in `htons(80)`.
        if cursor.eat("(") {
            cursor.until(")")?;
        }
        if !cursor.eat("|") {
            return Ok(Value::Names(names));
        }
    }
}

/// The members of a record; `name(...)=value` counts as `name=value`.
fn parse_record(cursor: &mut Cursor<'_>) -> Result<Value, Fault> {
    let mut members = Vec::new();
    while !cursor.eat("}") {
        let mut ahead = cursor.clone();
        let key = ahead.name().map(str::to_string);
        if key.is_some() && ahead.eat("(") {
            ahead.until(")")?;
        }
        let key = key.filter(|_| ahead.eat("="));
        if key.is_some() {
            *cursor = ahead;
        }
        members.push((key.unwrap_or_default(), parse_value(cursor)?));
        cursor.eat(",");
    }
    Ok(Value::Record(members))
}
