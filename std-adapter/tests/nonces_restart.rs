//! Stores whose server is restarted under their hands. It runs alone: others use the servers too.
#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", target_os = "linux"))]
#![allow(missing_docs)]

mod nonces_common;

use std::path::Path;

use futures_util::future::join_all;
use nonces_common::*;
use tokio::process::Command;
use triwire::signed::Claimed::{Fresh, Replayed};
use triwire_std::nonces::{Cause, Nonces};

async fn restart(server: &str) {
    let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/stores");
    let status = Command::new(stores).args(["--restart", server]).status().await.unwrap();
    assert!(status.success());
}

/// Claims while the server is restarted: every name is told fresh once at most, and the names told
/// before are known after.
async fn restarted(kind: Kind, server: &str) {
    let place = Place::new(kind).await;
    let store = place.open().await;
    let before: Vec<String> = (0..100).map(|count| format!("before_{count}")).collect();
    for name in &before {
        assert_eq!(claim(&store, name).await.unwrap(), Fresh);
    }
    let (done, restarting) = tokio::sync::watch::channel(());
    let meanwhile = (0..8).map(|task| {
        let (store, restarting) = (store.clone(), restarting.clone());
        tokio::spawn(async move {
            let mut names = Vec::new();
            while restarting.has_changed().is_ok() {
                let name = format!("meanwhile_{task}_{}", names.len());
                // Each request comes once: what cannot be said now is not asked again.
                let claimed = claim(&store, &name).await;
                assert_ne!(claimed.as_ref().ok(), Some(&Replayed), "{name}");
                names.push((name, claimed.is_ok()));
            }
            names
        })
    });
    let meanwhile: Vec<_> = meanwhile.collect();
    restart(server).await;
    assert_eq!(claim_in_the_end(&store, "after").await, Fresh);
    drop(done);
    let mut refused = 0;
    for task in join_all(meanwhile).await {
        for (name, fresh) in task.unwrap() {
            if fresh {
                assert_eq!(claim(&store, &name).await.unwrap(), Replayed, "{name}");
            }
            refused += usize::from(!fresh);
        }
    }
    assert!(refused > 0, "nobody saw the restart");
    for name in &before {
        assert_eq!(claim(&store, name).await.unwrap(), Replayed);
    }
}

// rule: SIGN-46
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_comes_back_and_refuses_without_memory() {
    restarted(Kind::Redis, "redis").await;
    without_memory().await;
}

// rule: SIGN-46
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_comes_back() {
    restarted(Kind::Postgres, "postgres").await;
}

/// It is full for all who use the server, so not while another test does.
// rule: SIGN-48
async fn without_memory() {
    let place = Place::new(Kind::Redis).await;
    let store = place.open().await;
    assert_eq!(claim(&store, "before").await.unwrap(), Fresh);
    let full: String = redis_command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let refused = store.claim(genuine("n").claim()).await;
    let room: String = redis_command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert_eq!((full.as_str(), room.as_str()), ("OK", "OK"));
    assert_eq!(refused.unwrap_err().cause(), Cause::Full);
    assert_eq!(claim(&store, "n").await.unwrap(), Fresh);
    assert_eq!(claim(&store, "before").await.unwrap(), Replayed);
}
