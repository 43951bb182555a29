//! What becomes of fields that a writer did not mean: `fieldValidation`.
//!
//! Decides what is thrown away of a body or of a patched object, and who hears of it in which words. Which fields that are is found in
//! `strange`, `yaml` and the schemas.

use serde_json::Value;

use crate::failure::Failure;
use crate::kinds::Kind;
use crate::schema;
use crate::state::Api;
use crate::strange;
use crate::write::Validation;

/// What reading a text has told of fields that are named twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Twice {
    No,
    /// Which they are is found by another look, as there are hardly ever any.
    InJson,
    /// Each in a sentence.
    InYaml(Vec<String>),
}

/// The strange fields of one write, in the words for them.
#[derive(Debug, Default)]
pub(crate) struct Strange {
    /// What the reader of YAML says, in lines of its own.
    in_yaml: Vec<String>,
    fields: Vec<String>,
}

impl Strange {
    /// Those of a body. What nobody knows is taken out of it.
    pub(crate) fn of_body(kind: &Kind, text: &[u8], object: &mut Value, twice: Twice) -> Self {
        let unknown = prune(kind, object);
        let (in_yaml, fields) = match (twice, own_topology(kind)) {
            (Twice::InYaml(lines), _) => (lines, unknown),
            (Twice::No, _) if unknown.is_empty() => return Self::default(),
            (_, Some(topology)) => {
                // The server's own kinds are told as they are read, which they may be although no good letters are in them.
                let told = strange::twice_or_unknown(text, topology.root());
                (Vec::new(), if told.is_empty() { unknown } else { told })
            }
            (Twice::InJson, None) => (Vec::new(), [strange::twice(text), unknown].concat()),
            (Twice::No, None) => (Vec::new(), unknown),
        };
        Self { in_yaml, fields }
    }

    /// Those of a patched object and of the patch itself. What nobody knows is taken out of the object.
    pub(crate) fn of_patched(kind: &Kind, in_patch: Vec<String>, object: &mut Value) -> Self {
        let mut fields = in_patch;
        fields.extend(prune(kind, object));
        Self {
            in_yaml: Vec::new(),
            fields,
        }
    }

    /// Refuses, warns or keeps silent.
    pub(crate) fn judge(
        self,
        api: &mut Api,
        validation: Validation,
        refusal: impl FnOnce(String) -> Failure,
    ) -> Result<(), Failure> {
        if self.in_yaml.is_empty() && self.fields.is_empty() {
            return Ok(());
        }
        match validation {
            Validation::Ignore => {}
            Validation::Warn => {
                api.warn(self.in_yaml);
                api.warn(self.fields);
            }
            Validation::Strict => return Err(refusal(format!("strict decoding error: {}", self.told()))),
        }
        Ok(())
    }

    /// All in one line, but for that of YAML.
    fn told(&self) -> String {
        let yaml = (!self.in_yaml.is_empty()).then(|| unmarshalled(&self.in_yaml));
        let all: Vec<String> = yaml.into_iter().chain(self.fields.iter().cloned()).collect();
        all.join(", ")
    }
}

/// What the reader of YAML says of keys that are there twice, as an error.
pub(crate) fn unmarshalled(lines: &[String]) -> String {
    format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))
}

fn own_topology(kind: &Kind) -> Option<&crate::topology::Topology> {
    kind.topology.as_deref().filter(|_| !kind.custom)
}

/// Takes out what nobody knows, and tells it.
fn prune(kind: &Kind, object: &mut Value) -> Vec<String> {
    if let Some(topology) = own_topology(kind) {
        return strange::prune(topology.root(), object);
    }
    let Some(known) = kind.schema.as_deref() else {
        return Vec::new();
    };
    let unknown = schema::prune(known, object);
    unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect()
}
