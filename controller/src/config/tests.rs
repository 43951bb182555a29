use clap::Parser as _;

use super::*;

fn flags(extra: &[&str]) -> ManagerFlags {
    let words = ["millwright", "manager"].iter().chain(extra);
    match Cli::try_parse_from(words)
        .unwrap_or_else(|error| panic!("{error}"))
        .command
    {
        Command::Manager(flags) => *flags,
        Command::Crds | Command::Rollout(_) | Command::Tree(_) | Command::Why(_) | Command::Driver(_) => {
            panic!("another command was parsed")
        }
    }
}

fn checked(extra: &[&str]) -> Result<Config, ConfigError> {
    let mut words = vec!["--cluster-id=shop", "--driver=unix:///run/virtual.sock"];
    words.extend(extra);
    flags(&words).check()
}

fn clusters(extra: &[&str]) -> (Access, TargetCluster) {
    let config = checked(extra).unwrap();
    (config.control, config.target)
}

/// What the parser says when it refuses.
fn refusal(extra: &[&str]) -> String {
    Cli::try_parse_from(["millwright", "manager"].iter().chain(extra))
        .unwrap_err()
        .to_string()
}

#[test]
fn the_defaults_are_those_of_the_original() {
    let config = checked(&[]).unwrap();

    assert_eq!(config.namespace, "default");
    assert_eq!(config.workers, 50);
    // The flags say their defaults as text, and plans and `millwright why` have them from the constants.
    let json = |settings: &Settings| serde_json::to_value(settings).unwrap();
    assert_eq!(json(&config.settings), json(&Settings::new("shop")));
    assert_eq!(config.settings.creation_timeout, SignedDuration::from_mins(20));
    assert_eq!(config.election.unwrap().terms, Terms::default());
}

#[test]
fn there_is_no_rate_limit_unless_one_is_asked_for() {
    assert!(checked(&[]).unwrap().budget().is_none());
    assert!(checked(&["--kube-api-qps=20"]).unwrap().budget().is_some());
    assert!(matches!(checked(&["--kube-api-qps=-1"]), Err(ConfigError::Rate(_))));
}

#[test]
fn clusters_are_chosen_as_the_original_chooses_them() {
    let file = |path: &str| Access::File(path.into());

    assert_eq!(clusters(&[]), (Access::InCluster, TargetCluster::SameAsControl));
    assert_eq!(clusters(&["--kubeconfig=c"]), (file("c"), TargetCluster::SameAsControl));
    assert_eq!(
        clusters(&["--target-kubeconfig=t"]),
        (file("t"), TargetCluster::SameAsControl)
    );
    assert_eq!(
        clusters(&["--control-kubeconfig=c", "--target-kubeconfig=t"]),
        (file("c"), TargetCluster::Other(file("t")))
    );
    let split = clusters(&["--control-kubeconfig=inClusterConfig", "--target-kubeconfig=t"]);
    assert_eq!(split, (Access::InCluster, TargetCluster::Other(file("t"))));
    assert_eq!(
        clusters(&["--kubeconfig=c", "--target-kubeconfig=none"]),
        (file("c"), TargetCluster::None)
    );
    assert!(!checked(&["--target-kubeconfig=none"]).unwrap().settings.has_target);
}

#[test]
fn durations_are_written_as_in_go() {
    let config = checked(&["--machine-creation-timeout=1h30m", "--resource-exhausted-retry=0s"]).unwrap();
    assert_eq!(config.settings.creation_timeout, SignedDuration::from_mins(90));
    assert_eq!(
        config.settings.resource_exhausted_retry,
        Settings::RESOURCE_EXHAUSTED_RETRY
    );

    let wrong = refusal(&["--cluster-id=a", "--machine-creation-timeout=20 minutes"]);
    assert!(
        wrong.contains("--machine-creation-timeout") && wrong.contains("20 minutes"),
        "{wrong}"
    );
    assert!(refusal(&["--cluster-id=a", "--machine-creation-timeout=-5m"]).contains("negative"));
}

