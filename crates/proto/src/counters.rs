//! Counters in one form: whole numbers with names, which only grow. State machines hold them, reactors publish them.

/// Declares counters: a struct of `u64` with its sum, its difference, its names and its numbers as an array. Sums and
/// differences wrap, so a difference over a restart is wrong and no panic.
///
/// ```
/// roadtrain_proto::counters! {
///     /// Frames of a port.
///     pub struct Frames {
///         /// Sent.
///         sent,
///         /// Received.
///         received,
///     }
/// }
/// let sum = Frames { sent: 2, received: 1 } + Frames { sent: 3, ..Frames::default() };
/// assert_eq!(sum.to_array(), [5, 1]);
/// assert_eq!(Frames::NAMES, ["sent", "received"]);
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident { $($(#[$doc:meta])* $field:ident,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl $name {
            /// Names of the counters, in the order of declaration.
            pub const NAMES: [&'static str; [$(stringify!($field)),*].len()] = [$(stringify!($field)),*];

            /// Values, in the order of [`Self::NAMES`].
            #[inline]
            #[must_use]
            pub fn to_array(self) -> [u64; Self::NAMES.len()] {
                [$(self.$field),*]
            }

            /// Counters from values in the order of [`Self::NAMES`].
            #[inline]
            #[must_use]
            pub fn from_array([$($field),*]: [u64; Self::NAMES.len()]) -> Self {
                $name { $($field),* }
            }
        }

        impl core::ops::AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }
        }

        impl core::ops::Add for $name {
            type Output = Self;

            #[inline]
            fn add(mut self, other: Self) -> Self {
                self += other;
                self
            }
        }

        impl core::iter::Sum for $name {
            #[inline]
            fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
                counts.fold(Self::default(), |sum, one| sum + one)
            }
        }

        impl core::ops::Sub for $name {
            type Output = Self;

            #[inline]
            fn sub(self, earlier: Self) -> Self {
                $name { $($field: self.$field.wrapping_sub(earlier.$field)),* }
            }
        }
    };
}
