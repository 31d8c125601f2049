//! Constant zeroes, and piecewise comparison.

use roadtrain_system::buffer::Buffer;
use roadtrain_system::memory::PAGE_BYTES;
use roadtrain_wire::status::Status;

/// Zeroes to read or to write from, in .bss.
#[repr(align(4096))]
pub(crate) struct Zeroes(pub(crate) [u8; ZEROES_BYTES]);
pub(crate) static ZEROES: Zeroes = Zeroes([0; ZEROES_BYTES]);
const _: () = assert!(align_of::<Zeroes>() == PAGE_BYTES);

/// Bytes of [`ZEROES`].
pub(crate) const ZEROES_BYTES: usize = 1 << 20;

/// Returns the address of `len` zeroes, if [`ZEROES`] has that many.
#[inline]
pub(crate) fn zeroes(len: usize) -> Option<*const u8> {
    (len <= ZEROES_BYTES).then_some(ZEROES.0.as_ptr())
}

/// Compares piecewise with the bytes that `stored(at)` points to: at most [`ZEROES_BYTES`] of them at once.
pub(crate) fn compare(
    expected: &Buffer,
    stored: impl Fn(usize) -> *const u8,
) -> Result<(), Status> {
    for (index, piece) in expected.chunks(ZEROES_BYTES).enumerate() {
        let at = stored(index * ZEROES_BYTES);
        // SAFETY: both sides are `piece.len()` readable bytes; no reference to shared memory is made.
        let differs = unsafe { libc::memcmp(piece.as_ptr().cast(), at.cast(), piece.len()) } != 0;
        if differs {
            return Err(Status::COMPARE_FAILURE.dnr());
        }
    }
    Ok(())
}
