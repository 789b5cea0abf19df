//! Enums whose variants people call by name.

/// An enum with a name for each variant, as it is written on a command line and in documents.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $seen:vis enum $type:ident { $($(#[$of:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $seen enum $type {
            $($(#[$of])* $variant,)+
        }

        impl $type {
            pub const ALL: &'static [$type] = &[$($type::$variant,)+];

            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                }
            }
        }
    };
}
