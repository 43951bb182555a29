//! Where in an object something was found, spelled as the server spells it. Decides nothing about the object.
//!
//! A place is a chain of borrowed steps, so that walking an object costs no text until something is wrong.

use std::fmt;

/// One step of the way down from the root.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// What the walk began at. The server's sentences leave this name out, its field paths do not.
    Base(&'a str),
    Field(&'a str),
    Index(usize),
    /// A key of a map, as rules spell it; schemas spell it as a field.
    Key(&'a str),
}

/// A place in an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    above: Option<&'a Place<'a>>,
    step: Step<'a>,
}

impl<'a> Place<'a> {
    /// The whole object.
    pub(crate) fn root() -> Self {
        Self::under("")
    }

    /// A part of the object that is judged by itself, such as `status`.
    pub(crate) fn under(name: &'a str) -> Self {
        Self {
            above: None,
            step: Step::Base(name),
        }
    }

    pub(crate) fn field(&'a self, name: &'a str) -> Place<'a> {
        Place {
            above: Some(self),
            step: Step::Field(name),
        }
    }

    pub(crate) fn index(&'a self, index: usize) -> Place<'a> {
        Place {
            above: Some(self),
            step: Step::Index(index),
        }
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Place<'a> {
        Place {
            above: Some(self),
            step: Step::Key(key),
        }
    }

    /// The path from the root of the object, as causes carry it; the root itself is `<nil>` there.
    pub(crate) fn path(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, true);
        if text.is_empty() { "<nil>".to_owned() } else { text }
    }

    /// The path from where the walk began, as sentences ("… in body should be …") name it.
    pub(crate) fn in_body(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, false);
        text
    }

    /// The path of what the walk began at: errors that the server does not place are put there.
    pub(crate) fn base_path(&self) -> String {
        self.above.map_or_else(|| self.path(), Place::base_path)
    }

    fn write(&self, text: &mut String, whole: bool) {
        if let Some(above) = self.above {
            above.write(text, whole);
        }
        match self.step {
            Step::Base(name) => text.push_str(if whole { name } else { "" }),
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
            Step::Key(key) => text.push_str(&format!("[{key}]")),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.path())
    }
}
