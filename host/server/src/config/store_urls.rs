//! The stores that the configuration names: one, or the stripes of a set, and what backs a volatile one.

use unalike::storage::ShellWord;
use unalike_stores::{StoreSet, StoreUrl};

use crate::config::Config;

impl Config {
    /// The stores that it names.
    pub(crate) fn stores(&self) -> StoreSet<'_> {
        StoreSet { stores: &self.store, backing: self.backing.as_ref(), leases: self.leases.as_ref() }
    }

    /// The flags that name the store and what backs it, without passwords, as words of a shell.
    pub(crate) fn store_flags(&self) -> String {
        let flag = |name: &str, url: &StoreUrl| format!("{name} {}", ShellWord(&url.to_string()));
        let stores = self.store.iter().map(|url| flag("--store", url));
        let backing = self.backing.iter().map(|url| flag("--backing", url));
        stores.chain(backing).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use unalike_stores::{PlaceError, StoreUrls};

    use crate::config::sources::source;

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("mysql://ids:secret@db/ids", "mysql://ids@db/ids"),
            ("mysql://ids:se:cr@et@db:3307/ids?dialect=leaf", "mysql://ids@db:3307/ids?dialect=leaf"),
            ("mysql://ids:sec/ret?x@db/ids", "mysql://ids@db/ids"),
            ("mysql://ids@db/ids?password=secret&ssl-mode=required", "mysql://ids@db/ids?ssl-mode=required"),
            ("mysql://ids@db/ids?pass%77ord=secret", "mysql://ids@db/ids"),
            ("mysql://ids@db/ids?password-file=/run/db", "mysql://ids@db/ids?password-file=/run/db"),
            ("redis://ids:secret@cache:6380/1?ssl-ca=a", "redis://ids@cache:6380/1?ssl-ca=a"),
            ("rediss://:secret@cache", "rediss://cache"),
            ("redis://ids:12/secret@cache/0", "redis://ids@cache/0"),
            ("redis://ids:12#secret@cache/0", "redis://ids@cache/0"),
            (
                "redis+sentinel://ids:se/cr@et@a:1,b:2/ids?sentinel-auth=same",
                "redis+sentinel://ids@a:1,b:2/ids?sentinel-auth=same",
            ),
            ("redis+cluster://:secret@a:1,b:2", "redis+cluster://a:1,b:2"),
            ("redis+cluster://a:1,[::1]:2,[::1]/0", "redis+cluster://a:1,[::1]:2,[::1]/0"),
            ("redis+sentinel://a:1/ids?sentinel-auth=secret&Auth=secret", "redis+sentinel://a:1/ids"),
            // The host was forgotten.
            ("redis://ids:secret", "redis://ids:.."),
            ("redis://ids:secret/0?prefix=p", "redis://ids:../0?prefix=p"),
            ("zookeeper://ids:secret@a:1,b:2/c?leaf=d", "zookeeper://ids@a:1,b:2/c?leaf=d"),
            ("ids:secret@db/ids", "ids@db/ids"),
            ("ids:secret", "ids:.."),
            ("sqlite:ids", "sqlite:ids"),
            ("sqlite:secret@db/ids", "sqlite@db/ids"),
            ("sqlite:///home/a:b@c/ids.sqlite", "sqlite:///home/a:b@c/ids.sqlite"),
        ] {
            let url = StoreUrl::new(url);
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("{shown:?}"));
            assert_eq!(serde_json::to_value(&url).unwrap(), shown);
        }
    }

    /// An error with what caused it.
    fn whole(error: PlaceError) -> String {
        format!("{:#}", anyhow::Error::from(error))
    }

    #[test]
    fn a_password_comes_from_one_place() {
        let directory = tempfile_with("secret\n");
        let path = directory.join("password");
        let place = |scheme: &str, query: &str| StoreUrl::new(format!("{scheme}://ids@db/0?{query}")).place();
        let mysql = |query: &str| place("mysql", query);
        let zookeeper = |query: &str| StoreUrl::new(format!("zookeeper://ids@a:1,b:2/c?{query}")).lease_place();
        let redis = |query: &str| place("redis", query);
        assert!(mysql(&format!("password-file={}&dialect=leaf", path.display())).is_ok());
        assert!(redis(&format!("password-file={}&dialect=cosid", path.display())).is_ok());
        let options = zookeeper(&format!("password-file={}&leaf=d", path.display())).unwrap();
        assert_eq!(options.address(), "a:1,b:2/c");
        std::fs::write(&path, "\n").unwrap();
        for (query, named) in [
            (format!("password-file={}", path.display()), "is empty"),
            ("password-file=/nowhere/at/all".to_owned(), "/nowhere/at/all cannot be read"),
            ("password-env=UNALIKE_NOBODY_SET_THIS".to_owned(), "UNALIKE_NOBODY_SET_THIS"),
            ("password=secret".to_owned(), "password-env=NAME"),
            ("colour=red".to_owned(), "colour"),
        ] {
            for place in [mysql(&query), redis(&query), zookeeper(&query)] {
                let error = whole(place.err().unwrap());
                assert!(error.contains(named) && !error.contains("secret"), "{error}");
            }
        }
        let both = StoreUrl::new("mysql://ids:secret@db/ids?password-env=PATH").place().err().unwrap();
        assert!(whole(both).contains("more than one way"));
        let both = StoreUrl::new("zookeeper://ids:secret@a?password-env=PATH").lease_place().err().unwrap();
        assert!(whole(both).contains("more than one way"));
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// What is not written as it must be is taken for something else: no message shows it.
    #[test]
    fn no_message_shows_a_part_of_a_password() {
        for password in ["1?secret", "1/secret", "1#secret", "1@secret", "1:secret", "1?a=secret&password-env=PATH"] {
            for scheme in ["mysql", "redis", "zookeeper"] {
                let url = StoreUrl::new(format!("{scheme}://ids:{password}@db.invalid/0"));
                let failed = if scheme == "zookeeper" { url.lease_place().err() } else { url.place().err() };
                let error = failed.map(whole).unwrap_or_default();
                assert!(!error.contains("secret") && !error.contains("ids:1"), "{scheme} {password}: {error}");
            }
        }
    }

    /// A directory of this test with a file `password`.
    fn tempfile_with(text: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("unalike-password-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("password"), text).unwrap();
        directory
    }

    #[test]
    fn a_dialect_s_name_means_other_tables_of_the_same_database() {
        let store = over("mysql://ids:secret@db/ids?ssl-mode=required&create=true", None);
        let leaf = source("leaf", &store, false).unwrap();
        assert_eq!(leaf.to_string(), "mysql://ids@db/ids?ssl-mode=required&dialect=leaf&create=false");
        assert!(leaf.text().contains("secret"));
        let generator = source("id-generator?keys=order:1", &store, true).unwrap();
        assert!(generator.to_string().ends_with("&keys=order%3A1&source-stopped=true"), "{generator}");
        let cluster = over("redis+cluster://ids:secret@a:1,b:2?prefix=x", Some("mysql://ids@db/ids"));
        let generator = source("id-generator?keys=order:id_order", &cluster, false).unwrap();
        let shown = "redis+cluster://ids@a:1,b:2?prefix=x&dialect=id-generator&keys=order%3Aid_order";
        assert_eq!(generator.to_string(), shown);
        let redis = over("rediss://:secret@cache/2?dialect=clock&shard=5&ssl-ca=ca.pem", Some("mysql://ids@db/ids"));
        let generator = source("id-generator?keys=order:id_order", &redis, false).unwrap();
        assert_eq!(generator.to_string(), "rediss://cache/2?ssl-ca=ca.pem&dialect=id-generator&keys=order%3Aid_order");
        assert!(generator.text().contains("secret"));
        for (text, store, named) in [
            ("loof", &store, "loof"),
            ("unalike", &store, "the store itself"),
            ("mysql://other@db/ids", &store, "the store itself"),
            ("leaf", &over("sqlite://ids.sqlite", None), "mysql://USER@HOST/DATABASE?dialect=leaf"),
            ("cosid", &over("sqlite://ids.sqlite", None), "or redis://HOST/DATABASE?dialect=cosid"),
            ("clock", &store, "redis://HOST/DATABASE?dialect=clock"),
            ("sqlite://./ids.sqlite", &over("sqlite://ids.sqlite", None), "the store itself"),
            ("clock", &redis, "the store itself"),
            ("mysql://other@db/ids", &redis, "the store itself"),
            ("leaf", &redis, "mysql://USER@HOST/DATABASE?dialect=leaf"),
        ] {
            let error = format!("{:#}", source(text, store, false).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    fn over(store: &str, backing: Option<&str>) -> Config {
        Config { store: StoreUrls::one(store), backing: backing.map(StoreUrl::new), ..Config::default() }
    }

    #[test]
    fn a_number_of_another_system_is_read_once_that_is_stopped() {
        let said = |url: &str| StoreUrl::new(url).stopped().unwrap().text().to_owned();
        for url in ["redis://h?dialect=id-generator&keys=a:b", "mysql://ids@h/db?dialect=id-generator&keys=a:1"] {
            assert_eq!(said(url), format!("{url}&source-stopped=true"));
            assert_eq!(said(&said(url)), said(url));
        }
        for url in ["sqlite://ids.sqlite", "mysql://ids@h/db?dialect=leaf", "redis://h?dialect=cosid"] {
            assert_eq!(said(url), url);
        }
    }
}
