//! librados and librbd, loaded when the first image is opened: the program runs without them.

use libloading::Library as Loaded;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::LazyLock;

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t`, `rbd_completion_t` and options: pointers to the library's data.
pub(super) type CephHandle = *mut c_void;
/// Callback of librbd for an operation that has ended.
pub(super) type OnEnd = unsafe extern "C" fn(CephHandle, *mut c_void);
/// Callback of librbd for a changed header of an image.
pub(super) type OnUpdate = unsafe extern "C" fn(*mut c_void);

/// Callback of librbd for each extent: its offset, its length, its existence.
pub(super) type OnExtent = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;
/// Callback of librbd for the progress of an operation.
pub(super) type OnProgress = unsafe extern "C" fn(u64, u64, *mut c_void) -> c_int;
/// Callback of librados for a notification of a watched object.
pub(super) type OnNotify = unsafe extern "C" fn(*mut c_void, u64, u64, u64, *mut c_void, usize);
/// Callback of librados for the loss of a watch.
pub(super) type OnLoss = unsafe extern "C" fn(*mut c_void, u64, c_int);
/// A text of librados, which is not changed.
pub(super) type Text = *const c_char;

/// `RBD_LOCK_MODE_EXCLUSIVE`
pub(super) const EXCLUSIVE: c_int = 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`
pub(super) const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_FEATURE_OBJECT_MAP` and `RBD_FEATURE_FAST_DIFF`, which needs it.
pub(super) const FEATURES_OBJECT_MAP: u64 = 1 << 3 | 1 << 4;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`: the space is kept.
pub(super) const KEEP_SPACE: c_int = 1;

/// `rbd_snap_info_t`
#[repr(C)]
#[derive(Clone, Debug)]
pub(super) struct SnapInfo {
    pub(super) id: u64,
    pub(super) size: u64,
    pub(super) name: *const c_char,
}

impl Default for SnapInfo {
    fn default() -> SnapInfo {
        SnapInfo { id: 0, size: 0, name: std::ptr::null() }
    }
}

/// `rbd_config_option_t`
#[repr(C)]
#[derive(Clone, Debug)]
pub(super) struct ConfigOption {
    pub(super) name: *mut c_char,
    pub(super) value: *mut c_char,
    /// `rbd_config_source_t`
    pub(super) source: c_int,
}

impl Default for ConfigOption {
    fn default() -> ConfigOption {
        ConfigOption { name: std::ptr::null_mut(), value: std::ptr::null_mut(), source: 0 }
    }
}

/// `rbd_image_watcher_t`
#[repr(C)]
#[derive(Debug)]
pub(super) struct ImageWatcher {
    pub(super) address: *mut c_char,
    id: i64,
    cookie: u64,
}

impl Default for ImageWatcher {
    fn default() -> ImageWatcher {
        ImageWatcher { address: std::ptr::null_mut(), id: 0, cookie: 0 }
    }
}

/// `RBD_CONFIG_SOURCE_POOL`
pub(super) const FROM_POOL: c_int = 1;
/// `RBD_CONFIG_SOURCE_IMAGE`
pub(super) const FROM_IMAGE: c_int = 2;

