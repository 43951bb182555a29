//! What the manager says of itself on its HTTP port: readiness, and how many requests it has made. Decides nothing.

use std::net::SocketAddr;

use anyhow::Context as _;
use kube::{Client, Config};

/// The manager's port.
pub struct Port(Client);

impl Port {
    /// Connects at the first question.
    pub fn at(address: SocketAddr) -> anyhow::Result<Self> {
        // A Kubernetes client is an HTTP client that is here anyway.
        let url = format!("http://{address}/").parse().context("an address makes a URL")?;
        Ok(Self(Client::try_from(Config::new(url))?))
    }

    /// What is not ready, if anything.
    pub async fn not_ready(&self) -> Option<String> {
        let error = self.get("/readyz").await.err()?;
        Some(match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => failures(&status.message),
            Some(_) | None => format!("{error:#}"),
        })
    }

    /// Requests to the API server that have ended, without those that write events.
    pub async fn api_requests(&self) -> anyhow::Result<u64> {
        let text = self
            .get("/metrics")
            .await
            .context("the manager's metrics cannot be read")?;
        Ok(sum(&without_events(&text), "millwright_api_request_seconds_count"))
    }

    async fn get(&self, path: &str) -> anyhow::Result<String> {
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(self.0.request_text(request).await?)
    }
}

/// The checks that failed, of all that were made.
fn failures(report: &str) -> String {
    let failed: Vec<&str> = report.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
    if failed.is_empty() {
        report.to_owned()
    } else {
        failed.join("; ")
    }
}

fn without_events(metrics: &str) -> String {
    let is_other = |line: &&str| !line.contains(r#"resource="events""#);
    metrics.lines().filter(is_other).collect::<Vec<_>>().join("\n")
}

/// The sum of a metric over all its labels.
fn sum(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix('{')?;
        let (_, value) = rest.rsplit_once("} ")?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_checks_that_failed_are_told() {
        assert_eq!(
            failures("[+]a ok\n[-]b failed: no\n[-]c failed: yes\nreadyz check failed"),
            "b failed: no; c failed: yes"
        );
        assert_eq!(failures("connection refused"), "connection refused");
    }

    #[test]
    fn a_metric_is_summed_over_its_labels_and_no_other_is() {
        let text = "# TYPE a_count counter\na_count{verb=\"get\"} 3\na_count{verb=\"a } b\"} 4\na_count_more{x=\"1\"} 9\nb{} 5\n";
        assert_eq!(sum(text, "a_count"), 7);
    }

    #[test]
    fn requests_for_events_are_counted_apart() {
        let text = "a_count{resource=\"events\",code=\"201\"} 3\na_count{resource=\"machines\"} 4\n";
        assert_eq!(sum(&without_events(text), "a_count"), 4);
    }
}