#[test]
fn a_cluster_id_is_required_and_has_a_form() {
    assert!(refusal(&["--driver=unix:///a"]).contains("--cluster-id"));
    for wrong in ["", "Shop", "a b", "ä", &"x".repeat(64)] {
        let given = flags(&["--driver=unix:///a", "--cluster-id", wrong]).check();
        assert!(matches!(given, Err(ConfigError::ClusterId(_))), "{wrong:?} was taken");
    }
}

#[test]
fn drivers_are_named_in_exactly_one_way() {
    assert!(matches!(flags(&["--cluster-id=a"]).check(), Err(ConfigError::NoDriver)));
    assert!(matches!(
        checked(&["--driver-dir=/tmp"]),
        Err(ConfigError::TwoKindsOfDriver)
    ));
    assert!(refusal(&["--cluster-id=a", "--driver=/run/x.sock"]).contains("unix:///PATH"));
}

#[test]
fn a_driver_named_twice_is_one_driver() {
    let config = checked(&["--driver=unix:///run/virtual.sock", "--driver=unix:///run/other.sock"]).unwrap();
    assert!(matches!(config.drivers, Endpoints::Listed(endpoints) if endpoints.len() == 2));
}

#[test]
fn a_driver_directory_that_is_none_is_named() {
    let dir = |path: &str| flags(&["--cluster-id=a", "--driver-dir", path]).check();

    assert!(matches!(
        dir("/"),
        Ok(Config {
            drivers: Endpoints::Directory(_),
            ..
        })
    ));
    let missing = dir("/nowhere/sockets").unwrap_err().to_string();
    assert!(
        missing.contains("/nowhere/sockets") && missing.contains("No such file"),
        "{missing}"
    );
    assert!(matches!(dir("/dev/null"), Err(ConfigError::DriverDir { .. })));
}

#[test]
fn terms_on_which_two_could_lead_are_refused_by_the_flags_names() {
    let error = checked(&["--leader-elect-renew-deadline=20s"]).unwrap_err().to_string();
    assert!(error.contains("--leader-elect-lease-duration"), "{error}");
}

#[test]
fn leader_election_can_be_switched_off_and_on_as_in_go() {
    assert!(checked(&["--leader-elect=false"]).unwrap().election.is_none());
    assert!(checked(&["--leader-elect"]).unwrap().election.is_some());
    assert!(checked(&["--leader-elect=true"]).unwrap().election.is_some());
}

#[test]
fn terms_do_not_matter_without_an_election() {
    assert!(checked(&["--leader-elect=false", "--leader-elect-renew-deadline=20s"]).is_ok());
}

#[test]
fn two_processes_on_one_host_are_two_candidates() {
    assert_ne!(identity(), identity());
}

#[test]
fn bootstrap_groups_that_the_api_server_would_ignore_are_refused() {
    let config =
        checked(&["--bootstrap-token-auth-extra-groups=system:bootstrappers:a, system:bootstrappers:b:c"]).unwrap();
    assert_eq!(
        config.bootstrap_groups,
        ["system:bootstrappers:a", "system:bootstrappers:b:c"]
    );
    assert!(matches!(
        checked(&["--bootstrap-token-auth-extra-groups=admins"]),
        Err(ConfigError::Group(_))
    ));
}

#[test]
fn names_that_kubernetes_refuses_are_refused_here() {
    assert!(matches!(
        checked(&["--namespace=My_Space"]),
        Err(ConfigError::Name { flag: "namespace", .. })
    ));
    assert!(matches!(
        checked(&["--leader-elect-lease-name=-"]),
        Err(ConfigError::Name { .. })
    ));
}

#[test]
fn the_command_line_contradicts_itself_nowhere() {
    use clap::CommandFactory as _;
    Cli::command().debug_assert();
}
