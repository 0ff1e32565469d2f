//! What the linker is told of a library that Python loads.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
