//! The messages of etcd's API that are used here, by the numbers of `rpc.proto` and `kv.proto`.
//!
//! They are written down because they are few: what generates them from the protocol's description needs `protoc`
//! wherever this crate is built.

/// What every answer begins with.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    /// Of the whole store, when the request was carried out.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    /// Another one with each election.
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

/// An answer, which says what answered.
pub(crate) trait Answer {
    fn header(&self) -> Option<ResponseHeader>;
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The cluster's revision when it was written first, since it was last absent.
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    /// The cluster's revision when it was written last.
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    /// How often it was written, since it was last absent.
    #[prost(int64, tag = "4")]
    pub(crate) version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
}

/// Keys from `key` up to `range_end`, or `key` alone.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// 0: all.
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
}

/// What was found, in ascending order of the keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct PutResponse {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2")]
    pub(crate) request: Option<Request>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2")]
    pub(crate) response: Option<Response>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub(crate) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
}

/// A condition of a transaction on a key, or on all keys from `key` up to `range_end`. A key that is not there has the
/// revision 0.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Compare {
    /// 0: equal, 2: less.
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    /// 2: the revision of the last write.
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    /// Always sent, also where it is 0: it is one of several.
    #[prost(int64, optional, tag = "6")]
    pub(crate) mod_revision: Option<i64>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct MemberListRequest {}

/// The cluster's members, of which only the number counts here.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Member {}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct StatusRequest {}

/// What a member says of itself.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// The member that leads; 0 if this one knows none.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    /// The greatest index of the log that is known to be committed.
    #[prost(uint64, tag = "5")]
    pub(crate) raft_index: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) raft_term: u64,
    /// The greatest that was carried out. 0 before etcd 3.4.
    #[prost(uint64, tag = "7")]
    pub(crate) raft_applied_index: u64,
    /// Alarms among them.
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

impl std::fmt::Debug for AuthenticateRequest {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

impl std::fmt::Debug for AuthenticateResponse {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticateResponse").finish_non_exhaustive()
    }
}

macro_rules! answers {
    ($($answer:ty),*) => {
        $(impl Answer for $answer {
            fn header(&self) -> Option<ResponseHeader> {
                self.header
            }
        })*
    };
}

answers!(RangeResponse, TxnResponse, StatusResponse, AuthenticateResponse);

impl RangeRequest {
    /// A key alone.
    pub(crate) fn key(key: &str) -> Self {
        Self { key: key.into(), range_end: Vec::new(), limit: 0 }
    }

    /// All keys that begin so, up to a limit (0: none), those after `after` only.
    pub(crate) fn prefix(prefix: &str, after: Option<&str>, limit: u32) -> Self {
        let key = after.map_or_else(|| prefix.into(), |after| [after.as_bytes(), b"\0"].concat());
        Self { key, range_end: prefix_end(prefix), limit: limit.into() }
    }
}

impl Compare {
    /// The key was written last in this revision; 0: it is not there.
    pub(crate) fn unchanged(key: &str, mod_revision: i64) -> Self {
        Self { result: 0, target: 2, key: key.into(), mod_revision: Some(mod_revision), range_end: Vec::new() }
    }

    /// No key that begins so was written after this revision.
    pub(crate) fn all_unchanged(prefix: &str, revision: i64) -> Self {
        let after = revision.saturating_add(1);
        Self { result: 2, target: 2, key: prefix.into(), mod_revision: Some(after), range_end: prefix_end(prefix) }
    }
}

impl From<RangeRequest> for RequestOp {
    fn from(range: RangeRequest) -> Self {
        Self { request: Some(Request::Range(range)) }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(put: PutRequest) -> Self {
        Self { request: Some(Request::Put(put)) }
    }
}

/// The first key that is behind all that begin so. A prefix ends with a character below 255.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end: Vec<u8> = prefix.into();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_condition_on_a_key_that_is_not_there_is_sent_whole() {
        // Without the zero, etcd would compare with another figure's default.
        let compare = Compare::unchanged("k", 0);
        assert_eq!(compare.encode_to_vec(), [16, 2, 26, 1, b'k', 48, 0]);
    }

    #[test]
    fn a_prefix_ends_behind_all_that_begin_so() {
        assert_eq!(prefix_end("a/tag/"), b"a/tag0");
        let range = RangeRequest::prefix("a/", Some("a/b"), 7);
        assert_eq!((range.key.as_slice(), range.range_end.as_slice(), range.limit), (&b"a/b\0"[..], &b"a0"[..], 7));
    }

    #[test]
    fn no_secret_is_shown() {
        let request = AuthenticateRequest { name: "ids".to_owned(), password: "secret".to_owned() };
        let response = AuthenticateResponse { header: None, token: "secret".to_owned() };
        assert!(!format!("{request:?} {response:?}").contains("secret"));
    }
}
