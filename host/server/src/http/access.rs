//! Which token each route needs.
//!
//! A method joins a route only together with what it [`Needs`], and its handler runs only once that was shown: so a
//! route cannot be added without saying what it needs, and a handler cannot forget to look. The OpenAPI document says
//! of each operation what stands here.
//!
//! What a token may be bound to, its tags and snowflakes, is looked at by the handler, as only that knows which of them
//! a request concerns: by [`Permit::covers`] and [`Permit::covers_all`].

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequestParts, Path, Request};
use axum::handler::Handler;
use axum::http::header::{ALLOW, AUTHORIZATION, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Method};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, any, on};
use unalike::storage::split_tag;

use crate::config::clients::ClientNames;
use crate::config::names::plain_tag;
use crate::config::tokens::{Denied, Permit, Presented, Scope};
use crate::service::Service;
use crate::service::problem::{Kind, Problem};
use crate::words::shortened;

/// What a request needs, where tokens are required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// Nothing: it tells at most whether ids can be given, and changes nothing.
    Nothing,
    /// A token of this scope or a greater one.
    Token(Scope),
}

/// It hands out ids, or looks at things.
pub(super) const READ: Needs = Needs::Token(Scope::Read);
/// It grants segments or workers, from which others make ids by themselves, or takes them back.
pub(super) const LEASE: Needs = Needs::Token(Scope::Lease);
/// It creates or changes tags.
pub(super) const ADMIN: Needs = Needs::Token(Scope::Admin);
/// Single ids of sequences and snowflakes, also where they are answered without the router.
pub(super) const IDS: Scope = Scope::Read;

/// How the requests of a service show who sends them, and how a refusal is told there.
pub(super) trait Door: Clone + Send + Sync + 'static {
    /// Lets a request in whose token has this scope, and puts the [`Permit`] beside it; or answers it.
    fn admit(
        &self,
        service: &Service,
        scope: Scope,
        request: Request,
    ) -> impl Future<Output = Result<Request, Response>> + Send;
}

/// A door of a service whose clients show a token in the header, or a certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByHeader {
    /// The answer to a request that may not come in.
    pub(super) refuse: fn(&Parts, Denied) -> Response,
}

impl Door for ByHeader {
    async fn admit(&self, service: &Service, scope: Scope, request: Request) -> Result<Request, Response> {
        let (mut parts, body) = request.into_parts();
        match service.tokens.permit(presented(&parts.headers, &parts.extensions), scope) {
            Ok(permit) => {
                parts.extensions.insert(permit);
                Ok(Request::from_parts(parts, body))
            }
            Err(denied) => Err((self.refuse)(&parts, denied)),
        }
    }
}

/// The door of unalike's own paths.
pub(super) const OWN: ByHeader = ByHeader { refuse: |_, denied| Problem::from(denied).into_response() };

/// All methods that a document can name, but for HEAD and TRACE.
const ANY_METHOD: [Method; 6] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// The methods of a route, behind one door.
pub(super) struct Methods<D> {
    door: D,
    router: MethodRouter<Arc<Service>>,
    needs: Vec<(Method, Needs)>,
}

impl<D: Door> Methods<D> {
    /// None yet.
    pub(super) fn behind(door: D) -> Self {
        Self { door, router: MethodRouter::new(), needs: Vec::new() }
    }

    pub(super) fn get<H: Handler<T, Arc<Service>>, T: 'static>(self, needs: Needs, handler: H) -> Self {
        self.on(Method::GET, MethodFilter::GET, needs, handler)
    }

    pub(super) fn post<H: Handler<T, Arc<Service>>, T: 'static>(self, needs: Needs, handler: H) -> Self {
        self.on(Method::POST, MethodFilter::POST, needs, handler)
    }

    pub(super) fn patch<H: Handler<T, Arc<Service>>, T: 'static>(self, needs: Needs, handler: H) -> Self {
        self.on(Method::PATCH, MethodFilter::PATCH, needs, handler)
    }

    pub(super) fn delete<H: Handler<T, Arc<Service>>, T: 'static>(self, needs: Needs, handler: H) -> Self {
        self.on(Method::DELETE, MethodFilter::DELETE, needs, handler)
    }

    pub(super) fn options<H: Handler<T, Arc<Service>>, T: 'static>(self, needs: Needs, handler: H) -> Self {
        self.on(Method::OPTIONS, MethodFilter::OPTIONS, needs, handler)
    }

    fn on<H, T>(mut self, method: Method, filter: MethodFilter, needs: Needs, handler: H) -> Self
    where
        H: Handler<T, Arc<Service>>,
        T: 'static,
    {
        let handler = Checked { door: self.door.clone(), needs, handler };
        self.router = self.router.merge(on(filter, handler));
        self.needs.push((method, needs));
        self
    }

    /// Any method but HEAD, whose id nobody would see, and TRACE, which the servers of other services refuse
    /// themselves.
    pub(super) fn any_but_head_and_trace<H, T>(door: D, needs: Needs, handler: H) -> Self
    where
        H: Handler<T, Arc<Service>>,
        T: 'static,
    {
        let router = any(Checked { door: door.clone(), needs, handler });
        let needs: Vec<(Method, Needs)> = ANY_METHOD.into_iter().map(|method| (method, needs)).collect();
        let refuse = refuse_but(&needs);
        Self { door, router: router.head(refuse.clone()).trace(refuse), needs }
    }

    /// Without HEAD, once all other methods are there: an id would be lost that nobody sees.
    pub(super) fn without_head(mut self) -> Self {
        let refuse = refuse_but(&self.needs);
        self.router = self.router.head(refuse.clone()).fallback(refuse);
        self
    }

    /// With something that the handlers are given.
    pub(super) fn with<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.router = self.router.layer(Extension(value));
        self
    }

    /// Under this template.
    pub(super) fn at(self, template: &'static str) -> Route {
        Route { template, router: self.router, needs: self.needs }
    }
}

