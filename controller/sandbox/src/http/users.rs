//! Who may ask: bearer tokens and the names behind them.
//!
//! Decides whether a token is known. What its user may do is not asked here.

use std::collections::BTreeMap;

/// Tokens and their users. Not shown by `Debug`, because a log must not hold tokens.
#[derive(Clone, Default)]
pub struct Users {
    by_token: BTreeMap<String, String>,
    unnamed: Option<String>,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users")
            .field("names", &self.by_token.values().collect::<Vec<_>>())
            .field("unnamed", &self.unnamed)
            .finish()
    }
}

/// Whom a request's `Authorization` header shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Caller<'a> {
    Known(&'a str),
    /// No token was shown.
    Nobody,
    /// A token that nobody has.
    Wrong,
}

impl Users {
    /// Adds a user who shows this token.
    #[must_use]
    pub fn with(mut self, user: &str, token: &str) -> Self {
        self.by_token.insert(token.to_owned(), user.to_owned());
        self
    }

    /// Takes whoever shows no token for this user. kubectl needs it: to a server without TLS it sends no token, whatever its
    /// kubeconfig says. Every process of this host is that user then.
    #[must_use]
    pub fn with_unnamed(mut self, user: &str) -> Self {
        self.unnamed = Some(user.to_owned());
        self
    }

    /// Whom a caller without a token is taken for.
    pub(super) fn unnamed(&self) -> Option<&str> {
        self.unnamed.as_deref()
    }

    pub(super) fn token(&self, user: &str) -> Option<&str> {
        let mut all = self.by_token.iter();
        all.find(|(_, name)| *name == user).map(|(token, _)| token.as_str())
    }

    /// Reads `Bearer TOKEN`; other schemes count as nothing shown, as on the server.
    pub(super) fn caller(&self, authorization: Option<&str>) -> Caller<'_> {
        let shown = authorization.and_then(|header| header.trim().split_once(' '));
        let Some((_, token)) = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) else {
            return Caller::Nobody;
        };
        match self.by_token.get(token.trim()) {
            Some(user) => Caller::Known(user),
            None => Caller::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_for_its_user_and_no_other() {
        let users = Users::default().with("admin", "a").with("viewer", "v");
        assert_eq!(users.caller(Some("Bearer v")), Caller::Known("viewer"));
        assert_eq!(users.caller(Some("bearer  a")), Caller::Known("admin"));
        assert_eq!(users.caller(Some("Bearer x")), Caller::Wrong);
        assert_eq!(users.caller(Some("Basic a")), Caller::Nobody);
        assert_eq!(users.caller(None), Caller::Nobody);
    }

    #[test]
    fn tokens_are_not_shown() {
        let users = Users::default().with("admin", "very-secret");
        assert_eq!(format!("{users:?}"), "Users { names: [\"admin\"], unnamed: None }");
    }
}
