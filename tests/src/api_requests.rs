//! What the API server was asked, from its own counters: the same selection as `bench/measure.py`, without events. It may
//! not judge the numbers.

use std::collections::BTreeMap;
use std::fmt;

use kube::Client;

/// Requests since the server's start, or between two moments, by `resource[/subresource] VERB`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRequests(BTreeMap<String, u64>);

/// Resources beside our kinds that a machine controller asks for. Leases (election, heartbeats) and events are left out.
const OTHERS: [&str; 7] = [
    "nodes",
    "pods",
    "secrets",
    "persistentvolumeclaims",
    "persistentvolumes",
    "poddisruptionbudgets",
    "volumeattachments",
];

impl ApiRequests {
    /// Reads the counters of the server behind `client`.
    ///
    /// # Errors
    /// The server does not give its metrics.
    pub async fn count(client: &Client) -> kube::Result<Self> {
        let request = http::Request::get("/metrics")
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        Ok(Self::read(&client.request_text(request).await?))
    }

    fn read(metrics: &str) -> Self {
        let mut requests = BTreeMap::new();
        for line in metrics
            .lines()
            .filter_map(|line| line.strip_prefix("apiserver_request_total{"))
        {
            let Some((labels, value)) = line.rsplit_once("} ") else {
                continue;
            };
            let label = |name: &str| {
                labels
                    .split(',')
                    .find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""))
            };
            let label = |name: &str| label(name).map_or("", |value| value.trim_end_matches('"'));
            let (resource, verb) = (label("resource"), label("verb"));
            let counted = resource.contains("machine") || OTHERS.contains(&resource);
            // The simulated VM registers its node, as a kubelet does.
            if !counted || verb == "WATCH" || (resource, verb) == ("nodes", "POST") {
                continue;
            }
            let name = match label("subresource") {
                "" => format!("{resource} {verb}"),
                part => format!("{resource}/{part} {verb}"),
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count printed as a float"
            )]
            let value = value.trim().parse::<f64>().unwrap_or_default() as u64;
            *requests.entry(name).or_default() += value;
        }
        Self(requests)
    }

    /// What was asked after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let more = self
            .0
            .iter()
            .map(|(name, count)| (name.clone(), count - earlier.0.get(name).unwrap_or(&0)));
        Self(more.filter(|(_, count)| *count > 0).collect())
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Those that change something.
    #[must_use]
    pub fn writes(&self) -> u64 {
        let reads = |name: &str| name.ends_with(" GET") || name.ends_with(" LIST");
        self.0
            .iter()
            .filter(|(name, _)| !reads(name))
            .map(|(_, count)| count)
            .sum()
    }
}

impl fmt::Display for ApiRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, count)| writeln!(f, "{count:>6} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = r#"
apiserver_request_total{code="201",resource="machines",scope="resource",subresource="",verb="POST",version="v1alpha1"} 20
apiserver_request_total{code="409",resource="machines",scope="resource",subresource="",verb="POST",version="v1alpha1"} 1
apiserver_request_total{code="200",resource="machines",scope="resource",subresource="status",verb="PATCH"} 1.2e+03
apiserver_request_total{code="200",resource="machines",scope="cluster",subresource="",verb="LIST"} 3
apiserver_request_total{code="0",resource="machines",scope="cluster",subresource="",verb="WATCH"} 7
apiserver_request_total{code="201",resource="nodes",scope="resource",subresource="",verb="POST"} 20
apiserver_request_total{code="200",resource="leases",scope="resource",subresource="",verb="PATCH"} 9
apiserver_request_duration_seconds{code="200",resource="machines",verb="GET"} 5
"#;

    #[test]
    fn requests_are_summed_over_codes_and_only_those_of_a_machine_controller() {
        let requests = ApiRequests::read(METRICS);
        assert_eq!(
            requests.to_string(),
            "     3 machines LIST\n    21 machines POST\n  1200 machines/status PATCH\n"
        );
        assert_eq!((requests.total(), requests.writes()), (1224, 1221));
    }

    #[test]
    fn what_did_not_grow_is_not_there() {
        let requests = ApiRequests::read(METRICS);
        assert_eq!(requests.since(&requests), ApiRequests::default());
    }
}
