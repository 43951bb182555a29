//! Speaking as somebody else, as `kubectl --as` does.
//!
//! Decides who may, and whom one becomes.

use super::deed::{Deed, Thing};
use super::{User, allows};
use crate::api::Api;
use crate::failure::Failure;

/// As whom somebody wants to speak.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guise {
    /// Empty for nobody else.
    pub user: String,
    pub groups: Vec<String>,
}

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

impl Guise {
    fn account(&self) -> Option<(&str, &str)> {
        self.user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
    }

    /// Whom it makes of somebody who may wear it.
    fn worn(&self) -> User {
        match self.account() {
            Some((namespace, name)) if self.groups.is_empty() => User::service_account(namespace, name),
            Some(_) | None => User {
                name: self.user.clone(),
                groups: self.groups.clone(),
            },
        }
    }

    /// All that one must be allowed to impersonate.
    fn parts(&self) -> Vec<Thing> {
        let thing = |resource: &str, namespace: &str, name: &str| Thing {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Thing::default()
        };
        let user = match self.account() {
            Some((namespace, name)) => thing("serviceaccounts", namespace, name),
            None => thing("users", "", &self.user),
        };
        let groups = self.groups.iter().map(|group| thing("groups", "", group));
        std::iter::once(user).chain(groups).collect()
    }
}

impl Api {
    /// Who acts when somebody does a deed in a guise.
    pub fn impersonated(&self, caller: User, guise: &Guise, deed: &Deed) -> Result<User, Failure> {
        if guise.user.is_empty() {
            if guise.groups.is_empty() {
                return Ok(caller);
            }
            let groups: Vec<String> = guise.groups.iter().map(|group| format!("{group:?}")).collect();
            return Err(Failure::Internal(format!(
                "requested &user.DefaultInfo{{Name:\"\", UID:\"\", Groups:[]string{{{}}}, Extra:map[string][]string(nil)}} without \
                 impersonating a user name",
                groups.join(", ")
            )));
        }
        let may = guise.parts().into_iter().all(|thing| {
            let deed = Deed::Resource {
                verb: "impersonate".to_owned(),
                thing,
            };
            allows(&self.store, &caller, &deed).allowed
        });
        if may {
            return Ok(guise.worn());
        }
        // The server looks last for the right to do this one thing in somebody's name, and words its refusal by that.
        let sort = guise.account().map_or("user-info", |_| "serviceaccount");
        let mut refused = deed.clone();
        let (Deed::Resource { verb, .. } | Deed::Path { verb, .. }) = &mut refused;
        *verb = format!("impersonate-on:{sort}:{verb}");
        self.may(&caller, &refused)?;
        Ok(guise.worn())
    }
}
