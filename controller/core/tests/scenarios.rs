//! Stories of Machines, sets and deployments: text in, what the manager decides and does out.
//!
//! The real store, wake table, queue, planners and laws run against an API server and a cloud that are values in memory.
//! `UPDATE_EXPECT=1` writes the golden files anew.

#![expect(clippy::indexing_slicing, reason = "a test that panics is a test that fails")]

#[path = "scenarios/bound.rs"]
mod bound;
#[path = "scenarios/cloud.rs"]
mod cloud;
#[path = "scenarios/etcd.rs"]
mod etcd;
#[path = "scenarios/execute.rs"]
mod execute;
#[path = "scenarios/planted.rs"]
mod planted;
#[path = "scenarios/pods.rs"]
mod pods;
#[path = "scenarios/reasons.rs"]
mod reasons;
#[path = "scenarios/rollouts.rs"]
mod rollouts;
#[path = "scenarios/script.rs"]
mod script;
#[path = "scenarios/shuffled.rs"]
mod shuffled;
#[path = "scenarios/stage.rs"]
mod stage;

use std::path::Path;

use expect_test::expect_file;

#[test]
fn every_story_goes_as_its_golden_file_tells() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut stories: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder of stories is there")
        .map(|entry| entry.expect("its entries can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    stories.sort();
    assert!(stories.len() >= 10, "the stories are found");
    for story in stories {
        let text = std::fs::read_to_string(&story).expect("a story can be read");
        let told = script::play(&text, &story.display().to_string());
        expect_file![story.with_extension("golden")].assert_eq(&told);
    }
}
