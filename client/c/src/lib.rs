// SPDX-License-Identifier: GPL-2.0-only
//! The client library for programs in C; `include/onbeat.h` is its reference. Nothing unwinds into C: every entry
//! catches panics, and answers with 0 or a negative errno.

use client::{Beat, Change, Error, Params, Reservation, job_done};
use onbeat_model::protocol::ProtocolError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::time::Duration;

/// `struct onbeat_params`.
#[repr(C)]
#[derive(Debug)]
pub struct CParams {
    name: *const c_char,
    budget_ns: u64,
    period_ns: u64,
    deadline_ns: u64,
    cpus: *const u32,
    cpu_count: usize,
    marks: c_int,
}

/// `struct onbeat`, opaque to C.
#[derive(Debug)]
pub struct Onbeat {
    reservation: Reservation,
    beat: Beat,
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

fn fail(errno: c_int, message: &str) -> c_int {
    let clean: Vec<u8> = message.bytes().filter(|&byte| byte != 0).collect();
    MESSAGE.with(|slot| *slot.borrow_mut() = CString::new(clean).unwrap_or_default());
    -errno
}

fn explain(error: &Error) -> c_int {
    let errno = match error {
        Error::NoService { error, .. } => error.raw_os_error().unwrap_or(libc::ENOTCONN),
        Error::Mute | Error::Starting(_) => libc::ETIMEDOUT,
        Error::Protocol(ProtocolError::Io(source)) => source.raw_os_error().unwrap_or(libc::EIO),
        Error::Protocol(_) => libc::EPROTO,
        Error::Refused(_) => libc::EBUSY,
        Error::Invalid(_) => libc::EINVAL,
        Error::Failed { .. } => libc::EREMOTEIO,
    };
    fail(errno, &error.to_string())
}

fn guarded(body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| fail(libc::ENOTRECOVERABLE, "a mistake inside the Onbeat library"))
}

/// # Safety
/// As for `onbeat_reserve`.
unsafe fn read_params(params: &CParams) -> Result<(String, Params), &'static str> {
    if params.name.is_null() {
        return Err("onbeat_params.name is NULL");
    }
    // SAFETY: the caller gives a C string.
    let name = unsafe { CStr::from_ptr(params.name) }.to_string_lossy().into_owned();
    let mut out = Params::new(params.budget_ns, params.period_ns);
    if params.deadline_ns != 0 {
        out = out.with_deadline(params.deadline_ns);
    }
    if params.cpu_count > 0 {
        if params.cpus.is_null() {
            return Err("onbeat_params.cpus is NULL, but cpu_count is not 0");
        }
        // SAFETY: the caller gives that many CPUs.
        out = out.on_cpus(unsafe { slice::from_raw_parts(params.cpus, params.cpu_count) }.into());
    }
    Ok((name, if params.marks != 0 { out.marking_jobs() } else { out }))
}

/// Makes a reservation for this process and stores its handle.
///
/// # Safety
/// `params` is null or points to parameters whose pointers are valid; `out` is null or a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onbeat_reserve(params: *const CParams, out: *mut *mut Onbeat) -> c_int {
    guarded(|| {
        if params.is_null() || out.is_null() {
            return fail(libc::EINVAL, "onbeat_reserve: NULL");
        }
        // SAFETY: both were just checked, the rest is the caller's promise.
        let (name, wanted) = match unsafe { read_params(&*params) } {
            Ok(read) => read,
            Err(message) => return fail(libc::EINVAL, message),
        };
        match Reservation::of_this_process(&name, &wanted) {
            Ok(reservation) => {
                // SAFETY: `params` was checked above.
                let (period, marks) = unsafe { ((*params).period_ns, (*params).marks != 0) };
                let beat = if marks { Beat::marked(period) } else { Beat::new(period) };
                // SAFETY: `out` is a place for a pointer.
                unsafe { *out = Box::into_raw(Box::new(Onbeat { reservation, beat })) };
                0
            }
            Err(error) => explain(&error),
        }
    })
}

