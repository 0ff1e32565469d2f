//! `unalike health`: whether a server is ready, for probes that start a program.

use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use tokio::net::lookup_host;
use tokio::time::timeout;
use url::form_urlencoded;

use crate::commands::arguments::HealthArguments;
use crate::commands::bench::ask;
use crate::commands::print::print;
use crate::commands::reach::{ClientTls, Trust};
use crate::config::{Config, LISTEN_DEFAULT};

/// How long an answer is waited for. A server says what it saw within the last second.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Asks, and fails unless the answer is yes.
pub(crate) async fn health(config: &Config, arguments: &HealthArguments) -> anyhow::Result<()> {
    let given = arguments.address.as_ref().unwrap_or(&config.listen);
    let ca = arguments.ca.as_deref().map(Trust::Authorities);
    let (place, trust) = if let Some(place) = given.strip_prefix("https://") {
        (place.trim_end_matches('/'), Some(ca.unwrap_or(Trust::System)))
    } else if let Some(place) = given.strip_prefix("http://") {
        (place.trim_end_matches('/'), None)
    } else {
        // As probes of Kubernetes do: the file of the certificate may be newer than what the server has read.
        (given.as_str(), config.tls_cert.is_some().then(|| ca.unwrap_or(Trust::Anybody)))
    };
    ensure!(place.contains(':'), "the server's address is {place:?}, it must be HOST:PORT, such as {LISTEN_DEFAULT}");
    let named = [("tag", &arguments.tag), ("snowflake", &arguments.snowflake)];
    let named: Vec<_> = named.into_iter().filter_map(|(parameter, name)| Some((parameter, name.as_ref()?))).collect();
    let (path, yes) = match arguments.live {
        true => ("/health/live".to_owned(), "live\n"),
        false if named.is_empty() => ("/health/ready".to_owned(), "ready\n"),
        false => {
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(named).finish();
            (format!("/health/ready?{query}"), "ready\n")
        }
    };
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host).trim_start_matches('[').trim_end_matches(']');
    let tls = trust.map(|trust| ClientTls::new(host, trust)).transpose()?;
    let asked = async {
        let addresses: Vec<_> = lookup_host(place).await?.collect();
        // Without a Host: the server may go by names that are not known here.
        ask(&addresses, tls.as_ref(), format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await
    };
    let answer = timeout(ANSWER_MAX, asked).await.map_err(|_| anyhow!("it takes more than 5 s")).flatten();
    // What comes from there may be no text for a terminal.
    let readable = |text: String| text.trim_end().replace(|letter: char| letter.is_control() && letter != '\n', "?");
    match answer {
        Ok((200, _)) => print(yes),
        Ok((status, said)) => bail!("the server at {place} answers {status} to {path}: {}", readable(said)),
        Err(error) => bail!("no server answers at {place}: {}", readable(format!("{error:#}"))),
    }
}
