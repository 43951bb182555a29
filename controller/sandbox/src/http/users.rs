//! Who may ask: bearer tokens and the users behind them.
//!
//! Decides whether a token is known. What its user may do is for the roles to say.

use std::collections::BTreeMap;

use crate::rbac::User;

/// Tokens and their users. Not shown by `Debug`, because a log must not hold tokens.
#[derive(Clone, Default)]
pub struct Users {
    by_token: BTreeMap<String, User>,
    unnamed: Option<User>,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users")
            .field(
                "names",
                &self.by_token.values().map(|user| &user.name).collect::<Vec<_>>(),
            )
            .field("unnamed", &self.unnamed.as_ref().map(|user| &user.name))
            .finish()
    }
}

/// Whom a request's `Authorization` header shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Caller<'a> {
    Known(&'a User),
    /// No token was shown.
    Nobody,
    /// A token that nobody has.
    Wrong,
}

impl Users {
    /// Adds an administrator who shows this token.
    #[must_use]
    pub fn with(self, user: &str, token: &str) -> Self {
        self.with_user(User::administrator(user), token)
    }

    /// Adds a user who shows this token and may do what roles let him.
    #[must_use]
    pub fn with_user(mut self, user: User, token: &str) -> Self {
        self.by_token.insert(token.to_owned(), user);
        self
    }

    /// Takes whoever shows no token for this user. kubectl needs it: to a server without TLS it sends no token, whatever its
    /// kubeconfig says. Every process of this host is that user then: an administrator, if he is not among those with a token.
    #[must_use]
    pub fn with_unnamed(mut self, user: &str) -> Self {
        self.unnamed = Some(User::administrator(user));
        self
    }

    /// Whom a caller without a token is taken for.
    pub(super) fn unnamed(&self) -> Option<&User> {
        let wanted = self.unnamed.as_ref()?;
        let known = self.by_token.values().find(|user| user.name == wanted.name);
        Some(known.unwrap_or(wanted))
    }

    pub(super) fn token(&self, user: &str) -> Option<&str> {
        let mut all = self.by_token.iter();
        all.find(|(_, known)| known.name == user)
            .map(|(token, _)| token.as_str())
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
        let viewer = User::new("viewer");
        let users = Users::default().with("admin", "a").with_user(viewer.clone(), "v");
        assert_eq!(users.caller(Some("Bearer v")), Caller::Known(&viewer));
        assert_eq!(
            users.caller(Some("bearer  a")),
            Caller::Known(&User::administrator("admin"))
        );
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