/// Sleeps until the next release; stores how late the caller then is.
///
/// # Safety
/// `onbeat` comes from `onbeat_reserve` and is used by one thread at a time; `late_ns` is null
/// or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onbeat_wait_period(onbeat: *mut Onbeat, late_ns: *mut u64) -> c_int {
    guarded(|| {
        // SAFETY: null or a live handle, by the caller's promise.
        let Some(onbeat) = (unsafe { onbeat.as_mut() }) else {
            return fail(libc::EINVAL, "onbeat_wait_period: NULL");
        };
        let late = onbeat.beat.wait();
        if !late_ns.is_null() {
            // SAFETY: a place for a number, by the caller's promise.
            unsafe { *late_ns = late.as_nanos() as u64 };
        }
        0
    })
}

/// Marks the calling thread's job as complete.
#[unsafe(no_mangle)]
pub extern "C" fn onbeat_job_done() -> c_int {
    guarded(|| {
        job_done();
        0
    })
}

/// Waits for the next change of the reservation; returns which, 0 for none.
///
/// # Safety
/// As for `onbeat_wait_period`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onbeat_wait_change(onbeat: *mut Onbeat, patience_ns: u64) -> c_int {
    guarded(|| {
        // SAFETY: null or a live handle, by the caller's promise.
        let Some(onbeat) = (unsafe { onbeat.as_mut() }) else {
            return fail(libc::EINVAL, "onbeat_wait_change: NULL");
        };
        match onbeat.reservation.wait_change(Duration::from_nanos(patience_ns)) {
            Ok(None) => 0,
            Ok(Some(Change::Lost)) => 1,
            Ok(Some(Change::Released)) => 2,
            Ok(Some(Change::Shrunk)) => 3,
            Ok(Some(Change::Grown)) => 4,
            Ok(Some(Change::Unguaranteed)) => 5,
            Ok(Some(Change::Guaranteed)) => 6,
            Err(error) => explain(&error),
        }
    })
}

/// Gives the reservation back and frees the handle.
///
/// # Safety
/// `onbeat` is null or comes from `onbeat_reserve`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onbeat_release(onbeat: *mut Onbeat) -> c_int {
    guarded(|| {
        if onbeat.is_null() {
            return 0;
        }
        // SAFETY: made by Box::into_raw, and given back only once by the caller's promise.
        let onbeat = unsafe { Box::from_raw(onbeat) };
        onbeat.reservation.release().map_or_else(|error| explain(&error), |_| 0)
    })
}

/// What went wrong in the calling thread's last call that failed; never null.
#[unsafe(no_mangle)]
pub extern "C" fn onbeat_message() -> *const c_char {
    // The string lives until the same thread's next failure.
    MESSAGE.with(|slot| slot.borrow().as_ptr())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Words of `text` that begin with "onbeat_" and after which comes `end`.
    fn names<'a>(text: &'a str, end: &str) -> BTreeSet<&'a str> {
        let words = text.split(|c: char| c.is_whitespace() || c == '*');
        words
            .filter_map(|w| Some(w.split_once(end)?.0).filter(|n| n.starts_with("onbeat_")))
            .collect()
    }

    #[test]
    fn the_header_and_debians_list_of_symbols_have_each_function_that_c_may_call() {
        let source = include_str!("lib.rs").split("mod tests").next().unwrap();
        let there: BTreeSet<&str> = source
            .split("#[unsafe(no_mangle)]")
            .skip(1)
            .map(|rest| rest.split_once("fn ").unwrap().1.split_once('(').unwrap().0)
            .collect();
        assert!(there.len() > 5, "{there:?}");
        let header: Vec<&str> =
            include_str!("../include/onbeat.h").lines().filter(|l| !l.starts_with(" *")).collect();
        assert_eq!(names(&header.join("\n"), "("), there);
        assert_eq!(names(include_str!("../../../debian/libonbeat-client0.symbols"), "@"), there);
    }
}
