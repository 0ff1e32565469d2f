//! The running lease in a local file.
