//! A file that is changed in the ways in which files are changed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ratekeeper_rules::FileSource;
use tempfile::TempDir;

use crate::support::{NEVER, Reloaded, problem, rename_over, rules, wrong_rules};

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// A file with rules that admit ten an hour.
fn file(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("rules.toml");
    fs::write(&path, rules(10)).expect("it is written");
    path
}

/// A source that is notified of changes by the system, and does not poll.
fn watched(path: &Path) -> FileSource {
    FileSource::new(path).poll_every(NEVER)
}

#[tokio::test]
async fn a_file_that_is_written_in_place_is_read_again() {
    let directory = directory();
    let path = file(&directory);
    let reloaded = Reloaded::start(watched(&path)).await;
    assert_eq!(reloaded.limit(), Some(10));
    for limit in [20, 30] {
        fs::write(&path, rules(limit)).unwrap();
        reloaded.until_limit(limit).await;
    }
    assert_eq!(reloaded.handle.status().applied(), 3);
}

#[tokio::test]
async fn a_file_that_is_renamed_into_its_place_is_read_again_and_again() {
    let directory = directory();
    let path = file(&directory);
    let reloaded = Reloaded::start(watched(&path)).await;
    for limit in [20, 30, 40] {
        rename_over(&path, &rules(limit));
        reloaded.until_limit(limit).await;
    }
    let status = reloaded.handle.status();
    assert_eq!((status.applied(), status.refused(), status.unread()), (4, 0, 0));
    assert_eq!(status.rules(), 1);
}

/// Kubernetes puts the files of a config map into a directory and links to it. When the map changes, it
/// replaces the link with one to another directory, and removes the first directory.
#[tokio::test]
async fn the_links_of_a_config_map_are_followed() {
    let directory = directory();
    let root = directory.path();
    let publish = |name: &str, text: &str| {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("rules.toml"), text).unwrap();
        symlink(name, root.join("..data_tmp")).unwrap();
        let before = fs::read_link(root.join("..data"));
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        if let Ok(before) = before {
            fs::remove_dir_all(root.join(before)).unwrap();
        }
    };
    publish("..2026_11_16_1", &rules(10));
    symlink("..data/rules.toml", root.join("rules.toml")).unwrap();
    let reloaded = Reloaded::start(watched(&root.join("rules.toml"))).await;
    for (name, limit) in [("..2026_11_16_2", 20), ("..2026_11_16_3", 30), ("..2026_11_16_4", 40)] {
        publish(name, &rules(limit));
        reloaded.until_limit(limit).await;
    }
    assert_eq!(reloaded.handle.status().refused(), 0);
}

#[tokio::test]
async fn what_a_link_leads_to_is_watched_and_the_link_as_well() {
    let (here, there) = (directory(), directory());
    let target = file(&there);
    let path = here.path().join("rules.toml");
    symlink(&target, &path).unwrap();
    let reloaded = Reloaded::start(watched(&path)).await;
    rename_over(&target, &rules(20));
    reloaded.until_limit(20).await;

    let elsewhere = directory();
    let other = file(&elsewhere);
    fs::write(&other, rules(30)).unwrap();
    symlink(&other, here.path().join("new")).unwrap();
    fs::rename(here.path().join("new"), &path).unwrap();
    reloaded.until_limit(30).await;
    fs::write(&other, rules(40)).unwrap();
    reloaded.until_limit(40).await;
}

#[tokio::test]
async fn a_file_that_vanishes_leaves_its_rules_in_force_until_it_comes_back() {
    let directory = directory();
    let path = file(&directory);
    let reloaded = Reloaded::start(watched(&path)).await;
    let version = reloaded.handle.status().version().to_owned();

    fs::remove_file(&path).unwrap();
    let status = reloaded.until_unread().await;
    let error = problem(&status);
    assert!(error.contains("rules.toml") && error.contains("No such file"), "{error}");
    assert_eq!((status.version(), reloaded.limit()), (&*version, Some(10)));

    // The original text: nothing to reload, and nothing wrong any more.
    fs::write(&path, rules(10)).unwrap();
    let status = reloaded.until_right().await;
    assert_eq!((status.version(), status.applied()), (&*version, 1));

    fs::remove_file(&path).unwrap();
    reloaded.until_unread().await;
    fs::write(&path, rules(20)).unwrap();
    reloaded.until_limit(20).await;
    reloaded.until_right().await;
}

