//! The border to C: checks pointers, converts errors to numbers, and catches panics.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::mem::size_of;
use std::os::raw::{c_char, c_int};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Error of a call: a number of errno.h, and a text for people.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) errno: c_int,
    pub(crate) text: String,
}

pub(crate) type CallResult<T = ()> = Result<T, CallError>;

impl CallError {
    pub(crate) fn new(errno: c_int, text: impl ToString) -> CallError {
        CallError { errno, text: text.to_string() }
    }

    pub(crate) fn invalid(text: impl ToString) -> CallError {
        CallError::new(libc::EINVAL, text)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Returns the text of this thread's last error.
pub(crate) fn last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Runs a function of the C interface; returns its result, or a negative errno.
pub(crate) fn enter(work: impl FnOnce() -> CallResult<c_int>) -> c_int {
    let refusal = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(number)) => return number,
        Ok(Err(refusal)) => refusal,
        Err(_) => CallError::new(libc::EIO, "a fault of libroadtrain: please report it"),
    };
    let text = CString::new(refusal.text.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    -refusal.errno
}

fn null(name: &str) -> CallError {
    CallError::invalid(format!("{name} is NULL"))
}

/// # Safety
/// `pointer` is NULL or points to a `T` that only this call uses.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T, name: &str) -> CallResult<&'a mut T> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(name))
}

/// # Safety
/// `pointer` is NULL or points to a `T` that others only read.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, name: &str) -> CallResult<&'a T> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// Returns a struct that begins with its size.
///
/// # Safety
/// `pointer` is NULL or points to as many bytes as the size declares.
pub(crate) unsafe fn sized<'a, T>(pointer: *const T, name: &str) -> CallResult<&'a T> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: the struct begins with its size.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < size_of::<T>() {
        let least = size_of::<T>();
        return Err(CallError::invalid(format!(
            "{name}.size is {size}, not {least}: set it to sizeof"
        )));
    }
    // SAFETY: the struct is that large.
    Ok(unsafe { &*pointer })
}

/// # Safety
/// `pointer` is NULL or points to `count` values that others only read.
pub(crate) unsafe fn slice<'a, T>(
    pointer: *const T,
    count: u32,
    name: &str,
) -> CallResult<&'a [T]> {
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(name)),
        // SAFETY: guaranteed by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer, count as usize) }),
    }
}

/// Room for values, which may be uninitialised.
pub(crate) struct Room<T> {
    start: *mut T,
    count: usize,
}

/// # Safety
/// `pointer` is NULL or points to room for `count` values that only this call uses, while the room is used.
pub(crate) unsafe fn room<T>(pointer: *mut T, count: u32, name: &str) -> CallResult<Room<T>> {
    if pointer.is_null() && count > 0 {
        return Err(null(name));
    }
    Ok(Room { start: pointer, count: count as usize })
}

impl<T> Room<T> {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Writes a value to an index inside the room.
    pub(crate) fn put(&mut self, index: usize, value: T) {
        assert!(index < self.count, "outside");
        // SAFETY: the index is inside the room.
        unsafe { self.start.add(index).write(value) };
    }
}

/// # Safety
/// `pointer` is NULL or points to text that ends with NUL.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> CallResult<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    let text = text.to_str().map_err(|_| CallError::invalid(format!("{name} is not UTF-8")))?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> String {
        // SAFETY: always a valid text.
        unsafe { CStr::from_ptr(last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn panics_stay_on_this_side() {
        assert_eq!(enter(|| panic!("on purpose")), -libc::EIO);
        assert!(said().contains("report"));
        assert_eq!(enter(|| Err(CallError::invalid("with \0 inside"))), -libc::EINVAL);
        assert_eq!(said(), "with   inside");
        assert_eq!(enter(|| Ok(7)), 7);
    }
}
