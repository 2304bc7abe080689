//! The built-in themes.

/// By name, in the order of the picker. Files of the same name in a person's folder come first.
pub(super) const BUILTIN: [(&str, &str); 16] = [
    ("default", include_str!("../../../../themes/default.toml")),
    ("dark", include_str!("../../../../themes/dark.toml")),
    ("light", include_str!("../../../../themes/light.toml")),
    ("solarized-dark", include_str!("../../../../themes/solarized-dark.toml")),
    ("solarized-light", include_str!("../../../../themes/solarized-light.toml")),
    ("gruvbox-dark", include_str!("../../../../themes/gruvbox-dark.toml")),
    ("gruvbox-light", include_str!("../../../../themes/gruvbox-light.toml")),
    ("catppuccin-dark", include_str!("../../../../themes/catppuccin-dark.toml")),
    ("catppuccin-light", include_str!("../../../../themes/catppuccin-light.toml")),
    ("nord", include_str!("../../../../themes/nord.toml")),
    ("colour-blind-dark", include_str!("../../../../themes/colour-blind-dark.toml")),
    ("colour-blind-light", include_str!("../../../../themes/colour-blind-light.toml")),
    ("high-contrast-dark", include_str!("../../../../themes/high-contrast-dark.toml")),
    ("high-contrast-light", include_str!("../../../../themes/high-contrast-light.toml")),
    ("monochrome", include_str!("../../../../themes/monochrome.toml")),
    ("plain", include_str!("../../../../themes/plain.toml")),
];
