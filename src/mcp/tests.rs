//! Tests of the room against servers that are made here.
