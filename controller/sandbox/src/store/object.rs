//! One object as it is stored: a tree that is quick to work on, or the text of it, which takes a tenth of the room.
//!
//! Decides how an object rests. What it says is the same in both forms, and what follows owners and deletions can be asked
//! without looking inside. An object never changes; a write makes another one.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::tree::{Text, Tree};
use crate::object;

/// A stored object. Clones share it.
#[derive(Debug, Clone)]
pub struct Object(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    facts: Facts,
    form: Mutex<Form>,
}

/// What is asked of many objects at once.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) uid: Box<str>,
    pub(crate) is_deleting: bool,
    /// Whether it waits for others to forget it.
    pub(crate) orphans: bool,
    /// Whether it waits for what it owns.
    pub(crate) awaits: bool,
    pub(crate) owners: Box<[Owner]>,
}

/// One owner of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: Box<str>,
    /// Whether an owner that is deleted in the foreground waits for this object.
    pub(crate) is_held: bool,
}

#[derive(Debug)]
enum Form {
    Warm(Tree),
    Cold(Text),
}

impl Object {
    pub(crate) fn new(tree: Tree) -> Self {
        Self(Arc::new(Inner {
            facts: Facts::of(&tree),
            form: Mutex::new(Form::Warm(tree)),
        }))
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.0.facts
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The object as a tree. A cold one is read anew each time.
    pub fn value(&self) -> Arc<Value> {
        self.tree().value()
    }

    pub(crate) fn tree(&self) -> Tree {
        self.look(|form| match form {
            Form::Warm(tree) => tree.clone(),
            Form::Cold(text) => text.read(),
        })
    }

    /// Writes the object as it is shown; a bare one says neither `apiVersion` nor `kind`.
    pub(crate) fn write(&self, to: &mut Vec<u8>, is_bare: bool) {
        self.look(|form| match form {
            Form::Cold(text) => text.write(to, is_bare),
            Form::Warm(tree) => tree.write(to, is_bare),
        });
    }

    /// Keeps the text alone.
    pub(crate) fn cool(&self) {
        let mut form = self.0.form.lock().unwrap_or_else(PoisonError::into_inner);
        if let Form::Warm(tree) = &*form {
            let text = tree.text().clone();
            *form = Form::Cold(text);
        }
    }

    fn look<T>(&self, act: impl FnOnce(&Form) -> T) -> T {
        // Nothing is half done inside: a form is replaced whole.
        act(&self.0.form.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Facts {
    fn of(value: &Value) -> Self {
        let finalizers = object::finalizers(value);
        Self {
            uid: object::uid(value).into(),
            is_deleting: object::is_deleting(value),
            orphans: finalizers.contains(&object::ORPHAN),
            awaits: finalizers.contains(&object::FOREGROUND),
            owners: object::owners(value).map(Owner::of).collect(),
        }
    }
}

impl Owner {
    fn of(said: &Value) -> Self {
        Self {
            uid: object::text(said, "/uid").into(),
            is_held: said.get("blockOwnerDeletion") == Some(&Value::Bool(true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(object: &Object, is_bare: bool) -> Value {
        let mut out = Vec::new();
        object.write(&mut out, is_bare);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn an_object_says_the_same_warm_and_cold() {
        let shown = json!({
            "apiVersion": "v1", "kind": "Node", "data": { "b": "\u{e4}\"" },
            "metadata": {
                "name": "n", "uid": "1", "finalizers": ["orphan"], "ownerReferences": [{ "uid": "2" }],
                "managedFields": [{ "manager": "a", "fieldsV1": { "f:data": { ".": {}, "f:b": {} } } }],
            },
        });
        let object = Object::new(shown.clone().into());
        let warm = object.value();
        let mut bare = shown.clone();
        bare.as_object_mut()
            .unwrap()
            .retain(|name, _| name != "kind" && name != "apiVersion");
        for _ in 0..2 {
            assert_eq!(object.value(), warm);
            assert_eq!(written(&object, false), shown);
            assert_eq!(written(&object, true), bare);
            object.cool();
        }
        assert!(object.facts().orphans && !object.facts().awaits);
    }

    #[test]
    fn an_object_that_says_nothing_else_can_be_bare() {
        for shown in [json!({ "kind": "Node" }), json!({})] {
            let object = Object::new(shown.clone().into());
            object.cool();
            assert_eq!(written(&object, false), shown);
            assert_eq!(written(&object, true), json!({}));
        }
    }
}
