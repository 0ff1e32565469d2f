//! What a format costs per id.
fn main() {}
