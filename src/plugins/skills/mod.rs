//! Skills: folders with instructions.
