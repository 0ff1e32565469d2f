//! What the linker is told of a library that Node loads: among it, that the library stays when the thread that loaded
//! it ends, since its own threads run on.

fn main() {
    napi_build::setup();
}