#[tokio::test]
async fn a_directory_that_is_moved_away_and_replaced_is_found_again() {
    let directory = directory();
    let root = directory.path();
    for (name, limit) in [("config", 10), ("next", 20)] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("rules.toml"), rules(limit)).unwrap();
    }
    let path = root.join("config/rules.toml");
    let reloaded = Reloaded::start(watched(&path)).await;
    fs::rename(root.join("config"), root.join("former")).unwrap();
    reloaded.until_unread().await;
    fs::rename(root.join("next"), root.join("config")).unwrap();
    reloaded.until_limit(20).await;
    // The file that was moved away is no longer watched.
    fs::write(root.join("former/rules.toml"), rules(30)).unwrap();
    fs::write(&path, rules(40)).unwrap();
    reloaded.until_limit(40).await;
    assert_eq!(reloaded.handle.status().applied(), 3);
}

#[tokio::test]
async fn a_file_that_is_half_written_does_no_harm() {
    let directory = directory();
    let path = file(&directory);
    let reloaded = Reloaded::start(watched(&path)).await;
    let text = rules(20);
    let (half, _) = text.split_at(text.len() / 2);
    fs::write(&path, half).unwrap();
    let status = reloaded.until_refused().await;
    assert_eq!((status.applied(), reloaded.limit()), (1, Some(10)));
    fs::write(&path, text).unwrap();
    reloaded.until_limit(20).await;
}

#[tokio::test]
async fn a_file_that_is_touched_is_not_reloaded() {
    let directory = directory();
    let path = file(&directory);
    let reloaded = Reloaded::start(watched(&path)).await;
    let before = reloaded.handle.status();
    rename_over(&path, &rules(10));
    reloaded.until("the file to be read again", |status| status.read_at() > before.read_at()).await;
    let after = reloaded.handle.status();
    assert_eq!((after.applied(), after.since()), (1, before.since()));
}

#[tokio::test]
async fn without_being_told_a_file_is_looked_at() {
    let directory = directory();
    let path = file(&directory);
    let source = FileSource::new(&path).watch(false).poll_every(Duration::from_millis(20));
    let reloaded = Reloaded::start(source).await;
    rename_over(&path, &rules(20));
    reloaded.until_limit(20).await;
    fs::remove_file(&path).unwrap();
    reloaded.until_unread().await;
    rename_over(&path, &rules(30));
    reloaded.until_limit(30).await;
}

#[tokio::test]
async fn a_bad_file_is_refused_whole_and_a_mended_one_accepted() {
    let directory = directory();
    let path = file(&directory);
    let reloaded = Reloaded::start(watched(&path)).await;
    rename_over(&path, &wrong_rules());
    let status = reloaded.until_refused().await;
    let error = problem(&status);
    assert!(error.contains("rule `login`, `quota`") && error.contains("rules.toml:8:9"), "{error}");
    assert_eq!((status.rules(), reloaded.limit()), (1, Some(10)), "not even the rule that makes sense");
    rename_over(&path, &rules(20));
    reloaded.until_limit(20).await;
    let status = reloaded.until_right().await;
    assert_eq!((status.applied(), status.refused()), (2, 1));
}

#[tokio::test]
async fn a_pipe_is_no_file() {
    let directory = directory();
    let path = directory.path().join("rules.toml");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    let error = ratekeeper_rules::Reloader::new(watched(&path)).load().await.expect_err("it would never end");
    assert!(error.to_string().contains("this is no file"), "{error}");
}

#[tokio::test]
async fn a_name_that_says_no_format_is_an_error_unless_it_is_said() {
    let directory = directory();
    let path = directory.path().join("rules.conf");
    fs::write(&path, rules(10)).unwrap();
    let error =
        ratekeeper_rules::Reloader::new(watched(&path)).load().await.expect_err("there is no such format");
    assert!(error.to_string().contains("does not say what format it has"), "{error}");
    let reloaded = Reloaded::start(watched(&path).format(ratekeeper_rules::Format::Toml)).await;
    assert_eq!(reloaded.limit(), Some(10));
}
