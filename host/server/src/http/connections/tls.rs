//! TLS before HTTP: the handshake, and who the client is.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::body::Bytes;
use axum::http::{Request, StatusCode};
use hyper::body::Incoming;
use rustls::ServerConfig;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Connections, Order, Phase, Served, Watched, part_with};
use crate::config::clients::ClientNames;
use crate::config::tls::HTTP2;
use crate::http::access::Client;
use crate::service::problem::{Kind, Problem};

/// What the client begins with, which is still to be read; none if it is gone, as those are who only look whether
/// somebody listens, or says nothing in time.
pub(super) async fn first_byte(stream: &TcpStream, watched: &Watched) -> Option<u8> {
    let mut registered = None;
    poll_fn(|context| {
        watched.register(&mut registered, context);
        if watched.ordered(Order::Expire) || watched.ordered(Order::Break) {
            return Poll::Ready(None);
        }
        let mut first = [0];
        let mut first = ReadBuf::new(&mut first);
        match stream.poll_peek(context, &mut first) {
            Poll::Ready(Ok(_)) => Poll::Ready(first.filled().first().copied()),
            Poll::Ready(Err(_)) => Poll::Ready(None),
            Poll::Pending if watched.ordered(Order::End) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

impl Connections {
    /// Serves a connection that does not begin with plain HTTP, until it closes.
    pub(super) async fn serve_tls(
        self: &Arc<Self>,
        stream: TcpStream,
        server: Arc<ServerConfig>,
        watched: &Arc<Watched>,
    ) {
        watched.stays();
        watched.enter(Phase::Handshake);
        let Some(stream) = self.handshake(stream, server, watched).await else { return };
        let (_, session) = stream.get_ref();
        let is_http2 = session.alpn_protocol() == Some(HTTP2);
        let client = match session.peer_certificates().and_then(<[_]>::first).map(ClientNames::of_verified) {
            None => None,
            Some(Ok(names)) => Some(Client(Arc::new(names))),
            Some(Err(error)) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "the certificate of a client counts as none");
                None
            }
        };
        let introduce = move |request: &mut Request<Incoming>| {
            if let Some(client) = &client {
                request.extensions_mut().insert(client.clone());
            }
        };
        watched.enter(Phase::New);
        if is_http2 {
            return Box::pin(self.serve_http2(stream, Bytes::new(), watched, introduce)).await;
        }
        // It is not parked, as it stays.
        if let Served::Http2(stream, unread) =
            Box::pin(self.serve_http1(stream, Bytes::new(), watched, &introduce)).await
        {
            Box::pin(self.serve_http2(stream, unread, watched, introduce)).await;
        }
    }

    /// Agrees with the client on TLS, in time.
    async fn handshake(
        &self,
        stream: TcpStream,
        server: Arc<ServerConfig>,
        watched: &Watched,
    ) -> Option<TlsStream<TcpStream>> {
        let mut accept = pin!(TlsAcceptor::from(server).accept(stream));
        let mut registered = None;
        let agreed = poll_fn(|context| {
            watched.register(&mut registered, context);
            match accept.as_mut().poll(context) {
                Poll::Ready(agreed) => Poll::Ready(Some(agreed)),
                Poll::Pending if watched.expires() || watched.ordered(Order::Break) || watched.ordered(Order::End) => {
                    Poll::Ready(None)
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        match agreed {
            Some(Ok(stream)) => return Some(stream),
            Some(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            None if watched.ordered(Order::Expire) => tracing::debug!("a TLS handshake took too long"),
            // The server ends: it is no failure.
            None => return None,
        }
        self.front.traffic().handshake_failed();
        None
    }

    /// Tells whoever speaks plain HTTP that this is the wrong scheme.
    pub(super) async fn refuse_plain(&self, stream: TcpStream) {
        let problem =
            Problem::new(Kind::RequestInvalid, "this port speaks HTTPS: ask for https:// in place of http://");
        self.front.traffic().answered_unread(StatusCode::BAD_REQUEST);
        part_with(stream, &problem.into_last_message()).await;
    }
}
