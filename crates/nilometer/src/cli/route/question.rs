//! What `nilometer route ctl` asks of a router's API, and how it is made of words.

use anyhow::{Result, bail, ensure};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::shown;

/// A question, and how its answer is shown to people.
#[derive(Debug)]
pub struct Question {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
    pub(super) show: fn(&Value) -> String,
}

impl Question {
    pub(super) fn get(path: impl Into<String>, show: fn(&Value) -> String) -> Question {
        Question { method: Method::GET, path: path.into(), body: None, show }
    }

    pub(super) fn change(method: Method, path: impl Into<String>, body: Option<Value>) -> Question {
        Question { method, path: path.into(), body, show: shown::done }
    }
}

/// Those that are given, as an object.
pub(super) fn given<const N: usize>(keys: [(&str, &Option<String>); N]) -> Value {
    let some = keys.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
    some.map(|(key, value)| (key.to_owned(), json!(value))).collect::<Map<_, _>>().into()
}

/// `KEY=VALUE` as an object; a value is a number or true or false where it looks like one, but for
/// keys that are texts.
pub(super) fn object(keys: &[String], texts: &[&str]) -> Result<Value> {
    let mut object = Map::new();
    for pair in keys {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("`{pair}` is not of the form KEY=VALUE");
        };
        let value = match texts.contains(&key) {
            true => json!(value),
            false => plain_or_text(value),
        };
        let twice = object.insert(key.to_owned(), value);
        ensure!(twice.is_none(), "`{key}` is given twice");
    }
    Ok(object.into())
}

/// A number or true or false where a text looks like one.
pub(super) fn plain_or_text(text: &str) -> Value {
    let read = serde_json::from_str(text).ok();
    let plain = read.filter(|it: &Value| it.is_number() || it.is_boolean());
    plain.unwrap_or_else(|| json!(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_an_object() {
        let keys = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let red = object(&keys(&["discipline=red", "buffer_packets=50", "ecn=true"]), &[]);
        let expected = json!({"discipline": "red", "buffer_packets": 50, "ecn": true});
        assert_eq!(red.expect("an object"), expected);
        let filter = object(&keys(&["protocol=6", "priority=6"]), &["protocol"]);
        assert_eq!(filter.expect("an object"), json!({"protocol": "6", "priority": 6}));
        assert!(object(&keys(&["red"]), &[]).is_err());
        assert!(
            object(&keys(&["a=1", "a=2"]), &[]).expect_err("twice").to_string().contains("`a`")
        );
    }
}
