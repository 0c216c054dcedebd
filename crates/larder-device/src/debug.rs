//! `Debug` for public types whose fields are no use to a reader, or too many.

/// Implements `Debug` for a type: shows the listed fields, and `..` in place of the others.
macro_rules! impl_debug {
    ($type:ident $(<$generic:ident>)? { $($field:ident),* }) => {
        impl $(<$generic>)? std::fmt::Debug for $type $(<$generic>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    };
}
