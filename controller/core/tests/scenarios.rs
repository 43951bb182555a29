//! Stories of Machines, sets and deployments: text in, what the manager decides and does out.
//!
//! The real store, wake table, queue, planners and laws run against an API server and a cloud that are values in memory.
//! `UPDATE_EXPECT=1` writes the golden files anew.

#![expect(clippy::indexing_slicing, reason = "a test that panics is a test that fails")]

#[path = "scenarios/bound.rs"]
mod bound;
#[path = "scenarios/cloud.rs"]
mod cloud;
#[path = "scenarios/cost.rs"]
mod cost;
#[path = "scenarios/etcd.rs"]
mod etcd;
#[path = "scenarios/execute.rs"]
mod execute;
#[path = "scenarios/notices.rs"]
mod notices;
#[path = "scenarios/parked.rs"]
mod parked;
#[path = "scenarios/permuted.rs"]
mod permuted;
#[path = "scenarios/planted.rs"]
mod planted;
#[path = "scenarios/pods.rs"]
mod pods;
#[path = "scenarios/preserved.rs"]
mod preserved;
#[path = "scenarios/reasons.rs"]
mod reasons;
#[path = "scenarios/reworded.rs"]
mod reworded;
#[path = "scenarios/rollouts.rs"]
mod rollouts;
#[path = "scenarios/script.rs"]
mod script;
#[path = "scenarios/shuffled.rs"]
mod shuffled;
#[path = "scenarios/stage.rs"]
mod stage;
#[path = "scenarios/turns.rs"]
mod turns;

use std::path::{Path, PathBuf};

use expect_test::expect_file;

/// A file that tells what happens.
struct Story {
    /// What it is to show, as its file is called.
    name: String,
    path: PathBuf,
    text: String,
}

fn stories() -> Vec<Story> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder of stories is there")
        .map(|entry| entry.expect("its entries can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    let story = |path: PathBuf| Story {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        text: std::fs::read_to_string(&path).expect("a story can be read"),
        path,
    };
    paths.into_iter().map(story).collect()
}

#[test]
fn every_story_goes_as_its_golden_file_tells() {
    let stories = stories();
    assert!(stories.len() >= 10, "the stories are found");
    for story in stories {
        let told = script::play(&story.text, &story.name);
        expect_file![story.path.with_extension("golden")].assert_eq(&told);
    }
}

#[test]
fn sixty_stories_are_about_sets_and_deployments() {
    let owners = ["create set", "create deployment"];
    let is_about_them = |story: &&Story| owners.iter().any(|owner| story.text.contains(owner));
    let count = stories().iter().filter(is_about_them).count();
    assert!(count >= 60, "{count} stories are about sets and deployments");
}
