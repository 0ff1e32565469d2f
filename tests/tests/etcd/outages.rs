//! Outages of etcd, each provoked on real members: what the store says of it (is it worth a retry, may the grant have
//! been made, is it the caller's fault), that no number is granted twice, and that the store recovers by itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use unalike_etcd::{EtcdLeases, EtcdOptions, EtcdStore};
use unalike_storage::{Layout, LeaseAcquire, LeaseStore as _, SegmentStore as _};
use unalike_tests::etcd::{Etcd, Version};
use unalike_tests::leases::{assert_disjoint, now_ms};
use unalike_tests::outages::{OUTCOME_UNKNOWN, UNAVAILABLE, allocate_at_last, judge};
use unalike_tests::proxy::Proxy;
use unalike_tests::users::Users;

async fn connect(url: &str, parameters: &str) -> EtcdStore {
    EtcdStore::connect(EtcdOptions::from_url(&format!("{url}?{parameters}")).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_paused_or_gone_ends_requests_in_time_and_then_goes_on() {
    let mut server = Etcd::start().unwrap();
    let url = server.url();
    let store = connect(&url, "request-timeout-ms=1000&connect-timeout-ms=600000").await;
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    server.pause(0).unwrap();
    // On the connection that is open.
    judge(store.allocate("order", 10, 0).await, OUTCOME_UNKNOWN, "no answer");
    // On a new one, which is no more patient than the request.
    judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "in time");
    judge(store.tag("order").await, UNAVAILABLE, "in time");
    server.resume(0).unwrap();
    let segment = allocate_at_last(&store, "order").await;
    assert!(segment.start >= end, "{segment:?} after {end}");
    end = segment.end;
    server.kill9(0).unwrap();
    // Nobody listens: nothing can have been granted, but for what was sent before that was noticed.
    if let Err(error) = store.allocate("order", 10, 0).await {
        assert!(error.is_retryable(), "{error:?}");
    }
    judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "cannot be reached");
    server.start_again().unwrap();
    assert!(allocate_at_last(&store, "order").await.start >= end);
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_is_lost_nothing_is_granted_twice() {
    let server = Etcd::start().unwrap();
    let url = server.url();
    let proxy = Proxy::start(server.ports()[0]).unwrap();
    let store = connect(&proxy.url(&url), "").await;
    let direct = connect(&url, "").await;
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    let mut grants_lost = 0;
    for round in 0..30 {
        allocate_at_last(&store, "other").await;
        if round % 3 == 0 {
            // On a connection of its own, and without a row in mind.
            proxy.cut();
        }
        let before = direct.tag("order").await.unwrap().watermark;
        proxy.lose_answer_to("tag/order");
        let answer = store.allocate("order", 10, 0).await;
        let granted = direct.tag("order").await.unwrap().watermark > before;
        match answer {
            // What was lost was a reading, which was repeated.
            Ok(segment) => assert_eq!(segment.start, before + 1, "{segment:?}"),
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                assert!(error.may_have_granted() || !granted, "a grant was lost: {error:?}");
                grants_lost += u32::from(granted);
            }
        }
        let watermark = direct.tag("order").await.unwrap().watermark;
        let segment = allocate_at_last(&store, "order").await;
        assert!(segment.start >= end && segment.start > watermark, "{segment:?} after {end} and {watermark}");
        end = segment.end;
    }
    assert!(grants_lost > 5, "{grants_lost} answers with a grant were lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_about_a_lease_is_lost_no_two_leases_meet() {
    let server = Etcd::start().unwrap();
    let url = server.url();
    let proxy = Proxy::start(server.ports()[0]).unwrap();
    let leases = EtcdLeases::connect(EtcdOptions::from_url(&proxy.url(&url)).unwrap()).await.unwrap();
    let direct = EtcdLeases::connect(EtcdOptions::from_url(&url).unwrap()).await.unwrap();
    let request = |preferred_worker| LeaseAcquire {
        namespace: "default".to_owned(),
        holder: "holder".to_owned(),
        layout: Layout::TWITTER,
        preferred_worker,
        horizon_ms: 100,
        now_ms: now_ms(),
    };
    let mut granted = vec![direct.acquire(&request(Some(7))).await.unwrap()];
    let mut unheard = 0;
    for _ in 0..20 {
        // What the worker's value begins with: it is written, and not only asked for.
        proxy.lose_answer_to("grant_id");
        match leases.acquire(&request(Some(7))).await {
            Ok(lease) => granted.push(lease),
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                unheard += u32::from(error.may_have_granted());
            }
        }
        granted.push(direct.acquire(&request(None)).await.unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(unheard > 5, "{unheard} answers were lost");
    assert_disjoint(&granted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_used_up_grants_nothing_and_says_what_to_do() {
    let server = Etcd::start_with(Version::V3_4, 1, &["--quota-backend-bytes=4194304"]).unwrap();
    let url = server.url();
    let store = connect(&url, "").await;
    let before = store.allocate("order", 10, 0).await.unwrap();
    let filling = "x".repeat(100_000);
    let mut key = 0;
    while server.ctl(&["put", &format!("filling-{key}"), &filling]).is_ok() {
        key += 1;
        assert!(key < 200, "the quota is never used up");
    }
    // etcd says the same of a write that it carried out, and that used the quota up.
    judge(store.allocate("order", 10, 0).await, OUTCOME_UNKNOWN, "disarm the alarm");
    judge(store.check().await, UNAVAILABLE, "NOSPACE");
    assert_eq!(store.tag("order").await.unwrap().watermark, before.end - 1, "it is read");
    server.ctl(&["del", "filling-", "--prefix"]).unwrap();
    let status: serde_json::Value =
        serde_json::from_str(&server.ctl(&["endpoint", "status", "-w", "json"]).unwrap()).unwrap();
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    server.ctl(&["compact", &revision]).unwrap();
    server.ctl(&["defrag"]).unwrap();
    server.ctl(&["alarm", "disarm"]).unwrap();
    assert_eq!(allocate_at_last(&store, "order").await.start, before.end, "nothing was granted");
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_and_defragmentation_under_load_cost_nothing() {
    let server = Etcd::start().unwrap();
    let url = server.url();
    let store = Arc::new(connect(&url, "").await);
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    let ending = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (store, ending) = (Arc::clone(&store), Arc::clone(&ending));
        async move {
            let mut grants = 0;
            while !ending.load(Ordering::SeqCst) {
                let segment = store.allocate("order", 10, 0).await.expect("it is granted");
                assert_eq!(segment.start, end);
                (end, grants) = (segment.end, grants + 1);
            }
            grants
        }
    });
    for _ in 0..5 {
        let status: serde_json::Value =
            serde_json::from_str(&server.ctl(&["endpoint", "status", "-w", "json"]).unwrap()).unwrap();
        server.ctl(&["compact", &status[0]["Status"]["header"]["revision"].to_string()]).unwrap();
        server.ctl(&["defrag"]).unwrap();
    }
    ending.store(true, Ordering::SeqCst);
    assert!(load.await.unwrap() > 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_whose_token_was_forgotten_is_named_again() {
    let mut server = Etcd::start().unwrap();
    let url = server.url();
    for command in [["user", "add", "root:secret"], ["user", "grant-role", "root"]] {
        let mut command = command.to_vec();
        if command[1] == "grant-role" {
            command.push("root");
        }
        server.ctl(&command).unwrap();
    }
    server.ctl(&["auth", "enable"]).unwrap();
    let store = connect(&url.replace("etcd://", "etcd://root:secret@"), "").await;
    let first = store.allocate("order", 10, 0).await.unwrap();
    // Every change of users makes older tokens worthless in the next transaction.
    server.ctl(&["--user=root:secret", "user", "add", "other:secret"]).unwrap();
    let second = store.allocate("order", 10, 0).await.expect("named again, and nothing lost");
    assert_eq!(second.start, first.end);
    server.restart().unwrap();
    assert!(allocate_at_last(&store, "order").await.start >= second.end);
}

#[test]
fn two_servers_and_a_program_on_one_store_repeat_nothing_while_it_is_killed() {
    let mut etcd = Etcd::start().unwrap();
    let url = etcd.url();
    let users = Users { url: &url, request_timeout_ms: 1_000, program: env!("CARGO_BIN_EXE_store-child") };
    assert!(users.repeat_nothing(1_000, || etcd.restart()).unwrap() >= 1_000_000);
}
