//! Status of a completion (NVMe Base 2.0, section 3.3.3.2.1).

use core::fmt;

/// Status code type, status code, More and Do Not Retry: bits 15:1 of the status field, moved down by one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u16);

const DNR: u16 = 1 << 14;
const MORE: u16 = 1 << 13;
const CRD_SHIFT: u32 = 11;
/// Status code type of errors of the path to the namespace.
const PATH_RELATED: u16 = 3;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $sct:literal, $sc:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* #[doc = $text] pub const $name: Status = Status($sct << 8 | $sc);)*

            /// Returns the name in the specification, if the status is known here.
            #[must_use]
            #[inline]
            pub fn name(self) -> Option<&'static str> {
                match self.code() {
                    $(c if c == Self::$name.0 => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, 0x00, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command";
    CID_CONFLICT = 0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error";
    INTERNAL_ERROR = 0, 0x06, "Internal Error";
    ABORT_REQUESTED = 0, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0, 0x08, "Command Aborted due to SQ Deletion";
    FUSED_FAILED = 0, 0x09, "Command Aborted due to Failed Fused Command";
    FUSED_MISSING = 0, 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = 0, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0, 0x0d, "Invalid SGL Segment Descriptor";
    DATA_SGL_LENGTH_INVALID = 0, 0x0f, "Data SGL Length Invalid";
    SGL_TYPE_INVALID = 0, 0x11, "SGL Descriptor Type Invalid";
    SGL_OFFSET_INVALID = 0, 0x16, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = 0, 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = 0, 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = 0, 0x1a, "Keep Alive Timeout Invalid";
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0, 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "Transient Transport Error";
    INVALID_COMMAND_SET = 1, 0x2c, "Invalid I/O Command Set";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0, 0x83, "Reservation Conflict";
    INVALID_QID = 1, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = 1, 0x03, "Abort Command Limit Exceeded";
    AER_LIMIT_EXCEEDED = 1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_LOG_PAGE = 1, 0x09, "Invalid Log Page";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f, "Feature Not Namespace Specific";
    ATOMIC_WRITE_UNIT_EXCEEDED = 1, 0x14, "Atomic Write Unit Exceeded";
    INVALID_FORMAT = 1, 0x0a, "Invalid Format";
    NAMESPACE_INSUFFICIENT_CAPACITY = 1, 0x15, "Namespace Insufficient Capacity";
    NAMESPACE_ID_UNAVAILABLE = 1, 0x16, "Namespace Identifier Unavailable";
    NAMESPACE_ALREADY_ATTACHED = 1, 0x18, "Namespace Already Attached";
    NAMESPACE_IS_PRIVATE = 1, 0x19, "Namespace Is Private";
    NAMESPACE_NOT_ATTACHED = 1, 0x1a, "Namespace Not Attached";
    THIN_PROVISIONING_NOT_SUPPORTED = 1, 0x1b, "Thin Provisioning Not Supported";
    CONTROLLER_LIST_INVALID = 1, 0x1c, "Controller List Invalid";
    ANA_GROUP_INVALID = 1, 0x24, "ANA Group Identifier Invalid";
    COMMAND_SET_NOT_SUPPORTED = 1, 0x29, "I/O Command Set Not Supported";
    CROSS_RESET_IN_PROGRESS = 1, 0x3f, "Cross-Controller Reset in Progress";
    CROSS_RESET_LOG_FULL = 1, 0x40, "Cross-Controller Reset Log Page Full";
    CROSS_RESET_LIMIT_EXCEEDED = 1, 0x41, "Cross-Controller Reset Limit Exceeded";
    CONNECT_INCOMPATIBLE_FORMAT = 1, 0x80, "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = 1, 0x81, "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = 1, 0x82, "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = 1, 0x83, "Connect Restart Discovery or Command Size Limit Exceeded";
    CONNECT_INVALID_HOST = 1, 0x84, "Connect Invalid Host";
    INVALID_QUEUE_TYPE = 1, 0x85, "Invalid Queue Type";
    DISCOVER_RESTART = 1, 0x90, "Discover Restart";
    AUTHENTICATION_REQUIRED = 1, 0x91, "Authentication Required";
    WRITE_FAULT = 2, 0x80, "Write Fault";
    UNRECOVERED_READ_ERROR = 2, 0x81, "Unrecovered Read Error";
    OVERLAPPING_IO_RANGE = 1, 0x87, "Overlapping I/O Range";
    COMPARE_FAILURE = 2, 0x85, "Compare Failure";
    ACCESS_DENIED = 2, 0x86, "Access Denied";
    INTERNAL_PATH_ERROR = 3, 0x00, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 3, 0x01, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 3, 0x02, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 3, 0x03, "Asymmetric Access Transition";
    CONTROLLER_PATH_ERROR = 3, 0x60, "Controller Pathing Error";
    HOST_PATH_ERROR = 3, 0x70, "Host Pathing Error";
    HOST_ABORTED = 3, 0x71, "Command Aborted By Host";
}

impl Status {
    /// Command Size Limit Exceeded of I/O commands. Connect has another status with that code.
    pub const COMMAND_SIZE_LIMIT_EXCEEDED: Status = Status::CONNECT_RESTART_DISCOVERY;

    /// A status of that type (3 bits) and code.
    #[must_use]
    pub const fn new(sct: u8, sc: u8) -> Self {
        Status(((sct & 7) as u16) << 8 | sc as u16)
    }

    /// Parses the status field of a completion (bit 0 is the phase tag, dropped).
    #[must_use]
    #[inline]
    pub const fn from_field(field: u16) -> Self {
        Status(field >> 1)
    }

    /// Returns the status field of a completion, phase tag 0.
    #[must_use]
    #[inline]
    pub const fn to_field(self) -> u16 {
        self.0 << 1
    }

    /// Returns the status with Do Not Retry set.
    #[must_use]
    #[inline]
    pub const fn dnr(self) -> Self {
        Status(self.0 | DNR)
    }

    /// Returns the status with More set (more in the error information log).
    #[must_use]
    #[inline]
    pub const fn more(self) -> Self {
        Status(self.0 | MORE)
    }

    /// True if Do Not Retry is set.
    #[must_use]
    #[inline]
    pub const fn is_dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// Returns the status with a Command Retry Delay (CRD): index of the controller's three delays, 0 for none.
    #[must_use]
    #[inline]
    pub const fn retry_after(self, crd: u8) -> Self {
        Status(self.0 & !(3 << CRD_SHIFT) | (crd as u16 & 3) << CRD_SHIFT)
    }

    /// Returns the Command Retry Delay (CRD): index of the controller's delay before a retry, 1 to 3; 0: none given.
    #[must_use]
    #[inline]
    pub const fn retry_delay(self) -> u8 {
        (self.0 >> CRD_SHIFT & 3) as u8
    }

    /// True if the path to the namespace has failed, not the command (status code type 3).
    #[must_use]
    #[inline]
    pub const fn is_path_related(self) -> bool {
        self.code() >> 8 == PATH_RELATED
    }

    /// Returns status code type and code without the flags.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// True if the command succeeded.
    #[must_use]
    #[inline]
    pub const fn is_success(self) -> bool {
        self.code() == 0
    }

    /// True if `self` and `other` have the same type and code, whatever their flags.
    #[must_use]
    #[inline]
    pub const fn is(self, other: Status) -> bool {
        self.code() == other.code()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}")?,
            None => write!(f, "status")?,
        }
        write!(f, " ({:#05x}{})", self.code(), if self.is_dnr() { ", do not retry" } else { "" })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