/// Declares functions by their C names and resolves all of them.
macro_rules! functions {
    ($library:ident: $($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// Functions of one library, as its header declares them.
        #[derive(Debug)]
        pub(super) struct $library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $library {
            fn load(name: &str) -> Result<Self, libloading::Error> {
                // SAFETY: the library's initialisation is the same as in every program that is linked to it. It is
                // never unloaded: its threads would continue without its code.
                let loaded = std::mem::ManuallyDrop::new(unsafe { Loaded::new(name) }?);
                $(
                    // SAFETY: the type is that of the header, which is the same for all versions with this name.
                    let $name = *unsafe { loaded.get(concat!(stringify!($name), "\0").as_bytes()) }?;
                )*
                Ok($library { $($name),* })
            }
        }
    };
}

functions! { Rados:
    rados_create(*mut CephHandle, *const c_char) -> c_int;
    rados_conf_read_file(CephHandle, *const c_char) -> c_int;
    rados_conf_set(CephHandle, *const c_char, *const c_char) -> c_int;
    rados_connect(CephHandle) -> c_int;
    rados_shutdown(CephHandle) -> ();
    rados_cluster_fsid(CephHandle, *mut c_char, usize) -> c_int;
    rados_ioctx_create(CephHandle, *const c_char, *mut CephHandle) -> c_int;
    rados_ioctx_set_namespace(CephHandle, *const c_char) -> ();
    rados_ioctx_get_id(CephHandle) -> i64;
    rados_set_pool_full_try(CephHandle) -> ();
    rados_ioctx_destroy(CephHandle) -> ();
    rados_wait_for_latest_osdmap(CephHandle) -> c_int;
    rados_blocklist_add(CephHandle, *mut c_char, u32) -> c_int;
    rados_getxattr(CephHandle, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    rados_setxattr(CephHandle, *const c_char, *const c_char, *const c_char, usize) -> c_int;
    rados_create_read_op() -> CephHandle;
    rados_read_op_omap_get_vals2(CephHandle, Text, Text, u64, *mut CephHandle, *mut u8, *mut c_int) -> ();
    rados_read_op_operate(CephHandle, CephHandle, Text, c_int) -> c_int;
    rados_release_read_op(CephHandle) -> ();
    rados_omap_get_next2(CephHandle, *mut *mut c_char, *mut *mut c_char, *mut usize, *mut usize) -> c_int;
    rados_omap_get_end(CephHandle) -> ();
    rados_create_write_op() -> CephHandle;
    rados_write_op_create(CephHandle, c_int, Text) -> ();
    rados_write_op_omap_cmp2(CephHandle, Text, u8, Text, usize, usize, *mut c_int) -> ();
    rados_write_op_omap_set2(CephHandle, *const Text, *const Text, *const usize, *const usize, usize) -> ();
    rados_write_op_omap_rm_keys2(CephHandle, *const Text, *const usize, usize) -> ();
    rados_write_op_operate2(CephHandle, CephHandle, Text, *mut c_void, c_int) -> c_int;
    rados_release_write_op(CephHandle) -> ();
    rados_watch3(CephHandle, Text, *mut u64, OnNotify, OnLoss, u32, *mut c_void) -> c_int;
    rados_unwatch2(CephHandle, u64) -> c_int;
    rados_watch_flush(CephHandle) -> c_int;
    rados_notify2(CephHandle, Text, Text, c_int, u64, *mut *mut c_char, *mut usize) -> c_int;
    rados_notify_ack(CephHandle, Text, u64, u64, Text, c_int) -> c_int;
    rados_buffer_free(*mut c_char) -> ();
}

functions! { Rbd:
    rbd_image_options_create(*mut CephHandle) -> ();
    rbd_image_options_destroy(CephHandle) -> ();
    rbd_create4(CephHandle, *const c_char, u64, CephHandle) -> c_int;
    rbd_remove(CephHandle, *const c_char) -> c_int;
    rbd_open(CephHandle, *const c_char, *mut CephHandle, *const c_char) -> c_int;
    rbd_open_read_only(CephHandle, *const c_char, *mut CephHandle, *const c_char) -> c_int;
    rbd_close(CephHandle) -> c_int;
    rbd_get_size(CephHandle, *mut u64) -> c_int;
    rbd_resize2(CephHandle, u64, bool, OnProgress, *mut c_void) -> c_int;
    rbd_get_id(CephHandle, *mut c_char, usize) -> c_int;
    rbd_get_features(CephHandle, *mut u64) -> c_int;
    rbd_config_image_list(CephHandle, *mut ConfigOption, *mut c_int) -> c_int;
    rbd_config_image_list_cleanup(*mut ConfigOption, c_int) -> ();
    rbd_get_stripe_unit(CephHandle, *mut u64) -> c_int;
    rbd_get_stripe_count(CephHandle, *mut u64) -> c_int;
    rbd_diff_iterate2(CephHandle, *const c_char, u64, u64, u8, u8, OnExtent, *mut c_void) -> c_int;
    rbd_lock_acquire(CephHandle, c_int) -> c_int;
    rbd_lock_release(CephHandle) -> c_int;
    rbd_lock_get_owners(CephHandle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    rbd_lock_get_owners_cleanup(*mut *mut c_char, usize) -> ();
    rbd_watchers_list(CephHandle, *mut ImageWatcher, *mut usize) -> c_int;
    rbd_watchers_list_cleanup(*mut ImageWatcher, usize) -> ();
    rbd_lock_break(CephHandle, c_int, *const c_char) -> c_int;
    rbd_update_features(CephHandle, u64, u8) -> c_int;
    rbd_snap_list(CephHandle, *mut SnapInfo, *mut c_int) -> c_int;
    rbd_snap_list_end(*mut SnapInfo) -> ();
    rbd_snap_create(CephHandle, *const c_char) -> c_int;
    rbd_snap_remove(CephHandle, *const c_char) -> c_int;
    rbd_snap_rollback(CephHandle, *const c_char) -> c_int;
    rbd_snap_protect(CephHandle, *const c_char) -> c_int;
    rbd_snap_unprotect(CephHandle, *const c_char) -> c_int;
    rbd_snap_is_protected(CephHandle, *const c_char, *mut c_int) -> c_int;
    rbd_snap_get_timestamp(CephHandle, u64, *mut libc::timespec) -> c_int;
    rbd_clone3(CephHandle, *const c_char, *const c_char, CephHandle, *const c_char, CephHandle) -> c_int;
    rbd_update_watch(CephHandle, *mut u64, OnUpdate, *mut c_void) -> c_int;
    rbd_update_unwatch(CephHandle, u64) -> c_int;
    rbd_aio_create_completion(*mut c_void, OnEnd, *mut CephHandle) -> c_int;
    rbd_aio_get_return_value(CephHandle) -> isize;
    rbd_aio_release(CephHandle) -> ();
    rbd_aio_read(CephHandle, u64, usize, *mut c_char, CephHandle) -> c_int;
    rbd_aio_write(CephHandle, u64, usize, *const c_char, CephHandle) -> c_int;
    rbd_aio_flush(CephHandle, CephHandle) -> c_int;
    rbd_aio_discard(CephHandle, u64, u64, CephHandle) -> c_int;
    rbd_aio_write_zeroes(CephHandle, u64, usize, CephHandle, c_int, c_int) -> c_int;
    rbd_flush(CephHandle) -> c_int;
}

/// File name of librbd.
pub(super) const LIBRBD: &str = "librbd.so.1";

/// The functions of both libraries.
#[derive(Debug)]
pub(super) struct Ceph {
    pub(super) rados: Rados,
    pub(super) rbd: Rbd,
}

static CEPH: LazyLock<Result<Ceph, String>> = LazyLock::new(|| {
    let missing = |error: libloading::Error| {
        format!("needs librbd, which is not here: install the package librbd1 ({error})")
    };
    let rados = Rados::load("librados.so.2").map_err(missing)?;
    let rbd = Rbd::load(LIBRBD).map_err(missing)?;
    super::closing::loaded();
    Ok(Ceph { rados, rbd })
});

/// Returns the libraries, or the reason why they are missing.
pub(super) fn ceph() -> Result<&'static Ceph, &'static str> {
    CEPH.as_ref().map_err(String::as_str)
}

/// Reads a NUL-terminated text that a function has written.
pub(super) fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes)
        .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}
