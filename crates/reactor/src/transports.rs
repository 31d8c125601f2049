//! One declaration of the interface of transports: a trait that transports implement, and the functions of their enum
//! that call it. The choice is a `match`: no virtual call on the fast path.

/// Declares a trait and the functions of the enum of its implementors, `Tcp` and `Ether`. `provided` functions have
/// default implementations.
#[macro_export]
macro_rules! transports {
    (
        $(#[$about:meta])*
        trait $trait:ident for $enum:ident;
        required { $(
            $(#[$doc:meta])*
            fn $name:ident $(<$lt:lifetime>)?($self:ident: $this:ty $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?;
        )* }
        provided { $(
            $(#[$pdoc:meta])*
            fn $pname:ident $(<$plt:lifetime>)?($pself:ident: $pthis:ty $(, $parg:ident: $pty:ty)*)
            $(-> $pret:ty)? $default:block
        )* }
    ) => {
        $(#[$about])*
        #[allow(
            unused_variables,
            clippy::needless_arbitrary_self_type,
            reason = "self and its type come from the macro's caller"
        )]
        pub(super) trait $trait {
            $($(#[$doc])* fn $name $(<$lt>)?($self: $this $(, $arg: $ty)*) $(-> $ret)?;)*
            $($(#[$pdoc])* fn $pname $(<$plt>)?($pself: $pthis $(, $parg: $pty)*) $(-> $pret)? $default)*
        }

        #[allow(clippy::needless_arbitrary_self_type, reason = "as above")]
        impl $enum {
            $($crate::transports!(@call $enum $(#[$doc])* $name $(<$lt>)?($self: $this $(, $arg: $ty)*) $(-> $ret)?);)*
            $($crate::transports!(@call $enum $(#[$pdoc])* $pname $(<$plt>)?($pself: $pthis $(, $parg: $pty)*) $(-> $pret)?);)*
        }
    };
    (
        @call $enum:ident $(#[$doc:meta])*
        $name:ident $(<$lt:lifetime>)?($self:ident: $this:ty $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?
    ) => {
        $(#[$doc])*
        pub(crate) fn $name $(<$lt>)?($self: $this $(, $arg: $ty)*) $(-> $ret)? {
            match $self {
                $enum::Tcp(transport) => transport.$name($($arg),*),
                $enum::Ether(transport) => transport.$name($($arg),*),
            }
        }
    };
}
