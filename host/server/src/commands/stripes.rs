//! `unalike stripes resize`: the tags of a set of stores go on in another set.

use std::sync::Arc;

use anyhow::{Context, ensure};
use unalike::storage::{SegmentStore, resize_stripes};
use unalike_stores::StoreUrls;

use crate::commands::print::print;
use crate::config::Config;
use crate::service::stores::open_one;
use crate::service::tags::RAISE_MAX;

/// `unalike stripes resize`
pub(crate) async fn resize(config: &Config, to: Vec<String>, floor: u64, is_confirmed: bool) -> anyhow::Result<()> {
    ensure!(
        is_confirmed || floor <= RAISE_MAX,
        "--floor {floor} takes the numbers up to it from every tag, for good: above {RAISE_MAX} it must be confirmed, with --yes"
    );
    let to = StoreUrls::of(to);
    for urls in [&config.store, &to] {
        urls.refuse_volatile()?;
        urls.validate()?;
    }
    // A store of both lists is one store.
    let mut open: Vec<(String, Arc<dyn SegmentStore>)> = Vec::new();
    let mut lists = [Vec::new(), Vec::new()];
    for ((list, urls), may_begin) in lists.iter_mut().zip([&config.store, &to]).zip([false, true]) {
        for url in urls.iter() {
            let name = url.place()?.name()?;
            let known = open.iter().find(|(known, _)| *known == name).map(|(_, store)| Arc::clone(store));
            let store = match known {
                Some(store) => store,
                None => {
                    let store = open_one(url, may_begin).await?;
                    open.push((name, Arc::clone(&store)));
                    store
                }
            };
            list.push(store);
        }
    }
    let [from_stores, to_stores] = lists;
    let resized = resize_stripes(&from_stores, &to_stores, floor).await;
    for (_, store) in open {
        store.close().await;
    }
    resized.with_context(|| {
        format!("the stores {} are not resized yet: once that is mended, repeat the command", config.store)
    })?;
    print(&format!("the tags of {} continue in {to}: start the programs again with these\n", config.store))
}