/// What says which methods there are besides.
fn refuse_but(known: &[(Method, Needs)]) -> impl Fn(Method) -> Ready<Response> + Clone + Send + Sync + use<> {
    let names: Vec<&str> = known.iter().map(|(method, _)| method.as_str()).collect();
    // The names of methods are tokens.
    let allow = HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static(""));
    move |method| ready(refused_method(&method, allow.clone()))
}

/// A template, what answers there by which methods, and what each of them needs.
pub(super) struct Route {
    pub(super) template: &'static str,
    pub(super) router: MethodRouter<Arc<Service>>,
    pub(super) needs: Vec<(Method, Needs)>,
}

/// A handler that runs once its request has shown what it needs.
#[derive(Clone)]
struct Checked<D, H> {
    door: D,
    needs: Needs,
    handler: H,
}

/// Tells this handler from those of axum's.
enum IsChecked {}

impl<D, H, T> Handler<(IsChecked, T), Arc<Service>> for Checked<D, H>
where
    D: Door,
    H: Handler<T, Arc<Service>>,
    T: 'static,
{
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, service: Arc<Service>) -> Self::Future {
        let Self { door, needs, handler } = self;
        Box::pin(async move {
            let request = match needs {
                Needs::Nothing => request,
                Needs::Token(scope) => match door.admit(&service, scope, request).await {
                    Ok(request) => request,
                    Err(refusal) => return refusal,
                },
            };
            handler.call(request, service).await
        })
    }
}

/// What the request may do.
pub(super) struct Permitted(pub(super) Permit);

impl<S: Send + Sync> FromRequestParts<S> for Permitted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        permit(parts).map(Self)
    }
}

/// The name in the path, of a tag or snowflake that the request's token is good for, and what the request may do.
pub(super) struct Named(pub(super) String, pub(super) Permit);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Name(name) = Name::from_request_parts(parts, state).await?;
        let permit = permit(parts)?;
        permit.covers(&name)?;
        Ok(Self(name, permit))
    }
}

/// What a request may do that came in by a route that needs a token.
pub(super) fn permit(parts: &Parts) -> Result<Permit, Problem> {
    let missing = || Problem::new(Kind::Internal, "an internal error: this route does not say which token it needs");
    parts.extensions.get::<Permit>().cloned().ok_or_else(missing)
}

/// The one parameter of a path, percent-decoded.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            // An empty or a long one is answered by whoever looks it up.
            Ok(Path(name)) if split_tag(&name).1.is_none() => Ok(Self(name)),
            Ok(Path(name)) => plain_tag(&name).map(|()| Self(name)).map_err(Problem::from),
            Err(_) => Err(Problem::new(Kind::TagInvalid, "the name is not UTF-8 once percent-decoded")
                .with("path", shortened(parts.uri.path()))),
        }
    }
}

/// Who a connection is from, as its certificate says: with each of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Client(pub(crate) Arc<ClientNames>);

/// What a request shows of who sent it.
pub(crate) fn presented<'a>(headers: &'a HeaderMap, extensions: &'a Extensions) -> Presented<'a> {
    let token = bearer(headers);
    let client = if token.is_none() { extensions.get().map(|Client(names)| &**names) } else { None };
    Presented { token, client }
}

/// The token in the header `Authorization: Bearer TOKEN`. Another scheme counts as none.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Which methods there are.
pub(super) fn refused_method(method: &Method, allow: HeaderValue) -> Response {
    let problem = Problem::method_not_allowed(method, allow.to_str().unwrap_or_default());
    ([(ALLOW, allow)], problem).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bearer_scheme_is_read() {
        let presented = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).map(<[u8]>::to_vec)
        };
        for value in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(presented(value).as_deref(), Some(&b"abc"[..]), "{value}");
        }
        for value in ["Basic abc", "abc", "Bearer", "Bearerabc"] {
            assert_eq!(presented(value), None, "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
