//! Replays the corpus of the fuzz targets, so that what fuzzing once found stays found.

use std::fs;
use std::path::Path;

use triwire_model::check;

#[test]
fn corpus_replays() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, check) in check::ALL {
        let mut files = 0;
        for entry in fs::read_dir(corpus.join(name)).expect("each target has a corpus") {
            let path = entry.expect("a readable folder").path();
            println!("{}", path.display());
            check(&fs::read(&path).expect("a readable file"));
            files += 1;
        }
        assert!(files > 0, "the corpus of {name} is empty");
    }
}

/// Each check has its fuzz target, and each target its check.
#[test]
fn targets_are_the_checks() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
    let mut names: Vec<String> = fs::read_dir(targets)
        .expect("the fuzz targets")
        .map(|entry| entry.expect("a readable folder").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, check::ALL.map(|(name, _)| name));
}
