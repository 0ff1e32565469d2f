//! What a `no_std` component must bring along: an allocator, a way to end, memory functions and `cabi_realloc`.
//!
//! `wit-bindgen` expects wasi-libc to export `cabi_realloc` on this target; without the standard library nobody does,
//! and every string that crosses into the component needs it.
#![expect(unsafe_code, reason = "allocation across the component's boundary is in raw pointers")]

use alloc::alloc::{Layout, alloc, realloc};

// `memcmp` and its like come from the target's own C library. What is not used is not linked, so no WASI import with
// it.
#[link(name = "c")]
unsafe extern "C" {}

#[global_allocator]
static ALLOCATOR: rlsf::SmallGlobalTlsf = rlsf::SmallGlobalTlsf::new();

/// A broken invariant ends the instance: the host abandons its grants and builds a new one.
#[panic_handler]
fn trap(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

/// Allocates, or grows an allocation, for values that the canonical ABI lowers into this memory.
///
/// # Safety
/// Called by the canonical ABI only, with what it was given before.
#[unsafe(export_name = "cabi_realloc")]
unsafe extern "C" fn cabi_realloc(old: *mut u8, old_len: usize, align: usize, new_len: usize) -> *mut u8 {
    if new_len == 0 {
        return core::ptr::without_provenance_mut(align);
    }
    // SAFETY: the canonical ABI passes a power of two as `align`, sizes below the memory's, and as `old` only what
    // this function returned for (`old_len`, `align`).
    let new = unsafe {
        let layout = Layout::from_size_align_unchecked(if old_len == 0 { new_len } else { old_len }, align);
        if old_len == 0 { alloc(layout) } else { realloc(old, layout, new_len) }
    };
    if new.is_null() {
        core::arch::wasm32::unreachable()
    }
    new
}
