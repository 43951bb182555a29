//! Which keys and values Kubernetes takes for labels, annotations, taints and resources. Decides nothing.
//!
//! The API server refuses a whole write for one bad key, so whoever writes what others have worded leaves out what it would refuse.

/// What is wrong with the key of a label, a taint or a resource: `name` or `domain/name`.
pub fn key_fault(key: &str) -> Option<&'static str> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    if domain.is_some_and(|domain| !is_domain(domain)) {
        return Some("what stands before the slash is no DNS name");
    }
    let fits = !name.is_empty() && is_word(name);
    (!fits)
        .then_some("the key must have 1 to 63 of the characters A-Z a-z 0-9 - _ . and a letter or digit at both ends")
}

/// What is wrong with the value of a label or a taint.
pub fn value_fault(value: &str) -> Option<&'static str> {
    (!is_word(value)).then_some(
        "the value must have at most 63 of the characters A-Z a-z 0-9 - _ . and a letter or digit at both ends",
    )
}

/// What is wrong with the key of an annotation: capitals count as small there.
pub fn annotation_fault(key: &str) -> Option<&'static str> {
    key_fault(&key.to_lowercase())
}

fn is_word(text: &str) -> bool {
    let ends = |end: Option<char>| end.is_none_or(|end| end.is_ascii_alphanumeric());
    let inner = |part: char| part.is_ascii_alphanumeric() || matches!(part, '-' | '_' | '.');
    text.len() <= 63 && text.chars().all(inner) && ends(text.chars().next()) && ends(text.chars().last())
}

fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let edge = |end: Option<char>| end.is_some_and(|end| end.is_ascii_lowercase() || end.is_ascii_digit());
        let inner = |part: char| part.is_ascii_lowercase() || part.is_ascii_digit() || part == '-';
        label.chars().all(inner) && edge(label.chars().next()) && edge(label.chars().last())
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_judged_as_the_api_server_does() {
        for good in ["a", "pool", "Node.x_1", "worker.gardener.cloud/pool", "a-b.c1/D"] {
            assert_eq!(key_fault(good), None, "{good}");
        }
        let long = "x".repeat(64);
        for bad in [
            "",
            "-a",
            "a-",
            "a b",
            "/a",
            "a/",
            "A.b/c",
            "a..b/c",
            "a/b/c",
            "-a/b",
            long.as_str(),
        ] {
            assert!(key_fault(bad).is_some(), "{bad}");
        }
        assert_eq!(annotation_fault("A.b/C"), None, "annotations may have capitals");
    }

    #[test]
    fn values_may_be_empty_and_are_short_words() {
        for good in ["", "a", "eu-1a", "1.2_3"] {
            assert_eq!(value_fault(good), None, "{good}");
        }
        for bad in ["no way", "-", "a/b", "ü", &"x".repeat(64)] {
            assert!(value_fault(bad).is_some(), "{bad}");
        }
    }
}
