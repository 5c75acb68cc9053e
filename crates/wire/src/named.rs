//! Enumerations whose values have names: value, name and meaning stand in one row.

/// Declares an enumeration of values without fields, each with the name by which files, scripts and
/// people know it. Code that counts, lists or prints the values takes them from these rows.
///
/// ```
/// nilometer_wire::named! {
///     /// A side of a road.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Side {
///         /// Where the heart is.
///         Left = "left",
///         /// The other.
///         Right = "right",
///     }
/// }
/// assert_eq!(Side::ALL.map(Side::name), ["left", "right"]);
/// assert_eq!(Side::from_name("right"), Some(Side::Right));
/// assert_eq!(Side::Left.to_string(), "left");
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* pub enum $Enum:ident {
        $($(#[$meaning:meta])* $Value:ident = $name:literal,)+
    }) => {
        $(#[$about])*
        pub enum $Enum {
            $($(#[$meaning])* $Value,)+
        }

        impl $Enum {
            /// All of them, in the order of their numbers.
            pub const ALL: [$Enum; [$($name),+].len()] = [$($Enum::$Value),+];

            /// The name by which files, scripts and people know it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($Enum::$Value => $name,)+
                }
            }

            /// The value with this name, if there is one.
            pub fn from_name(name: &str) -> Option<$Enum> {
                $Enum::ALL.into_iter().find(|it| it.name() == name)
            }
        }

        impl core::fmt::Display for $Enum {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
