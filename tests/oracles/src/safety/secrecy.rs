//! S11: bytes of secrets, user data and tokens stand nowhere but in secrets.

use serde_json::Value;

use crate::event::{Act, By, Event};
use crate::oracle::Oracle;
use crate::truth::Truth;

pub(crate) struct Secrecy {
    canaries: Vec<String>,
    hits: u64,
}

impl Secrecy {
    pub(crate) fn new(canaries: Vec<String>) -> Self {
        Self { canaries, hits: 0 }
    }

    fn judge(&mut self, place: &str, stands_in: impl Fn(&str) -> bool) -> Result<(), String> {
        self.hits += 1;
        match self.canaries.iter().position(|canary| stands_in(canary)) {
            // Not the text: the report of a leak must not be one.
            Some(index) => Err(format!("secret number {index} stands in {place}")),
            None => Ok(()),
        }
    }
}

/// Whether one of the texts or names that came holds it. What stood there before is not this write's doing.
fn came(before: &Value, after: &Value, canary: &str) -> bool {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return before != after && holds(after, canary);
    };
    new.iter().any(|(name, field)| match old.get(name) {
        Some(was) => came(was, field, canary),
        None => name.contains(canary) || holds(field, canary),
    })
}

/// Whether one of the texts or names within holds it.
fn holds(value: &Value, canary: &str) -> bool {
    match value {
        Value::String(text) => text.contains(canary),
        Value::Array(items) => items.iter().any(|item| holds(item, canary)),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, field)| name.contains(canary) || holds(field, canary)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Oracle for Secrecy {
    fn id(&self) -> &'static str {
        "S11"
    }

    fn see(&mut self, event: &Event, _: &dyn Truth) -> Result<(), String> {
        if self.canaries.is_empty() {
            return Ok(());
        }
        match &event.act {
            Act::Said {
                by: By::Manager(_),
                place,
                text,
            } => self.judge(place, |canary| text.contains(canary)),
            Act::Write(write) if matches!(write.by, By::Manager(_)) && write.resource != "secrets" => {
                let before = write.before.as_deref().unwrap_or(&Value::Null);
                match &write.after {
                    Some(after) => self.judge(&write.resource, |canary| came(before, after, canary)),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn hits(&self) -> u64 {
        self.hits
    }
}
