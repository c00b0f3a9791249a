/// Which clients read a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// AI SDK 5.0.268, 6.0.295, 7.0.120 and newer: unknown fields are tolerated.
    #[default]
    Current,
    /// Strict clients back to 5.0.0 (`?profile=5`): only the fields and types that they know.
    Strict5,
}
