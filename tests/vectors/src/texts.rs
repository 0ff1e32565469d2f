//! To come.
pub(crate) fn file() -> crate::script::File {
    crate::script::File::new("core")
}
